"""Reading checkpoints: real exports, container faults, hostile files, agreement with `safetensors`."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import exports
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from safetensors import safe_open

from quark_format.checkpoint import Checkpoint, Problem, Tensor, read_checkpoint
from quark_format.safe_files import read_exactly
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

INDEX = "model.safetensors.index.json"
SHARD = "model.safetensors"
REFUSALS = {"QF104", "QF105", "QF106", "QF107", "QF116", "QF123"}

# What the safetensors library (0.8.0) accepts and this project refuses: (code, part of the reason, why).
DIFFERENCES = [
    (
        "QF116",
        "",
        "RFC 8259 leaves repeated keys open, and the format forbids them; the library keeps the last",
    ),
    ("QF104", "does not begin with `{`", "the format says that the header begins with `{`"),
    ("QF104", "is an array and not an object", "the format describes a tensor by an object"),
    ("QF104", "a dtype that is an object", "the format's dtype is a string; serde also reads {name: null}"),
]


def entry(dtype: Any = "U8", shape: Any = (1,), offsets: Any = (0, 1), **more: Any) -> dict[str, Any]:
    """Describe a tensor as a header does."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def raw_file(header: bytes | dict[str, Any], data: int | bytes = 1, length: int | None = None) -> bytes:
    """Return a safetensors file of `header` and so much data, claiming the header's `length`."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = bytes(data) if isinstance(data, int) else data
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + body


def text(
    value: str, shape: str = "[1]", offsets: str = "[0,1]", dtype: str = '"U8"', more: str = ""
) -> bytes:
    """Spell out a header of one tensor named by the JSON string `value`."""
    return f'{{{value}:{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}'.encode()


def folder_of(path: Path, **files: bytes) -> Path:
    """Write a folder with an empty config and `files` (`__` stands for the dots of a name)."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    return path


def codes(checkpoint: Checkpoint) -> list[str]:
    return [problem.code for problem in checkpoint.problems]


def only(checkpoint: Checkpoint, code: str) -> dict[str, Any]:
    """Return the fields of the only problem, which has `code`."""
    assert codes(checkpoint) == [code], checkpoint.problems
    return checkpoint.problems[0].values


def two_shards() -> dict[str, Any]:
    """Return a real export, split into two shards with an index."""
    export = exports.load("llama_fp8_kv")
    tensors = list(export["files"].pop(SHARD)["tensors"].items())
    parts = {"a.safetensors": dict(tensors[::2]), "b.safetensors": dict(tensors[1::2])}
    export["files"] = {file: {"metadata": {"format": "pt"}, "tensors": part} for file, part in parts.items()}
    total = sum(exports.nbytes(*tensor) for _, tensor in tensors)
    mapped = {name: file for file, part in parts.items() for name in part}
    export["index"] = {"metadata": {"total_size": total}, "weight_map": mapped}
    return export


# --- real exports -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", exports.names())
def test_real_exports_read_without_problems(name: str, tmp_path: Path) -> None:
    export = exports.load(name)
    checkpoint = read_checkpoint(exports.write(export, tmp_path))
    assert checkpoint.problems == []
    assert checkpoint.readable
    assert checkpoint.config == export["config"]
    assert checkpoint.index == export.get("index")
    assert [shard.file for shard in checkpoint.shards] == sorted(export["files"])
    for shard in checkpoint.shards:
        content = export["files"][shard.file]
        assert shard.metadata == content["metadata"]
        assert [(t.name, t.dtype, list(t.shape)) for t in shard.tensors.values()] == [
            (name, dtype, shape) for name, (dtype, shape) in content["tensors"].items()
        ]
        with safe_open(tmp_path / shard.file, "np") as reference:
            assert set(reference.keys()) == shard.tensors.keys()


def test_there_are_exports_of_five_versions_and_two_writers() -> None:
    names = exports.names()
    assert len(names) == 117
    for prefix in (
        "q0.6.0_",
        "q0.8.2_",
        "q0.10_",
        "q0.12.post1_",
        "f2f_",
        "llama_",
        "mixtral_",
        "qwen3_moe_",
    ):
        assert any(name.startswith(prefix) for name in names)


def test_rows_say_where_the_bytes_are(tmp_path: Path) -> None:
    header = {
        "b": entry("F32", [2, 3], [2, 26]),
        "a": entry("BF16", [1], [0, 2]),
        "s": entry("I64", [], [26, 34]),
    }
    checkpoint = read_checkpoint(folder_of(tmp_path, model__safetensors=raw_file(header, 34)))
    assert list(checkpoint.tensors.values()) == [
        Tensor("a", "BF16", (1,), SHARD, 0, 2),
        Tensor("b", "F32", (2, 3), SHARD, 2, 26),
        Tensor("s", "I64", (), SHARD, 26, 34),
    ]
    assert checkpoint.problems == []


def test_tensors_follow_files_then_data(tmp_path: Path) -> None:
    export = two_shards()
    checkpoint = read_checkpoint(exports.write(export, tmp_path))
    assert checkpoint.problems == []
    expected = [name for file in export["files"].values() for name in file["tensors"]]
    assert list(checkpoint.tensors) == expected


def test_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_of(tmp_path)
    exports.write_shard(path / SHARD, {"w": ["F32", [1 << 20, 1 << 16]]})
    assert (path / SHARD).stat().st_size > 1 << 38
    taken: list[int] = []

    def watch(file: BinaryIO, size: int) -> bytes:
        taken.append(size)
        return read_exactly(file, size)

    monkeypatch.setattr("quark_format.safetensors_header.read_exactly", watch)
    assert read_checkpoint(path).problems == []
    assert sum(taken) == 8 + int.from_bytes((path / SHARD).open("rb").read(8), "little")


