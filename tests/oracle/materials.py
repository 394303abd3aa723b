"""Writes an export, changed or not, as a checkpoint whose tensors hold data that a model runs on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mutants import Export, Stored

Stores = Mapping[Stored, list[bytes]]

SPREAD = 0.05
SCALES = {"F32": 0.01, "BF16": 0.01, "F16": 0.01, "F64": 0.01, "F8_E4M3": 1.0, "F8_E5M2": 1.0}
FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
ONE_64TH = 121
"""The byte of 2**-6 in E8M0."""
MOST = 1 << 24
BESIDE = ("tokenizer*.json", "generation_config.json")
_LENGTH = 8


def write(export: Export, folder: Path, real: Path | None = None) -> Path:
    """Write `export` to `folder` and return it.

    Each tensor gets the data of its namesake in the checkpoint `real`, a scale in another float dtype its
    values. Where that has another dtype or shape it gets those of a tensor that the export lacks, as after a
    rename, and made up data where there is none.
    """
    export.write(folder)
    known = {} if real is None else _stored(real)
    spare: dict[Stored, list[bytes]] = {}
    for name, (stored, raw) in known.items():
        if export.tensors.get(name) != stored:
            spare.setdefault(stored, []).append(raw)
    for file in export.metadata:
        for name, entry, at in _entries(folder / file):
            stored = (entry["dtype"], tuple(entry["shape"]))
            begin, end = entry["data_offsets"]
            if 0 < end - begin <= MOST:
                raw = _same(known.get(name), name, stored) or _other(name, stored, end - begin, spare)
                with (folder / file).open("r+b") as out:
                    out.seek(at + begin)
                    out.write(raw)
    for path in (path for glob in BESIDE if real for path in real.glob(glob)):
        shutil.copy(path, folder / path.name)
    return folder


def _entries(path: Path) -> list[tuple[str, Any, int]]:
    """Name and header entry of each tensor of a file, and where the file's data begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(length))
    return [(name, entry, _LENGTH + length) for name, entry in header.items() if name != "__metadata__"]


def _stored(folder: Path) -> dict[str, tuple[Stored, bytes]]:
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        for name, entry, at in _entries(path):
            begin, end = entry["data_offsets"]
            found[name] = ((entry["dtype"], tuple(entry["shape"])), data[at + begin : at + end])
    return found


def _same(own: tuple[Stored, bytes] | None, name: str, stored: Stored) -> bytes | None:
    """The data of the namesake, in the dtype of `stored` for a scale; None where they do not fit."""
    if own is None or own[0] == stored:
        return own and own[1]
    (dtype, shape), raw = own
    if shape != stored[1] or not {dtype, stored[0]} <= FLOATS.keys() or "scale" not in _last(name):
        return None
    return _bytes(torch.frombuffer(bytearray(raw), dtype=FLOATS[dtype]).to(FLOATS[stored[0]]))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _other(name: str, stored: Stored, size: int, spare: Mapping[Stored, list[bytes]]) -> bytes:
    if spare.get(stored):
        return spare[stored].pop(0)
    dtype, shape = stored
    if dtype in FLOATS:
        return _bytes(_floats(name, dtype, shape))
    if dtype == "F8_E8M0" or name.endswith("scale"):
        return bytes([ONE_64TH if dtype in ("F8_E8M0", "U8") else 1]) * size
    generator = torch.Generator().manual_seed(size)
    highest = 2 if dtype == "BOOL" else 256
    return _bytes(torch.randint(0, highest, (size,), generator=generator, dtype=torch.uint8))


def _floats(name: str, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Scales are small, norms one, weights normal."""
    if "scale" in _last(name):
        return torch.full(shape, SCALES[dtype], dtype=FLOATS[dtype])
    if len(shape) == 1 and name.endswith("norm.weight"):
        return torch.ones(shape, dtype=FLOATS[dtype])
    generator = torch.Generator().manual_seed(math.prod(shape))
    return (torch.randn(shape, generator=generator) * SPREAD).to(FLOATS[dtype])


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.reshape(-1).contiguous().view(torch.uint8).numpy())
