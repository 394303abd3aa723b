"""What the fuzzer calls: one reader of untrusted bytes each, and what must hold whatever it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from quark_format import json_text, shard_index
from quark_format.checkpoint import Checkpoint, read_checkpoint
from quark_format.formats import detect, locate
from quark_format.json_text import UnreadableError
from quark_format.loading import Platform
from quark_format.problems import Problems
from quark_format.safetensors_header import parse_header
from quark_format.tables import table
from quark_format.targets import targets
from quark_format.validators import loadability, validate

_EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-fp8-kv"
_LIMITS = table("safetensors.json")["limits"]
_REPEATED = "QF116"
_STRICTER = ("is an array and not an object", "has a dtype that is an object", "holds far more values")
_MOST_DATA = 1 << 12
_ENDS = re.compile(rb"\[\s*\d+\s*,\s*(\d{1,4})\s*\]")
_FILES = ("a.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def header(data: bytes) -> None:
    """Judge a header as the safetensors library does, but for the differences listed in test_checkpoint."""
    if not data.startswith(b"{"):
        return
    end = max((int(found) for found in _ENDS.findall(data)), default=0)
    content = len(data).to_bytes(8, "little") + data + bytes(min(end, _MOST_DATA))
    problems = Problems()
    try:
        shard = parse_header(data, "model.safetensors", len(content), problems)
        found = problems.collected()
        refused = {problem.code for problem in found}
        reasons = [str(problem.values.get("reason")) for problem in found]
        tensors = shard.tensors
        assert list(tensors) == list(shard.names)
        assert sum(tensor.end - tensor.start for tensor in tensors.values()) == shard.data_bytes
    except UnreadableError as error:
        refused, reasons, tensors = {"QF104"}, [str(error)], {}
    try:
        library = dict(deserialize(content))  # type: ignore[no-untyped-call]
    except (SafetensorError, OverflowError):
        assert refused, f"only the library refuses {data!r}"
        return
    listed = refused == {_REPEATED} or any(part in reason for reason in reasons for part in _STRICTER)
    assert not refused or listed, f"only quark-format refuses {data!r}: {refused} {reasons}"
    if not refused:
        assert {name: info["shape"] for name, info in library.items()} == {
            name: list(tensor.shape) for name, tensor in tensors.items()
        }


def index(data: bytes) -> None:
    """Read an index to the value that the standard library gives, or refuse it with a reason."""
    limits = _LIMITS["index"]
    problems = Problems()
    try:
        plain = json_text.parse(data, values=limits["values"], depth=limits["depth"])
    except UnreadableError:
        plain = None
    try:
        document = json_text.parse_index(data, files=_FILES, values=limits["values"], depth=limits["depth"])
    except UnreadableError:
        assert plain is None
        return
    assert plain is not None
    assert json.dumps(document.value) == json.dumps(plain.value)
    assert document.repeated == plain.repeated
    try:
        mapped = shard_index.weight_map(document.value, "index.json", problems)
    except UnreadableError:
        return
    shard_index.compare(mapped, {}, (), problems)
    shard_index.agrees(mapped, [])


def config(data: bytes) -> None:
    """Read a config and tell its format, or refuse it with a reason."""
    for _, block in locate(_config_of(data)):
        if isinstance(block, dict):
            detect(block)


def checks(data: bytes) -> None:
    """Run every check on the example's tensors with another config: findings, and no exception."""
    if given := _config_of(data):
        context, found = validate._judge(replace(_example(), config=given), tensor_parallel_size=2)
        assert all(one.message for one in found)
        if context is not None:
            for one in targets().values():
                loadability.judge(context, found, one, Platform.parse("cpu"))


def _config_of(data: bytes) -> dict[str, Any]:
    """The config that the bytes hold, empty if it is refused or no object."""
    limits = _LIMITS["config"]
    try:
        value = json_text.parse(data, values=limits["values"], depth=limits["depth"]).value
    except UnreadableError:
        return {}
    return value if isinstance(value, dict) else {}


@cache
def _example() -> Checkpoint:
    return read_checkpoint(_EXAMPLE)


TARGETS: dict[str, Callable[[bytes], Any]] = {
    "header": header,
    "index": index,
    "config": config,
    "checks": checks,
}
