"""Parameters that keep the tensors of a checkpoint as they are stored, one for each part of a fused layer.

A fused layer (`qkv_proj`, `gate_up_proj`) joins modules of the checkpoint along their output channels. Their
scales, packed words and padding do not join, so each part keeps its own tensor until it is dequantized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from quark_format.layouts import DIMS, Dim, Entry

QKV = {"q": 0, "k": 1, "v": 2}
"""vLLM's names of the parts of an attention input projection."""


class StoredShapeError(ValueError):
    """A tensor of the checkpoint that does not split over the ranks; the text names both sizes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a part on this rank and as a whole, and where this rank begins if not at a multiple."""

    here: Mapping[Dim, int]
    whole: Mapping[Dim, int]
    start: Mapping[Dim, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Axis:
    """One stored axis: the dimension of the weight it runs along, its length on this rank and as a whole."""

    dim: Dim
    here: int
    whole: int
    start: int | None


def axes(entry: Entry, sizes: Sizes, numbers: Mapping[str, int]) -> tuple[Axis, ...] | None:
    """The stored axes of `entry` for a part of these sizes; None where the layout leaves its shape open.

    Raises:
        StoredShapeError: a word or a group would lie on two ranks.
    """
    if not isinstance(entry.shape, tuple):
        return None if entry.shape is None else ()
    found = []
    for term in entry.shape:
        here, whole = sizes.here[term.of], sizes.whole[term.of]
        over = term.divisor(numbers) or 1
        if here != whole and here * term.times % over:
            raise StoredShapeError(
                f"{entry.suffix}: {here} of {whole} {term.of} channels on one rank are no multiple of {over}"
            )
        here_stored, whole_stored = (term.elements((size, size), numbers) or 0 for size in (here, whole))
        start = sizes.start.get(term.of)
        start_stored = None if start is None else start * term.times // over
        found.append(Axis(term.of, here_stored, whole_stored, start_stored))
    return tuple(found)


class StoredTensor(torch.nn.Parameter):
    """The tensors of one suffix of a layer, one for each of its parts, set when they are loaded.

    It is an empty parameter to torch and loads with vLLM's weight loaders' arguments.
    """

    def __new__(cls, *_: Any, **__: Any) -> StoredTensor:
        """An empty parameter without a gradient."""
        return super().__new__(cls, torch.empty(0), requires_grad=False)

    def __init__(
        self, name: str, parts: Sequence[tuple[Axis, ...] | None], rank: int, ranks: int, device: torch.device
    ) -> None:
        """Expect one tensor for each of `parts`; this is `rank` of `ranks`."""
        super().__init__()
        self.suffix = name
        self.axes = tuple(parts)
        self.parts: list[torch.Tensor | None] = [None] * len(self.axes)
        self.rank, self.ranks = rank, ranks
        self.target = device

    @property
    def weight_loader(self) -> Callable[..., Any]:
        """What vLLM's models call with the parameter, the tensor and the part."""
        return _load

    def load(self, loaded: torch.Tensor, part: str | int | tuple[int, ...] | None) -> None:
        """Take `loaded` for one part, or, already joined in the checkpoint, for several or all of them.

        Raises:
            StoredShapeError: its size is no multiple of this rank's.
        """
        places = _places(part, len(self.parts))
        for place, own in zip(places, self._split(loaded, places), strict=True):
            self.parts[place] = self._narrowed(own, self.axes[place]).to(self.target, copy=True)

    def _split(self, loaded: torch.Tensor, places: Sequence[int]) -> Sequence[torch.Tensor]:
        known = [self.axes[place] for place in places]
        if len(places) == 1 or loaded.dim() == 0:
            return [loaded] * len(places)
        for at in range(loaded.dim()):
            if all(axis is not None and at < len(axis) and axis[at].dim == DIMS[0] for axis in known):
                return loaded.split([axis[at].whole for axis in known if axis is not None], at)
        return [loaded] * len(places)

    def _narrowed(self, loaded: torch.Tensor, expected: tuple[Axis, ...] | None) -> torch.Tensor:
        if not expected:
            return loaded.reshape(()) if loaded.numel() == 1 else loaded
        for at, axis in enumerate(expected):
            stored = loaded.shape[at]
            if stored == axis.here:
                continue
            start = axis.start
            if start is None:
                pieces, rest = divmod(stored, axis.here) if axis.here else (0, 1)
                start = self.rank * pieces // self.ranks * axis.here
                if rest or not pieces:
                    shape = list(loaded.shape)
                    raise StoredShapeError(
                        f"{self.suffix}: axis {at} of {shape} is no multiple of {axis.here}"
                    )
            loaded = loaded.narrow(at, start, axis.here)
        return loaded


def _places(part: str | int | tuple[int, ...] | None, count: int) -> Sequence[int]:
    if part is None:
        return range(count)
    if isinstance(part, str):
        return (QKV[part],)
    return part if isinstance(part, tuple) else (part,)


def _load(
    param: StoredTensor,
    loaded_weight: torch.Tensor,
    loaded_shard_id: str | int | tuple[int, ...] | None = None,
) -> None:
    param.load(loaded_weight, loaded_shard_id)
