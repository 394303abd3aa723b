"""Seeded inputs of routed experts, and what they make of them in vLLM."""

from __future__ import annotations

import torch

TOP = 2


def routing(rows: int, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Seeded weights, float32, and numbers, int32, [rows, TOP] of each row's experts."""
    generator = torch.Generator().manual_seed(experts)
    weights, ids = torch.rand(rows, experts, generator=generator).softmax(-1).topk(TOP)
    return weights, ids.to(torch.int32)


def outputs(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What the experts of vLLM's `module` give for `x` [rows, hidden]."""
    routed = routing(len(x), module.global_num_experts)
    return module.quant_method.apply(module, x, *routed, None, None)
