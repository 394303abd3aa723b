"""Compares a checkpoint's index with the shards that are there.

An index is `{"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}`, as huggingface_hub writes it.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from quark_format import json_text
from quark_format.json_text import UnreadableError
from quark_format.safetensors_header import canonical_size
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Collection

    from quark_format.problems import Problems
    from quark_format.safetensors_header import Shard, Tensor


@cache
def _numbered() -> re.Pattern[str]:
    return re.compile(table("safetensors.json")["files"]["numbered"])


def weight_map(index: Any, file: str, problems: Problems) -> dict[str, str]:
    """Return the entries of the index that name a file, and note the others.

    Raises:
        UnreadableError: the index has no weight_map.
    """
    if not isinstance(index, dict):
        raise UnreadableError(f"it is {json_text.kind(index)} and not an object")
    mapped = index.get("weight_map")
    if not isinstance(mapped, dict):
        found = f"is {json_text.kind(mapped)} and not an object" if "weight_map" in index else "is not there"
        raise UnreadableError(f"its weight_map {found}")
    with suppress(TypeError):
        if set(map(type, set(mapped.values()))) <= {str}:
            return mapped
    for name, shard in mapped.items():
        if not isinstance(shard, str):
            reason = f"it maps `{name}` to {json_text.kind(shard)} and not to a file name"
            problems.add("QF108", "entry", file=file, tensor=name, reason=reason)
    return {name: shard for name, shard in mapped.items() if isinstance(shard, str)}


def merge(shards: list[Shard], mapped: dict[str, str] | None, problems: Problems) -> dict[str, Tensor]:
    """Return the tensors of all shards by name, in the order of `shards`, and note those in two shards.

    With an index (`mapped`), a shard that it does not name counts only for tensors that it places elsewhere.
    """
    named = None if mapped is None else set(mapped.values())
    followed = [shard for shard in shards if named is None or shard.file in named]
    if len(shards) == 1 and followed:
        return shards[0].tensors
    merged: dict[str, Tensor] = {}
    for shard in followed:
        if not merged.keys().isdisjoint(shard.tensors):
            for name in sorted(merged.keys() & shard.tensors.keys()):
                problems.add("QF114", file=shard.file, tensor=name, other=merged[name].file)
        merged |= shard.tensors
    for shard in shards:
        if mapped is not None and shard not in followed:
            strays = (shard.tensors.keys() & mapped.keys()) - merged.keys()
            merged |= {name: tensor for name, tensor in shard.tensors.items() if name in strays}
    return merged


def compare(
    mapped: dict[str, str],
    tensors: dict[str, Tensor],
    unread: Collection[str],
    problems: Problems,
) -> None:
    """Note every tensor that is not in the file that the index maps it to, or not in the index.

    `tensors` are those of all shards (see `merge`), `unread` the files whose tensors are not known.
    """
    located = {name: tensor.file for name, tensor in tensors.items()}
    for name, file in mapped.items():
        if name not in located:
            if file not in unread:
                problems.add("QF109", file=file, tensor=name)
        elif located[name] != file and file not in unread:
            problems.add("QF111", file=located[name], tensor=name, expected=file)
    for name in sorted(located.keys() - mapped.keys()):
        problems.add("QF110", file=located[name], tensor=name)


def agrees(mapped: dict[str, str] | None, shards: list[Shard]) -> bool:
    """Whether each tensor is in one shard, and an index (`mapped`) maps exactly those to where they are."""
    total = sum(len(shard.names) for shard in shards)
    if mapped is None:
        return total == len(set(chain.from_iterable(shard.names for shard in shards)))
    return total == len(mapped) and all(_maps(mapped, shard.names, shard.file) for shard in shards)


def _maps(mapped: dict[str, str], names: Collection[str], file: str) -> bool:
    """Whether all `names` are mapped to `file`."""
    try:
        files = itemgetter(*names, *islice(names, 1))(mapped) if names else ()
    except KeyError:
        return False
    return files.count(file) == len(files)


def compare_size(index: dict[str, Any], shards: list[Shard], problems: Problems, file: str) -> None:
    """Note a total_size in the index `file` that is no sum of the sizes of `shards`.

    huggingface_hub sums the bytes of tensors, Quark's file2file writer those of whole files; a file whose
    header was written again since then still counts as the reference library writes it.
    """
    metadata = index.get("metadata")
    if not isinstance(metadata, dict) or "total_size" not in metadata:
        return
    declared = metadata["total_size"]
    expected = sum(shard.data_bytes for shard in shards)
    number = isinstance(declared, int | float) and not isinstance(declared, bool)
    if number and (declared == expected or declared in _file_sizes(shards)):
        return
    shown = f"{declared:,}" if number else json_text.kind(declared)
    problems.add("QF115", file=file, pointer="/metadata/total_size", actual=shown, expected=f"{expected:,}")


def _file_sizes(shards: list[Shard]) -> tuple[int, int]:
    return sum(shard.size for shard in shards), sum(map(canonical_size, shards))


def check_numbers(files: Collection[str], index_file: str, problems: Problems) -> None:
    """Note sets of numbered shards (`…-00001-of-00002…`) that come without an index, or incomplete."""
    sets: dict[tuple[str, str], set[int]] = {}
    first: dict[tuple[str, str], str] = {}
    for file in sorted(files):
        if match := _numbered().fullmatch(file):
            key = match["stem"], match["total"]
            sets.setdefault(key, set()).add(int(match["number"]))
            first.setdefault(key, file)
    for key, numbers in sets.items():
        total = int(key[1])
        present = sum(1 for number in numbers if 1 <= number <= total)
        code = "QF118" if present < total else "QF124"
        problems.add(code, key[0], file=first[key], expected=total, actual=present, index=index_file)


def count_by_file(mapped: dict[str, str]) -> Counter[str]:
    """Return how many tensors the index maps to each file."""
    return Counter(mapped.values())
