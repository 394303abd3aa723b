"""How far vLLM's linear layers are from amd-quark's own modules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from plugin.load_server import inputs
from plugin.quark_experts import Modules
from plugin.quark_model import imported
from plugin.served_exports import OURS
from quark_format.modules import abstract
from quark_format.names import parts
from quark_format.resolver import Resolver

TARGET = "vllm-plugin@0.32"
TOLERANCE = {True: 4e-3, False: 3e-2}
"""Of a layer's output by whether our kernel serves it, relative to the norm.

vLLM's calculate scales of inputs in float32, and those for FP8 blocks leave inputs as they are.
"""


def deviations(
    modules: Modules, outputs: Mapping[str, torch.Tensor], resolver: Resolver
) -> Iterator[tuple[str, float]]:
    """For each linear layer its name and how far vLLM's output is from amd-quark's, relative to the norm.

    Where the cache is quantized, amd-quark's modules quantize their outputs for it, which vLLM does in the
    cache.
    """
    renamed = {resolver.architecture.rename(name): module for name, module in modules.items()}
    for layer, output in outputs.items():
        names = parts(layer, resolver.architecture.fused) or [layer]
        if not all(name in renamed for name in names):
            continue
        own = [renamed[name] for name in names]
        for module in own:
            module.bias = None
            module.output_quantizer = None if resolver.kv_cache is not None else module.output_quantizer
        x = inputs(own[0].in_features, output.dtype)
        theirs = torch.cat([module(x[None])[0] for module in own], -1).float()
        yield layer, float((output[:, : theirs.shape[-1]].float() - theirs).norm() / theirs.norm())


def too_far(folder: Path, probe: Path, layers: list[dict[str, Any]]) -> dict[str, float]:
    """Of an export that was loaded, every linear layer whose output is too far from amd-quark's, and how far.

    `probe` has the outputs, `layers` what serves them.
    """
    resolver = Resolver(json.loads((folder / "config.json").read_text(encoding="utf-8")), TARGET)
    outputs = load_file(probe)
    ours = {one["name"] for one in layers if one["scheme"] == OURS}
    found = dict(deviations(imported(folder), outputs, resolver))
    assert found.keys() == {name for name in outputs if not name.endswith("experts")}
    return {name: error for name, error in found.items() if error > TOLERANCE[abstract(name) in ours]}
