"""Parses the header of a safetensors file and judges it by the format's rules.

A file is 8 bytes (little-endian length of the header), the header (a JSON object) and the tensors' data. The
rules are those of the format's document and of the reference library, see `schema/safetensors.json`.
"""

from __future__ import annotations

import json
import math
from functools import cache, partial
from itertools import accumulate, pairwise, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from quark_format import json_text
from quark_format.json_text import UnreadableError
from quark_format.safe_files import read_exactly
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import BinaryIO

    from quark_format.problems import Problems

_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_FIELDS = ("dtype", "shape", "data_offsets")
_BOOLEANS = (b"tru", b"fal")
_BITS_PER_BYTE = 8
_OFFSETS = 2
_METADATA_BEGINS = b'{"__metadata__":'
_COLONS = 1 + len(_FIELDS)


class Tensor(NamedTuple):
    """One tensor as its header describes it.

    `dtype` is safetensors' name, `shape` counts elements, `start` and `end` are bytes from the beginning of
    the file's data section.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int


class Extent(NamedTuple):
    """A dtype and shape seen before, as shared objects, and their bytes (None if 64 bits cannot say)."""

    dtype: str
    shape: tuple[int, ...]
    size: int | None


class Columns(NamedTuple):
    """Tensors that lie one behind the other, without an object for each: names, extents, ends in bytes."""

    names: tuple[str, ...]
    extents: tuple[Extent, ...]
    ends: tuple[int, ...]


class Shard:
    """One safetensors file of `size` bytes: its tensors by name, ordered by their data, and its metadata."""

    __slots__ = ("_tensors", "columns", "file", "metadata", "size")

    def __init__(
        self, file: str, tensors: dict[str, Tensor] | Columns, metadata: dict[str, str] | None, size: int
    ) -> None:
        """Hold what a header says; of `Columns` the tensors are made when they are asked for."""
        self.file = file
        self.metadata = metadata
        self.size = size
        self.columns = tensors if isinstance(tensors, Columns) else None
        self._tensors = None if isinstance(tensors, Columns) else tensors

    @property
    def names(self) -> Collection[str]:
        """The names of the tensors, in the order of their data."""
        return self.tensors.keys() if self.columns is None else self.columns.names

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, in the order of their data."""
        if self._tensors is None:
            self._tensors = {}
            if self.columns is not None and self.columns.names:
                names, extents, ends = self.columns
                dtypes, shapes, _ = zip(*extents, strict=True)
                rows = zip(names, dtypes, shapes, repeat(self.file), (0, *ends[:-1]), ends, strict=False)
                self._tensors = dict(zip(names, map(_NEW_TENSOR, rows), strict=True))
        return self._tensors

    @property
    def data_bytes(self) -> int:
        """How many bytes the tensors take, each counted by itself."""
        if self.columns is not None:
            return self.columns.ends[-1] if self.columns.ends else 0
        return sum(tensor.end - tensor.start for tensor in self.tensors.values())


_NEW_TENSOR: Callable[[Iterable[Any]], Tensor] = partial(tuple.__new__, Tensor)

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False):
    """A sound entry of a header."""

    dtype: str
    shape: tuple[_Natural, ...]
    data_offsets: tuple[_Natural, _Natural]


_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])
_TEXTS = msgspec.json.Decoder(dict[str, str])
_KEY = attrgetter("dtype", "shape")
_OFFSETS_OF = attrgetter("data_offsets")
_SIZE = itemgetter(2)


class _MalformedError(ValueError):
    """An entry of a header is no description of a tensor."""


@cache
def _bits() -> dict[str, int]:
    return {name: entry["bits"] for name, entry in table("safetensors.json")["dtypes"].items()}


