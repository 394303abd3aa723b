"""The rules of format version 0.13 against amd-quark 0.13 itself: both refuse and accept the same.

Deviations that remain, all of the reader level, and why:

* Quark checks no types: it takes a string as group_size of a per-tensor spec, or 1 as is_dynamic. The schema
  asks for the declared types. Specs here are well typed.
* Quark raises KeyError where is_dynamic, ch_axis, group_size or symmetric is absent. Other readers need none
  of them where the rest says the same, so that is the strict level's matter (tested below).
* Quark's importer refuses more than the format says: every block format (mx, mx6, mx9, bfp16) and cast, and
  sizes that do not divide. Only its refusals that R17 and R18 declare are compared, for scaled formats.
"""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace
from typing import Any

import blocks
import pytest
from quark.torch.export.nn.modules.qparamslinear_builder import ImportBuilder
from quark.torch.quantization.config.config import QConfig, QLayerConfig, QTensorConfig
from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType, ZeroPointType
from quark.torch.quantization.observer import (
    OBSERVER_MAP,
    PER_CHANNEL_OBSERVERS,
    PER_GROUP_OBSERVERS,
    PER_TENSOR_OBSERVERS,
    PlaceholderObserver,
)
from quark.torch.quantization.tensor_quantize import FakeQuantizeBase
from torch import nn

from quark_format.config_errors import rule_id, schema_errors
from quark_format.tables import table

SPECS = 3000
LAYERS = 1500
ROLES = ("input_tensors", "output_tensors", "weight", "bias")
REFUSED = (ValueError, KeyError, TypeError, AssertionError, NotImplementedError)

# What the importer says where it refuses what R17 and R18 declare.
IMPORT_REFUSALS = (
    "static quantized per channel or per group is not supported",
    "Dynamic quantization is not supported for weight",
    "Packed shape inference for per group quantization",
)

UNSCALED = {"mx", "mx6", "mx9", "bfp16", "bfloat16", "float16"}

VALUES: dict[str, list[Any]] = {
    "dtype": [*Dtype.__members__, "fp4_e2m1", "int5"],
    "is_dynamic": [True, False, None],
    "qscheme": [*QSchemeType.__members__, None, "per_token"],
    "ch_axis": [None, 0, 1, -1, 2],
    "group_size": [None, 32, 128, -1, 0],
    "block_size": [None, [128, 128], [1, 32]],
    "symmetric": [True, False, None],
    "round_method": [*RoundType.__members__, None, "ceil"],
    "scale_type": [*ScaleType.__members__, None, "int8"],
    "zero_point_type": [*ZeroPointType.__members__, None, "int8"],
    "scale_format": ["e8m0", "e4m3", "float32", None, "bf16"],
    "scale_calculation_mode": ["even", "floor", None, "odd"],
    "mx_element_dtype": ["fp4", "int8", None, "fp4_e2m1"],
    "observer_cls": [*OBSERVER_MAP, None, "SomeObserver"],
    "is_scale_quant": [True, False],
    "enable_buffer_reuse": [True, False],
    "max_input_numel": [4194304, 0],
}


def specs_of(value: Any) -> list[dict[str, Any]]:
    """Every complete spec below a value."""
    if isinstance(value, dict) and set(VALUES) <= set(value):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [spec for part in parts for spec in specs_of(part)]


def real_specs() -> list[dict[str, Any]]:
    """The distinct specs that Quark 0.13 wrote in real exports, and one each for dtypes without an export."""
    found = [spec for _, version, block in blocks.corpus() if version == "0.13" for spec in specs_of(block)]
    base = found[0]
    block_formats = {
        "ch_axis": -1,
        "group_size": 16,
        "mx_element_dtype": "fp4",
        "observer_cls": None,
        "qscheme": None,
    }
    found += [{**base, **block_formats, "dtype": dtype} for dtype in ("mx", "mx6", "mx9", "bfp16")]
    found += [
        {**base, "dtype": dtype, "observer_cls": "PlaceholderObserver"} for dtype in ("bfloat16", "float16")
    ]
    return [spec for index, spec in enumerate(found) if spec not in found[:index]]


