"""Real exports as plain data: `tests/data/exports` and `exports_more` hold config, index and headers of each.

An export is `{"config": {…}, "files": {file: {"metadata": {…}, "tensors": {name: [dtype, shape]}}}}`, and has
an "index" where it was written; its tensors are in the order of their data. Tests change such a dict and
write it out as a checkpoint.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from quark_format.tables import table

FOLDER = Path(__file__).parent / "data" / "exports"
MORE = FOLDER.with_name("exports_more")


def names() -> list[str]:
    """Return the name of every export of the first folder."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def all_names() -> list[str]:
    """Return the name of every export of both folders, folder by folder."""
    return [*names(), *sorted(path.stem for path in MORE.glob("*.json"))]


def load(name: str) -> dict[str, Any]:
    """Return a fresh copy of the export `name`, of whichever folder has it."""
    folder = FOLDER if (FOLDER / f"{name}.json").is_file() else MORE
    export: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return export


def write(export: dict[str, Any], folder: Path) -> Path:
    """Write `export` as a checkpoint with right headers and sparse data, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    table_of_files = table("safetensors.json")["files"]
    for role in ("config", "index"):
        if role in export:
            (folder / table_of_files[role]).write_text(json.dumps(export[role], indent=2), encoding="utf-8")
    for file, content in export["files"].items():
        write_shard(folder / file, content["tensors"], content.get("metadata"))
    return folder


def write_shard(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write one safetensors file of `tensors`, each `[dtype, shape]`, with data that takes no space."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + nbytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)


def nbytes(dtype: str, shape: list[int]) -> int:
    """Return the bytes that a tensor takes; one byte an element if safetensors does not know the dtype."""
    bits = table("safetensors.json")["dtypes"].get(dtype, {"bits": 8})["bits"]
    return (math.prod(shape) * int(bits) + 7) // 8
