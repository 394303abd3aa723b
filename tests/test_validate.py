"""`validate` and `quark-validate` from the folder on disk to the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exports
import pytest

from quark_format import validate

HEALTHY = "llama_fp8_kv"
Change = Callable[[dict[str, Any], Path], None]


def quantization(export: dict[str, Any]) -> dict[str, Any]:
    """The quantization block of an export, to be changed."""
    block: dict[str, Any] = export["config"]["quantization_config"]
    return block


def config_text(text: str) -> Change:
    """Replace config.json by `text`."""

    def change(_: dict[str, Any], folder: Path) -> None:
        (folder / "config.json").write_text(text, encoding="utf-8")

    return change


def block(**changes: Any) -> Change:
    """Change keys of the block; None as a value stays a null."""

    def change(export: dict[str, Any], folder: Path) -> None:
        quantization(export).update(changes)
        exports.write(export, folder)

    return change


def without_block(export: dict[str, Any], folder: Path) -> None:
    """Drop the quantization block."""
    del export["config"]["quantization_config"]
    exports.write(export, folder)


def block_in_text_config(export: dict[str, Any], folder: Path) -> None:
    """Move the block to where multimodal models have it."""
    export["config"]["text_config"] = {"quantization_config": export["config"].pop("quantization_config")}
    exports.write(export, folder)


def second_block(export: dict[str, Any], folder: Path) -> None:
    """A second block below text_config that excludes nothing."""
    other = {**quantization(export), "exclude": []}
    export["config"]["text_config"] = {"quantization_config": other}
    exports.write(export, folder)


def side_file(export: dict[str, Any], folder: Path) -> None:
    """ModelOpt's config beside Quark's."""
    exports.write(export, folder)
    (folder / "hf_quant_config.json").write_text("{}", encoding="utf-8")


def truncated(_: dict[str, Any], folder: Path) -> None:
    """Cut the shard in its data."""
    shard = folder / "model.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 100)


def no_weights(_: dict[str, Any], folder: Path) -> None:
    """Remove the shard."""
    (folder / "model.safetensors").unlink()


INPUTS: list[tuple[str, Change, int, str | None, str]] = [
    ("healthy", lambda *_: None, 0, None, ""),
    ("config-empty", config_text(""), 2, "QF102", "it is empty"),
    ("config-no-json", config_text("{'a': 1}"), 2, "QF102", "config.json"),
    ("config-list", config_text("[]"), 2, "QF102", "array"),
    ("config-no-block", without_block, 1, "QF201", "is a scale of a quantized weight"),
    ("block-string", config_text('{"quantization_config": "quark"}'), 1, "QF210", '"quark"'),
    ("method-unknown", block(quant_method="quork"), 1, "QF202", '"quork"'),
    ("method-sister", block(quant_method="gptq"), 0, "QF203", "GPTQ"),
    ("version-newer", block(version="7.1"), 0, "QF205", '"7.1"'),
    ("version-odd", block(version="latest"), 0, "QF205", '"latest"'),
    ("version-null", block(version=None), 0, "QF207", "0.13"),
    ("version-older-than-keys", block(version="0.9"), 0, "QF206", '"0.9"'),
    ("text-config", block_in_text_config, 0, None, ""),
    ("two-blocks", second_block, 1, "QF204", "exclude"),
    ("two-files", side_file, 0, "QF208", "ModelOpt"),
    ("truncated", truncated, 1, "QF106", "model.safetensors"),
    ("no-weights", no_weights, 0, "QF103", "safetensors"),
]


@pytest.mark.parametrize(
    ("change", "exit_code", "code", "word"), [case[1:] for case in INPUTS], ids=[case[0] for case in INPUTS]
)
def test_what_a_folder_can_be(
    change: Change, exit_code: int, code: str | None, word: str, tmp_path: Path
) -> None:
    """Each kind of bad input has its own code, a sentence with the value, and the right exit code."""
    export = exports.load(HEALTHY)
    folder = exports.write(exports.load(HEALTHY), tmp_path / "checkpoint")
    change(export, folder)

    report = validate(folder)

    assert (2 if not report.readable else int(not report.ok)) == exit_code
    found = {finding.code: finding for finding in report.findings}
    assert set(found) == ({code} if code else set()), [finding.message for finding in report.findings]
    if code:
        assert word in found[code].message
    done = subprocess.run(
        [sys.executable, "-m", "quark_format", str(folder), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code
    assert done.stderr == ""
    assert [entry["code"] for entry in json.loads(done.stdout)["checkpoints"][0]["findings"]] == list(found)


def test_one_fault_in_every_layer_is_one_finding(tmp_path: Path) -> None:
    """All scales of a kind renamed: one finding that counts them."""
    export = exports.load("llama_fp8_pt_static")
    content = export["files"]["model.safetensors"]["tensors"]
    names = [name for name in content if name.endswith(".weight_scale")]
    for name in names:
        content[f"{name}_inv"] = content.pop(name)

    report = validate(exports.write(export, tmp_path))

    renamed = [finding for finding in report.findings if finding.code == "QF308"]
    assert [finding.count for finding in renamed] == [len(names)] == [14]
    assert f"and {len(names) - 3} more" in renamed[0].message


def test_a_read_only_folder_is_judged_and_left_alone(tmp_path: Path) -> None:
    """Nothing is written beside a checkpoint."""
    folder = exports.write(exports.load(HEALTHY), tmp_path / "checkpoint")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    folder.chmod(0o555)
    try:
        assert validate(folder).ok
    finally:
        folder.chmod(0o755)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
