"""`schema/` as other tools see it: files that name their meta-schema and are valid by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import exports
import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from quark_format.formats import detect
from quark_format.layouts import layouts
from quark_format.tables import table

SCHEMA = Path(__file__).parent.parent / "schema"
FILES = sorted(path.relative_to(SCHEMA).as_posix() for path in SCHEMA.rglob("*.json"))
SCHEMASTORE = "schemastore.json"
BASE = "https://quark-format.github.io/schema/"
VERSIONS = [entry["version"] for entry in table("catalog.json")["versions"]]


@pytest.mark.parametrize("name", [name for name in FILES if name != SCHEMASTORE])
def test_a_file_is_valid_by_the_schema_it_names(name: str) -> None:
    """Schemas are valid by their dialect, data by the schema that `$schema` leads to."""
    value = json.loads((SCHEMA / name).read_text(encoding="utf-8"))
    named = value["$schema"]
    if named.startswith("https://json-schema.org/"):
        validator_for(value).check_schema(value)
        return
    file, _, fragment = named.partition("#")
    meta = json.loads(((SCHEMA / name).parent / file).resolve().read_text(encoding="utf-8"))
    whole = Draft202012Validator(meta)
    whole.evolve(
        schema={"$ref": f"#{fragment}", "$defs": meta.get("$defs", {})} if fragment else meta
    ).validate(value)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("schema.json")])
def test_an_id_tells_the_place_of_the_schema(name: str) -> None:
    """One base for all, and below it the path in this folder."""
    value = json.loads((SCHEMA / name).read_text(encoding="utf-8"))
    assert value["$id"] == f"{BASE}{name}"


def test_the_entry_for_schemastore_has_its_form() -> None:
    """Each version leads to the config schema of that version, the entry itself to the newest."""
    catalog = table(SCHEMASTORE)
    form = json.loads((Path(__file__).parent / "data/schemastore/schema-catalog.json").read_text("utf-8"))
    validator_for(form)(form).validate(catalog)
    (entry,) = catalog["schemas"]
    versions = table("catalog.json")["versions"]
    assert entry["versions"] == {one["version"]: f"{BASE}{one['config']}" for one in versions}
    assert entry["url"] == f"{BASE}{versions[-1]['config']}"


def header(export: dict[str, Any]) -> dict[str, Any]:
    """The safetensors header of an export's shards, as JSON."""
    return {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, exports.nbytes(dtype, shape)]}
        for content in export["files"].values()
        for name, (dtype, shape) in content["tensors"].items()
    }


RENAMED = {"llama_awqmode_uint4_g128_fp16"}
"""An exporter's defect: every weight of the file, the norms' too, is called qweight."""


@pytest.mark.parametrize("name", sorted(set(exports.names()) - RENAMED))
def test_real_headers_are_valid_by_the_header_schema(name: str) -> None:
    """Keys, dtypes and ranks of a real export satisfy the JSON Schema alone."""
    export = exports.load(name)
    version = detect(export["config"]["quantization_config"]).version
    validator = Draft202012Validator(table(f"v{version}/header.schema.json"))
    assert [error.message for error in validator.iter_errors(header(export))] == []


@pytest.mark.parametrize(
    ("tensor", "entry"),
    [
        ("model.layers.0.mlp.gate_proj.weight_scale", {"dtype": "I32", "shape": []}),
        ("model.layers.0.mlp.gate_proj.input_zero_point", {"dtype": "I8", "shape": [2, 2]}),
        ("model.layers.0.mlp.gate_proj.weight", {"dtype": "I64", "shape": [2, 2]}),
        ("model.layers.0.self_attn.k_scale", {"dtype": "F32", "shape": [2, 2]}),
    ],
)
def test_the_header_schema_refuses_what_no_row_allows(tensor: str, entry: dict[str, Any]) -> None:
    """A scale is never an integer, a weight never I64, a KV scale or an input's zero point never a matrix."""
    validator = Draft202012Validator(table("v0.13/header.schema.json"))
    assert list(validator.iter_errors({tensor: {**entry, "data_offsets": [0, 8]}}))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_suffix_that_a_row_names_is_declared(version: str) -> None:
    """Rows name only suffixes of their own part, and every other one of the part is forbidden."""
    known = layouts(version)
    for row in known.rows:
        own = set(known.raw["suffixes"][row.part])
        named = {entry.suffix for entry in row.entries}
        assert named | row.forbidden == own
        assert not named & row.forbidden
