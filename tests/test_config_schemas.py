"""The config schemas: well-formed, in step with their source, and true to what Quark really wrote."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blocks
import config_mutations  # noqa: F401 - enters its kinds
import exports
import pytest
import spec_mutations  # noqa: F401 - enters its kinds
import yaml
from jsonschema import Draft202012Validator
from mutants import Export
from mutations import KINDS

from quark_format.config_errors import rule_id, schema_errors
from quark_format.tables import table

ROOT = Path(__file__).parent.parent
VERSIONS = [item["version"] for item in table("catalog.json")["versions"]]
MODES = [item["name"] for item in table("catalog.json")["modes"]]
FILES = [item[key] for item in table("catalog.json")["versions"] for key in ("config", "strict")]


def definitions(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The definitions of a schema, and the schema itself."""
    schema = table(file)
    yield "", schema
    yield from schema["$defs"].items()


@pytest.mark.parametrize("file", FILES)
def test_a_schema_is_valid_and_says_its_own_place(file: str) -> None:
    schema = table(file)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"https://quark-format.github.io/schema/{file}"


@pytest.mark.parametrize("file", FILES)
def test_every_property_is_explained_and_its_examples_are_valid(file: str) -> None:
    schema = table(file)
    for name, definition in definitions(file):
        assert definition["title"], name
        assert definition["description"], name
        for key, body in definition["properties"].items():
            assert {"title", "description", "examples"} <= set(body), f"{name}.{key}"
            validator = Draft202012Validator({**body, "$defs": schema["$defs"]})
            if file.endswith("config.schema.json"):
                assert all(validator.is_valid(example) for example in body["examples"]), f"{name}.{key}"


@pytest.mark.parametrize("file", [file for file in FILES if "strict" not in file])
def test_a_default_is_valid_and_a_key_that_may_not_be_null_has_one_or_is_required(file: str) -> None:
    schema = table(file)
    for name, definition in definitions(file):
        for key, body in definition["properties"].items():
            validator = Draft202012Validator({**body, "$defs": schema["$defs"]})
            if "default" in body:
                assert validator.is_valid(body["default"]), f"{name}.{key}"
            elif key not in definition["required"]:
                assert validator.is_valid(None), f"{name}.{key}"


@pytest.mark.parametrize("file", FILES)
def test_every_rule_names_itself_and_its_source(file: str) -> None:
    for _, definition in definitions(file):
        for entry in definition.get("allOf", ()):
            if rule := rule_id(entry):
                assert entry["$comment"].startswith(f"{rule}: amd-quark ")
                assert entry["description"]


def test_the_rules_of_each_version_are_those_that_its_quark_enforces() -> None:
    found = {
        version: sorted(
            {
                rule
                for _, definition in definitions(f"v{version}/config.schema.json")
                for entry in definition.get("allOf", ())
                if (rule := rule_id(entry))
            },
            key=lambda rule: int(rule[1:]),
        )
        for version in VERSIONS
    }
    lists = ["R16", "R17", "R18"]
    full = ["R3", "R4", "R5", "R8", "R9", "R10", "R11"]
    assert found == {
        "0.6": ["R11"],
        "0.7": ["R11"],
        "0.8": ["R11"],
        "0.9": ["R11", *lists],
        "0.10": [*full, *lists],
        "0.11": ["R1", *full, "R13", *lists],
        "0.12": ["R1", *full, "R12", "R13", *lists],
        "0.13": ["R1", *full, "R12", "R13", *lists],
    }