def read_header(file: BinaryIO, size: int) -> bytes:
    """Return the header's bytes from the unbuffered `file` of `size` bytes, and read nothing behind it.

    Raises:
        UnreadableError: the file is too small, or its header's length is not possible.
        OSError: the system cannot read it.
    """
    begin = read_exactly(file, _LENGTH_BYTES + 1)
    if len(begin) < _LENGTH_BYTES:
        raise UnreadableError(f"it has {len(begin)} bytes, too few to hold the header's length")
    length = int.from_bytes(begin[:_LENGTH_BYTES], "little")
    limit = table("safetensors.json")["limits"]["header"]["bytes"]
    if length > limit:
        for impostor in table("safetensors.json")["impostors"]:
            if begin.startswith(impostor["begins"].encode()[: len(begin)]):
                raise UnreadableError(f"it is {impostor['is']}")
        raise UnreadableError(
            f"its header's length is {length:,} bytes, beyond the format's limit of {limit:,}"
        )
    if _LENGTH_BYTES + length > size:
        raise UnreadableError(f"its header's length is {length:,} bytes, but the file ends after {size:,}")
    if length == 0:
        raise UnreadableError("its header is empty")
    first = begin[_LENGTH_BYTES:]
    if first != b"{":
        raise UnreadableError(f"its header does not begin with `{{` but with {first!r}")
    raw = first + read_exactly(file, length - 1)
    if len(raw) != length:
        raise UnreadableError(f"it shrank while it was read, to {_LENGTH_BYTES + len(raw):,} bytes")
    return raw


def parse_header(raw: bytes, file: str, size: int, problems: Problems) -> Shard:
    """Parse the header `raw` of `file`, which has `size` bytes in all, and note what is wrong in `problems`.

    The shard holds every tensor whose entry makes sense.

    Raises:
        UnreadableError: no tensor can be told from it.
    """
    return _parse_plain(raw, file, size) or _parse_any(raw, file, size, problems)


def _parse_plain(raw: bytes, file: str, size: int) -> Shard | None:
    """Parse a header as the reference library writes it, without a step of Python for each tensor.

    Anything unusual, sound or not, gives None: an escape, a name with a colon, a field of its own, a repeated
    key, tensors out of order, bytes that no tensor owns.
    """
    if not raw.isascii() or b"\\" in raw or (b"-" in raw and b"-0" in raw):
        return None
    begin = _LENGTH_BYTES + len(raw)
    try:
        metadata, rest = _split_metadata(raw)
        entries = _ENTRIES.decode(rest)
    except (msgspec.MsgspecError, ValueError):
        return None
    if _METADATA in entries or rest.count(b":") != _COLONS * len(entries):
        return None
    try:
        extents = tuple(map(_known_extents().__getitem__, map(_KEY, entries.values())))
    except KeyError:
        return None
    names = tuple(entries)
    ends = tuple(accumulate(map(_SIZE, extents)))
    if list(zip((0, *ends[:-1]), ends, strict=False)) != list(map(_OFFSETS_OF, entries.values())):
        return None
    total = ends[-1] if names else 0
    return Shard(file, Columns(names, extents, ends), metadata, size) if begin + total == size else None


def _split_metadata(raw: bytes) -> tuple[dict[str, str] | None, bytes]:
    """Return the metadata that a header begins with, None without one, and the header without it.

    Raises:
        ValueError: the metadata is not what the reference library writes.
    """
    if not raw.startswith(_METADATA_BEGINS):
        return None, raw
    end = raw.index(b"}") + 1
    text = raw[len(_METADATA_BEGINS) : end]
    metadata = _TEXTS.decode(text)
    if text.count(b":") != len(metadata) or not raw.startswith((b',"', b"}"), end):
        raise ValueError(_METADATA)
    return metadata, b"{" + raw[end:].removeprefix(b",")


class _Extents(dict[tuple[str, tuple[int, ...]], Extent]):
    """Extents by dtype and shape; those that have no size are not kept."""

    def __missing__(self, key: tuple[str, tuple[int, ...]]) -> Extent:
        """Work out an extent, of which a checkpoint has a few dozen.

        Raises:
            KeyError: the dtype is unknown or the extent is no whole number of bytes.
        """
        dtype, shape = key
        extent = _extent(dtype, shape) if dtype in _bits() and _naturals(list(shape)) else None
        if extent is None or extent.size is None:
            raise KeyError(key)
        if len(self) < _MOST_EXTENTS:
            self[key] = extent
        return extent


_MOST_EXTENTS = 10_000


@cache
def _known_extents() -> _Extents:
    return _Extents()