def test_a_read_only_folder_stays_as_it_is(tmp_path: Path) -> None:
    export = exports.load("llama_fp8_kv")
    path = exports.write(export, tmp_path / "checkpoint")
    path.chmod(0o555)
    before = sorted(os.listdir(path))
    assert read_checkpoint(path).problems == []
    assert sorted(os.listdir(path)) == before


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    read_checkpoint(path)
    assert gc.isenabled()
    gc.disable()
    try:
        read_checkpoint(path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_declared_limits_follow_their_schema() -> None:
    Draft202012Validator.check_schema(table("safetensors.schema.json"))
    Draft202012Validator(table("safetensors.schema.json")).validate(table("safetensors.json"))


# --- agreement with the safetensors library -----------------------------------------------------------------


def library_accepts(path: Path) -> bool:
    try:
        with safe_open(path, "np") as file:
            file.keys()
    except Exception:  # noqa: BLE001, RUF100 - the library's error type is not public
        return False
    return True


def refusals(folder: Path) -> list[Problem]:
    return [problem for problem in read_checkpoint(folder).problems if problem.code in REFUSALS]


def agree(folder: Path, content: bytes) -> None:
    """Assert that both readers accept or both refuse `content`, but for `DIFFERENCES`."""
    path = folder_of(folder, model__safetensors=content) / SHARD
    accepts, refused = library_accepts(path), refusals(folder)
    if not accepts:
        assert refused, content
    for problem in refused if accepts else []:
        reason = str(problem.values.get("reason", ""))
        assert any(problem.code == code and part in reason for code, part, _ in DIFFERENCES), (
            content,
            problem,
        )


REFUSED_BY_BOTH: dict[str, bytes] = {
    "empty file": b"",
    "seven bytes": b"\x01" * 7,
    "header length 0": raw_file(b""),
    "header length 2^63": raw_file({"a": entry()}, length=2**63),
    "header length 2^64-1": raw_file({"a": entry()}, length=2**64 - 1),
    "header length at the limit": raw_file({"a": entry()}, length=100_000_000),
    "header length beyond the limit": raw_file({"a": entry()}, length=100_000_001),
    "header length beyond the file": raw_file({"a": entry()}, length=200),
    "header shorter than its JSON": raw_file({"a": entry()}, length=20),
    "not UTF-8": raw_file(b'{"\xff":1}'),
    "surrogate in UTF-8": raw_file(b'{"\xed\xa0\x80":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
    "UTF-16": raw_file('{"a":1}'.encode("utf-16")),
    "byte order mark": raw_file(b"\xef\xbb\xbf" + text('"a"')),
    "not JSON": raw_file(b"{model}"),
    "zeros": raw_file(bytes(64)),
    "array": raw_file(b"[]"),
    "string": raw_file(b'"{}"'),
    "null": raw_file(b"null"),
    "trailing comma": raw_file(b'{"__metadata__":{},}'),
    "trailing comma and no data": raw_file(b'{"__metadata__":{},}', 0),
    "comment": raw_file(b'{/* */"__metadata__":{}}', 0),
    "text behind": raw_file(text('"a"') + b"x"),
    "zero behind": raw_file(text('"a"') + b"\0"),
    "second object": raw_file(text('"a"') + b"{}"),
    "control character": raw_file(text('"\x01"')),
    "half a surrogate pair": raw_file(text(r'"\ud800"')),
    "the other half": raw_file(text(r'"\udc00"')),
    "surrogates swapped": raw_file(text(r'"\ude00\ud83d"')),
    "half a pair in a foreign field": raw_file(text('"a"', more=r',"x":"\ud800"')),
    "entry null": raw_file(b'{"a":null}', 0),
    "entry number": raw_file(b'{"a":5}', 0),
    "entry repeated, first one bad": raw_file(b'{"a":5,' + text('"a"')[1:]),
    "field repeated": raw_file(text('"a"', more=',"dtype":"U8"')),
    "no dtype": raw_file(b'{"a":{"shape":[1],"data_offsets":[0,1]}}'),
    "no shape": raw_file(b'{"a":{"dtype":"U8","data_offsets":[0,1]}}'),
    "no data_offsets": raw_file(b'{"a":{"dtype":"U8","shape":[1]}}'),
    "dtype number": raw_file(text('"a"', dtype="1")),
    "dtype null": raw_file(text('"a"', dtype="null")),
    "dtype in small letters": raw_file(text('"a"', dtype='"u8"')),
    "dtype empty": raw_file(text('"a"', dtype='""')),
    "shape null": raw_file(text('"a"', shape="null")),
    "shape number": raw_file(text('"a"', shape="1")),
    "shape string": raw_file(text('"a"', shape='""')),
    "shape object": raw_file(text('"a"', shape="{}")),
    "shape nested": raw_file(text('"a"', shape="[[1]]")),
    "shape float": raw_file(text('"a"', shape="[1.0]")),
    "shape exponent": raw_file(text('"a"', shape="[1e0]")),
    "shape true": raw_file(text('"a"', shape="[true]")),
    "shape of strings": raw_file(text('"a"', shape='["1"]')),
    "shape of nulls": raw_file(text('"a"', shape="[null]")),
    "shape NaN": raw_file(text('"a"', shape="[NaN]")),
    "shape negative": raw_file(text('"a"', shape="[-1]")),
    "shape two negatives": raw_file(text('"a"', shape="[-1,-1]")),
    "shape minus zero": raw_file(text('"a"', shape="[-0]", offsets="[0,0]"), 0),
    "shape leading zero": raw_file(text('"a"', shape="[01]")),
    "shape 2^64": raw_file(text('"a"', shape="[0,18446744073709551616]", offsets="[0,0]"), 0),
    "shape of 5000 digits": raw_file(text('"a"', shape=f"[{'9' * 5000}]")),
    "shape overflows before a zero": raw_file(
        text('"a"', shape="[8589934592,8589934592,0]", offsets="[0,0]"), 0
    ),
    "bits overflow": raw_file(
        text('"a"', shape="[2305843009213693952]", offsets="[0,2305843009213693952]"), 0
    ),
    "offsets null": raw_file(text('"a"', offsets="null")),
    "offsets one": raw_file(text('"a"', offsets="[1]")),
    "offsets three": raw_file(text('"a"', offsets="[0,1,1]")),
    "offsets string": raw_file(text('"a"', offsets='"01"')),
    "offsets object": raw_file(text('"a"', offsets='{"0":0,"1":1}')),
    "offsets float": raw_file(text('"a"', offsets="[0.0,1.0]")),
    "offsets false, true": raw_file(text('"a"', offsets="[false,true]")),
    "offsets negative": raw_file(text('"a"', offsets="[-1,0]")),
    "offsets minus zero": raw_file(text('"a"', offsets="[-0,1]")),
    "offsets Infinity": raw_file(text('"a"', offsets="[0,Infinity]")),
    "offsets reversed": raw_file(text('"a"', shape="[0]", offsets="[1,0]"), 0),
    "offsets huge": raw_file(text('"a"', offsets=f"[0,{2**70}]")),
    "NaN in a foreign field": raw_file(text('"a"', more=',"x":NaN')),
    "1e999 in a foreign field": raw_file(text('"a"', more=',"x":1e999')),
    "400 digits in a foreign field": raw_file(text('"a"', more=f',"x":{"9" * 400}')),
    "126 levels in a foreign field": raw_file(text('"a"', more=f',"x":{"[" * 126}{"]" * 126}')),
    "100,000 levels": raw_file(b'{"a":' + b"[" * 100_000),
    "100,000 levels closed": raw_file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "metadata array": raw_file(b'{"__metadata__":[]}', 0),
    "metadata string": raw_file(b'{"__metadata__":"pt"}', 0),
    "metadata number in it": raw_file(b'{"__metadata__":{"a":1}}', 0),
    "metadata null in it": raw_file(b'{"__metadata__":{"a":null}}', 0),
    "metadata object in it": raw_file(b'{"__metadata__":{"a":{}}}', 0),
    "metadata twice": raw_file(b'{"__metadata__":{},"__metadata__":{}}', 0),
    "shape and bytes differ": raw_file({"a": entry("F32", [2], [0, 4])}, 4),
    "gap at the beginning": raw_file({"a": entry("U8", [1], [1, 2])}, 2),
    "gap": raw_file({"a": entry(), "b": entry("U8", [1], [2, 3])}, 3),
    "overlap": raw_file({"a": entry("U8", [2], [0, 2]), "b": entry("U8", [2], [1, 3])}, 3),
    "same place": raw_file({"a": entry(), "b": entry()}),
    "empty tensor inside another": raw_file(
        {"a": entry("U8", [2], [0, 2]), "b": entry("U8", [0], [1, 1])}, 2
    ),
    "truncated": raw_file({"a": entry("U8", [4], [0, 4])}, 3),
    "no data": raw_file({"a": entry("U8", [4], [0, 4])}, 0),
    "bytes behind": raw_file({"a": entry()}, 2),
    "bytes behind no tensor": raw_file({}, 1),
    "half a byte": raw_file({"a": entry("F4", [1], [0, 1])}),
    "three quarters of a byte": raw_file({"a": entry("F6_E2M3", [1], [0, 1])}),
    "one F4 in no byte": raw_file({"a": entry("F4", [1], [0, 0])}, 0),
}
REFUSED_BY_BOTH |= {
    f"dtype {name}": raw_file(text('"a"', dtype=json.dumps(name)))
    for name in (
        "I4",
        "U4",
        "F8",
        "F8_E4M3FN",
        "F8_E8M0FNU",
        "F4_E2M1",
        "C128",
        "U128",
        "float32",
        "F16 ",
        "\u0000",
    )
}

ACCEPTED_BY_BOTH: dict[str, bytes] = {
    "no tensor": raw_file({}, 0),
    "only metadata": raw_file({"__metadata__": {"format": "pt"}}, 0),
    "metadata null": raw_file(b'{"__metadata__":null}', 0),
    "padded": raw_file(text('"a"') + b" \n\t\r "),
    "spaces everywhere": raw_file(json.dumps({"a": entry()}, indent=4).encode()),
    "data out of order": raw_file({"a": entry("U8", [1], [1, 2]), "b": entry("U8", [1], [0, 1])}, 2),
    "empty tensors": raw_file({"a": entry("U8", [0], [0, 0]), "b": entry("F64", [3, 0], [0, 0])}, 0),
    "empty tensor between": raw_file(
        {"a": entry(), "z": entry("U8", [0], [1, 1]), "b": entry("U8", [1], [1, 2])}, 2
    ),
    "empty tensor first": raw_file({"a": entry(), "z": entry("U8", [0], [0, 0])}),
    "scalar": raw_file({"a": entry("F32", [], [0, 4])}, 4),
    "zero before an overflow": raw_file(text('"a"', shape="[0,8589934592,8589934592]", offsets="[0,0]"), 0),
    "largest dimension": raw_file(text('"a"', shape=f"[0,{2**64 - 1}]", offsets="[0,0]"), 0),
    "a foreign field": raw_file(text('"a"', more=',"x":[1.5,{"k":[null,true]}],"y":-0')),
    "125 levels in a foreign field": raw_file(text('"a"', more=f',"x":{"[" * 125}{"]" * 125}')),
    "300 digits in a foreign field": raw_file(text('"a"', more=f',"x":{"9" * 300}')),
    "escaped keys": raw_file(rb'{"\u0061":{"d\u0074ype":"\u00558","shape":[1],"data_offsets":[0,1]}}'),
    "surrogate pair": raw_file(text(r'"\ud83d\ude00"')),
    "escaped backslash before ud800": raw_file(text(r'"\\ud800"')),
    "strange names": raw_file(
        {'a":b': entry(), "true-0": entry("U8", [1], [1, 2]), "": entry("U8", [1], [2, 3])}, 3
    ),
    "terminal escapes in a name": raw_file({"\u001b[31m\u0000": entry()}),
    "colons in metadata": raw_file({"__metadata__": {"url": "https://a:1", "q": '":'}, "a": entry()}),
    "two F4": raw_file({"a": entry("F4", [2], [0, 1])}),
    "four F6": raw_file({"a": entry("F6_E3M2", [4], [0, 3])}, 3),
}
ACCEPTED_BY_BOTH |= {
    f"dtype {name}": raw_file({"a": entry(name, [8], [0, bits["bits"]])}, bits["bits"])
    for name, bits in table("safetensors.json")["dtypes"].items()
}

ACCEPTED_BY_THE_LIBRARY: dict[str, bytes] = {
    "space before": raw_file(b" " + text('"a"')),
    "tensor twice": raw_file(text('"a"')[:-1] + b"," + text('"a"')[1:]),
    "metadata key twice": raw_file(b'{"__metadata__":{"a":"b","a":"c"}}', 0),
    "foreign field twice": raw_file(text('"a"', more=',"x":1,"x":2')),
    "entry as a list": raw_file(b'{"a":["U8",[1],[0,1]]}'),
    "dtype as an object": raw_file(text('"a"', dtype='{"U8":null}')),
}


@pytest.mark.parametrize("content", REFUSED_BY_BOTH.values(), ids=REFUSED_BY_BOTH)
def test_refused_like_the_library(content: bytes, tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=content) / SHARD
    assert not library_accepts(path)
    assert refusals(tmp_path)


@pytest.mark.parametrize("content", ACCEPTED_BY_BOTH.values(), ids=ACCEPTED_BY_BOTH)
def test_accepted_like_the_library(content: bytes, tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=content) / SHARD
    assert library_accepts(path)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.problems == []
    with safe_open(path, "np") as reference:
        names = list(reference.keys())
        slices = {name: reference.get_slice(name) for name in names}
        assert {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()} == {
            tensor.name: (tensor.dtype, tensor.shape) for tensor in checkpoint.tensors.values()
        }


@pytest.mark.parametrize("content", ACCEPTED_BY_THE_LIBRARY.values(), ids=ACCEPTED_BY_THE_LIBRARY)
def test_stricter_than_the_library_only_where_listed(content: bytes, tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=content) / SHARD
    assert library_accepts(path)
    assert refusals(tmp_path)
    agree(tmp_path, content)


NUMBERS = st.one_of(
    st.integers(0, 9), st.integers(-2, 2**66), st.floats(), st.booleans(), st.none(), st.text(max_size=2)
)
DTYPES = st.one_of(st.sampled_from([*table("safetensors.json")["dtypes"], "I4", "f32"]), NUMBERS)
JUNK = st.recursive(
    NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
ANY_ENTRY = st.fixed_dictionaries(
    {
        "dtype": DTYPES,
        "shape": st.lists(NUMBERS, max_size=3) | JUNK,
        "data_offsets": st.lists(NUMBERS, max_size=3),
    },
    optional={"x": JUNK},
)
ANY_HEADER = st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), ANY_ENTRY | JUNK, max_size=4)


@st.composite
def sound_tensors(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """Draw a header that the format allows, in any order of data, and the bytes of its data."""
    names = draw(
        st.lists(st.text(max_size=5).filter(lambda name: name != "__metadata__"), unique=True, max_size=5)
    )
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        dtype = draw(st.sampled_from(list(table("safetensors.json")["dtypes"])))
        shape = [*draw(st.lists(st.integers(0, 3), max_size=2)), draw(st.sampled_from([0, 4, 8]))]
        start, end = end, end + exports.nbytes(dtype, shape)
        header[name] = entry(dtype, shape, [start, end])
    shuffled = draw(st.permutations(list(header)))
    if draw(st.booleans()):
        header = {"__metadata__": draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3)))} | header
    return {name: header[name] for name in [*header.keys() - {*shuffled}, *shuffled]}, end


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=300, deadline=None)
@given(drawn=sound_tensors(), ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_every_sound_header_is_accepted(
    scratch: Path, drawn: tuple[dict[str, Any], int], ascii_only: bool, indent: int | None
) -> None:
    header, size = drawn
    raw = json.dumps(header, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace")
    path = folder_of(scratch, model__safetensors=raw_file(raw, size)) / SHARD
    assert library_accepts(path)
    checkpoint = read_checkpoint(scratch)
    assert checkpoint.problems == []
    assert {
        row.name: (row.dtype, list(row.shape), [row.start, row.end]) for row in checkpoint.tensors.values()
    } == {name: tuple(info.values()) for name, info in json.loads(raw).items() if name != "__metadata__"}


@settings(max_examples=600, deadline=None)
@given(drawn=sound_tensors(), data=st.data())
def test_changed_headers_are_judged_like_the_library_does(
    scratch: Path, drawn: tuple[dict[str, Any], int], data: st.DataObject
) -> None:
    header, size = drawn
    entries = [info for name, info in header.items() if name != "__metadata__"]
    if entries:
        info = data.draw(st.sampled_from(entries))
        info[data.draw(st.sampled_from(list(info)))] = data.draw(
            st.one_of(DTYPES, JUNK, st.lists(st.integers(0, 40), min_size=1, max_size=3))
        )
    size = max(size + data.draw(st.sampled_from([0, 0, 0, 1, -1])), 0)
    agree(scratch, raw_file(json.dumps(header).encode(), size))


@settings(max_examples=600, deadline=None)
@given(
    drawn=sound_tensors(),
    edits=st.lists(
        st.tuples(st.integers(0, 400), st.binary(max_size=2), st.integers(0, 2)), min_size=1, max_size=3
    ),
)
def test_changed_bytes_are_judged_like_the_library_does(
    scratch: Path, drawn: tuple[dict[str, Any], int], edits: list[tuple[int, bytes, int]]
) -> None:
    header, size = drawn
    content = bytearray(raw_file(header, size))
    for place, new, old in edits:
        at = place % (len(content) + 1)
        content[at : at + old] = new
    agree(scratch, bytes(content))


@settings(max_examples=400, deadline=None)
@given(header=ANY_HEADER, size=st.integers(0, 20))
def test_any_json_is_judged_like_the_library_does(scratch: Path, header: dict[str, Any], size: int) -> None:
    agree(scratch, raw_file(json.dumps(header).encode(), size))


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_judged_like_the_library_does(scratch: Path, content: bytes) -> None:
    agree(scratch, content)
    agree(scratch, raw_file(content, 0))


# --- what the problem says ----------------------------------------------------------------------------------


def test_truncated_file_names_both_sizes(tmp_path: Path) -> None:
    content = raw_file({"a": entry("F32", [1000], [0, 4000])}, 1234)
    values = only(read_checkpoint(folder_of(tmp_path, model__safetensors=content)), "QF106")
    assert values == {"file": SHARD, "actual": "1,234", "expected": "4,000", "count": 1}


def test_wrong_shape_names_both_values(tmp_path: Path) -> None:
    content = raw_file({"w": entry("F32", [2, 3], [0, 20])}, 20)
    checkpoint = read_checkpoint(folder_of(tmp_path, model__safetensors=content))
    values = only(checkpoint, "QF105")
    assert values["tensor"] == "w"
    assert values["reason"] == "is F32 [2, 3], which takes 24 bytes, but its data_offsets span 20"
    assert checkpoint.tensors["w"].shape == (2, 3)


def test_overlap_names_both_tensors(tmp_path: Path) -> None:
    content = raw_file({"a": entry("U8", [2], [0, 2]), "b": entry("U8", [2], [1, 3])}, 3)
    values = only(read_checkpoint(folder_of(tmp_path, model__safetensors=content)), "QF105")
    assert values["tensor"] == "b"
    assert values["reason"] == "begins at byte 1, inside `a`, which ends at 2"


def test_unknown_dtype_keeps_the_tensor(tmp_path: Path) -> None:
    content = raw_file({"a": entry("I4", [2], [0, 1])})
    checkpoint = read_checkpoint(folder_of(tmp_path, model__safetensors=content))
    assert only(checkpoint, "QF107")["actual"] == "I4"
    assert checkpoint.tensors["a"].dtype == "I4"


def test_one_malformed_entry_leaves_the_others(tmp_path: Path) -> None:
    content = raw_file({"a": entry(shape=[1.5]), "b": entry("U8", [1], [1, 2])}, 2)
    checkpoint = read_checkpoint(folder_of(tmp_path, model__safetensors=content))
    assert only(checkpoint, "QF104")["tensor"] == "a"
    assert list(checkpoint.tensors) == ["b"]


def test_repeated_key_is_named(tmp_path: Path) -> None:
    content = raw_file(text('"a"')[:-1] + b"," + text('"a"', dtype='"I8"')[1:])
    checkpoint = read_checkpoint(folder_of(tmp_path, model__safetensors=content))
    assert only(checkpoint, "QF116")["key"] == "a"
    assert checkpoint.tensors["a"].dtype == "I8"


def test_a_thousand_equal_faults_are_one_problem(tmp_path: Path) -> None:
    header = {f"t{i}": entry("U8", [2], [i, i + 1]) for i in range(1000)}
    values = only(read_checkpoint(folder_of(tmp_path, model__safetensors=raw_file(header, 1000))), "QF105")
    assert (values["tensor"], values["count"]) == ("t0", 1000)


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html></html>", "HTML page"),
        (b"PK\x03\x04\x00\x00\x08\x08\x00\x00", "zip archive"),
        (b"GGUF\x03\x00\x00\x00\x00", "GGUF"),
    ],
)
def test_other_files_are_named(begin: bytes, what: str, tmp_path: Path) -> None:
    values = only(read_checkpoint(folder_of(tmp_path, model__safetensors=begin)), "QF104")
    assert what in values["reason"]


