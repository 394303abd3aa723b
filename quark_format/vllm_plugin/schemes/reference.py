"""Linear layers of any layout and any spec, by dequantization: the last candidate on every platform."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.quark.schemes import QuarkScheme

from quark_format.declarations import stages
from quark_format.layouts import DIMS, Dim, Entry
from quark_format.vllm_plugin.kernels.quantize import ActivationQuantizer, same
from quark_format.vllm_plugin.kernels.rotate import hadamard, rotate, rotation_matrix
from quark_format.vllm_plugin.layout import INPUT, OUTPUT, WEIGHT, Checkpoint, WeightLayout
from quark_format.vllm_plugin.stored import Sizes, StoredTensor, axes

KEEP_PACKED = "QUARK_FORMAT_VLLM_KEEP_PACKED"
"""Environment variable that, where it is 1, keeps weights packed and dequantizes them in every pass."""


class MissingTensorError(ValueError):
    """A tensor that the config asks for and the checkpoint does not have."""


@dataclass(frozen=True)
class InputTransform:
    """What happens to the input of one part: scaled, rotated, then quantized and dequantized."""

    prescale: torch.Tensor | None
    rotation: torch.Tensor | None
    quantizer: ActivationQuantizer | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., in], in its dtype."""
        if self.prescale is not None:
            x = x * self.prescale.to(x.dtype)
        if self.rotation is not None:
            x = _rotated(x, self.rotation)
        return x if self.quantizer is None else self.quantizer(x)

    def equals(self, other: InputTransform) -> bool:
        """Whether `other` gives the same values."""
        tensors = ((self.prescale, other.prescale), (self.rotation, other.rotation))
        if not all(same(*pair) for pair in tensors):
            return False
        if self.quantizer is None:
            return other.quantizer is None
        return self.quantizer.equals(other.quantizer)


def _rotated(x: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    features = x.shape[-1]
    whole = stored.shape[0] == features and not stored.is_floating_point() and not features & (features - 1)
    return hadamard(x) if whole else rotate(x, rotation_matrix(stored))


@dataclass(frozen=True)
class Part:
    """One module of the checkpoint: its weight's layout, stages and tensors of its input and output."""

    layout: WeightLayout
    activations: Mapping[str, tuple[Mapping[str, Any], ...]]
    activation_entries: tuple[Entry, ...]

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        weight: Any = None,
        input: Any = None,  # noqa: A002 - a row's argument
        output: Any = None,
        *,
        rotated: bool = False,
    ) -> Part:
        """From the specs of weight, input and output, null for none; the input of a `rotated` one is rotated.

        Raises:
            NoLayoutError: the format has no layout for them.
        """
        rows = checkpoint.row(INPUT, input), checkpoint.row(OUTPUT, output)
        entries = [entry for row in rows for entry in row.entries]
        specs = {INPUT: tuple(stages(input)), OUTPUT: tuple(stages(output))}
        rotation = checkpoint.rotation if rotated else ()
        return cls(WeightLayout.of(checkpoint, weight), specs, (*entries, *rotation))

    @property
    def input_stages(self) -> tuple[Mapping[str, Any], ...]:
        """The stages of its input, none for an input as it is."""
        return self.activations[INPUT]

    def entries(self) -> Sequence[Entry]:
        """Every tensor that the module has."""
        return (*self.layout.row.entries, *self.activation_entries)

    def transform(self, stored: Mapping[str, torch.Tensor]) -> InputTransform:
        """What happens to this part's input, with its stored scales and rotation."""
        rotation = stored.get("input_rotation")
        return InputTransform(stored.get("input_prescale"), rotation, self.quantizer(stored))

    def quantizer(self, stored: Mapping[str, torch.Tensor], of: str = INPUT) -> ActivationQuantizer | None:
        """What quantizes this part's input or output, with its stored scales; None for one as it is."""
        if not self.activations[of]:
            return None
        scale, scale_2 = (_float(stored.get(f"{of}_{name}")) for name in ("scale", "scale_2"))
        return ActivationQuantizer(self.activations[of], scale, stored.get(f"{of}_zero_point"), scale_2)


