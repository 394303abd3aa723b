"""A smaller checkpoint that is judged as the whole one is: of each layer's equal experts, the first.

A mixture of 256 experts of which every one has the same tensors, dtypes and shapes, and that no pattern of
the config tells apart, has no finding unless the same model with one expert has one. So a million tensors
are judged by some ten thousand. Where experts differ there is no smaller checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quark_format.checkpoint import Checkpoint
from quark_format.regular import Expression, PatternError
from quark_format.safetensors_header import Shard, Tensor
from quark_format.tables import table

if TYPE_CHECKING:
    from quark_format.safetensors_header import Extent

KEPT = 1
"""How many experts of a layer stay."""

_LEAST = 8
_MOST_EVALUATIONS = 20_000
_WILD = re.compile(r"[*?\[]")
_EXPRESSION = "re:"

_Member = tuple[str, "Extent"]
_Heads = Mapping[str, Sequence[str]]
"""What the names of a layer's experts begin with, up to the number, and what follows on it."""


def folded(checkpoint: Checkpoint) -> Checkpoint | None:
    """`checkpoint` with `KEPT` experts in each layer; None where it has none or they are not all alike."""
    if checkpoint.merged is not None or any(shard.columns is None for shard in checkpoint.shards):
        return None
    config = _with_fewer(checkpoint.config or {})
    if config is None:
        return None
    smaller, number = config
    for container in table("roles.json")["experts"]["containers"]:
        marker = f".{container}."
        members = _members(checkpoint, marker)
        heads = _heads([name for name, _ in members], container)
        if not heads or not (_in_order(members, heads, number) or _alike(members, heads, number)):
            continue
        if not _indifferent(checkpoint.config or {}, container, tuple(heads), number):
            return None
        kept = {f"{head}{at}{end}" for head, ends in heads.items() for at in range(KEPT) for end in ends}
        shards = [_few(shard, marker, kept) for shard in checkpoint.shards]
        path, file = checkpoint.path, checkpoint.config_file
        return Checkpoint(path, smaller, file, shards, unread=checkpoint.unread)
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


def _heads(members: Sequence[str], container: str) -> dict[str, list[str]]:
    marker = f".{container}.0."
    heads: dict[str, list[str]] = {}
    for name in members:
        if marker in name:
            head, _, rest = name.partition(marker)
            heads.setdefault(f"{head}.{container}.", []).append(f".{rest}")
    return heads


def _members(checkpoint: Checkpoint, marker: str) -> list[_Member]:
    return [
        row
        for shard in checkpoint.shards
        if shard.columns is not None
        for row in zip(shard.columns.names, shard.columns.extents, strict=True)
        if marker in row[0]
    ]


def _in_order(members: Sequence[_Member], heads: _Heads, number: int) -> bool:
    """Whether the members are, layer by layer, equal experts one behind the other, as is usual."""
    names, extents = zip(*members, strict=True)
    numbers = {str(at) for at in range(number)}
    at = 0
    for head, ends in heads.items():
        first, size = len(head), len(ends)
        last = len(ends[0])
        stop = at + number * size
        order = [name[first:-last] for name in names[at:stop:size]]
        if len(order) != number or set(order) != numbers:
            return False
        if list(names[at:stop]) != [head + which + end for which in order for end in ends]:
            return False
        if extents[at:stop] != extents[at : at + size] * number:
            return False
        at = stop
    return at == len(names) and not any("\n" in head for head in heads)


def _alike(members: Sequence[_Member], heads: _Heads, number: int) -> bool:
    """Whether the `members` of the containers are `number` experts that have the tensors of the first one."""
    if len(members) != number * sum(map(len, heads.values())) or any("\n" in head for head in heads):
        return False
    extents = dict(members)
    numbers = [str(at) for at in range(number)]
    for head, ends in heads.items():
        for end in ends:
            found = list(map(extents.get, [head + at + end for at in numbers]))
            if found.count(found[0]) != number:
                return False
    return True


def _few(shard: Shard, marker: str, kept: set[str]) -> Shard:
    tensors: dict[str, Tensor] = {}
    if shard.columns is not None:
        stay = [row for row in zip(*shard.columns, strict=True) if marker not in row[0] or row[0] in kept]
        for name, (dtype, shape, size), end in stay:
            tensors[name] = Tensor(name, dtype, shape, shard.file, end - (size or 0), end)
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