def test_a_bad_shard_leaves_the_others_to_be_judged(tmp_path: Path) -> None:
    export = two_shards()
    path = exports.write(export, tmp_path)
    (path / "a.safetensors").write_bytes(b"\0" * 100)
    checkpoint = read_checkpoint(path)
    assert only(checkpoint, "QF104")["file"] == "a.safetensors"
    assert checkpoint.unread == ("a.safetensors",)
    assert checkpoint.tensors.keys() == export["files"]["b.safetensors"]["tensors"].keys()


def test_a_file_that_shrinks_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()})[:40])
    genuine = os.fstat

    def before(descriptor: int) -> os.stat_result:
        status = list(genuine(descriptor))
        status[6] += 100
        return os.stat_result(status)

    monkeypatch.setattr("quark_format.safe_files.os.fstat", before)
    problems = read_checkpoint(path).problems
    assert [problem.code for problem in problems] == ["QF104"]
    assert "shrank" in problems[0].values["reason"]


# --- index against shards -----------------------------------------------------------------------------------

INDEX_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {
    "tensor missing": (
        lambda e: e["files"]["b.safetensors"]["tensors"].pop("lm_head.weight", None),
        ["QF109", "QF115"],
    ),
    "tensor not listed": (lambda e: e["index"]["weight_map"].pop("lm_head.weight"), ["QF110"]),
    "wrong shard": (
        lambda e: e["index"]["weight_map"].update(
            {
                "lm_head.weight": {"a.safetensors": "b.safetensors", "b.safetensors": "a.safetensors"}[
                    e["index"]["weight_map"]["lm_head.weight"]
                ]
            }
        ),
        ["QF111"],
    ),
    "duplicated": (
        lambda e: [
            file["tensors"].update({"lm_head.weight": ["BF16", [8, 8]]}) for file in e["files"].values()
        ],
        ["QF114"],
    ),
    "total_size": (lambda e: e["index"]["metadata"].update(total_size=12345), ["QF115"]),
    "total_size one more": (
        lambda e: e["index"]["metadata"].update(total_size=e["index"]["metadata"]["total_size"] + 1),
        ["QF115"],
    ),
    "total_size text": (lambda e: e["index"]["metadata"].update(total_size="12345"), ["QF115"]),
    "shard missing": (lambda e: e["files"].pop("b.safetensors"), ["QF112"]),
    "shard not listed": (
        lambda e: e["files"].update({"c.safetensors": {"tensors": {"other": ["F32", [1]]}}}),
        ["QF113"],
    ),
    "shard renamed in the index": (
        lambda e: e["index"].update(
            weight_map={name: file.replace("b.", "x.") for name, file in e["index"]["weight_map"].items()}
        ),
        ["QF112", "QF113"],
    ),
    "weight_map gone": (lambda e: e["index"].pop("weight_map"), ["QF108"]),
    "weight_map list": (lambda e: e["index"].update(weight_map=[]), ["QF108"]),
    "value of the wrong kind": (lambda e: e["index"]["weight_map"].update(extra=5), ["QF108"]),
    "no metadata": (lambda e: e["index"].pop("metadata"), []),
    "total_size float": (
        lambda e: e["index"]["metadata"].update(total_size=float(e["index"]["metadata"]["total_size"])),
        [],
    ),
}


