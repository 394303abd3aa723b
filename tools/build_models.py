"""Generate quark_format/models/vX_Y.py from schema/vX.Y/config.schema.json with datamodel-code-generator.

`--check` writes nothing and exits 1 when a file on disk differs from what would be generated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from datamodel_code_generator import InputFileType, LiteralType, generate
from datamodel_code_generator.enums import DataModelType
from datamodel_code_generator.format import Formatter, PythonVersion

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "schema"
MODELS = ROOT / "quark_format" / "models"
HEADER = """\
# ruff: noqa: D101, E501, RUF012
\"\"\"Generated from schema/{source} by tools/build_models.py. Do not edit.\"\"\"
"""


def structure(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as types only.

    A choice by key becomes a union. Conditions are dropped: the base class reads them from the schema.
    """
    definitions = {name: _types(body) for name, body in schema["$defs"].items()}
    return {
        "$schema": schema["$schema"],
        "title": "ConfigBlock",
        "description": schema["description"],
        **_union(schema),
        "$defs": definitions,
    }


def _types(body: dict[str, Any]) -> dict[str, Any]:
    union = _union(body)
    if union:
        return {"title": body["title"], "description": body["description"], **union}
    filled = [name for name, value in body["properties"].items() if not _takes_null(value)]
    return {
        **{key: value for key, value in body.items() if key not in {"allOf", "title", "$comment"}},
        "properties": {name: _field(value) for name, value in body["properties"].items()},
        "required": filled,
    }


def _takes_null(body: dict[str, Any]) -> bool:
    """Whether the key may be null. One that may not has a default, or is required."""
    kinds = body.get("type", ())
    return "null" in kinds or None in body.get("enum", ()) or {"type": "null"} in body.get("anyOf", ())


def _field(body: dict[str, Any]) -> dict[str, Any]:
    result = {key: value for key, value in body.items() if key not in {"title", "examples"}}
    if isinstance(result.get("additionalProperties"), dict) and isinstance(result["type"], list):
        some = {"type": "object", "additionalProperties": result.pop("additionalProperties")}
        del result["type"]
        result["anyOf"] = [some, {"type": "null"}]
    return result


def _union(body: dict[str, Any]) -> dict[str, Any]:
    choices = [item["then"]["$ref"] for item in body.get("allOf", ()) if "$ref" in item.get("then", ())]
    return {"oneOf": [{"$ref": reference} for reference in choices]} if choices else {}


def render(source: str) -> str:
    """The module generated from the schema file `source`, a path relative to schema/."""
    schema = json.loads((SCHEMAS / source).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "models.py"
        generate(
            json.dumps(structure(schema)),
            input_file_type=InputFileType.JsonSchema,
            input_filename=source,
            output=output,
            output_model_type=DataModelType.PydanticV2BaseModel,
            target_python_version=PythonVersion.PY_311,
            base_class="quark_format.conditions.FormatModel",
            custom_file_header=HEADER.format(source=source),
            enum_field_as_literal=LiteralType.All,
            use_standard_collections=True,
            use_union_operator=True,
            use_schema_description=True,
            use_field_description=True,
            use_annotated=True,
            field_constraints=True,
            collapse_root_models=True,
            apply_default_values_for_required_fields=True,
            disable_timestamp=True,
            settings_path=ROOT,
            formatters=[Formatter.RUFF_CHECK, Formatter.RUFF_FORMAT],
        )
        return output.read_text(encoding="utf-8")


def main() -> int:
    """Write the modules, or compare them with the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    catalog = json.loads((SCHEMAS / "catalog.json").read_text(encoding="utf-8"))
    texts = {MODELS / f"{entry['model']}.py": render(entry["config"]) for entry in catalog["versions"]}
    texts[MODELS / "__init__.py"] = '"""Typed models of every format version, generated from schema/."""\n'
    stale = []
    for path, text in texts.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    sys.stdout.writelines(f"{'differs' if check else 'wrote'}: {name}\n" for name in stale)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
