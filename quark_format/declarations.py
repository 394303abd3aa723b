"""Which spec a config gives to a module, under Quark's reading and under the others'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quark_format.names import Exclusion, LayerConfigs, reader
from quark_format.tables import table

if TYPE_CHECKING:
    from quark_format.modules import Module

Spec = Mapping[str, Any]
Stages = tuple[Spec, ...]

PARTS = {"weight": "weight", "input": "input_tensors", "output": "output_tensors", "bias": "bias"}
"""Key of a layer config for each part of a module."""

_GLOBAL = "global"


def stages(spec: Any) -> Stages:
    """The stages of a spec as the config writes it: none for null, one for an object, a list's elements."""
    if isinstance(spec, Mapping):
        return (spec,)
    if isinstance(spec, list):
        return tuple(stage for stage in spec if isinstance(stage, Mapping))
    return ()


@dataclass(frozen=True, slots=True)
class Declared:
    """What a config says about one module.

    `pointer` is the JSON pointer of the layer config that applies, `layer` its value; both are empty where
    none does. `excluded_by` is the `exclude` entry that takes the module as Quark reads it,
    `excluded_elsewhere` the one that takes it as vLLM reads it.
    """

    pointer: str
    layer: Mapping[str, Any]
    excluded_by: str | None
    excluded_elsewhere: str | None

    @property
    def excluded(self) -> bool:
        """Whether Quark leaves the module unquantized."""
        return self.excluded_by is not None

    @property
    def disputed(self) -> bool:
        """Whether readers disagree on the exclusion."""
        return (self.excluded_by is None) != (self.excluded_elsewhere is None)

    def stages(self, part: str) -> Stages:
        """The stages for `part`, none for an excluded module."""
        return () if self.excluded else stages(self.layer.get(PARTS[part]))


class Declarations:
    """A quark-mode block, ready to be asked about modules."""

    def __init__(self, block: Mapping[str, Any], version: str) -> None:
        """Index `block` with the name semantics of Quark `version` and of the newest vLLM known."""
        exclude = block.get("exclude")
        listed = exclude if isinstance(exclude, list) else []
        self.exclude: list[str] = [entry for entry in listed if isinstance(entry, str)]
        self.layers = _layers(block.get("layer_quant_config"))
        self.kv_cache = _layers(block.get("kv_cache_quant_config"))
        self._types = _layers(block.get("layer_type_quant_config"))
        fallback = block.get("global_quant_config")
        self._fallback: Mapping[str, Any] = fallback if isinstance(fallback, Mapping) else {}
        quark, vllm = reader("quark", version), reader("vllm")
        self.quark_exclusion = Exclusion(self.exclude, quark)
        self.vllm_exclusion = Exclusion(self.exclude, vllm)
        self.quark_layers = LayerConfigs(self.layers, self._fallback, quark)
        self.vllm_layers = LayerConfigs(self.layers, self._fallback, vllm)
        self.kv_layers = LayerConfigs(self.kv_cache, None, quark)

    def of(self, module: Module) -> Declared:
        """What the config says about `module`."""
        name, role = module.name, module.role
        key = self.quark_layers.first(name) if role.quantizable else None
        pointer = ""
        layer: Mapping[str, Any] = {}
        if key is not None:
            pointer, layer = f"/layer_quant_config/{escape(key)}", self.layers[key]
        else:
            kind = next((kind for kind in self._types if kind in role.declared_by), None)
            if kind is not None:
                pointer, layer = f"/layer_type_quant_config/{escape(kind)}", self._types[kind]
            elif _GLOBAL in role.declared_by:
                pointer, layer = "/global_quant_config", self._fallback
        return Declared(pointer, layer, self.quark_exclusion.first(name), self.vllm_exclusion.first(name))


def _layers(value: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        return {}
    return {key: layer for key, layer in value.items() if isinstance(layer, Mapping)}


def escape(key: str) -> str:
    """`key` as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def as_quark(block: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """The quark-mode block that a block of the custom `mode` stands for (`schema/modes.json`)."""
    declared = table("modes.json")["modes"].get(mode)
    if declared is None:
        return dict(block)
    filled = _fill(declared["block"], block)
    return filled if isinstance(filled, dict) else {}


def _fill(node: Any, block: Mapping[str, Any]) -> Any:
    if not isinstance(node, Mapping):
        return node
    if "$from" not in node:
        return {key: _fill(value, block) for key, value in node.items()}
    value = block.get(node["$from"])
    if "cases" not in node:
        return value
    name = value if isinstance(value, str) else json.dumps(value)
    return _fill(node["cases"].get(name), block)


def describe(spec: Stages) -> str:
    """A spec in words, such as `int4 per_group 128` or `fp4 per_group 16 + fp8_e4m3 per_tensor`."""
    return " + ".join(_describe_stage(stage) for stage in spec) or "no spec"


def _describe_stage(stage: Spec) -> str:
    sizes = (stage.get("group_size"), stage.get("block_size"))
    words = [stage.get("dtype"), stage.get("qscheme"), *sizes, stage.get("scale_format")]
    return " ".join(str(word) for word in words if word is not None)
