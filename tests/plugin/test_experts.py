"""Routed experts in the real vLLM through the plugin, against a loop over amd-quark's own modules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plugin.conftest import Loader
from plugin.experts_probe import routing
from plugin.load_server import inputs
from plugin.quark_model import imported, stored
from plugin.served_exports import EXPERTS, OUR_EXPERTS
from quark_format.resolver import Resolution, Resolver
from quark_format.vllm_plugin.layout import WEIGHT, Checkpoint
from quark_format.vllm_plugin.schemes.reference import Part

TARGET = "vllm-plugin@0.32"
QUANTIZED = sorted(name for name, scheme in EXPERTS.items() if scheme == OUR_EXPERTS)
LIMIT, ALPHA = 7.0, 1.702
"""Of gpt-oss (transformers models/gpt_oss/modeling_gpt_oss.py)."""

Module = Callable[[torch.Tensor], torch.Tensor]

quark_modules = cache(imported)


def separate(modules: dict[str, Module], expert: str, x: torch.Tensor) -> torch.Tensor:
    """One expert of gate, up and down projection, as transformers computes it."""
    gate, up = (modules[f"{expert}.{leaf}_proj"](x[None])[0] for leaf in ("gate", "up"))
    return modules[f"{expert}.down_proj"]((torch.nn.functional.silu(gate) * up)[None])[0]


def interleaved(modules: dict[str, Module], expert: str, x: torch.Tensor) -> torch.Tensor:
    """One expert of gpt-oss."""
    joined = modules[f"{expert}.gate_up_proj"](x[None])[0]
    gate, up = joined[:, ::2].clamp(max=LIMIT), joined[:, 1::2].clamp(-LIMIT, LIMIT)
    activated = (up + 1) * (gate * torch.sigmoid(gate * ALPHA))
    return modules[f"{expert}.down_proj"](activated[None])[0]


def experts_of(modules: dict[str, Module]) -> dict[str, int]:
    """How many experts each block of amd-quark's model has, by the block's name."""
    numbers: dict[str, int] = {}
    for name in modules:
        found = re.match(r"(.*\.experts)\.(\d+)\.", name)
        if found is not None:
            numbers[found[1]] = max(numbers.get(found[1], 0), int(found[2]) + 1)
    return numbers


def looped(modules: dict[str, Module], block: str, experts: int, x: torch.Tensor) -> torch.Tensor:
    """The block's output, expert by expert, summed in float32 with the router's weights."""
    weights, ids = routing(len(x), experts)
    run = separate if f"{block}.0.gate_proj" in modules else interleaved
    output = torch.zeros(x.shape)
    for expert in range(experts):
        token, choice = torch.where(ids == expert)
        if len(token):
            routed = run(modules, f"{block}.{expert}", x[token]).float() * weights[token, choice, None]
            output.index_add_(0, token, routed)
    return output


def blocks(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of routed experts by transformers' name of the block."""
    return {
        name.removesuffix(".routed_experts").replace("block_sparse_moe", "mlp"): output
        for name, output in outputs.items()
        if name.endswith("experts")
    }


@pytest.mark.parametrize("name", list(EXPERTS))
def test_experts_are_served(exports: Path, loader: Loader, tmp_path: Path, name: str) -> None:
    """By the method they should be, and generate; their output is that of amd-quark's modules.

    Experts whose inputs are not quantized run in vLLM's own kernel, which rounds elsewhere: they may be as
    far from the same modules in float32 as these are in bfloat16.
    """
    probe = tmp_path / "outputs"
    reply = loader.load(exports / name, probe=str(probe))
    assert reply["ok"], reply["error"]
    assert len(reply["tokens"]) == 6
    assert EXPERTS[name] in {one["scheme"] for one in reply["layers"]}
    modules: dict[str, Any] = quark_modules(exports / name)
    outputs = blocks(load_file(probe))
    assert outputs
    for block, output in outputs.items():
        experts = experts_of(modules).get(block)
        if experts is None:
            continue
        x = inputs(block, output.shape[-1])
        theirs = looped(modules, block, experts, x)
        exact = theirs if quantizes_inputs(modules, block) else looped(modules, block, experts, x.float())
        allowed = max((theirs - exact).norm() * 1.5, 4e-3 * exact.norm())
        assert (output.float() - exact).norm() <= allowed, block


def quantizes_inputs(modules: dict[str, Any], block: str) -> bool:
    """Whether a projection of the block's first expert has a quantizer of its input."""
    return any(
        module.input_quantizer is not None
        for name, module in modules.items()
        if name.startswith(f"{block}.0.")
    )


@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_are_quarks(exports: Path, name: str) -> None:
    """Bit for bit in float32, by the specs that the resolver finds for the experts' projections."""
    folder = exports / name
    modules = quark_modules(folder)
    tensors = stored(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    resolver, checkpoint = Resolver(config, TARGET), Checkpoint(config["quantization_config"])
    compared = 0
    for block in experts_of(modules):
        answer = resolver.resolve(resolver.architecture.rename(block), "experts")
        assert isinstance(answer, Resolution)
        assert not answer.excluded
        part = Part.of(checkpoint, **answer.choice.arguments)
        for module_name, theirs in modules.items():
            if not module_name.startswith(block):
                continue
            own = {
                entry.suffix: tensors[f"{module_name}.{entry.suffix}"]
                for entry in part.layout.row.entries
                if entry.suffix.startswith(WEIGHT)
            }
            weight = part.layout.dequantize(own, theirs.out_features, theirs.in_features)
            assert torch.equal(weight, theirs._get_qweight(theirs.weight)), module_name
            compared += 1
    assert compared
