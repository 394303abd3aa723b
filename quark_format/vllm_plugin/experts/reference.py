"""Routed experts of any layout and any spec, by dequantization: the last candidate on every platform."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import linear
from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FUSED_MOE_UNQUANTIZED_CONFIG,
    FusedMoEConfig,
    FusedMoEQuantConfig,
)
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

from quark_format.layouts import DIMS, Dim
from quark_format.vllm_plugin.experts.activation import activation
from quark_format.vllm_plugin.experts.stored import ExpertTensor
from quark_format.vllm_plugin.layout import OUTPUT, WEIGHT, Checkpoint
from quark_format.vllm_plugin.schemes.reference import KEEP_PACKED, MissingTensorError, Part
from quark_format.vllm_plugin.stored import Axis, Sizes, axes

INWARD = "w13"
"""vLLM's name of the gate and up projections together."""
DOWN = "w2"
"""vLLM's name of the projection back to the hidden size."""

GATE_AND_UP = ("w1", "w3")
"""vLLM's names of the projections to the intermediate size."""
JOINED = (MoEActivation.SWIGLUOAI,)
"""Activations of alternating gate and up channels, which are one projection of the checkpoint: `w1`."""

Tensors = dict[str, torch.Tensor]
"""The stored tensors of one projection by suffix."""


