// Reads {schemas: [path...], documents: [[schema path, document]...]}; writes whether each document is valid.
// Every schema compiles in Ajv's strict mode, which refuses what it would have to guess.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, job] = process.argv.slice(2);
const { default: Ajv } = createRequire(join(folder, "package.json"))("ajv/dist/2020");
const { schemas, documents } = JSON.parse(readFileSync(job, "utf8"));
const compiled = new Map(
  schemas.map((path) => [path, new Ajv({ strict: true }).compile(JSON.parse(readFileSync(path, "utf8")))]),
);
console.log(JSON.stringify(documents.map(([path, document]) => compiled.get(path)(document))));
