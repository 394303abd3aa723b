"""Reads untrusted JSON in bounded time and memory, and notices what a plain parser lets pass."""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

_SURROGATE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<unpaired>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_CONTAINERS = {dict, list}
_REPLACEMENT = "\\ufffd"
_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


class UnreadableError(ValueError):
    """The text cannot be read as JSON; the exception's text says why, to follow a file's name."""


@dataclass(slots=True)
class Decoded:
    """A parsed text: its value and what a strict parser would have refused.

    `nonstandard` names values that JSON does not have, `floats` counts the numbers that are no integers.
    """

    value: Any
    nonstandard: list[str]
    floats: int


@dataclass(slots=True)
class Document:
    """A file's JSON value.

    `repeated` holds the JSON pointer of an object and a key that it has twice (the last one counts).
    """

    value: Any
    nonstandard: list[str] = field(default_factory=list)
    repeated: list[tuple[str, str]] = field(default_factory=list)
    byte_order_mark: bool = False


def kind(value: Any) -> str:
    """Name the JSON type of `value`."""
    return _KINDS.get(type(value), "a number")


def count_values(raw: bytes) -> int:
    """Bound from above the strings, arrays and objects that parsing `raw` would create."""
    return raw.count(b'"') // 2 + raw.count(b"[") + raw.count(b"{")


def decode_utf8(raw: bytes) -> str:
    """Decode `raw`.

    Raises:
        UnreadableError: it is not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"it is not UTF-8 (byte {error.start})") from None


def has_unpaired_surrogate(text: str) -> bool:
    """Say whether a string of the JSON `text` escapes half a surrogate pair."""
    return "\\" in text and any(match["unpaired"] for match in _SURROGATE.finditer(text))


def decode(text: str, *, exact: bool = False) -> Decoded:
    """Parse `text` at the speed of the standard library.

    `exact` keeps apart what Python's numbers confuse:
    `-0` and integers beyond a double's range become floats.

    Raises:
        UnreadableError: it is not JSON, nests beyond the interpreter's limit, or has a number too long.
    """
    nonstandard: dict[str, None] = {}
    floats = 0

    def constant(name: str) -> float:
        nonstandard[name] = None
        return float(name)

    def real(digits: str) -> float:
        nonlocal floats
        floats += 1
        number = float(digits)
        if math.isinf(number):
            nonstandard["a number beyond the range of a double"] = None
        return number

    def integer(digits: str) -> float | int:
        exceeds = len(digits) > sys.float_info.max_10_exp and math.isinf(real(digits))
        return real(digits) if exceeds or digits == "-0" else int(digits)

    hooks: dict[str, Any] = {"parse_int": integer} if exact else {}
    try:
        value = json.loads(text, parse_constant=constant, parse_float=real, **hooks)
    except RecursionError:
        raise UnreadableError("it nests too deeply") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError:
        raise UnreadableError("it holds a number of thousands of digits") from None
    return Decoded(value, list(nonstandard), floats)


def measure(value: Any) -> tuple[int, int]:
    """Return how many object keys `value` has at all levels, and how deep it nests."""
    keys = depth = 0
    level = [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        inner: list[Any] = []
        for container in level:
            keys += len(container) if isinstance(container, dict) else 0
            members = container.values() if isinstance(container, dict) else container
            if not _CONTAINERS.isdisjoint(map(type, members)):
                inner.extend(member for member in members if type(member) in _CONTAINERS)
        level = inner
    return keys, depth


def repeated_keys(text: str) -> list[tuple[str, str]]:
    """Return the pointer of each object of the JSON `text` with a repeated key, and that key."""
    found: list[tuple[dict[str, Any], str]] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            found.extend((built, key) for key, count in counts.items() if count > 1)
        return built

    root = json.loads(text, object_pairs_hook=build)
    if not found:
        return []
    wanted = {id(built) for built, _ in found}
    pointers: dict[int, str] = {}
    stack = [(root, "")]
    while stack:
        node, pointer = stack.pop()
        if id(node) in wanted:
            pointers[id(node)] = pointer
        if isinstance(node, dict):
            stack.extend((member, f"{pointer}/{escape(key)}") for key, member in node.items())
        elif isinstance(node, list):
            stack.extend((member, f"{pointer}/{place}") for place, member in enumerate(node))
    return [(pointers[id(built)], key) for built, key in found if id(built) in pointers]


def escape(key: str) -> str:
    """Escape one key of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def parse_index(raw: bytes, *, files: Collection[str], values: int, depth: int) -> Document:
    """Parse an index as `parse` does, at once where it is what huggingface_hub and Quark write.

    `files` are the names that it may map tensors to; they then stand in it as the same objects.

    Raises:
        UnreadableError: as `parse` does.
    """
    colons = raw.count(b":")
    if files and raw.isascii() and b"\\" not in raw and 2 * colons <= values:
        try:
            index = msgspec.json.decode(raw, type=_index_type(tuple(files)))
        except msgspec.MsgspecError:
            return parse(raw, values=values, depth=depth)
        if colons == len(index) + sum(map(len, index.values())):
            return Document(index)
    return parse(raw, values=values, depth=depth)


def _index_type(files: tuple[str, ...]) -> Any:
    """The shape of an index whose weight_map names only `files`."""
    fields = {"weight_map": dict[str, Literal[files]], "metadata": NotRequired[dict[str, _SCALAR]]}  # type: ignore[valid-type]
    return TypedDict("Index", fields)  # type: ignore[operator]


_SCALAR: Any = int | float | str | bool | None


def parse(raw: bytes, *, values: int, depth: int) -> Document:
    """Parse a config or an index, as much of it as makes sense.

    Raises:
        UnreadableError: it is empty, not UTF-8, not JSON, or exceeds `values` (`count_values`) or `depth`.
    """
    byte_order_mark = raw.startswith(codecs.BOM_UTF8)
    if byte_order_mark:
        raw = raw[len(codecs.BOM_UTF8) :]
    if not raw.strip():
        raise UnreadableError("it is empty")
    if count_values(raw) > values:
        raise UnreadableError(f"it holds more than {values:,} values")
    colons = raw.count(b":")
    text = decode_utf8(raw)
    unpaired = has_unpaired_surrogate(text)
    if unpaired:
        text = _SURROGATE.sub(lambda match: _REPLACEMENT if match["unpaired"] else match[0], text)
    decoded = decode(text)
    keys, actual_depth = measure(decoded.value)
    if actual_depth > depth:
        raise UnreadableError(f"it nests {actual_depth} levels deep, more than {depth}")
    return Document(
        decoded.value,
        decoded.nonstandard + ["half a surrogate pair"] * unpaired,
        repeated_keys(text) if colons != keys else [],
        byte_order_mark,
    )
