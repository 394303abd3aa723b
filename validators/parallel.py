"""Whether the model can be split over the ranks of tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quark_format.layouts import parameters
from quark_format.roles import routed_experts
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from quark_format.layouts import Dim
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_MOST_RANKS = 64
_UNEVEN = "which is not the same for all"


@dataclass(frozen=True, slots=True)
class Split:
    """A size that ranks share: `size` elements, or heads, called `what`.

    A rank's share must be a multiple of `number`, a `divisor` such as the group size. Beyond `most` ranks
    several ranks hold the same part, as of KV heads. `module` is None for a number of config.json, `count`
    counts the modules.
    """

    module: str | None
    count: int
    what: str
    size: int
    divisor: str = ""
    number: int = 1
    most: int = _MOST_RANKS

    def share(self, ranks: int) -> float:
        """What one of `ranks` ranks gets."""
        return self.size / min(ranks, self.most)

    def works(self, ranks: int) -> bool:
        """Whether `ranks` ranks can share it."""
        repeats = ranks <= self.most or ranks % self.most == 0
        return repeats and self.share(ranks) % self.number == 0


def check(context: Context) -> Iterator[Finding]:
    """Yield sizes that the ranks cannot share, with the numbers of ranks that can share all."""
    ranks = context.tensor_parallel_size
    if ranks == 1:
        return
    found = list(splits(context))
    advice = _listed(
        number for number in range(1, _MOST_RANKS + 1) if all(one.works(number) for one in found)
    )
    failing = {(one.module, one.what): one for one in found if not one.works(ranks)}
    for one in failing.values():
        yield finding(
            "QF601",
            file=None if one.module else context.checkpoint.config_file,
            module=one.module,
            pointer=None if one.module else f"/{one.what}",
            count=one.count,
            place=f"`{one.module}`" if one.module else "The model",
            dim=one.what,
            size=one.size,
            ranks=ranks,
            share=f"{one.share(ranks):.4g}",
            problem=f"which {one.divisor} = {one.number} does not divide" if one.divisor else _UNEVEN,
            advice=advice,
        )


def _listed(sizes: Iterable[int]) -> str:
    told = [str(size) for size in sizes]
    return " or ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told) or "none"


def splits(context: Context) -> Iterator[Split]:
    """Every size that ranks share: numbers of heads, and a dimension of each class of modules."""
    rows = table("roles.json")["parallel"]
    for row in rows["counts"]:
        key, number = _count(context, row["config"])
        if number:
            yield Split(None, 1, key, number, most=number if row["copied"] else _MOST_RANKS)
    for entry in context.sound:
        row = _row(context, entry.first.name)
        if row is not None:
            yield from _of(entry, row, context)


def split_of(context: Context, module: str) -> tuple[Dim | None, int]:
    """The dimension of the module that ranks share, None where each has it whole, and by how many at most."""
    row = _row(context, module)
    return (None, 1) if row is None else (row["dim"], _most(context, row))


def _row(context: Context, module: str) -> Mapping[str, Any] | None:
    """The row of the module; None where ranks do not share it."""
    if context.expert_parallel and routed_experts(module) is not None:
        return None
    rows, leaf = table("roles.json")["parallel"]["modules"], module.rpartition(".")[2]
    return next((row for row in rows if leaf in row["modules"]), None)


def _most(context: Context, row: Mapping[str, Any]) -> int:
    return _count(context, row.get("copied_beyond", ()))[1] or _MOST_RANKS


def _count(context: Context, keys: Iterable[str]) -> tuple[str, int]:
    """The first of the keys that config.json gives a number for, and the number."""
    given = ((key, context.text.get(key)) for key in keys)
    return next(((key, value) for key, value in given if isinstance(value, int) and value > 0), ("", 0))


def _of(entry: Judged, row: Mapping[str, Any], context: Context) -> Iterator[Split]:
    dim: Dim = row["dim"]
    low, high = entry.sizes.get(dim, (0, 1))
    if low != high:
        return
    multiple = row.get("padded_to", 1)
    padded = -(-low // multiple) * multiple
    divisors = _divisors(entry, dim) or ({} if row.get("mixed") else {"": 1})
    for name, number in divisors.items():
        yield Split(entry.first.name, len(entry.members), dim, padded, name, number, _most(context, row))


def _divisors(entry: Judged, dim: Dim) -> dict[str, int]:
    """Groups, blocks and packed words of the weight along a dimension, by what they are called."""
    row = entry.rows["weight"]
    if row is None or not entry.stores_codes:
        return {}
    numbers = parameters(entry.specs["weight"])
    found: dict[str, int] = {}
    for tensor in row.entries:
        for term in tensor.shape if isinstance(tensor.shape, tuple) else ():
            number = term.divisor(numbers)
            if term.of == dim and number is not None and number > 1:
                found[str(term.over) if isinstance(term.over, str) else "pack factor"] = number
    return found