def _parse_any(raw: bytes, file: str, size: int, problems: Problems) -> Shard:
    entries, exact = _decode(raw, file, problems)
    metadata = entries.pop(_METADATA, None)
    if metadata is not None:
        _check_metadata(metadata)
    judge = _Judge(file, problems)
    rows = judge.each(entries) if exact else judge.fast(entries)
    if not judge.contiguous:
        rows.sort(key=attrgetter("start", "end"))
        if not judge.malformed:
            _check_cover(rows, file, problems)
    described = max((row.end for row in (rows[-1:] if judge.contiguous else rows)), default=0)
    actual = size - _LENGTH_BYTES - len(raw)
    if described != actual and not judge.malformed:
        problems.add("QF106", file=file, actual=f"{actual:,}", expected=f"{described:,}")
    return Shard(file, {row.name: row for row in rows}, metadata, size)


def canonical_size(shard: Shard) -> int:
    """Return the bytes that the file takes if the reference library writes it: no spaces, padded."""
    entries: dict[str, Any] = {} if shard.metadata is None else {_METADATA: shard.metadata}
    for row in shard.tensors.values():
        entries[row.name] = dict(zip(_FIELDS, (row.dtype, row.shape, (row.start, row.end)), strict=True))
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    header = math.ceil(len(text.encode()) / _LENGTH_BYTES) * _LENGTH_BYTES
    return _LENGTH_BYTES + header + max((row.end for row in shard.tensors.values()), default=0)


def _decode(raw: bytes, file: str, problems: Problems) -> tuple[dict[str, Any], bool]:
    """Return the header's object, and whether its numbers' types are to be looked at one by one."""
    limits = table("safetensors.json")["limits"]["header"]
    if len(raw) > limits["values"]:
        tensors = raw.count(b'"data_offsets"')
        if json_text.count_values(raw) > limits["values"] + limits["values_per_tensor"] * tensors:
            raise UnreadableError(f"its header holds far more values than {tensors:,} tensors need")
    text = json_text.decode_utf8(raw)
    if json_text.has_unpaired_surrogate(text):
        raise UnreadableError("its header has half a surrogate pair in a string")
    decoded = json_text.decode(text)
    entries = decoded.value
    if not isinstance(entries, dict):
        raise UnreadableError(f"its header is {json_text.kind(entries)} and not an object")
    if not decoded.floats and not decoded.nonstandard and _is_plain(entries, raw):
        return entries, False
    for pointer, key in json_text.repeated_keys(text):
        problems.add("QF116", file=file, key=key, place=f" in `{pointer}` of its header" if pointer else "")
    decoded = json_text.decode(text, exact=True)
    if decoded.nonstandard:
        raise UnreadableError(f"its header has {decoded.nonstandard[0]}, which is not JSON")
    _, depth = json_text.measure(decoded.value)
    if depth > limits["depth"]:
        raise UnreadableError(f"its header nests {depth} levels deep, more than {limits['depth']}")
    return decoded.value, True


def _is_plain(entries: dict[str, Any], raw: bytes) -> bool:
    """Say whether every entry has three fields, no key is repeated, and every number is what it seems."""
    if set(map(type, entries.values())) - {dict} or any(word in raw for word in _BOOLEANS):
        return False
    if b"-" in raw and b"-0" in raw:
        return False
    metadata = len(entries.get(_METADATA, ()))
    tensors = len(entries) - (_METADATA in entries)
    fields = sum(map(len, entries.values())) - metadata
    return fields == len(_FIELDS) * tensors and len(entries) + metadata + fields == raw.count(b":")


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict):
        raise UnreadableError(f"its header's {_METADATA} is {json_text.kind(metadata)} and not an object")
    for key, value in metadata.items():
        if not isinstance(value, str):
            found = json_text.kind(value)
            raise UnreadableError(f"`{key}` in its header's {_METADATA} is {found} and not a string")


