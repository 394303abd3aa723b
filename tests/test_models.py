"""The generated models accept exactly what the reader-level schemas accept, and keep what they read."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib import import_module
from typing import Any

import blocks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import RootModel, ValidationError

from quark_format.conditions import FormatModel
from quark_format.tables import table

VERSIONS = {item["version"]: item for item in table("catalog.json")["versions"]}
MUTANTS = 4000


@cache
def validator(version: str) -> Draft202012Validator:
    """The validator of a version's reader-level schema."""
    return Draft202012Validator(table(VERSIONS[version]["config"]))


def model(version: str) -> type[RootModel[FormatModel]]:
    """The model of a whole block of a version."""
    found: type[RootModel[FormatModel]] = import_module(
        f"quark_format.models.{VERSIONS[version]['model']}"
    ).ConfigBlock
    return found


def accepts(version: str, block: Any) -> bool:
    """Whether the model of a version takes the block."""
    try:
        model(version).model_validate(block)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_models_and_schemas_agree_on_every_block_of_the_corpus(version: str) -> None:
    verdicts = set()
    for name, _, block in blocks.corpus():
        verdict = validator(version).is_valid(block)
        assert accepts(version, block) == verdict, name
        verdicts.add(verdict)
    assert verdicts == {True, False}


def test_models_and_schemas_agree_on_thousands_of_mutated_blocks() -> None:
    generator = random.Random(20)  # noqa: S311
    corpus = [item for item in blocks.corpus() if len(json.dumps(item[2])) < 4000]
    refused = 0
    for _ in range(MUTANTS):
        name, version, block = generator.choice(corpus)
        mutant = blocks.mutate(block, generator)
        verdict = validator(version).is_valid(mutant)
        assert accepts(version, mutant) == verdict, (name, version, mutant)
        refused += not verdict
    assert MUTANTS * 0.2 < refused < MUTANTS * 0.9


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@cache
def keys(version: str, name: str) -> dict[str, Any]:
    """The declared keys of a definition with the values its enum lists."""
    properties = table(VERSIONS[version]["config"])["$defs"][name]["properties"]
    return {
        key: [body["const"]] if "const" in body else body.get("enum", []) for key, body in properties.items()
    }


@st.composite
def objects(draw: st.DrawFn, version: str, name: str) -> dict[str, Any]:
    """An object with keys of a definition, of any JSON value but mostly of a listed one."""
    chosen = draw(st.lists(st.sampled_from(sorted(keys(version, name))), unique=True, max_size=6))
    listed = {key: st.sampled_from(values) if values else JSON for key, values in keys(version, name).items()}
    return {key: draw(listed[key] | JSON) for key in chosen}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(sorted(VERSIONS)))
def test_models_and_schemas_agree_on_generated_definitions(data: st.DataObject, version: str) -> None:
    schema = table(VERSIONS[version]["config"])
    names = sorted(
        name for name, body in schema["$defs"].items() if not body.get("allOf", [{}])[0].get("then")
    )
    name = data.draw(st.sampled_from(names))
    value = data.draw(objects(version, name))
    module = import_module(f"quark_format.models.{VERSIONS[version]['model']}")
    try:
        getattr(module, name).model_validate(value)
        accepted = True
    except ValidationError:
        accepted = False
    checked = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
    assert accepted == checked.is_valid(value), (name, value)


def test_a_model_gives_typed_access_and_keeps_unknown_keys() -> None:
    block = {**blocks.exported("llama_nvfp4"), "later": {"x": 1}}
    read = import_module("quark_format.models.v0_13").QuarkConfig.model_validate(block)
    assert [stage.dtype for stage in read.global_quant_config.weight] == ["fp4", "fp8_e4m3"]
    assert read.global_quant_config.weight[0].group_size == 16
    assert read.model_extra == {"later": {"x": 1}}
    assert read.model_dump(exclude_unset=True) == block


def test_a_whole_export_survives_reading_unchanged() -> None:
    for name, version, block in blocks.corpus():
        if validator(version).is_valid(block):
            root = model(version).model_validate(block).root
            assert root.model_dump(exclude_unset=True) == block, name


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("group_size", 32, True),
        ("group_size", 32.0, True),
        ("group_size", 32.5, False),
        ("group_size", True, False),
        ("group_size", "32", False),
        ("block_size", [128.0, 128], True),
        ("block_size", [128, False], False),
        ("block_size", [128], False),
        ("is_dynamic", 0, False),
        ("is_dynamic", "false", False),
        ("max_input_numel", None, False),
        ("observer_cls", "SomeObserver", True),
        ("observer_cls", 1, False),
        ("scale_format", "bf16", True),
    ],
)
def test_values_are_read_as_json_schema_reads_them(key: str, value: Any, accepted: bool) -> None:
    spec = {"dtype": "fp4", "qscheme": "per_block", "block_size": [1, 32], key: value}
    block = {"quant_method": "quark", "global_quant_config": {"weight": spec}}
    assert validator("0.13").is_valid(block) == accepted
    assert accepts("0.13", block) == accepted
