"""What one rank holds of a stored tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from quark_format.layouts import DIMS, Dim
from quark_format.vllm_plugin.schemes.reference import Part
from quark_format.vllm_plugin.stored import Axis, Sizes, axes

Axes = tuple[Axis, ...] | None
Held = Callable[[str, Axes], torch.Tensor]
"""The rank's share of the tensor with a suffix, whose axes are given."""


def share(part: Part, whole: dict[Dim, int], ranks: int, split: Dim, held: Held) -> torch.Tensor:
    """The dequantized weight of one rank, with `split` of the `whole` size divided over `ranks`."""
    here: dict[Dim, int] = {dim: size // ranks if dim == split else size for dim, size in whole.items()}
    sizes = Sizes(here, whole)
    tensors = {
        entry.suffix: held(entry.suffix, axes(entry, sizes, part.layout.numbers))
        for entry in part.layout.row.entries
    }
    return part.layout.dequantize(tensors, *(here[dim] for dim in DIMS))
