"""How far vLLM's logits of a weight-only export are from those of amd-quark's own model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

_NO_SPECS = ("input_tensors", "output_tensors")
_CONFIGS = ("layer_quant_config", "layer_type_quant_config")


def weight_only(folder: Path) -> bool:
    """Whether the config quantizes neither inputs nor outputs of any layer."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return not any(layer.get(role) for layer in _layer_configs(config) for role in _NO_SPECS)


def _layer_configs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    block = config["quantization_config"]
    yield block.get("global_quant_config") or {}
    for name in _CONFIGS:
        yield from (block.get(name) or {}).values()


def divergence(reference: Path, logprobs: Sequence[dict[str, float]]) -> tuple[float, float]:
    """KL of vLLM's logits, and of amd-quark's own in the model's dtype, from amd-quark's in float32."""
    saved = load_file(reference)
    exact, rounded = (
        torch.log_softmax(saved[key], -1)[: len(logprobs)] for key in ("quantized_float32", "quantized")
    )
    ours = torch.tensor([[row[str(token)] for token in range(exact.shape[-1])] for row in logprobs])
    own, floor = (float((exact.exp() * (exact - other)).sum(-1).mean()) for other in (ours, rounded))
    return own, floor
