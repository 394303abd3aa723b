"""Embeddings that Quark quantized: stored in floats, beside the scales that they are rounded with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from quark_format.declarations import stages
from quark_format.layouts import parameters
from quark_format.vllm_plugin.kernels.elements import element
from quark_format.vllm_plugin.kernels.quantize import quantize_dequantize
from quark_format.vllm_plugin.layout import WEIGHT, Checkpoint
from quark_format.vllm_plugin.schemes.reference import outputs
from quark_format.vllm_plugin.stored import Sizes, StoredTensor, axes

_ROLE = "embedding"
_SCALE, _ZERO_POINT = "_weight_scale", "_weight_zero_point"


class ReferenceEmbedding(UnquantizedEmbeddingMethod):
    """An embedding whose weight is rounded once, when it is loaded.

    Args:
        checkpoint: how the checkpoint lays tensors out
        parts: the row's arguments, once: `weight`, the spec of the weight
    """

    def __init__(self, checkpoint: Checkpoint, parts: Sequence[Mapping[str, Any]]) -> None:
        """Find the layout.

        Raises:
            NoLayoutError: the format has none.
        """
        (only,) = parts
        self.stages = stages(only["weight"])
        conditions = replace(checkpoint.conditions, role=_ROLE)
        self.row = checkpoint.row(WEIGHT, only["weight"], conditions)

    def create_weights(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        """Register the weight as vLLM does, and a parameter for each scale."""
        super().create_weights(layer, *args, **kwargs)
        ((here, whole, start),) = outputs(layer, (), layer.num_embeddings)
        width = layer.embedding_dim
        sizes = Sizes({"out": here, "in": width}, {"out": whole, "in": width}, start)
        for entry in self.row.entries:
            if entry.suffix != WEIGHT:
                found = axes(entry, sizes, parameters(self.stages))
                stored = StoredTensor(
                    entry.suffix, [found], layer.tp_rank, layer.tp_size, torch.get_default_device()
                )
                layer.register_parameter(entry.suffix, stored)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Round the weight with its scales."""
        scale, zero_point = (self._taken(layer, suffix) for suffix in (_SCALE, _ZERO_POINT))
        if scale is not None:
            weight = layer.weight.data
            scale = scale.to(torch.float32)
            rows = weight[: len(scale)] if scale.dim() else weight
            if scale.dim():
                scale = scale.unsqueeze(-1)
                zero_point = None if zero_point is None else zero_point.unsqueeze(-1)
            rows.copy_(quantize_dequantize(rows, element(self.stages[0]["dtype"]), scale, zero_point))
        super().process_weights_after_loading(layer)

    @staticmethod
    def _taken(layer: torch.nn.Module, suffix: str) -> torch.Tensor | None:
        stored = getattr(layer, suffix, None)
        if stored is None:
            return None
        delattr(layer, suffix)
        return stored.parts[0]