def changed(spec: dict[str, Any], generator: random.Random, most: int = 3) -> dict[str, Any]:
    """A spec with up to `most` other values."""
    result = copy.deepcopy(spec)
    for key in generator.sample(sorted(VALUES), generator.randint(0, most)):
        result[key] = copy.deepcopy(generator.choice(VALUES[key]))
    return result


def quark_takes_spec(spec: dict[str, Any]) -> bool:
    """Whether Quark constructs the spec."""
    try:
        QTensorConfig.from_dict(copy.deepcopy(spec))
    except REFUSED:
        return False
    return True


def quark_takes_layer(layer: dict[str, Any]) -> bool:
    """Whether Quark constructs the layer configuration, its stages, and the importer's quantizers."""
    try:
        config = QLayerConfig.from_dict(copy.deepcopy(layer))
        for role in ROLES:
            stages = getattr(config, role)
            if isinstance(stages, list):
                sequence = FakeQuantizeBase.get_fake_quantize(stages)
                for index, stage in enumerate(stages):
                    if stage.is_scale_quant:
                        sequence._validate_scale_quantizer(index)
    except (*REFUSED, IndexError):
        return False
    return not any(refusal in importer_says(config) for refusal in IMPORT_REFUSALS)


def importer_says(config: QLayerConfig) -> str:
    """What Quark's importer raises for a linear layer of 256 by 256 with this configuration, if anything."""
    said = []
    for role in ROLES:
        value = getattr(config, role)
        if any(
            stage.dtype.name in UNSCALED for stage in (value if isinstance(value, list) else [value]) if stage
        ):
            continue
        alone = QLayerConfig(**{role: value})
        builder = ImportBuilder(nn.Linear(256, 256), True, "quark", alone)
        target = SimpleNamespace(_custom_mode="quark")
        try:
            builder.build_quantizers(target, builder.resolve_device())
        except Exception as error:
            said.append(str(error))
    return "\n".join(said)


def errors_of(layer: dict[str, Any]) -> list[Any]:
    """What the reader-level schema of 0.13 says about a layer configuration."""
    return list(schema_errors({"quant_method": "quark", "global_quant_config": layer}, "0.13"))


def only(role: str, value: Any) -> dict[str, Any]:
    """A complete layer configuration that quantizes one role."""
    return {**dict.fromkeys(ROLES), "target_device": None, role: value}


def test_specs_are_refused_and_accepted_alike() -> None:
    generator = random.Random(13)  # noqa: S311
    real = real_specs()
    accepted = 0
    for _ in range(SPECS):
        spec = changed(generator.choice(real), generator)
        found = errors_of(only("weight", spec))
        # R17 and R18 are about a weight, not about the spec alone.
        takes = all(error.rule in {"R17", "R18"} for error in found)
        assert takes == quark_takes_spec(spec), (spec, found)
        accepted += takes
    assert SPECS * 0.2 < accepted < SPECS * 0.8


@pytest.mark.parametrize("dtype", VALUES["dtype"])
@pytest.mark.parametrize("qscheme", [*QSchemeType.__members__, None])
def test_every_dtype_with_every_granularity_and_observer(dtype: str, qscheme: str | None) -> None:
    complete = {**real_specs()[0], "dtype": dtype, "qscheme": qscheme, "ch_axis": -1, "group_size": 32}
    complete |= {"block_size": [128, 128], "symmetric": True, "scale_type": "float", "is_dynamic": False}
    for observer in VALUES["observer_cls"]:
        spec = {**complete, "observer_cls": observer}
        found = errors_of(only("weight", spec))
        assert (found == []) == quark_takes_spec(spec), (spec, found)


