// Writes the TypeScript types of config schemas beside them: node npm_types.mjs NODE_MODULES MODE|MODE… SCHEMA…
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const [folder, modes, ...schemas] = process.argv.slice(2);
const { compile } = createRequire(join(folder, "package.json"))("json-schema-to-typescript");
for (const path of schemas) {
  const schema = JSON.parse(readFileSync(path, "utf8"));
  for (const [name, definition] of Object.entries(schema.$defs)) {
    const choices = (definition.allOf ?? []).flatMap((entry) => (entry.then?.$ref ? [entry.then] : []));
    if (choices.length) {
      schema.$defs[name] = { title: name, description: definition.description, anyOf: choices };
      continue;
    }
    definition.title = name;
    delete definition.allOf;
    for (const property of Object.values(definition.properties)) {
      delete property.title;
      if (!property.$ref) continue;
      property.allOf = [{ $ref: property.$ref }];
      delete property.$ref;
    }
  }
  const union = { title: "QuantizationConfig", anyOf: modes.split("|").map((name) => ({ $ref: `#/$defs/${name}` })) };
  const types = await compile({ ...union, description: schema.description, $defs: schema.$defs }, "QuantizationConfig", {
    unreachableDefinitions: true,
    bannerComment: `// Generated from ${schema.$id}`,
  });
  writeFileSync(join(dirname(path), "config.d.ts"), types);
}
