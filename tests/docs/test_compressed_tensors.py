"""The mapping to compressed-tensors, held against the installed package and the installed amd-quark."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
import torch
from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.quant_args import round_to_quantized_type_args
from jsonschema import Draft202012Validator
from quark.torch.quantization.config.template import QuantizationSchemeCollection

from quark_format.tables import table

MAPPING = table("targets/compressed-tensors-0.17.json")
SPECS, PRESETS = MAPPING["specs"], MAPPING["presets"]
MODELS: dict[str, Any] = {
    "QuantizationArgs": QuantizationArgs,
    "QuantizationScheme": QuantizationScheme,
    "QuantizationConfig": QuantizationConfig,
}
REFUSALS = [
    *((name, refusal) for name, spec in SPECS.items() for refusal in spec.get("refused", [])),
    *((one["quark"], one["refused"]) for one in MAPPING["settings"] if "refused" in one),
]
CURRENT = table("v0.13/config.schema.json")


def arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as Python has them: dtypes of torch for their names."""
    dtypes = {f"torch.{name}": value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    return {
        key: dtypes.get(value, value) if isinstance(value, str) else value for key, value in given.items()
    }


def test_the_mapping_is_of_the_installed_release() -> None:
    name, _, release = MAPPING["distribution"].partition("==")
    assert version(name) == release
    assert version("amd-quark").startswith(MAPPING["quark"])


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec["arguments"] is not None])
def test_an_equivalent_can_be_constructed(name: str) -> None:
    """The real model takes the arguments and keeps them."""
    wanted = arguments(SPECS[name]["arguments"])
    made = QuantizationArgs(**wanted)
    assert {key: getattr(made, key) for key in wanted} == wanted


@pytest.mark.parametrize(("name", "refusal"), REFUSALS)
def test_a_refusal_is_real(name: str, refusal: dict[str, Any]) -> None:
    """What the mapping says cannot be said is refused by the real package, or has no field."""
    if "lacks" in refusal:
        model = MODELS.get(refusal["model"])
        known = {one.value for one in CompressionFormat} if model is None else set(model.model_fields)
        assert not known & set(refusal["lacks"]), name
    elif "call" in refusal:
        made = QuantizationArgs(**arguments(refusal["given"]))
        with pytest.raises((ValueError, NotImplementedError)) as caught:
            round_to_quantized_type_args(torch.ones(2), made, torch.tensor(-1.0), torch.tensor(1.0))
        assert refusal["says"] in str(caught.value)
    else:
        with pytest.raises((ValueError, NotImplementedError)) as caught:
            MODELS[refusal["model"]](**arguments(refusal["given"]))
        assert refusal["says"] in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_expressible_as_told(name: str) -> None:
    """A preset has a format exactly where all its specs have equivalents, and then is a real scheme."""
    preset = PRESETS[name]
    parts = {"weights": preset["weight"], "input_activations": preset["input"]}
    given = {part: SPECS[spec]["arguments"] for part, spec in parts.items() if spec is not None}
    assert (preset["format"] is None) == (None in given.values())
    if preset["format"] is not None:
        made = {part: QuantizationArgs(**arguments(one)) for part, one in given.items()}
        scheme = QuantizationScheme(targets=["Linear"], format=preset["format"], **made)
        config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"])
        assert config.config_groups["group_0"].format == preset["format"]


def test_every_preset_of_quark_is_mapped() -> None:
    assert set(QuantizationSchemeCollection().get_supported_schemes()) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_specs_of_quark(name: str) -> None:
    """The stages that the mapping names are those of the installed amd-quark."""
    real = QuantizationSchemeCollection().get_scheme(name).config
    for part, key in (("weight", "weight"), ("input_tensors", "input")):
        found = getattr(real, part)
        stages = [] if found is None else found if isinstance(found, list) else [found]
        wanted = SPECS[PRESETS[name][key]]["quark"] if PRESETS[name][key] else []
        told = [
            {field: one.to_dict().get(field) for field in stage}
            for one, stage in zip(stages, wanted, strict=True)
        ]
        assert told == wanted, (name, part)


@pytest.mark.parametrize("one", MAPPING["settings"], ids=[one["quark"] for one in MAPPING["settings"]])
def test_a_setting_names_real_fields(one: dict[str, Any]) -> None:
    """A counterpart is a field of the package's model; what has none is proven absent or refused."""
    if one["compressed_tensors"] is None:
        assert "refused" in one
    else:
        model, _, field = one["compressed_tensors"].partition(".")
        assert field in MODELS[model].model_fields


@pytest.mark.parametrize(
    "one", MAPPING["reverse"], ids=[one["compressed_tensors"] for one in MAPPING["reverse"]]
)
def test_the_other_direction(one: dict[str, Any]) -> None:
    """compressed-tensors takes the arguments; Quark's schema takes the equivalent, or refuses the field."""
    QuantizationArgs(**arguments(one["arguments"]))
    spec = Draft202012Validator({"$ref": "#/$defs/TensorSpec", "$defs": CURRENT["$defs"]})
    if one["quark"] is not None:
        assert [error.message for stage in one["quark"] for error in spec.iter_errors(stage)] == []
    elif "value" in one["refused"]:
        assert list(spec.iter_errors({"dtype": "fp4", one["refused"]["field"]: one["refused"]["value"]}))
    else:
        assert one["refused"]["field"] not in CURRENT["$defs"]["TensorSpec"]["properties"]