@pytest.mark.parametrize(("change", "expected"), INDEX_FAULTS.values(), ids=INDEX_FAULTS)
def test_index_faults(change: Callable[[dict[str, Any]], Any], expected: list[str], tmp_path: Path) -> None:
    export = two_shards()
    place = export["index"]["weight_map"]["lm_head.weight"]
    if place != "b.safetensors":
        export["files"] = dict(zip(export["files"], reversed(export["files"].values()), strict=True))
        swap = {"a.safetensors": "b.safetensors", "b.safetensors": "a.safetensors"}
        export["index"]["weight_map"] = {
            name: swap[file] for name, file in export["index"]["weight_map"].items()
        }
    change(export)
    checkpoint = read_checkpoint(exports.write(export, tmp_path))
    found = codes(checkpoint)
    if expected == ["QF114"]:
        found = [code for code in found if code != "QF115"]
    assert sorted(found) == expected
    for problem in checkpoint.problems:
        if problem.code in {"QF109", "QF110", "QF111", "QF114"}:
            assert problem.values["tensor"] == "lm_head.weight"


def test_missing_shard_counts_its_tensors(tmp_path: Path) -> None:
    export = two_shards()
    tensors = export["files"].pop("b.safetensors")["tensors"]
    values = only(read_checkpoint(exports.write(export, tmp_path)), "QF112")
    assert (values["file"], values["tensors"]) == ("b.safetensors", len(tensors))


