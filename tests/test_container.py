"""The findings on a container: every rule of the family has words for what reading a checkpoint meets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import exports
import pytest

from quark_format.checkpoint import Checkpoint, Problem, read_checkpoint
from quark_format.tables import table
from quark_format.validators import container

if TYPE_CHECKING:
    from pathlib import Path

    from quark_format.validators.findings import Finding


def judge(path: Path) -> list[Finding]:
    return list(container.check(read_checkpoint(path)))


def split(tmp_path: Path) -> Path:
    """Write a real export as two shards with an index."""
    export = exports.load("q0.10_llama_int4")
    tensors = list(export["files"].popitem()[1]["tensors"].items())
    half = len(tensors) // 2
    export["files"] = {
        "model-00001-of-00002.safetensors": {"tensors": dict(tensors[:half])},
        "model-00002-of-00002.safetensors": {"tensors": dict(tensors[half:])},
    }
    mapped = {name: file for file, part in export["files"].items() for name in part["tensors"]}
    export["index"] = {"metadata": {}, "weight_map": mapped}
    return exports.write(export, tmp_path)


@pytest.mark.parametrize("name", exports.names())
def test_real_exports_have_no_finding(name: str, tmp_path: Path) -> None:
    assert judge(exports.write(exports.load(name), tmp_path)) == []


def test_truncated_shard(tmp_path: Path) -> None:
    path = split(tmp_path)
    shard = path / "model-00002-of-00002.safetensors"
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        file.truncate(size - 1000)
    (found,) = judge(path)
    assert (found.code, found.severity, found.file) == ("QF106", "error", shard.name)
    begin = int.from_bytes(shard.read_bytes()[:8], "little") + 8
    assert (
        f"holds {size - begin - 1000:,} bytes of tensor data, its header describes {size - begin:,}"
        in found.message
    )


def test_equal_findings_of_a_file_are_one(tmp_path: Path) -> None:
    path = split(tmp_path)
    place = path / "model.safetensors.index.json"
    index = json.loads(place.read_text())
    names = list(index["weight_map"])
    for name in names[:5]:
        index["weight_map"][name] = "model-00002-of-00002.safetensors"
    place.write_text(json.dumps(index))
    (found,) = judge(path)
    assert (found.code, found.tensor, found.count) == ("QF111", names[0], 5)
    assert "`model-00002-of-00002.safetensors`" in found.message
    assert "`model-00001-of-00002.safetensors`" in found.message


def test_missing_shard_says_how_much_is_missing(tmp_path: Path) -> None:
    path = split(tmp_path)
    gone = path / "model-00001-of-00002.safetensors"
    gone.unlink()
    index = json.loads((path / "model.safetensors.index.json").read_text())
    lost = sum(file == gone.name for file in index["weight_map"].values())
    (found,) = judge(path)
    assert found.code == "QF112"
    assert f"{lost:,} tensors are missing" in found.message


@pytest.mark.parametrize(
    "problem",
    [
        Problem("QF101", {"file": "x", "reason": "it holds no config.json"}),
        Problem("QF102", {"file": "config.json", "reason": "it is empty"}),
        Problem("QF103", {"file": "x", "other": ""}),
        Problem("QF104", {"file": "a", "tensor": "t", "reason": "`t` has no dtype"}),
        Problem("QF105", {"file": "a", "tensor": "t", "reason": "overlaps"}),
        Problem("QF106", {"file": "a", "actual": "1", "expected": "2"}),
        Problem("QF107", {"file": "a", "tensor": "t", "actual": "I4"}),
        Problem("QF108", {"file": "i", "reason": "it is empty"}),
        Problem("QF109", {"file": "a", "tensor": "t"}),
        Problem("QF110", {"file": "a", "tensor": "t"}),
        Problem("QF111", {"file": "a", "tensor": "t", "expected": "b"}),
        Problem("QF112", {"file": "a", "source": "`i`", "tensors": 1234}),
        Problem("QF113", {"file": "a"}),
        Problem("QF114", {"file": "a", "tensor": "t", "other": "b"}),
        Problem("QF115", {"file": "i", "actual": "1", "expected": "2"}),
        Problem("QF116", {"file": "a", "key": "k", "place": ""}),
        Problem("QF117", {"file": "a", "actual": "../b"}),
        Problem("QF118", {"file": "a", "expected": 2, "actual": 1, "index": "i"}),
        Problem("QF119", {"file": "a", "count": 3}),
        Problem("QF120", {"file": "a"}),
        Problem("QF121", {"file": "a", "what": "NaN"}),
        Problem("QF122", {"file": "i", "actual": "sub/a"}),
        Problem("QF123", {"file": "a", "reason": "it is a directory"}),
        Problem("QF124", {"file": "a", "expected": 2, "actual": 2, "index": "i"}),
    ],
    ids=lambda problem: problem.code,
)
def test_every_rule_has_words(problem: Problem, tmp_path: Path) -> None:
    (found,) = container.check(Checkpoint(tmp_path, problems=[problem]))
    assert found.code == problem.code
    assert found.file == problem.values["file"]
    assert "{" not in found.message.replace("`{`", "")
    assert found.fix


def test_the_list_above_is_complete() -> None:
    marks = test_every_rule_has_words.pytestmark  # type: ignore[attr-defined]
    listed = [problem.code for problem in marks[0].args[1]]
    assert listed == [rule["code"] for rule in table("rules.json")["rules"] if rule["code"].startswith("QF1")]
