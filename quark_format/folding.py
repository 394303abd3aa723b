"""A smaller checkpoint that is judged as the whole one is: of each layer's equal experts, the first.

A mixture of 256 experts of which every one has the same tensors, dtypes and shapes, and that no pattern of
the config tells apart, has no finding unless the same model with one expert has one. So a million tensors
are judged by some ten thousand. Where experts differ there is no smaller checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count, repeat
from operator import contains, not_
from typing import TYPE_CHECKING, Any

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
    for container in table("roles.json")["experts"]["containers"]:
        members = _Members(checkpoint.shards, container)
        if not members.heads or not (_in_order(members, number) or _alike(members, number)):
            continue
        if not _indifferent(checkpoint.config or {}, container, tuple(members.heads), number):
            return None
        path, file = checkpoint.path, checkpoint.config_file
        return Checkpoint(path, smaller, file, members.others_and_first(), unread=checkpoint.unread)
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


class _Members:
    """The tensors in containers of experts.

    `heads` are what the names of each layer's experts begin with, up to the number, each with what follows on
    the number in the names of its first expert.
    """

    def __init__(self, shards: Sequence[Shard], container: str) -> None:
        self._shards = shards
        self._kept: list[list[int]] = []
        self.names: list[str] = []
        self.extents: list[Extent] = []
        self.heads: dict[str, list[str]] = {}
        inner, first = f".{container}.", f".{container}.0."
        for shard in shards:
            names, extents, _ = shard.columns or Columns((), (), ())
            inside = list(map(contains, names, repeat(inner)))
            self.names += compress(names, inside)
            self.extents += compress(extents, inside)
            firsts = list(compress(count(), map(contains, names, repeat(first))))
            self._kept.append(sorted([*compress(count(), map(not_, inside)), *firsts]))
            for at in firsts:
                head, _, rest = names[at].partition(first)
                self.heads.setdefault(f"{head}{inner}", []).append(f".{rest}")

    def others_and_first(self) -> list[Shard]:
        """The shards without the members that are not of a first expert."""
        return [_part(shard, places) for shard, places in zip(self._shards, self._kept, strict=True)]


def _part(shard: Shard, places: Sequence[int]) -> Shard:
    names, extents, ends = shard.columns or Columns((), (), ())
    tensors: dict[str, Tensor] = {}
    for at in places:
        dtype, shape, size = extents[at]
        tensors[names[at]] = Tensor(names[at], dtype, shape, shard.file, ends[at] - (size or 0), ends[at])
    return Shard(shard.file, tensors, shard.metadata, shard.size)


def _in_order(members: _Members, number: int) -> bool:
    """Whether the members are, layer by layer, equal experts one behind the other, as is usual."""
    names, extents = members.names, members.extents
    numbers = {str(at) for at in range(number)}
    at = 0
    for head, ends in members.heads.items():
        first, last, size = len(head), len(ends[0]), len(ends)
        stop = at + number * size
        order = [name[first:-last] for name in names[at:stop:size]]
        if len(order) != number or set(order) != numbers:
            return False
        if names[at:stop] != [head + which + end for which in order for end in ends]:
            return False
        if extents[at:stop] != extents[at : at + size] * number:
            return False
        at = stop
    return at == len(names) and not any("\n" in head for head in members.heads)


def _alike(members: _Members, number: int) -> bool:
    """Whether the members are `number` experts in each layer that have the tensors of the first one."""
    wanted = number * sum(map(len, members.heads.values()))
    if len(members.names) != wanted or any("\n" in head for head in members.heads):
        return False
    extents = dict(zip(members.names, members.extents, strict=True))
    numbers = [str(at) for at in range(number)]
    for head, ends in members.heads.items():
        for end in ends:
            found = list(map(extents.get, [head + at + end for at in numbers]))
            if found.count(found[0]) != number:
                return False
    return True


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
