"""Every config of the corpus, published and exported, is served or refused as by vLLM itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deviating import Known
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.layers.quantization.quark import quark
from vllm_selection import Selected, class_of, constructs, key_of

from quark_format.resolver import Refusal, Resolver, quantization_config
from quark_format.targets import target

DATA = Path(__file__).parents[1] / "data"
FILES = sorted([*DATA.glob("configs/*.json"), *DATA.glob("exports*/*.json")])
LINEAR = [
    "self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj", "self_attn.q_a_proj",
    "self_attn.fused_qkv_a_proj", "self_attn.kv_b_proj", "mlp.shared_experts.gate_up_proj",
    "self_attn.k_proj",
]  # fmt: skip
EXPERTS = ["mlp.experts", "block_sparse_moe.experts"]
LAYERS = ["model.layers.0", "model.layers.1", "model.layers.61", "language_model.model.layers.0"]


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content["config"] if isinstance(content.get("config"), dict) else content


def modules(block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Usual module names, and those that the config itself names."""
    for layer in LAYERS:
        yield from ((f"{layer}.{name}", "linear") for name in LINEAR)
        yield from ((f"{layer}.{name}", "experts") for name in EXPERTS)
    named = [*(block.get("layer_quant_config") or {}), *(block.get("exclude") or [])]
    for name in named[:40]:
        yield name.removeprefix("re:").replace("*", "model.layers.0."), "linear"


def theirs(block: dict[str, Any], fused: Any, name: str, kind: str) -> Any:
    """What vLLM builds: an exception, None for an unquantized layer, or what it has selected."""
    try:
        config = quark.QuarkConfig.from_config(copy.deepcopy(block))
        config.packed_modules_mapping = {whole: list(members) for whole, members in fused.items()}
        layer_type = {"linear": ColumnParallelLinear, "experts": RoutedExperts}[kind]
        weight, activation, method = config.get_quant_method_target(name, layer_type)
        if weight is None and activation is None:
            return None
        scheme = method
        if kind == "linear":
            _, _, scheme = config.get_scheme_cls(layer_type, name)
        layer = config._find_matched_config(name, layer_type)
    except Exception as error:
        return error
    selected = Selected(scheme, weight, activation)
    return selected, layer, constructs(selected, layer, config.pack_method)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_config(file: Path) -> None:
    config = load(file)
    block = quantization_config(config)
    table = target("vllm@0.32")
    architecture = table.architectures.get(next(iter(config.get("architectures") or ()), None))
    resolver = Resolver(block, table, architecture)
    renamed = copy.deepcopy(block)
    renamed["exclude"] = (
        [architecture.rename(name) for name in block["exclude"]]
        if block.get("exclude")
        else block.get("exclude")
    )
    if isinstance(block.get("layer_quant_config"), dict):
        renamed["layer_quant_config"] = {
            architecture.rename(name): layer for name, layer in block["layer_quant_config"].items()
        }
    for name, kind in dict.fromkeys(modules(block)):
        wanted = theirs(renamed, architecture.fused, name, kind)
        ours = resolver.resolve(name, kind)
        if isinstance(wanted, Exception):
            assert isinstance(ours, Refusal), (name, wanted)
        elif wanted is None:
            assert not isinstance(ours, Refusal), (name, ours)
            assert ours.excluded
        elif isinstance(ours, Refusal):
            selected, layer, accepted = wanted
            positions = {place: one.key for place, one in table.schemes.positions.items() if one.key}
            subject = {place: layer.get(key) for place, key in positions.items()}
            does = "selects" if accepted else "selects_then_refuses"
            known = [one for one in Known(table, kind).of(subject, None) if one.target_does == does]
            assert known, (name, selected, ours)
        else:
            choice = ours.choice
            assert choice.scheme is not None
            mine = (class_of(choice.scheme), key_of(choice.keys["weight"]), key_of(choice.keys["input"]))
            assert mine == tuple(wanted[0]), name
            assert wanted[2]