def test_a_misnamed_shard_still_lends_its_tensors(tmp_path: Path) -> None:
    export = two_shards()
    export["files"]["x.safetensors"] = export["files"].pop("b.safetensors")
    checkpoint = read_checkpoint(exports.write(export, tmp_path))
    assert sorted(codes(checkpoint)) == ["QF112", "QF113"]
    assert checkpoint.tensors.keys() == export["index"]["weight_map"].keys()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"weight_map": 1}'])
def test_unreadable_index(content: bytes, tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    (path / INDEX).write_bytes(content)
    checkpoint = read_checkpoint(path)
    assert only(checkpoint, "QF108")["file"] == INDEX
    assert list(checkpoint.tensors) == ["a"]


def test_repeated_key_in_the_index(tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    (path / INDEX).write_text(f'{{"weight_map": {{"a": "{SHARD}", "a": "{SHARD}"}}}}')
    values = only(read_checkpoint(path), "QF116")
    assert (values["key"], values["pointer"]) == ("a", "/weight_map/a")


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "a/../../b",
        "..\\model.safetensors",
        "C:\\x.safetensors",
        "\\\\host\\x",
        "..",
    ],
)
def test_names_that_leave_the_folder_are_not_opened(name: str, tmp_path: Path) -> None:
    path = folder_of(tmp_path / "checkpoint", model__safetensors=raw_file({"a": entry()}))
    (tmp_path / SHARD).write_bytes(raw_file({"b": entry()}))
    (path / INDEX).write_text(json.dumps({"weight_map": {"a": SHARD, "b": name}}))
    checkpoint = read_checkpoint(path)
    assert only(checkpoint, "QF117")["actual"] == name
    assert list(checkpoint.tensors) == ["a"]


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "\ud800.safetensors", "\u001b[2J"])
def test_odd_shard_names_are_missing_shards(name: str, tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    (path / INDEX).write_text(json.dumps({"weight_map": {"a": SHARD, "b": name}}))
    checkpoint = read_checkpoint(path)
    assert set(codes(checkpoint)) - {"QF121"} <= {"QF112", "QF123"}
    assert list(checkpoint.tensors) == ["a"]


def test_shard_in_a_subfolder_is_read_and_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    folder_of(path / "sub", model__safetensors=raw_file({"a": entry()}))
    (path / INDEX).write_text(json.dumps({"weight_map": {"a": f"sub/{SHARD}"}}))
    checkpoint = read_checkpoint(path)
    assert only(checkpoint, "QF122")["actual"] == f"sub/{SHARD}"
    assert list(checkpoint.tensors) == ["a"]


@pytest.mark.parametrize(("present", "code"), [([1, 2, 3], "QF124"), ([1, 3], "QF118"), ([2], "QF118")])
def test_numbered_shards_without_an_index(present: list[int], code: str, tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    for number in present:
        exports.write_shard(path / f"model-{number:05d}-of-00003.safetensors", {f"t{number}": ["F32", [1]]})
    values = only(read_checkpoint(path), code)
    assert (values["expected"], values["actual"]) == (3, len(present))


def test_unnumbered_files_without_an_index_share_no_tensor(tmp_path: Path) -> None:
    path = folder_of(
        tmp_path, a__safetensors=raw_file({"a": entry()}), b__safetensors=raw_file({"a": entry()})
    )
    values = only(read_checkpoint(path), "QF114")
    assert (values["tensor"], values["file"], values["other"]) == ("a", "b.safetensors", "a.safetensors")


# --- folders and files --------------------------------------------------------------------------------------


def test_config_alone(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(folder_of(tmp_path))
    assert only(checkpoint, "QF103")["other"] == ""
    assert checkpoint.readable


def test_pickles_are_named_and_not_opened(tmp_path: Path) -> None:
    path = folder_of(tmp_path, pytorch_model__bin=b"\x80\x04", optimizer__pt=b"")
    checkpoint = read_checkpoint(path)
    assert codes(checkpoint) == ["QF119", "QF103"]
    assert checkpoint.problems[0].values == {"file": "optimizer.pt", "count": 2}


def test_a_config_file_is_judged_without_its_neighbours(tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=b"broken")
    (path / "quantized.json").write_text('{"a": 1}')
    checkpoint = read_checkpoint(path / "quantized.json")
    assert (checkpoint.config, checkpoint.config_file) == ({"a": 1}, "quantized.json")
    assert (checkpoint.shards, checkpoint.problems) == ([], [])


@pytest.mark.parametrize("path", ["nowhere", "a/b/c", "\0", "x" * 5000, ""])
def test_no_such_path(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = read_checkpoint(path)
    assert codes(checkpoint) == ["QF101"]
    assert not checkpoint.readable


def test_a_hub_id_gets_a_hint() -> None:
    reason = only(read_checkpoint("amd/Llama-3.1-8B-Instruct-FP8-KV"), "QF101")["reason"]
    assert "huggingface-cli download amd/Llama-3.1-8B-Instruct-FP8-KV" in reason


def test_a_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    assert "neither a folder nor" in only(read_checkpoint(path / SHARD), "QF101")["reason"]


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(tmp_path)
    assert only(checkpoint, "QF101")["reason"] == "it holds no config.json"
    assert not checkpoint.readable


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "line 1, column 2"),
        (b"[]", "an array and not an object"),
        (b'"quark"', "a string and not an object"),
        (b"null", "null and not an object"),
        (b"1", "a number and not an object"),
        (b"true", "a boolean and not an object"),
        (b"model", "line 1, column 1"),
        (b'{"a": 1,}', "line 1"),
        (b"{'a': 1}", "line 1"),
        (b"\x80\x04", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 200_000, "nests too deeply"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nests 101 levels deep, more than 64"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"a": [' + b"[]," * 4_000_000 + b"[]]}", "more than 4,000,000 values"),
    ],
)
def test_unreadable_config(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    checkpoint = read_checkpoint(tmp_path)
    assert reason in only(checkpoint, "QF102")["reason"]
    assert not checkpoint.readable
    assert checkpoint.config is None


@pytest.mark.parametrize(
    ("content", "expected", "config"),
    [
        (b'\xef\xbb\xbf{"a": 1}', ["QF120"], {"a": 1}),
        (b'{\r\n  "a": 1\r\n}\r\n', [], {"a": 1}),
        (b'{"a": Infinity, "b": -Infinity}', ["QF121", "QF121"], {"a": float("inf"), "b": float("-inf")}),
        (b'{"a": 1e999}', ["QF121"], {"a": float("inf")}),
        (rb'{"a": "\ud800 \ud83d\ude00 \\ud800"}', ["QF121"], {"a": "\ufffd \U0001f600 \\ud800"}),
        (b'{"a": 123456789012345678901234567890}', [], {"a": 123456789012345678901234567890}),
        (b'{"a": 1, "a": 2}', ["QF116"], {"a": 2}),
        (b'{"a": "b:c", "d": {"e": ":"}}', [], {"a": "b:c", "d": {"e": ":"}}),
    ],
)
def test_config_oddities(content: bytes, expected: list[str], config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    checkpoint = read_checkpoint(tmp_path / "config.json")
    assert codes(checkpoint) == expected
    assert checkpoint.config == config


def test_nan_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": NaN}')
    assert only(read_checkpoint(tmp_path / "config.json"), "QF121")["what"] == "NaN"


def test_repeated_keys_are_placed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"q": [{"x/y": 1}, {"x/y": 1, "x/y": 2}], "z": 1, "z": 2}')
    checkpoint = read_checkpoint(tmp_path / "config.json")
    values = only(checkpoint, "QF116")
    assert (values["key"], values["place"], values["pointer"], values["count"]) == (
        "x/y",
        " in `/q/1`",
        "/q/1/x~1y",
        2,
    )


def test_too_large_a_config_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    assert "more than 67,108,864" in only(read_checkpoint(tmp_path), "QF102")["reason"]


def test_too_many_values_in_a_header(tmp_path: Path) -> None:
    header = b'{"a":[' + b"[]," * 1_200_000 + b"[]]}"
    path = folder_of(tmp_path, model__safetensors=raw_file(header, 0))
    tracemalloc.start()
    checkpoint = read_checkpoint(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "far more values" in only(checkpoint, "QF104")["reason"]
    assert peak < 4 * len(header)


def make_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_directory, "a directory"),
        (os.mkfifo, "a named pipe"),
        (lambda path: path.symlink_to("nowhere"), "leads nowhere"),
        (lambda path: path.symlink_to(path.name), "cannot be opened"),
    ],
)
@pytest.mark.parametrize("file", ["config.json", INDEX, SHARD])
def test_files_that_are_no_files(
    make: Callable[[Path], None], reason: str, file: str, tmp_path: Path
) -> None:
    path = folder_of(tmp_path, other__safetensors=raw_file({"a": entry()}))
    (path / file).unlink(missing_ok=True)
    make(path / file)
    code = {"config.json": "QF102", INDEX: "QF108", SHARD: "QF123"}[file]
    values = only(read_checkpoint(path), code)
    assert values["file"] == file
    assert reason in values["reason"]


