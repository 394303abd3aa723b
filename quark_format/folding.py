"""A smaller checkpoint that is judged as the whole one is: of each layer's equal experts, the first.

A mixture of 256 experts of which every one has the same tensors, dtypes and shapes, and that no pattern of
the config tells apart, has no finding unless the same model with one expert has one. So a million tensors
are judged by some ten thousand. Where experts differ there is no smaller checkpoint.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from quark_format.checkpoint import Checkpoint
from quark_format.regular import Expression, PatternError
from quark_format.safetensors_header import Columns, Shard, Tensor
from quark_format.tables import table

if TYPE_CHECKING:
    from quark_format.safetensors_header import Extent

KEPT = 1
"""How many experts of a layer stay: the first."""

_LEAST = 8
_MOST_EVALUATIONS = 20_000
_WILD = re.compile(r"[*?\[]")
_EXPRESSION = "re:"


def folded(checkpoint: Checkpoint) -> Checkpoint | None:
    """`checkpoint` with `KEPT` experts in each layer; None where it has none or they are not all alike."""
    if checkpoint.merged is not None or any(shard.columns is None for shard in checkpoint.shards):
        return None
    config = _with_fewer(checkpoint.config or {})
    if config is None:
        return None
    smaller, number = config
    names = list(chain.from_iterable(shard.names for shard in checkpoint.shards))
    extents = list(chain.from_iterable(shard.columns.extents for shard in checkpoint.shards if shard.columns))
    for container in table("roles.json")["experts"]["containers"]:
        members = _in_order(names, extents, f".{container}.", number)
        members = members or _alike(names, extents, f".{container}.", number)
        if members is None:
            continue
        if not _indifferent(checkpoint.config or {}, container, members.heads, number):
            return None
        path, file = checkpoint.path, checkpoint.config_file
        return Checkpoint(
            path, smaller, file, _parts(checkpoint.shards, members.kept), unread=checkpoint.unread
        )
    return None


def _with_fewer(config: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
    """`config` with `KEPT` experts, and how many it gives; None if it gives none, few, or several numbers."""
    counts, nested = table("roles.json")["experts"]["counts"], table("roles.json")["text_configs"]
    inner = {key: config[key] for key in nested if isinstance(config.get(key), Mapping)}
    places = [config, *inner.values()]
    given = {place[key] for place in places for key in counts if isinstance(place.get(key), int)}
    if len(given) != 1 or (number := given.pop()) < _LEAST:
        return None
    fewer = [
        {key: KEPT if key in counts and isinstance(value, int) else value for key, value in place.items()}
        for place in places
    ]
    return fewer[0] | dict(zip(inner, fewer[1:], strict=True)), number


class _Members(NamedTuple):
    """Equal experts: what the names of each layer's begin with, up to the number, and who stays.

    `kept` are the places of all tensors but those of experts that are not the first.
    """

    heads: Sequence[str]
    kept: Sequence[int]


def _in_order(names: list[str], extents: list[Extent], inner: str, number: int) -> _Members | None:
    """The members if they are, layer by layer, equal experts one behind the other, as is usual."""
    heads: dict[str, None] = {}
    kept: list[int] = []
    rows: list[str] = []
    at = 0
    while at < len(names):
        before, found, rest = names[at].partition(inner)
        if not found:
            kept.append(at)
            at += 1
            continue
        head = before + inner
        one = f"{head}{rest.partition('.')[0]}."
        size = 1
        while at + size < len(names) and names[at + size].startswith(one):
            size += 1
        stop = at + number * size
        lines = "\n".join(names[at:stop])
        if stop - at != len(rows) or lines != head + f"\n{head}".join(rows):
            rows = [name[len(head) :] for name in names[at:stop]]
            if lines != head + f"\n{head}".join(rows) or not _numbered(rows, number, size):
                return None
        if stop > len(names) or head in heads or "\n" in head:
            return None
        if extents[at:stop] != extents[at : at + size] * number:
            return None
        first = at + rows.index(f"0.{rest.partition('.')[2]}")
        kept += range(first, first + size)
        heads[head] = None
        at = stop
    return _Members(list(heads), kept) if heads else None


def _numbered(rows: Sequence[str], number: int, size: int) -> bool:
    """Whether `rows` are `number` experts, each in `size` rows of `NUMBER.END` with the same ends."""
    order = [row.partition(".")[0] for row in rows[::size]]
    ends = [row.partition(".")[2] for row in rows[:size]]
    expected = [f"{which}.{end}" for which in order for end in ends]
    whole = rows == expected and len(order) == number and set(order) == set(map(str, range(number)))
    return whole and not any("\n" in end for end in ends)


def _alike(names: Sequence[str], extents: Sequence[Extent], inner: str, number: int) -> _Members | None:
    """The members if they are `number` experts in each layer that have the tensors of the first one."""
    inside = [inner in name for name in names]
    heads: dict[str, list[str]] = {}
    kept: list[int] = []
    for at, name in enumerate(names):
        head, first, end = name.partition(f"{inner}0.")
        if first:
            heads.setdefault(head + inner, []).append(f".{end}")
        if first or not inside[at]:
            kept.append(at)
    known = dict(compress(zip(names, extents, strict=True), inside))
    if not heads or len(known) != number * sum(map(len, heads.values())):
        return None
    if any("\n" in head for head in heads):
        return None
    numbers = [str(at) for at in range(number)]
    for head, ends in heads.items():
        for end in ends:
            found = list(map(known.get, [head + at + end for at in numbers]))
            if found.count(found[0]) != number:
                return None
    return _Members(list(heads), kept)


def _parts(shards: Sequence[Shard], kept: Sequence[int]) -> list[Shard]:
    """The shards with the tensors at the places `kept` of all, which are in order."""
    starts = [0, *accumulate(len(shard.names) for shard in shards)]
    cuts = [bisect_left(kept, start) for start in starts]
    return [
        _part(shard, [at - start for at in kept[begin:end]])
        for shard, start, (begin, end) in zip(shards, starts, pairwise(cuts), strict=False)
    ]


def _part(shard: Shard, places: Sequence[int]) -> Shard:
    names, extents, ends = shard.columns or Columns((), (), ())
    tensors: dict[str, Tensor] = {}
    for at in places:
        dtype, shape, size = extents[at]
        tensors[names[at]] = Tensor(names[at], dtype, shape, shard.file, ends[at] - (size or 0), ends[at])
    return Shard(shard.file, tensors, shard.metadata, shard.size)


def _indifferent(config: Mapping[str, Any], container: str, heads: Sequence[str], number: int) -> bool:
    """Whether no text of `config`, read as any reader reads patterns, tells some experts from others."""
    texts = set(_texts(config))
    if any(f"{container}." in text for text in texts if not _WILD.search(text)):
        return False
    wild = [text for text in texts if text.startswith(_EXPRESSION) or _WILD.search(text)]
    if len(wild) * len(heads) > _MOST_EVALUATIONS:
        return False
    numbers = [str(at) for at in range(number)]
    return all(_alike_by(text, heads, numbers) for text in wild)


def _alike_by(pattern: str, heads: Sequence[str], numbers: Sequence[str]) -> bool:
    if pattern.startswith(_EXPRESSION):
        text = pattern.removeprefix(_EXPRESSION)
    elif "[" in pattern:
        return False
    else:
        parts = (re.escape(part) for part in re.split(r"([*?])", pattern))
        text = "".join({r"\*": ".*", r"\?": "."}.get(part, part) for part in parts) + r"\Z"
    try:
        expression = Expression(text)
    except PatternError:
        return False
    return expression.indifferent(heads, numbers)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)
