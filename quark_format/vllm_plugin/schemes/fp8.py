"""FP8 per tensor for fused layers, without quantizing the weight again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.quantization.quark.schemes import QuarkW8A8Fp8
from vllm.model_executor.layers.quantization.utils.quant_utils import QuantKey, kFp8StaticChannelSym
from vllm.model_executor.parameter import PerTensorScaleParameter


class PerPartFp8(QuarkW8A8Fp8):
    """vLLM's FP8 scheme, where every part of a fused layer keeps the scale it was quantized with.

    vLLM quantizes the parts of `qkv_proj` and `gate_up_proj` again with the largest of their scales, which
    rounds each weight a second time. Here a part's scale is repeated for each of its output channels, and
    vLLM's kernels for scales per channel run.

    Args:
        weight_quant_key: of the checkpoint, per tensor
        activation_quant_key: as for vLLM's scheme
    """

    def __init__(self, weight_quant_key: QuantKey, activation_quant_key: QuantKey | None) -> None:
        """Choose vLLM's kernels for scales per channel.

        Raises:
            ValueError: vLLM's scheme does not take one of the keys.
        """
        super().__init__(weight_quant_key, activation_quant_key)
        self.weight_quant_key = kFp8StaticChannelSym
        self.weight_qscheme = "per_channel"

    def create_weights(
        self,
        layer: torch.nn.Module,
        output_partition_sizes: list[int],
        input_size_per_partition: int,
        params_dtype: torch.dtype,
        weight_loader: Callable[..., None],
        **kwargs: Any,
    ) -> None:
        """Register the weight, with one scale for each part."""
        super().create_weights(
            layer, output_partition_sizes, input_size_per_partition, params_dtype, weight_loader, **kwargs
        )
        scale = PerTensorScaleParameter(
            data=torch.empty(len(output_partition_sizes), dtype=torch.float32), weight_loader=weight_loader
        )
        scale[:] = torch.finfo(torch.float32).min
        layer.register_parameter("weight_scale", scale)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Repeat the scales of the parts for their output channels."""
        widths = torch.tensor(layer.logical_widths, device=layer.weight_scale.device)
        scales = layer.weight_scale.data.repeat_interleave(widths)
        layer.weight_scale = torch.nn.Parameter(scales, requires_grad=False)
        super().process_weights_after_loading(layer)
