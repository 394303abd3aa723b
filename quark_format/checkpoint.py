"""Reads a checkpoint: its config, its index and the headers of its shards, never the weights.

A checkpoint is untrusted. Only regular files inside its folder are opened (and the hub cache's links), each
is bounded in size by `schema/safetensors.json`, and whatever is wrong becomes a problem, not an exception.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quark_format import json_text, shard_index
from quark_format.json_text import Document, UnreadableError
from quark_format.problems import Problem, Problems
from quark_format.safe_files import (
    AbsentError,
    CannotOpenError,
    OutsideFolderError,
    inside,
    is_nested,
    names_escape,
    open_regular,
    read_bounded,
)
from quark_format.safetensors_header import Shard, Tensor, parse_header, read_header
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Checkpoint", "Problem", "Shard", "Tensor", "read_checkpoint"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_READERS = 8
_PROBES = 2
_SLOW = 0.005
"""Seconds that each of the first headers takes from which on several are fetched at once."""


class _Merged:
    """The attribute `tensors`: what it was set to, else the tensors of all shards, merged when asked for."""

    def __get__(self, checkpoint: Checkpoint | None, _: type[Checkpoint] | None = None) -> Any:
        if checkpoint is None:
            return None
        if checkpoint.merged is None:
            checkpoint.merged = shard_index.merge(checkpoint.shards, None, Problems())
        return checkpoint.merged

    def __set__(self, checkpoint: Checkpoint, tensors: dict[str, Tensor] | None) -> None:
        checkpoint.merged = tensors


@dataclass
class Checkpoint:
    """What a checkpoint's config, index and headers say.

    `config` is the whole of `config_file`, None if it cannot be read; then `readable` is False and nothing
    else was looked at. `shards` are the safetensors files with a header that can be read, ordered by name;
    `tensors` holds their tensors by name, in the order of the files and of their data. `unread` names the
    files whose tensors are not known: while there are some, an absent tensor is no finding of its own.
    """

    path: Path
    config: dict[str, Any] | None = None
    config_file: str = ""
    shards: list[Shard] = field(default_factory=list)
    index: dict[str, Any] | None = None
    tensors: dict[str, Tensor] = _Merged()  # type: ignore[assignment]
    unread: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True
    merged: dict[str, Tensor] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def tensor_count(self) -> int:
        """How many tensors there are."""
        return sum(len(shard.names) for shard in self.shards) if self.merged is None else len(self.merged)

    @property
    def tensor_bytes(self) -> int:
        """How many bytes they take."""
        if self.merged is None:
            return sum(shard.data_bytes for shard in self.shards)
        return sum(tensor.end - tensor.start for tensor in self.merged.values())


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint in the folder `path`, or only the config if `path` is a JSON file.

    Bad content never raises: `Checkpoint.problems` says what is wrong, with the codes of `schema/rules.json`.
    """
    checkpoint = Checkpoint(Path(path), config_file=table("safetensors.json")["files"]["config"])
    problems = Problems()
    with collector_paused():
        config = _locate_config(checkpoint, problems)
        if config is not None:
            _read_config(checkpoint, config, problems)
            if checkpoint.readable and config.parent == checkpoint.path.resolve():
                _read_weights(checkpoint, config.parent, problems)
    checkpoint.problems = problems.collected()
    return checkpoint


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cycle collector from walking a million new rows again and again: none is in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _locate_config(checkpoint: Checkpoint, problems: Problems) -> Path | None:
    """Return the place of the config in its resolved folder, or note why there is none."""
    path = checkpoint.path
    try:
        resolved = path.resolve()
        if resolved.is_dir():
            return resolved / checkpoint.config_file
        if not path.exists():
            reason = _absent(str(path))
        elif path.suffix == Path(checkpoint.config_file).suffix:
            checkpoint.config_file = path.name
            return resolved
        else:
            reason = "it is neither a folder nor a JSON file"
    except (OSError, RuntimeError, ValueError) as error:
        reason = f"the system refuses the path ({getattr(error, 'strerror', None) or error})"
    checkpoint.readable = False
    problems.add("QF101", file=str(path), reason=reason)
    return None


def _absent(path: str) -> str:
    if not _HUB_ID.fullmatch(path):
        return "there is no such file or folder"
    return (
        f"there is no such folder; if it is a model on the Hugging Face hub, download it first with "
        f"`huggingface-cli download {path} --local-dir FOLDER` (newer: `hf download`)"
    )


def _read_config(checkpoint: Checkpoint, config: Path, problems: Problems) -> None:
    file = checkpoint.config_file
    try:
        value = _read_json(config, file, "config", problems)
        if not isinstance(value, dict):
            raise UnreadableError(f"it is {json_text.kind(value)} and not an object")
        checkpoint.config = value
    except AbsentError:
        checkpoint.readable = False
        problems.add("QF101", file=str(checkpoint.path), reason=f"it holds no {file}")
    except (CannotOpenError, UnreadableError) as error:
        checkpoint.readable = False
        problems.add("QF102", file=file, reason=str(error))


def _read_json(
    path: Path, file: str, role: str, problems: Problems, parse: Callable[..., Document] = json_text.parse
) -> Any:
    """Parse the JSON file `path`, to be called `file`, and note what strict readers refuse in it.

    Raises:
        CannotOpenError: it cannot be opened, or is too large.
        UnreadableError: it is not JSON.
    """
    limits = table("safetensors.json")["limits"][role]
    raw = read_bounded(path.parent, path.name, limits["bytes"])
    document = parse(raw, values=limits["values"], depth=limits["depth"])
    if document.byte_order_mark:
        problems.add("QF120", file=file)
    for what in document.nonstandard:
        problems.add("QF121", what, file=file, what=what)
    for pointer, key in document.repeated:
        place = f" in `{pointer}`" if pointer else ""
        problems.add("QF116", file=file, key=key, place=place, pointer=f"{pointer}/{json_text.escape(key)}")
    return document.value


