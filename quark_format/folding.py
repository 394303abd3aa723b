"""A smaller checkpoint that is judged as the whole one is: of each layer's equal experts, the first few.

A mixture of 256 experts of which every one has the same tensors, dtypes and shapes, and that no pattern of
the config tells apart, has no finding unless the same model with a few experts has one. So a million tensors
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

KEPT = 2
"""How many experts stay: each has a neighbour."""

_LEAST = 8
_MOST_EVALUATIONS = 20_000
_WILD = re.compile(r"[*?\[]")
_EXPRESSION = "re:"

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
        members = [name for shard in checkpoint.shards for name in shard.names if marker in name]
        heads = _heads(members, container)
        if not heads or not _alike(checkpoint, len(members), heads, number):
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


def _alike(checkpoint: Checkpoint, members: int, heads: _Heads, number: int) -> bool:
    """Whether the `members` of the containers are `number` experts that have the tensors of the first one."""
    if members != number * sum(map(len, heads.values())) or any("\n" in head for head in heads):
        return False
    extents: dict[str, Extent] = {}
    for shard in checkpoint.shards:
        if shard.columns is not None:
            extents.update(zip(shard.columns.names, shard.columns.extents, strict=True))
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
