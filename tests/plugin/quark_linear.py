"""How far vLLM's linear layers are from amd-quark's own modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from plugin.load_server import inputs
from plugin.quark_experts import Modules
from quark_format.names import parts
from quark_format.resolver import Resolver


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