def test_forbidden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_of(tmp_path, model__safetensors=raw_file({"a": entry()}))
    genuine = os.open

    def refuse(name: Path, *args: Any) -> int:
        if Path(name).name == SHARD:
            raise PermissionError(13, "Permission denied")
        return genuine(name, *args)

    monkeypatch.setattr("quark_format.safe_files.os.open", refuse)
    assert "Permission denied" in only(read_checkpoint(path), "QF123")["reason"]


def test_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("quark_format.checkpoint.os.listdir", refuse)
    checkpoint = read_checkpoint(folder_of(tmp_path))
    assert "cannot be listed" in only(checkpoint, "QF101")["reason"]
    assert not checkpoint.readable


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "checkpoint")
    (tmp_path / "secret").write_bytes(raw_file({"a": entry()}))
    (path / SHARD).symlink_to("../secret")
    checkpoint = read_checkpoint(path)
    assert only(checkpoint, "QF117")["actual"] == str((tmp_path / "secret").resolve())
    assert checkpoint.tensors == {}
    (path / "config.json").unlink()
    (path / "config.json").symlink_to("../secret")
    assert "outside the folder" in only(read_checkpoint(path), "QF102")["reason"]


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "checkpoint", data=raw_file({"a": entry()}))
    (path / SHARD).symlink_to("data")
    (tmp_path / "alias").symlink_to("checkpoint")
    for place in (path, tmp_path / "alias"):
        checkpoint = read_checkpoint(place)
        assert (checkpoint.problems, list(checkpoint.tensors)) == ([], ["a"])