def test_the_source_is_valid_by_its_own_schema() -> None:
    source = yaml.safe_load((ROOT / "schema/source/config.yaml").read_text(encoding="utf-8"))
    meta = json.loads((ROOT / "schema/source/config-source.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(meta)
    assert [error.message for error in Draft202012Validator(meta).iter_errors(source)] == []


@pytest.mark.parametrize("tool", ["build_config_schemas.py", "build_models.py"])
def test_generated_files_are_in_step(tool: str) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / tool, "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("name", exports.names())
def test_a_real_export_is_exactly_what_its_version_writes(name: str) -> None:
    block, version = blocks.exported(name), blocks.exporter_version(name)
    assert list(schema_errors(block, version, strict=True)) == []
    assert list(schema_errors(block, version)) == []


KEYED = ["q0.6.0_llama_fp8kv", "q0.8.2_llama_int8", "q0.10_llama_fp8kv", "q0.12.post1_llama_mxfp4wo"]
KEYED += ["llama_gptqalgo_int4_g128", "llama_nvfp4", "llama_fp8_kv_attn", "llama_fp8_kv_custommode"]
KEYED += ["llama_awqmode_uint4_g128_fp16", "f2f_llama_attn_fp8blk_mlp_int4"]


@pytest.mark.parametrize("name", KEYED)
def test_each_dropped_key_and_each_added_key_is_named(name: str) -> None:
    version = blocks.exporter_version(name)
    for pointer, keys in objects(blocks.exported(name)):
        changed = blocks.exported(name)
        at(changed, pointer)["misspelt"] = 1
        assert named(changed, version) == [(pointer, "additionalProperties", ("misspelt",))]
        for key in keys:
            changed = blocks.exported(name)
            del at(changed, pointer)[key]
            missing = [item for item in named(changed, version) if item[1] == "required"]
            assert (pointer, "required", (key,)) in missing, (pointer, key)


def named(block: dict[str, Any], version: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """What the strict schema says about keys, once for each content."""
    mode = {"quark": "quark", "fp8": "fp8", "awq": "awq"}.get(block.get("quant_method", ""))
    guess = mode or (
        "quark" if "global_quant_config" in block else "fp8" if "ignored_layers" in block else "awq"
    )
    errors = schema_errors(block, version, strict=True, mode=guess)
    return [(error.pointer, error.keyword, error.keys) for error in errors]


def objects(block: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Every object of a block that has declared keys, with its pointer and keys."""
    yield "", list(block)
    for key, value in block.items():
        if key == "export":
            yield "/export", list(value)
        if key == "global_quant_config":
            yield f"/{key}", list(value)
            yield from specs(value, f"/{key}")
        if key == "layer_quant_config":
            for name, layer in list(value.items())[:2]:
                yield from specs(layer, f"/{key}/{name}")
        if key == "algo_config":
            for index, algorithm in enumerate(value or ()):
                yield f"/{key}/{index}", [name for name in algorithm if name != "name"]


def specs(layer: dict[str, Any], pointer: str) -> Iterator[tuple[str, list[str]]]:
    """Every spec of a layer configuration with its pointer and keys."""
    for role, value in layer.items():
        if isinstance(value, dict):
            yield f"{pointer}/{role}", list(value)
        if isinstance(value, list):
            for index, stage in enumerate(value):
                yield f"{pointer}/{role}/{index}", list(stage)


def at(block: Any, pointer: str) -> Any:
    """The value that a pointer without escapes leads to."""
    for token in pointer.split("/")[1:]:
        block = block[int(token) if isinstance(block, list) else token]
    return block


FP8 = {
    "dtype": "fp8_e4m3",
    "is_dynamic": False,
    "qscheme": "per_tensor",
    "ch_axis": None,
    "group_size": None,
    "block_size": None,
    "symmetric": True,
    "round_method": "half_even",
    "scale_type": "float",
    "zero_point_type": "int32",
    "scale_format": None,
    "scale_calculation_mode": None,
    "mx_element_dtype": None,
    "observer_cls": "PerTensorMinMaxObserver",
    "is_scale_quant": False,
}
MXFP4 = {
    **FP8,
    "dtype": "fp4",
    "qscheme": "per_group",
    "ch_axis": -1,
    "group_size": 32,
    "symmetric": None,
    "scale_format": "e8m0",
    "observer_cls": "PerBlockMXObserver",
}
INT4 = {
    **FP8,
    "dtype": "int4",
    "qscheme": "per_channel",
    "ch_axis": 0,
    "observer_cls": "PerChannelMinMaxObserver",
}
BLOCK = {
    **FP8,
    "qscheme": "per_block",
    "block_size": [128, 128],
    "observer_cls": "PerBlock2DMinMaxObserver",
}
MX = {**FP8, "dtype": "mx", "ch_axis": -1, "group_size": 32, "mx_element_dtype": "fp4"}
SCALE = {**FP8, "is_scale_quant": True}

# (role, spec or list, the place and the rule that must be named), each of format version 0.13
VIOLATIONS: list[tuple[str, Any, str, str]] = [
    ("weight", {**FP8, "dtype": "bfloat16"}, "/observer_cls", "R1"),
    ("weight", {**FP8, "is_dynamic": None}, "/is_dynamic", "R3"),
    ("weight", {**FP8, "qscheme": None}, "/qscheme", "R3"),
    ("weight", {**INT4, "symmetric": None}, "/symmetric", "R4"),
    ("weight", {**INT4, "round_method": None}, "/round_method", "R4"),
    ("weight", {**INT4, "scale_type": None}, "/scale_type", "R4"),
    ("weight", {**MX, "ch_axis": None}, "/ch_axis", "R5"),
    ("weight", {**MX, "group_size": None}, "/group_size", "R5"),
    ("weight", {**MX, "mx_element_dtype": None}, "/mx_element_dtype", "R5"),
    ("weight", {**MXFP4, "qscheme": None}, "/qscheme", "R8"),
    ("weight", {**FP8, "observer_cls": "PerGroupMinMaxObserver"}, "/observer_cls", "R9"),
    ("weight", {**FP8, "observer_cls": None}, "/observer_cls", "R9"),
    ("weight", {**INT4, "observer_cls": "PerTensorMinMaxObserver"}, "/observer_cls", "R10"),
    ("weight", {**INT4, "ch_axis": None}, "/ch_axis", "R10"),
    ("weight", {**MXFP4, "observer_cls": "PerTensorMinMaxObserver"}, "/observer_cls", "R11"),
    ("weight", {**MXFP4, "group_size": None}, "/group_size", "R11"),
    ("weight", {**BLOCK, "block_size": None}, "/block_size", "R12"),
    ("input_tensors", {**MXFP4, "is_dynamic": None}, "/is_dynamic", "R13"),
    ("output_tensors", [{**MXFP4, "is_dynamic": False}, SCALE], "/0/is_dynamic", "R13"),
    ("weight", [], "", "R16"),
    ("weight", [FP8, MX], "/1/dtype", "R16"),
    ("weight", [FP8, {**FP8, "observer_cls": "LSQObserver"}], "/1/observer_cls", "R16"),
    ("weight", [FP8, {**INT4, "zero_point_type": "float32"}], "/1/zero_point_type", "R16"),
    ("input_tensors", [{**FP8, "is_dynamic": True}, FP8], "", "R16"),
    ("weight", [SCALE], "", "R16"),
    ("weight", [FP8, SCALE], "/0/qscheme", "R16"),
    ("weight", [SCALE, FP8], "/0/is_scale_quant", "R16"),
    ("weight", [MXFP4, SCALE, SCALE], "/1/qscheme", "R16"),
    ("weight", {**FP8, "is_dynamic": True}, "/is_dynamic", "R17"),
    ("bias", {**INT4, "is_dynamic": False}, "/is_dynamic", "R17"),
    ("weight", {**MXFP4, "ch_axis": 0}, "/ch_axis", "R18"),
]


def with_role(role: str, value: Any) -> dict[str, Any]:
    """A block whose global configuration quantizes one role."""
    return {"quant_method": "quark", "global_quant_config": {role: copy.deepcopy(value)}}


@pytest.mark.parametrize(("role", "value", "place", "rule"), VIOLATIONS)
def test_a_broken_rule_is_named_with_its_place(role: str, value: Any, place: str, rule: str) -> None:
    errors = list(schema_errors(with_role(role, value), "0.13"))
    found = {(error.pointer, error.rule) for error in errors}
    assert (f"/global_quant_config/{role}{place}", rule) in found
    assert all(error.rule is not None for error in errors)
    assert all("found" in error.message for error in errors)


@pytest.mark.parametrize(("role", "value", "place", "rule"), VIOLATIONS)
def test_what_only_the_importer_asks_does_not_bind_float_weights(
    role: str, value: Any, place: str, rule: str
) -> None:
    block = {**with_role(role, value), "export": {"weight_format": "fake_quantized"}}
    found = {error.rule for error in schema_errors(block, "0.13")}
    assert (rule in found) == (rule not in {"R17", "R18"}), place
    entry = {**with_role("weight", FP8), "layer_quant_config": {"*q": {role: value}}, "export": None}
    assert (f"/layer_quant_config/*q/{role}{place}", rule) in {
        (error.pointer, error.rule) for error in schema_errors(entry, "0.13")
    }


@pytest.mark.parametrize("spec", [FP8, MXFP4, INT4, BLOCK, MX, [MXFP4, SCALE], [FP8, INT4]])
def test_a_rule_says_nothing_about_a_right_spec(spec: Any) -> None:
    assert list(schema_errors(with_role("weight", spec), "0.13")) == []


@pytest.mark.parametrize("key", sorted(set(FP8) - {"dtype"}))
def test_an_absent_key_is_read_by_a_reader_and_missed_by_the_strict_level(key: str) -> None:
    spec = {name: value for name, value in INT4.items() if name != key}
    block = with_role("weight", spec)
    assert list(schema_errors(block, "0.13")) == []
    missing = [error.keys for error in schema_errors(block, "0.13", strict=True) if key in error.keys]
    assert len(missing) == 1


ALGORITHMS = {
    "0.6": {"awq", "gptq", "autosmoothquant"},
    "0.7": {"awq", "gptq", "autosmoothquant"},
    "0.8": {"awq", "gptq", "autosmoothquant"},
    "0.9": {"awq", "gptq", "autosmoothquant"},
    "0.10": {"awq", "gptq", "autosmoothquant", "rotation", "smooth", "quarot", "qronos"},
    "0.11": {"awq", "gptq", "autosmoothquant", "rotation", "smooth", "quarot", "qronos", "gptaq"},
    "0.12": {"awq", "gptq", "autosmoothquant", "rotation", "smooth", "qronos", "gptaq", "svdquant"},
    "0.13": {"awq", "gptq", "autosmoothquant", "rotation", "smooth", "qronos", "gptaq", "svdquant"}
    | {"autoround", "twobitscalar"},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_algorithms_of_a_version(version: str) -> None:
    strict = table(f"v{version}/config.strict.schema.json")["$defs"]["Algorithm"]["properties"]["name"]
    assert set(strict["enum"]) == ALGORITHMS[version]


def test_an_unknown_algorithm_is_read_and_a_known_one_is_checked() -> None:
    def of(*algorithms: Any) -> dict[str, Any]:
        return {**with_role("weight", FP8), "algo_config": list(algorithms)}

    assert list(schema_errors(of({"name": "mine", "x": 1}), "0.13")) == []
    errors = list(schema_errors(of({"name": "gptq", "block_size": "128"}, {"x": 1}), "0.13"))
    assert [(error.pointer, error.keyword) for error in errors] == [
        ("/algo_config/0/block_size", "type"),
        ("/algo_config/1", "required"),
    ]
    strict = schema_errors(of({"name": "mine"}), "0.13", strict=True)
    assert ("/algo_config/0/name", "enum") in [(error.pointer, error.keyword) for error in strict]


def test_algo_config_is_an_object_until_0_9_and_a_list_from_0_10() -> None:
    one = {**with_role("weight", FP8), "algo_config": {"name": "awq"}}
    many = {**with_role("weight", FP8), "algo_config": [{"name": "awq"}]}
    assert list(schema_errors(one, "0.9")) == list(schema_errors(many, "0.10")) == []
    assert [error.pointer for error in schema_errors(one, "0.10")] == ["/algo_config"]
    assert [error.pointer for error in schema_errors(many, "0.9")] == ["/algo_config"]


def test_entries_of_equal_content_share_one_error() -> None:
    bad = {"weight": {"dtype": "fp4_e2m1"}}
    block = {**with_role("weight", FP8), "layer_quant_config": {f"layers.{i}": bad for i in range(1000)}}
    [error] = schema_errors(block, "0.13")
    assert (error.pointer, error.count) == ("/layer_quant_config/layers.0/weight/dtype", 1000)
    assert error.actual == "fp4_e2m1"
    assert "fp4" in error.expected
    assert error.message.startswith('"fp4_e2m1" is not one of int8, ')


@pytest.mark.parametrize("block", [None, [], "x", 1, {}, {"quant_method": []}, {"quant_method": "gptq"}])
def test_what_is_no_block_of_quark_is_refused(block: Any) -> None:
    assert list(schema_errors(block, "0.13"))


@pytest.mark.parametrize("name", KEYED)
def test_what_the_exporter_may_write_every_reader_of_the_version_reads(name: str) -> None:
    """The checks ask the schema of readers only where the exporter's refuses a block."""
    export, version = Export.read(name), blocks.exporter_version(name)
    changed = (mutant.export for kind in KINDS.values() for mutant in kind.make(export))
    for block in (one.config.get("quantization_config") for one in changed if one.config != export.config):
        for mode in MODES:
            if not any(schema_errors(block, version, strict=True, mode=mode)):
                assert list(schema_errors(block, version, mode=mode)) == []