def _float(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(torch.float32)


class ReferenceLinear(QuarkScheme):
    """Dequantized weights times quantized and dequantized inputs, for each part of a layer by its own specs.

    Args:
        checkpoint: how the checkpoint lays tensors out
        parts: for each module that is joined in the layer the row's arguments, specs by position
    """

    def __init__(self, checkpoint: Checkpoint, parts: Sequence[Mapping[str, Any]]) -> None:
        """Find the layouts.

        Raises:
            NoLayoutError: the format has none for a part.
        """
        self.parts = [Part.of(checkpoint, **arguments) for arguments in parts]
        self.kernel = UnquantizedLinearMethod()

    @classmethod
    def get_min_capability(cls) -> int:
        """It runs everywhere."""
        return 0

    def create_weights(  # noqa: PLR0913, PLR0917 - as vLLM calls it
        self,
        layer: torch.nn.Module,
        output_partition_sizes: Sequence[int],
        input_size_per_partition: int,
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        """Register a parameter for every suffix that a part has.

        Raises:
            StoredShapeError: a word or a group of a part would lie on two ranks.
        """
        if len(self.parts) != len(output_partition_sizes):
            self.parts = [self.parts[0]] * len(output_partition_sizes)
        self.sizes = [
            Sizes({"out": out, "in": input_size_per_partition}, {"out": whole, "in": input_size}, start)
            for out, whole, start in outputs(layer, output_partition_sizes, output_size)
        ]
        self.dtype = params_dtype
        device = torch.get_default_device()
        suffixes = dict.fromkeys(entry.suffix for part in self.parts for entry in part.entries())
        for suffix in suffixes:
            found = []
            for part, sizes in zip(self.parts, self.sizes, strict=True):
                entry = next((one for one in part.entries() if one.suffix == suffix), None)
                found.append(None if entry is None else axes(entry, sizes, part.layout.numbers))
            stored = StoredTensor(suffix, found, layer.tp_rank, layer.tp_size, device)
            layer.register_parameter(suffix, stored)
        self.suffixes = tuple(suffixes)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Dequantize the weight, unless it is to stay packed, and set up the quantizers of the input.

        Raises:
            MissingTensorError: the checkpoint lacks a tensor.
        """
        self.stored = [self._taken(layer, at, part) for at, part in enumerate(self.parts)]
        for suffix in self.suffixes:
            delattr(layer, suffix)
        self.transforms = [part.transform(own) for part, own in zip(self.parts, self.stored, strict=True)]
        self.outputs = [
            part.quantizer(own, OUTPUT) for part, own in zip(self.parts, self.stored, strict=True)
        ]
        self.alike = all(
            part.activations[INPUT] == self.parts[0].activations[INPUT]
            and transform.equals(self.transforms[0])
            for part, transform in zip(self.parts, self.transforms, strict=True)
        )
        self.packed = os.environ.get(KEEP_PACKED) == "1"
        if self.packed:
            return
        layer.weight = torch.nn.Parameter(self.weight(), requires_grad=False)
        self.stored = []
        if self.alike:
            self.kernel.process_weights_after_loading(layer)

    def weight(self) -> torch.Tensor:
        """The dequantized weight of all parts in the model's dtype; rows that pad a vocabulary are zero."""
        return torch.cat([self._dequantized(at).to(self.dtype) for at in range(len(self.parts))])

    def _dequantized(self, at: int) -> torch.Tensor:
        size = self.sizes[at].here
        return self.parts[at].layout.dequantize(_weights(self.stored[at]), *(size[dim] for dim in DIMS))

    def _taken(self, layer: torch.nn.Module, at: int, part: Part) -> dict[str, torch.Tensor]:
        taken = {}
        for entry in part.entries():
            tensor = getattr(layer, entry.suffix).parts[at]
            if tensor is not None:
                taken[entry.suffix] = tensor
            elif not entry.optional:
                which = f"{entry.suffix} of part {at + 1} of {len(self.parts)}"
                raise MissingTensorError(
                    f"{layer.prefix}: the checkpoint lacks {which} for {part.layout.row.title}"
                )
        return taken

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`x` [..., in] times the weight, plus `bias` [out], in the dtype of `x`."""
        output = self._products(layer, x, bias)
        if not any(self.outputs):
            return output
        pieces = output.split(self._widths, -1)
        return torch.cat(
            [piece if of is None else of(piece) for of, piece in zip(self.outputs, pieces, strict=True)], -1
        )

    @property
    def _widths(self) -> list[int]:
        return [size.here["out"] for size in self.sizes]

    def _products(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self.alike and not self.packed:
            return self.kernel.apply(layer, self.transforms[0](x), bias)
        weight = self.weight() if self.packed else layer.weight
        pieces = weight.split(self._widths)
        outputs = [
            torch.nn.functional.linear(transform(x), piece)
            for transform, piece in zip(self.transforms, pieces, strict=True)
        ]
        output = torch.cat(outputs, -1)
        return output if bias is None else output + bias


def _weights(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {suffix: tensor for suffix, tensor in stored.items() if suffix.startswith(WEIGHT)}


def outputs(
    layer: torch.nn.Module, partitions: Sequence[int], output_size: int
) -> Iterable[tuple[int, int, dict[Dim, int]]]:
    """For each part its output channels on this rank and as a whole, and a start that is no multiple."""
    vocabulary = getattr(layer, "shard_indices", None)
    if vocabulary is not None:
        start, end = vocabulary.org_vocab_start_index, vocabulary.org_vocab_end_index
        return [(end - start, layer.org_vocab_size, {"out": start})]
    if hasattr(layer, "total_num_kv_heads"):
        heads = (layer.total_num_heads, layer.total_num_kv_heads, layer.total_num_kv_heads)
        widths = (layer.head_size, layer.head_size, layer.v_head_size)
        whole = [count * width for count, width in zip(heads, widths, strict=True)]
    else:
        whole = getattr(layer, "output_sizes", None) or [output_size]
    return [(here, size, {}) for here, size in zip(partitions, whole, strict=True)]