def hub_cache(root: Path) -> Path:
    """Lay out a repository as the hub cache does and return its revision folder."""
    blobs, revision = root / "blobs", root / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    revision.mkdir(parents=True)
    contents = {"config.json": b"{}", SHARD: raw_file({"a": entry()})}
    for number, (name, content) in enumerate(contents.items()):
        (blobs / f"{number:040x}").write_bytes(content)
        (revision / name).symlink_to(f"../../blobs/{number:040x}")
    return revision


def test_the_hub_cache_is_read(tmp_path: Path) -> None:
    revision = hub_cache(tmp_path / "models--amd--tiny")
    checkpoint = read_checkpoint(revision)
    assert (checkpoint.problems, list(checkpoint.tensors)) == ([], ["a"])
    alone = read_checkpoint(revision / "config.json")
    assert (alone.problems, alone.config, alone.config_file) == ([], {}, "config.json")


def test_the_hub_cache_of_another_repository_is_outside(tmp_path: Path) -> None:
    revision = hub_cache(tmp_path / "models--amd--tiny")
    other = hub_cache(tmp_path / "models--amd--other")
    (revision / SHARD).unlink()
    (revision / SHARD).symlink_to((other / SHARD).resolve())
    assert codes(read_checkpoint(revision)) == ["QF117"]
    shutil.rmtree(other)


def test_a_folder_of_contents_elsewhere_is_outside(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "a" / "b" / "checkpoint")
    (tmp_path / "a" / "blobs").mkdir()
    (tmp_path / "a" / "blobs" / "x").write_bytes(raw_file({"a": entry()}))
    (path / SHARD).symlink_to("../../blobs/x")
    assert codes(read_checkpoint(path)) == ["QF117"]


@settings(max_examples=300, deadline=None)
@given(
    config=st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")),
    index=st.binary(max_size=60) | JUNK.map(lambda value: json.dumps({"weight_map": value}).encode()),
)
def test_any_config_and_index_read_without_an_exception(scratch: Path, config: bytes, index: bytes) -> None:
    path = folder_of(scratch / "any", model__safetensors=raw_file({"a": entry()}))
    (path / INDEX).write_bytes(index)
    assert read_checkpoint(path).readable
    (path / "config.json").write_bytes(config)
    checkpoint = read_checkpoint(path)
    assert checkpoint.readable == (checkpoint.config is not None)
