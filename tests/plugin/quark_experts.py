"""Routed experts as amd-quark's modules compute them, one by one, and how far vLLM's are from that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from plugin.experts_probe import routing
from plugin.load_server import inputs

LIMIT, ALPHA = 7.0, 1.702
"""Of gpt-oss (transformers models/gpt_oss/modeling_gpt_oss.py)."""

Modules = Mapping[str, Any]
"""amd-quark's quantized modules by name."""


def separate(modules: Modules, expert: str, x: torch.Tensor) -> torch.Tensor:
    """One expert of gate, up and down projection, as transformers computes it."""
    gate, up = (modules[f"{expert}.{leaf}_proj"](x[None])[0] for leaf in ("gate", "up"))
    return modules[f"{expert}.down_proj"]((torch.nn.functional.silu(gate) * up)[None])[0]


def interleaved(modules: Modules, expert: str, x: torch.Tensor) -> torch.Tensor:
    """One expert of gpt-oss."""
    joined = modules[f"{expert}.gate_up_proj"](x[None])[0]
    gate, up = joined[:, ::2].clamp(max=LIMIT), joined[:, 1::2].clamp(-LIMIT, LIMIT)
    activated = (up + 1) * (gate * torch.sigmoid(gate * ALPHA))
    return modules[f"{expert}.down_proj"](activated[None])[0]


def experts_of(modules: Modules) -> dict[str, int]:
    """How many experts each block of amd-quark's model has, by the block's name."""
    numbers: dict[str, int] = {}
    for name in modules:
        found = re.match(r"(.*\.experts)\.(\d+)\.", name)
        if found is not None:
            numbers[found[1]] = max(numbers.get(found[1], 0), int(found[2]) + 1)
    return numbers


def looped(modules: Modules, block: str, experts: int, x: torch.Tensor) -> torch.Tensor:
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


def blocks(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of routed experts by transformers' name of the block."""
    return {
        name.removesuffix(".routed_experts").replace("block_sparse_moe", "mlp"): output
        for name, output in outputs.items()
        if name.endswith("experts")
    }


def quantizes_inputs(modules: Modules, block: str) -> bool:
    """Whether a projection of the block's first expert has a quantizer of its input."""
    return any(
        module.input_quantizer is not None
        for name, module in modules.items()
        if name.startswith(f"{block}.0.")
    )


def deviations(modules: Modules, outputs: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, float, float]]:
    """For each block its name, how far vLLM's output is from amd-quark's, and how far it may be.

    Both relative to the norm. Experts whose inputs are not quantized run in vLLM's own kernel, which rounds
    elsewhere: they may be as far from the same modules in float32 as these are in bfloat16.
    """
    numbers = experts_of(modules)
    for block, output in blocks(outputs).items():
        if block not in numbers:
            continue
        x = inputs(output.shape[-1], output.dtype)
        theirs = exact = looped(modules, block, numbers[block], x)
        if not quantizes_inputs(modules, block):
            exact = looped(modules, block, numbers[block], x.float())
        error, allowed = ((one - exact).norm() / exact.norm() for one in (output.float(), theirs))
        yield block, float(error), max(4e-3, 1.5 * float(allowed))