def test_layers_are_refused_and_accepted_alike() -> None:
    generator = random.Random(14)  # noqa: S311
    real = [spec for spec in real_specs() if spec["dtype"] not in {"bfloat16", "float16"}]
    accepted = listed = 0
    for _ in range(LAYERS):
        role = generator.choice(ROLES)
        value: Any = generator.choice(real)
        keys = generator.sample(["is_dynamic", "is_scale_quant", "zero_point_type", "ch_axis"], 1)
        if generator.random() < 0.6:
            value = [stage(generator, real) for _ in range(generator.choice((0, 1, 2, 2, 2, 3)))]
            listed += 1
        elif generator.random() < 0.5:
            value = {**value, **{key: generator.choice(VALUES[key]) for key in keys}}
        layer = only(role, value)
        found = errors_of(layer)
        assert (found == []) == quark_takes_layer(layer), (layer, found)
        accepted += not found
    assert LAYERS * 0.15 < accepted < LAYERS * 0.8
    assert listed > LAYERS * 0.5


def stage(generator: random.Random, real: list[dict[str, Any]]) -> dict[str, Any]:
    """One stage of a list, often one that R16 is about."""
    result = dict(generator.choice(real))
    if generator.random() < 0.4:
        result["is_dynamic"] = generator.choice((True, False, None))
    if generator.random() < 0.4:
        result["is_scale_quant"] = True
    if generator.random() < 0.1:
        result["zero_point_type"] = "float32"
    if result["qscheme"] == "per_tensor" and generator.random() < 0.1:
        result["observer_cls"] = "LSQObserver"
    return result


def test_an_absent_key_that_quark_misses_is_missed_by_the_strict_level() -> None:
    spec = real_specs()[0]
    missed = {key for key in VALUES if not quark_takes_spec({k: v for k, v in spec.items() if k != key})}
    assert {"dtype", "is_dynamic", "ch_axis", "group_size", "symmetric"} <= missed
    for key in VALUES:
        layer = only("weight", {name: value for name, value in spec.items() if name != key})
        block = {"quant_method": "quark", "global_quant_config": layer}
        assert any(key in error.keys for error in schema_errors(block, "0.13", strict=True))
        assert bool(errors_of(layer)) == (key == "dtype")


def test_quark_reads_every_block_of_its_own_that_the_schema_accepts() -> None:
    for name, version, block in blocks.corpus():
        if version == "0.13" and block.get("quant_method") == "quark" and "quant_mode" in block:
            if any(schema_errors(block, "0.13", strict=True)):
                continue
            assert QConfig.from_dict(copy.deepcopy(block)).to_dict() == {
                key: value for key, value in block.items() if key != "export"
            }, name


def observer_names(observers: Any) -> set[str]:
    """The names of observer classes."""
    return {observer.__name__ for observer in observers}


def test_the_observer_sets_are_those_of_quark() -> None:
    rules = table("v0.13/config.schema.json")["$defs"]["TensorSpec"]["allOf"]
    then = {rule_id(rule): rule["then"]["properties"].get("observer_cls", {}) for rule in rules}
    assert set(then["R9"]["enum"]) == observer_names(PER_TENSOR_OBSERVERS)
    assert set(then["R10"]["enum"]) == observer_names(PER_CHANNEL_OBSERVERS)
    assert set(then["R11"]["enum"]) == observer_names(PER_GROUP_OBSERVERS)
    assert set(then["R1"]["not"]["enum"]) == set(OBSERVER_MAP) - {PlaceholderObserver.__name__}


def test_the_enums_are_those_of_quark() -> None:
    spec = table("v0.13/config.strict.schema.json")["$defs"]["TensorSpec"]["properties"]
    for key, members in {
        "dtype": Dtype,
        "qscheme": QSchemeType,
        "round_method": RoundType,
        "scale_type": ScaleType,
        "zero_point_type": ZeroPointType,
    }.items():
        assert set(spec[key]["enum"]) - {None} == set(members.__members__), key
