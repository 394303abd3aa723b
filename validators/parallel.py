"""Whether the modules can be split over the ranks of tensor parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quark_format.layouts import parameters
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.layouts import Dim
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_MOST_RANKS = 64


def check(context: Context) -> Iterator[Finding]:
    """Yield modules whose share of a rank a group, block or packed word would straddle."""
    ranks = context.tensor_parallel_size
    if ranks == 1:
        return
    for entry in context.sound:
        for dim, divisor, number in _divisors(entry):
            low, high = entry.fit.sizes.get(dim, (0, 1))
            if low == high and not _splits(low, ranks, number):
                yield finding(
                    "QF601",
                    module=entry.first.name,
                    count=len(entry.members),
                    dim=dim,
                    size=low,
                    ranks=ranks,
                    share=f"{low / ranks:g}",
                    divisor=divisor,
                    number=number,
                    advice=_working(low, number),
                )


def _splits(size: int, ranks: int, number: int) -> bool:
    return size % ranks == 0 and (size // ranks) % number == 0


def _working(size: int, number: int) -> str:
    sizes = [str(ranks) for ranks in range(1, _MOST_RANKS + 1) if _splits(size, ranks, number)]
    return " or ".join([", ".join(sizes[:-1]), sizes[-1]] if len(sizes) > 1 else sizes) or "none"


def _divisors(entry: Judged) -> Iterator[tuple[Dim, str, int]]:
    """What must divide a rank's share of the dimension that loaders split for this module."""
    split = table("roles.json")["parallel"]
    leaf = entry.first.name.rpartition(".")[2]
    dim: Dim | None = next((row["dim"] for row in split if leaf in row["modules"]), None)
    row = entry.rows["weight"]
    if dim is None or row is None or not entry.stores_codes:
        return
    numbers = parameters(entry.specs["weight"])
    seen: dict[str, int] = {}
    for tensor in row.entries:
        for term in tensor.shape if isinstance(tensor.shape, tuple) else ():
            number = term.divisor(numbers)
            if term.of == dim and number is not None and number > 1:
                seen[str(term.over) if isinstance(term.over, str) else "pack factor"] = number
    yield from ((dim, name, number) for name, number in seen.items())
