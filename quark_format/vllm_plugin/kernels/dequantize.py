"""From the stored tensors of one weight to its float32 values, bit for bit as amd-quark 0.13 does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

Grid = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """values = (values - minus) * (product of times); the texts are suffixes of tensors."""

    minus: str | None
    times: tuple[str, ...]


def spread(grid: torch.Tensor, rows: int, columns: int, block: Grid | None = None) -> torch.Tensor:
    """A scale or zero point for every element of a weight [rows, columns].

    `grid` has one value for each block of the weight and is of shape [blocks of rows, blocks of columns];
    `block` is the size of a block, where the last ones are cut short. What broadcasts is left as it is.
    """
    for axis, size in enumerate((rows, columns)):
        count = grid.shape[axis]
        if count in {1, size}:
            continue
        each = -(-size // count) if block is None else block[axis]
        grid = grid.repeat_interleave(each, axis).narrow(axis, 0, size)
    return grid


def apply_steps(
    values: torch.Tensor, steps: Sequence[Step], grids: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """The weight of decoded codes `values`, float32 [out, in].

    `grids` holds scales and zero points in float32, broadcast to the weight's shape; a zero point that is not
    there is zero. The order of the products is amd-quark's, since float32 products round.
    """
    for step in steps:
        if step.minus is not None and step.minus in grids:
            values = values - grids[step.minus]
        first, *others = step.times
        scale = grids[first]
        for other in others:
            scale = scale * grids[other]
        values = values * scale
    return values
