"""Sizes that a target's scheme asks of a module on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quark_format.layouts import DIMS
from quark_format.validators.parallel import split_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quark_format.layouts import Dim
    from quark_format.plan import Planned
    from quark_format.resolver import Requirement
    from quark_format.validators.context import Context

_SPLIT, _WHOLE = "intermediate", "hidden"
_UNKNOWN = (0, 1)


def unmet(one: Planned, requires: Sequence[Requirement], context: Context) -> str | None:
    """The first size that is not a multiple of what it must be, in words; None where all are.

    Of modules that the target merges, the last may have another size where only merging asks for it. The
    requirements of experts name dimensions by what they are in the layer: `intermediate` is the one that
    ranks share.
    """
    parts = list(one.stored.values())
    for name in parts:
        entry = context.by_module.get(name)
        split, most = split_of(context, name)
        for asked in requires if entry else ():
            dim = _dimension(asked.dimension, split)
            low, high = entry.sizes.get(dim, _UNKNOWN) if entry and dim else _UNKNOWN
            ranks = min(context.tensor_parallel_size, most) if dim == split else 1
            counts = {
                "always": True,
                "sharded": ranks > 1,
                "sharded_or_merged": ranks > 1 or name != parts[-1],
            }
            if low == high and counts[asked.when] and (low / ranks) % asked.multiple_of:
                shared = f" on each of {ranks} ranks" if ranks > 1 else ""
                return f"{dim} = {low / ranks:g} of `{name}`{shared} is no multiple of {asked.multiple_of}"
    return None


def _dimension(name: str, split: Dim | None) -> Dim | None:
    """The dimension of the weight that a requirement means."""
    other = next(dim for dim in DIMS if dim != split)
    known: dict[str, Dim | None] = {_SPLIT: split, _WHOLE: other}
    return next((dim for dim in DIMS if dim == name), known.get(name))
