"""What the benchmark times: `validate` and, over the same shards, what others take for less work.

Run as `python benchmarks/contenders.py NAME CHECKPOINT`, this does one of them in a process of its own, once,
and prints `{"seconds", "peak_bytes", "result"}` of the call alone, imports left out.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[Path], Any]


def validate() -> Call:
    """Judge the checkpoint: read its config, index and headers, and run every check."""
    from quark_format.validators.validate import validate as judge  # noqa: PLC0415

    return lambda folder: len(judge(folder).findings)


def read() -> Call:
    """Read config, index and headers into tensors, without any check of what they say."""
    from quark_format.checkpoint import read_checkpoint  # noqa: PLC0415

    return lambda folder: read_checkpoint(folder).tensor_count


def huggingface_hub() -> Call:
    """Parse every shard's header with huggingface_hub, which checks nothing."""
    parse: Any = importlib.import_module("huggingface_hub").parse_local_safetensors_file_metadata
    return lambda folder: sum(len(parse(path).tensors) for path in _shards(folder))


def safe_open() -> Call:
    """List names, dtypes and shapes of every shard with the safetensors library."""
    opened: Any = importlib.import_module("safetensors").safe_open

    def run(folder: Path) -> int:
        listed = []
        for path in _shards(folder):
            with opened(path, "np") as file:
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    part = file.get_slice(name)
                    listed.append((name, part.get_dtype(), part.get_shape()))
        return len(listed)

    return run


def orjson() -> Call:
    """Parse every shard's header with orjson into plain objects: the floor."""
    loads: Any = importlib.import_module("orjson").loads
    return lambda folder: sum(len(loads(_header(path))) for path in _shards(folder))


def json_loads() -> Call:
    """Parse every shard's header with the standard library into plain objects."""
    return lambda folder: sum(len(json.loads(_header(path))) for path in _shards(folder))


def msgspec() -> Call:
    """Parse every shard's header with msgspec into typed structs."""
    library: Any = importlib.import_module("msgspec")
    shape: Any = tuple[int, ...]
    fields = [("dtype", str), ("shape", shape), ("data_offsets", tuple[int, int])]
    entry: Any = library.defstruct("Entry", fields, gc=False)
    entries = library.json.Decoder(dict.__class_getitem__((str, entry)))

    def run(folder: Path) -> int:
        parsed = [entries.decode(b"{" + raw[raw.index(b"}") + 2 :]) for raw in map(_header, _shards(folder))]
        return sum(map(len, parsed))

    return run


def values() -> Call:
    """Judge the checkpoint and every value in it."""
    from quark_format.validators.validate import validate as judge  # noqa: PLC0415

    importlib.import_module("numpy")
    return lambda folder: len(judge(folder, values="all").findings)


def plain_read() -> Call:
    """Read every byte of every shard, a MiB at a time, and look at none."""

    def run(folder: Path) -> int:
        total = 0
        buffer = bytearray(1 << 20)
        for path in _shards(folder):
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    total += count
        return total

    return run


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


CONTENDERS: dict[str, Callable[[], Call]] = {
    "validate": validate,
    "read_checkpoint": read,
    "huggingface_hub": huggingface_hub,
    "safe_open": safe_open,
    "orjson": orjson,
    "msgspec": msgspec,
    "json": json_loads,
    "validate(values=all)": values,
    "plain read": plain_read,
}


def main() -> None:
    """Time one contender."""
    call = CONTENDERS[sys.argv[1]]()
    folder = Path(sys.argv[2])
    start = time.perf_counter()
    result = call(folder)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_bytes": _peak(), "result": result}))


def _peak() -> int:
    """The most memory this process has held; `ru_maxrss` would count what its parent held before."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