class _Judge:
    """Turns the entries of one header into tensors."""

    def __init__(self, file: str, problems: Problems) -> None:
        self.file = file
        self.problems = problems
        self.contiguous = True
        self.malformed = False
        self._extents: dict[str, dict[tuple[int, ...], Extent]] = {name: {} for name in _bits()}

    def fast(self, entries: Mapping[str, Any]) -> list[Tensor]:
        """Judge entries that hold no float, no boolean and no field but the three."""
        file, extents = self.file, self._extents
        rows: list[Tensor] = []
        append, new = rows.append, tuple.__new__
        at: int = 0
        for name, info in entries.items():
            try:
                dims = info["shape"]
                dtype, shape, size = extents[info["dtype"]][tuple(dims)]
                start, end = info["data_offsets"]
                sound = end - start == size and type(dims) is list
            except (KeyError, TypeError, ValueError):
                sound = False
            if not sound:
                row = self._row(name, info)
                if row is None:
                    continue
                _, dtype, shape, _, start, end = row
            if start == at:
                start = at
            else:
                self.contiguous = False
            at = end
            append(new(Tensor, (name, dtype, shape, file, start, end)))
        return rows

    def each(self, entries: Mapping[str, Any]) -> list[Tensor]:
        """Judge any entries, looking at the type of every number."""
        rows = [row for name, info in entries.items() if (row := self._row(name, info))]
        self.contiguous = False
        return rows

    def _row(self, name: str, info: Any) -> Tensor | None:
        """Look closely at one entry and note what is wrong; None if it describes no tensor."""
        try:
            dtype, shape, start, end = _fields(info)
        except _MalformedError as error:
            self.malformed = True
            self.problems.add("QF104", "entry", file=self.file, tensor=name, reason=f"`{name}` {error}")
            return None
        row = Tensor(name, dtype, shape, self.file, start, end)
        if dtype not in self._extents:
            self.problems.add("QF107", file=self.file, tensor=name, actual=dtype)
            return row
        extent = self._extents[dtype].setdefault(shape, _extent(dtype, shape))
        reason = _wrong_extent(extent, end - start)
        if reason:
            self.problems.add("QF105", reason[0], file=self.file, tensor=name, reason=reason[1])
        return row._replace(shape=extent.shape)


def _fields(info: Any) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(info, dict):
        raise _MalformedError(f"is {json_text.kind(info)} and not an object")
    for field in _FIELDS:
        if field not in info:
            raise _MalformedError(f"has no {field}")
    dtype, shape, offsets = (info[field] for field in _FIELDS)
    if not isinstance(dtype, str):
        raise _MalformedError(f"has a dtype that is {json_text.kind(dtype)} and not a string")
    if not _naturals(shape):
        raise _MalformedError("has a shape that is not a list of non-negative 64-bit integers")
    if not _naturals(offsets) or len(offsets) != _OFFSETS:
        raise _MalformedError("has data_offsets that are not two non-negative 64-bit integers")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _naturals(values: Any) -> bool:
    largest = table("safetensors.json")["limits"]["header"]["integer"]
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= largest for value in values)


def _extent(dtype: str, shape: tuple[int, ...]) -> Extent:
    """Multiply as the reference library does: every partial product must fit in 64 bits."""
    largest = table("safetensors.json")["limits"]["header"]["integer"]
    elements = 1
    for dim in shape:
        elements *= dim
        if elements > largest:
            return Extent(dtype, shape, None)
    bits = elements * _bits()[dtype]
    return Extent(dtype, shape, None if bits > largest or bits % _BITS_PER_BYTE else bits // _BITS_PER_BYTE)


def _wrong_extent(extent: Extent, span: int) -> tuple[str, str] | None:
    """Return a kind and a reason if the bytes of a tensor are not what its dtype and shape take."""
    if span == extent.size:
        return None
    label = f"{extent.dtype} {list(extent.shape)}"
    if span < 0:
        return "reversed", f"({label}) ends {-span:,} bytes before it begins"
    if extent.size is not None:
        return "size", f"is {label}, which takes {extent.size:,} bytes, but its data_offsets span {span:,}"
    return "uncountable", f"is {label}, which is no whole number of bytes that 64 bits can count"


def _check_cover(rows: list[Tensor], file: str, problems: Problems) -> None:
    """Note where tensors, sorted by their place, overlap or leave bytes unused."""
    first = rows[0] if rows else None
    if first and first.start:
        reason = f"begins at byte {first.start:,}, but nothing lies before it"
        problems.add("QF105", "gap", file=file, tensor=first.name, reason=reason)
    for before, row in pairwise(rows):
        if row.start < before.end:
            reason = f"begins at byte {row.start:,}, inside `{before.name}`, which ends at {before.end:,}"
            problems.add("QF105", "overlap", file=file, tensor=row.name, reason=reason)
        elif row.start > before.end:
            reason = f"begins at byte {row.start:,}, but `{before.name}` before it ends at {before.end:,}"
            problems.add("QF105", "gap", file=file, tensor=row.name, reason=reason)
