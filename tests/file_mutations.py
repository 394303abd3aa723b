"""The last rows of the table of fault kinds: files of a checkpoint, damaged where they lie.

Only a few exports get these, each writes a checkpoint to disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from config_mutations import FILE, INDEX, bytes_of, header, index, last, spoiled
from mutants import SHARDS, Json

CONFIG = "config.json"


def moved(start: int, end: int) -> Callable[[Path], None]:
    """Move the ends of the last tensor's bytes."""

    def change(raw: Json) -> None:
        entry = last(raw)
        entry["data_offsets"] = [entry["data_offsets"][0] + start, entry["data_offsets"][1] + end]

    return header(change)


def swapped(raw: Json) -> None:
    """The last tensor ends before it begins."""
    last(raw)["data_offsets"].reverse()


def tensor_in_both(folder: Path) -> None:
    """The second shard is the first one's copy, so both hold its tensors."""
    (folder / SHARDS[1]).write_bytes((folder / SHARDS[0]).read_bytes())


def without_index(*gone: str) -> Callable[[Path], None]:
    """Remove the index and other files."""

    def spoil(folder: Path) -> None:
        for file in (INDEX, *gone):
            (folder / file).unlink()

    return spoil


def config_text(change: Callable[[str], str]) -> Callable[[Path], None]:
    """Change the text of config.json."""
    return bytes_of(lambda raw: change(raw.decode()).encode(), CONFIG)


spoiled(
    "offsets_beyond_file", "The last tensor lies beyond the file.", moved(1 << 30, 1 << 30), "QF105", "QF106"
)
spoiled("offsets_short", "The last tensor has fewer bytes than its shape.", moved(0, -2), "QF105", "QF106")
spoiled("offsets_huge", "The last tensor ends beyond any file.", moved(0, 1 << 62), "QF105", "QF106", "QF104")
spoiled("offsets_reversed", "The last tensor ends before it begins.", header(swapped), "QF104", "QF105")
spoiled(
    "shape_negative",
    "An axis is negative.",
    header(lambda raw: last(raw).update(shape=[-1, 4])),
    "QF104",
    "QF105",
)
spoiled(
    "shape_text",
    "A shape is a text.",
    header(lambda raw: last(raw).update(shape="4096")),
    "QF104",
    "QF105",
)
spoiled(
    "shape_overflows",
    "The elements of a shape are more than any number of 64 bits.",
    header(lambda raw: last(raw).update(shape=[1 << 40, 1 << 40])),
    "QF104",
    "QF105",
)
spoiled(
    "entry_incomplete",
    "A tensor has no dtype.",
    header(lambda raw: last(raw).pop("dtype")),
    "QF104",
    "QF105",
    "QF107",
)
spoiled(
    "entry_number",
    "A tensor is a number.",
    header(lambda raw: raw.update({list(raw)[-1]: 7})),
    "QF104",
    "QF105",
)
spoiled(
    "metadata_nested",
    "The metadata hold more than texts.",
    header(lambda raw: raw.update(__metadata__={"format": {"name": "pt"}})),
    "QF104",
)
spoiled("header_list", "The header is a list.", bytes_of(lambda raw: _with_header(raw, b"[]")), "QF104")
spoiled(
    "header_no_text",
    "The header is no UTF-8.",
    bytes_of(lambda raw: _with_header(raw, b'{"\xff":1}')),
    "QF104",
)
spoiled(
    "header_of_pickle",
    "The file is a pickle.",
    bytes_of(lambda _: b"\x80\x04\x95\x0b\x00\x00\x00\x00."),
    "QF104",
)
spoiled("config_list", "config.json is a list.", config_text(lambda text: f"[{text}]"), "QF102")
spoiled("config_empty", "config.json is empty.", config_text(lambda _: ""), "QF102")
spoiled(
    "config_gone", "config.json is not there.", lambda folder: (folder / CONFIG).unlink(), "QF101", "QF102"
)
spoiled(
    "config_key_twice",
    "config.json has two quantization_config.",
    config_text(lambda text: text.replace("{", '{"quantization_config": {},', 1)),
    "QF116",
)
spoiled(
    "config_nan",
    "config.json holds a NaN.",
    config_text(lambda text: text.replace("{", '{"layer_norm_eps": NaN,', 1)),
    "QF121",
    severity="warning",
)
spoiled(
    "weights_gone",
    "There is no file of weights.",
    lambda folder: (folder / FILE).unlink(),
    "QF103",
    severity="warning",
)
spoiled(
    "shard_twice",
    "A shard holds the tensors of another.",
    tensor_in_both,
    "QF114",
    "QF109",
    "QF111",
    shards=True,
)
spoiled("index_gone", "There is no index.", without_index(), "QF124", severity="warning", shards=True)
spoiled(
    "index_and_shard_gone", "Index and a shard are not there.", without_index(SHARDS[1]), "QF118", shards=True
)
spoiled("index_list", "The index is a list.", bytes_of(lambda _: b"[]", INDEX), "QF108", shards=True)
spoiled(
    "index_no_map",
    "The index has no weight_map.",
    index(lambda raw: raw.pop("weight_map")),
    "QF108",
    shards=True,
)
spoiled(
    "index_maps_number",
    "The index maps a tensor to a number.",
    index(lambda raw: raw["weight_map"].update({next(iter(raw["weight_map"])): 1})),
    "QF108",
    shards=True,
)
spoiled(
    "index_escapes",
    "The index leads out of the folder.",
    index(lambda raw: raw["weight_map"].update({next(iter(raw["weight_map"])): "../a.safetensors"})),
    "QF117",
    shards=True,
)
spoiled(
    "index_key_twice",
    "The index maps a tensor twice.",
    bytes_of(lambda raw: raw.replace(b'"weight_map": {', b'"weight_map": {' + _first_entry(raw), 1), INDEX),
    "QF116",
    shards=True,
)
spoiled("shard_empty", "A shard is empty.", bytes_of(lambda _: b"", SHARDS[1]), "QF104", shards=True)
spoiled("shard_cut", "A shard is cut off.", bytes_of(lambda raw: raw[:-64], SHARDS[1]), "QF106", shards=True)


def _with_header(whole: bytes, text: bytes) -> bytes:
    end = 8 + int.from_bytes(whole[:8], "little")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + whole[end:]


def _first_entry(index_text: bytes) -> bytes:
    name, file = next(iter(json.loads(index_text)["weight_map"].items()))
    return json.dumps({name: file}).encode()[1:-1] + b", "