class Projection:
    """One projection of one expert: its weight, and what happens to its input and output."""

    def __init__(self, part: Part, stored: Tensors) -> None:
        """From the layout and the stored tensors."""
        self.transform = part.transform(stored)
        self.output = part.quantizer(stored, OUTPUT)

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`x` [tokens, in] times the dequantized `weight` [out, in], plus `bias` [out]."""
        product = linear(self.transform(x), weight, bias)
        return product if self.output is None else self.output(product)


class ReferenceExperts(FusedMoEMethodBase):
    """down(activation(gate(x), up(x))) of each token's experts, summed with the router's weights.

    Every projection of every expert has its own dequantized weight and its own quantizer of its input, which
    sees the tokens of that expert alone, as in amd-quark's modules. Weights whose inputs and outputs are not
    quantized go to vLLM's kernel for unquantized experts.
    """

    def __init__(
        self, moe: FusedMoEConfig, checkpoint: Checkpoint, parts: Sequence[Mapping[str, Any]]
    ) -> None:
        """Find the layouts.

        Args:
            moe: vLLM's description of the layer
            checkpoint: how the checkpoint lays tensors out
            parts: a row's arguments, specs by position, of the gate, up and down projection, or once for all

        Raises:
            NoLayoutError: the format has none for a projection.
        """
        super().__init__(moe)
        self.joined = moe.activation in JOINED
        self.groups = {INWARD: GATE_AND_UP[: 1 + (moe.is_act_and_mul and not self.joined)], DOWN: (DOWN,)}
        names = [name for group in self.groups.values() for name in group]
        found = [Part.of(checkpoint, **arguments) for arguments in parts]
        self.parts = dict(
            zip(names, found if len(found) == len(names) else found[-1:] * len(names), strict=True)
        )
        self.packed = os.environ.get(KEEP_PACKED) == "1"
        self.plain: UnquantizedFusedMoEMethod | None = None
        if not self.packed and not any(part.activation_entries or part.input_stages for part in found):
            self.plain = UnquantizedFusedMoEMethod(moe)
            self.experts_cls = self.plain.experts_cls

    def maybe_roundup_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """The hidden and the intermediate size that the kernel wants, at least the model's."""
        if self.plain is not None:
            return self.plain.maybe_roundup_sizes(*args, **kwargs)
        return super().maybe_roundup_sizes(*args, **kwargs)

    def create_weights(
        self,
        layer: RoutedExperts,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Register a parameter for every suffix of the gate and up, and of the down projections.

        Raises:
            StoredShapeError: a word or a group of a projection would lie on two ranks.
        """
        self.experts, self.dtype = num_experts, params_dtype
        self.activation = activation(self.moe)
        self.padded = self._sizes(hidden_size, intermediate_size_per_partition)
        self.sizes = self._sizes(
            self.moe.hidden_dim_unpadded or hidden_size,
            self.moe.intermediate_size_per_partition_unpadded or intermediate_size_per_partition,
        )
        local = layer._map_global_expert_id_to_local_expert_id
        ranks = self.moe.tp_rank, self.moe.tp_size
        device = torch.get_default_device()
        self.suffixes = {
            group: tuple(dict.fromkeys(one.suffix for name in names for one in self.parts[name].entries()))
            for group, names in self.groups.items()
        }
        for group, names in self.groups.items():
            for suffix in self.suffixes[group]:
                stored = {name: self._axes(name, suffix) for name in names}
                tensor = ExpertTensor(suffix, stored, num_experts, local, *ranks, device)
                layer.register_parameter(f"{group}_{suffix}", tensor)
            if self.moe.has_bias:
                channels = self.padded[names[0]]["out"] * len(names)
                bias = torch.nn.Parameter(
                    torch.zeros(num_experts, channels, dtype=params_dtype), requires_grad=False
                )
                bias.weight_loader = extra_weight_attrs["weight_loader"]
                layer.register_parameter(f"{group}_bias", bias)

    def _sizes(self, hidden: int, intermediate: int) -> dict[str, dict[Dim, int]]:
        """The sizes of every projection on this rank."""
        inward: dict[Dim, int] = {"out": intermediate * (1 + self.joined), "in": hidden}
        outward: dict[Dim, int] = {"out": hidden, "in": intermediate}
        return {name: outward if name == DOWN else inward for name in self.parts}

    def _axes(self, name: str, suffix: str) -> tuple[Axis, ...] | None:
        """The stored axes of a tensor; the intermediate side of a projection is spread over the ranks."""
        part = self.parts[name]
        entry = next((one for one in part.entries() if one.suffix == suffix), None)
        if entry is None:
            return None
        here = self.sizes[name]
        split = DIMS[1] if name == DOWN else DIMS[0]
        return axes(entry, Sizes(here, {**here, split: here[split] * self.moe.tp_size}), part.layout.numbers)

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        """Dequantize the weights, unless they are to stay packed, and set up what happens to inputs.

        Raises:
            MissingTensorError: the checkpoint lacks a tensor of an expert.
        """
        stored = [
            {
                name: self._taken(layer, expert, group, name)
                for group, names in self.groups.items()
                for name in names
            }
            for expert in range(self.experts)
        ]
        for group, suffixes in self.suffixes.items():
            for suffix in suffixes:
                delattr(layer, f"{group}_{suffix}")
        self.projections = [
            {name: Projection(self.parts[name], tensors) for name, tensors in one.items()} for one in stored
        ]
        self.stored = stored if self.packed else []
        if self.packed:
            return
        for group, names in self.groups.items():
            weights = [torch.cat([self._dequantized(one[name], name) for name in names]) for one in stored]
            parameter = torch.nn.Parameter(torch.stack(weights), requires_grad=False)
            layer.register_parameter(f"{group}_{WEIGHT}", parameter)
        if self.plain is not None:
            self.plain.process_weights_after_loading(layer)
            self.moe_quant_config, self.moe_kernel = self.plain.moe_quant_config, self.plain.moe_kernel

    def _taken(self, layer: RoutedExperts, expert: int, group: str, name: str) -> Tensors:
        """The tensors of one projection of one expert."""
        taken = {}
        for entry in self.parts[name].entries():
            tensor = getattr(layer, f"{group}_{entry.suffix}").of(expert, name)
            if tensor is not None:
                taken[entry.suffix] = tensor
            elif not entry.optional:
                raise MissingTensorError(
                    f"{layer.layer_name}: the checkpoint lacks {entry.suffix} of {name} of expert {expert} "
                    f"for {self.parts[name].layout.row.title}"
                )
        return taken

    def _dequantized(self, stored: Tensors, name: str) -> torch.Tensor:
        """The weight of one projection in the model's dtype, zero where it is padded."""
        here, padded = self.sizes[name], self.padded[name]
        tensors = {suffix: tensor for suffix, tensor in stored.items() if suffix.startswith(WEIGHT)}
        weight = self.parts[name].layout.dequantize(tensors, *(here[dim] for dim in DIMS)).to(self.dtype)
        if here == padded:
            return weight
        whole = weight.new_zeros(*(padded[dim] for dim in DIMS))
        whole[tuple(slice(here[dim]) for dim in DIMS)] = weight
        return whole

    def get_fused_moe_quant_config(self, layer: RoutedExperts) -> FusedMoEQuantConfig | None:
        """No scales: weights and inputs are dequantized."""
        if self.plain is not None:
            return self.plain.get_fused_moe_quant_config(layer)
        return FUSED_MOE_UNQUANTIZED_CONFIG

    def apply_monolithic(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As vLLM's unquantized experts, which alone can ask for it."""
        if self.plain is None:
            raise NotImplementedError("experts with quantized inputs are routed by vLLM")
        return self.plain.apply_monolithic(*args, **kwargs)

    def apply(  # noqa: PLR0913, PLR0917 - as vLLM calls it
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """`x` [tokens, hidden] through each token's `topk_ids`, in the dtype of `x`, summed in float32."""
        if self.plain is not None:
            return self.plain.apply(layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input)
        ids = topk_ids if layer.expert_map is None else layer.expert_map[topk_ids]
        output = torch.zeros_like(x, dtype=torch.float32)
        for expert in range(self.experts):
            token, choice = torch.where(ids == expert)
            if not len(token):
                continue
            own, weight = x[token], topk_weights[token, choice, None]
            if layer.apply_router_weight_on_input:
                routed = self._expert(layer, expert, own * weight.to(x.dtype))
            else:
                routed = self._expert(layer, expert, own) * weight
            output.index_add_(0, token, routed.float())
        return output.to(x.dtype)

    def _expert(self, layer: RoutedExperts, expert: int, x: torch.Tensor) -> torch.Tensor:
        """One expert's output for its tokens."""
        for group, names in self.groups.items():
            weights = self._weights(layer, expert, group)
            biases = self._biases(layer, expert, group)
            outputs = [
                self.projections[expert][name](x, weight, bias)
                for name, weight, bias in zip(names, weights, biases, strict=True)
            ]
            x = torch.cat(outputs, -1)
            if group == INWARD:
                x = self.activation(x)
        return x

    def _biases(self, layer: RoutedExperts, expert: int, group: str) -> Sequence[torch.Tensor | None]:
        """The biases [out] of the projections of one group."""
        count = len(self.groups[group])
        return getattr(layer, f"{group}_bias")[expert].chunk(count) if self.moe.has_bias else [None] * count

    def _weights(self, layer: RoutedExperts, expert: int, group: str) -> Sequence[torch.Tensor]:
        """The dequantized weights [out, in] of the projections of one group."""
        names = self.groups[group]
        if self.packed:
            return [self._dequantized(self.stored[expert][name], name) for name in names]
        return getattr(layer, f"{group}_{WEIGHT}")[expert].chunk(len(names))