def _read_weights(checkpoint: Checkpoint, folder: Path, problems: Problems) -> None:
    names = table("safetensors.json")["files"]
    try:
        present = set(os.listdir(folder))
    except OSError as error:
        checkpoint.readable = False
        reason = f"its files cannot be listed ({error.strerror or error})"
        problems.add("QF101", file=str(checkpoint.path), reason=reason)
        return
    weights = {name for name in present if name.endswith(names["weights"])}
    pickles = sorted(name for name in present if name.endswith(tuple(names["pickles"])))
    if pickles:
        problems.add("QF119", file=pickles[0], count=len(pickles))
    named: set[str] = set()
    absent: set[str] = set()
    mapped = None
    if names["index"] in present:
        mapped = _read_index(checkpoint, folder / names["index"], weights, problems)
    else:
        shard_index.check_numbers(weights, names["index"], problems)
    if mapped is not None:
        named, absent = _named_shards(mapped, folder, present, names["index"], problems)
        for file in sorted(weights - named):
            problems.add("QF113", file=file)
        weights |= named
    if not weights and not absent:
        other = f" but pickled weights (`{pickles[0]}`)" if pickles else ""
        problems.add("QF103", file=str(checkpoint.path), other=other)
    checkpoint.shards = list(_read_shards(folder, sorted(weights), problems))
    unread = absent | (weights - {shard.file for shard in checkpoint.shards})
    checkpoint.unread = tuple(sorted(unread))
    if not shard_index.agrees(mapped, checkpoint.shards):
        checkpoint.tensors = shard_index.merge(checkpoint.shards, mapped, problems)
        if mapped is not None:
            shard_index.compare(mapped, checkpoint.tensors, unread, problems)
    if mapped is not None and checkpoint.index is not None and not unread:
        followed = [shard for shard in checkpoint.shards if shard.file in named]
        shard_index.compare_size(checkpoint.index, followed, problems, names["index"])


def _read_index(
    checkpoint: Checkpoint, path: Path, files: set[str], problems: Problems
) -> dict[str, str] | None:
    """Keep the index and return what it maps, or note why it cannot be read."""
    try:
        parse = partial(json_text.parse_index, files=files)
        index = _read_json(path, path.name, "index", problems, parse)
        mapped = shard_index.weight_map(index, path.name, problems)
    except (CannotOpenError, UnreadableError) as error:
        problems.add("QF108", file=path.name, reason=str(error))
        return None
    checkpoint.index = index
    return mapped


def _named_shards(
    mapped: dict[str, str], folder: Path, present: set[str], index: str, problems: Problems
) -> tuple[set[str], set[str]]:
    """Return the files named by the index that are there, and those that are not or must not be opened."""
    listed = set(mapped.values())
    named = listed & present
    absent: set[str] = set()
    counts = shard_index.count_by_file(mapped) if listed != named else {}
    for file in sorted(listed - present):
        if names_escape(file):
            problems.add("QF117", file=index, actual=file)
            absent.add(file)
        elif not _is_there(folder / file):
            problems.add("QF112", file=file, source=f"`{index}`", tensors=counts[file])
            absent.add(file)
        else:
            if is_nested(file):
                problems.add("QF122", file=index, actual=file)
            named.add(file)
    return named, absent


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def _read_shards(folder: Path, files: list[str], problems: Problems) -> Iterator[Shard]:
    """Yield the shards whose header can be read; where fetching is slow, several are fetched at once."""
    fetched = _fetch_all(folder, files)
    for file in files:
        try:
            raw, size = next(fetched)()
            yield parse_header(raw, file, size, problems)
        except OutsideFolderError as error:
            problems.add("QF117", file=file, actual=error.target)
        except CannotOpenError as error:
            problems.add("QF123", file=file, reason=str(error))
        except UnreadableError as error:
            problems.add("QF104", file=file, reason=str(error))


def _fetch_all(folder: Path, files: list[str]) -> Iterator[Callable[[], tuple[bytes, int]]]:
    """Yield what gives the header of each file and its size, or raises as `_fetch` does."""
    fastest = _SLOW

    def timed(name: str) -> tuple[bytes, int]:
        nonlocal fastest
        start = time.perf_counter()
        try:
            return _fetch(folder, name)
        finally:
            fastest = min(fastest, time.perf_counter() - start)

    first, rest = files[:_PROBES], files[_PROBES:]
    for file in first:
        yield partial(timed, file)
    if rest and fastest >= _SLOW:
        yield from _fetch_ahead(folder, rest)
    else:
        yield from (partial(_fetch, folder, file) for file in rest)


def _fetch_ahead(folder: Path, files: list[str]) -> Iterator[Callable[[], tuple[bytes, int]]]:
    with ThreadPoolExecutor(min(_READERS, len(files))) as pool:
        ahead: deque[Future[tuple[bytes, int]]] = deque()
        waiting = iter(files)
        for _ in files:
            ahead.extend(pool.submit(_fetch, folder, name) for name in islice(waiting, _READERS - len(ahead)))
            yield ahead.popleft().result


def _fetch(folder: Path, name: str) -> tuple[bytes, int]:
    """Return a shard's header and the size of the file, both in bytes."""
    file, size = open_regular(inside(folder, name))
    with file:
        try:
            return read_header(file, size), size
        except OSError as error:
            raise CannotOpenError(f"it cannot be read ({error.strerror or error})") from None
