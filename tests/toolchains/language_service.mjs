// Reads {schema: path, text, offset}; writes the completions, hover texts and diagnostics that VS Code shows there.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, job] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { getLanguageService } = require("vscode-json-languageservice");
const { TextDocument } = require("vscode-languageserver-textdocument");
const { schema, text, offset } = JSON.parse(readFileSync(job, "utf8"));
const service = getLanguageService({});
service.configure({
  validate: true,
  schemas: [{ uri: "quark.json", fileMatch: ["*"], schema: JSON.parse(readFileSync(schema, "utf8")) }],
});
const document = TextDocument.create("file:///block.json", "json", 1, text);
const parsed = service.parseJSONDocument(document);
const position = document.positionAt(offset);
const completion = await service.doComplete(document, position, parsed);
const hover = await service.doHover(document, position, parsed);
console.log(
  JSON.stringify({
    completions: completion.items.map(({ label, documentation }) => [label, documentation?.value ?? documentation ?? ""]),
    hover: hover ? [hover.contents].flat().map((part) => part.value ?? part).join("\n") : "",
    diagnostics: (await service.doValidation(document, parsed)).map(({ message }) => message),
  }),
);
