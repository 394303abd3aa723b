"""The command on any input: exit code 0, 1 or 2, no traceback, bounded time, nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import exports
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from quark_format.validators.cli import app

SECONDS = 10
MEMORY = 1 << 30
MANY = settings(
    max_examples=150, deadline=SECONDS * 1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LIMITED = (
    "import resource, sys\n"
    f"resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))\n"
    "from quark_format.validators.cli import main\n"
    "sys.argv[0] = 'quark-validate'\n"
    "main()\n"
)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["quark", "fp8_e4m3", "per_group", "*", "re:.*", "re:(a*)*b", "0.13", "lm_head"])
)
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
BLOCKS = st.fixed_dictionaries(
    {"quant_method": st.just("quark") | LEAVES},
    optional=dict.fromkeys(
        (
            "version",
            "global_quant_config",
            "exclude",
            "layer_quant_config",
            "layer_type_quant_config",
            "kv_cache_quant_config",
            "export",
            "algo_config",
            "softmax_quant_spec",
            "quant_mode",
        ),
        JUNK,
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exports.write(exports.load("llama_int4_fp8"), tmp_path_factory.mktemp("any"))


def judged(path: Path, *arguments: str) -> str:
    """Run the command and assert what holds for any input."""
    before = sorted(os.listdir(path))
    result = CliRunner().invoke(app, [str(path), *arguments])
    assert result.exit_code in {0, 1, 2}, result.output
    assert "Traceback" not in result.output
    assert "This is a bug" not in result.output
    assert "\x1b" not in result.output
    assert sorted(os.listdir(path)) == before
    return result.output


@MANY
@given(block=BLOCKS | JUNK)
def test_any_quantization_config(block: Any, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": block}), encoding="utf-8")
    judged(folder)


@MANY
@given(data=st.data())
def test_any_change_of_a_real_config(data: st.DataObject, folder: Path) -> None:
    config = exports.load("llama_int4_fp8")["config"]
    node: Any = config["quantization_config"]
    for _ in range(data.draw(st.integers(0, 4))):
        inner = [key for key, value in node.items() if isinstance(value, dict) and value]
        if not inner:
            break
        node = node[data.draw(st.sampled_from(inner))]
    if node:
        node[data.draw(st.sampled_from(sorted(node)))] = data.draw(JUNK)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    judged(
        folder, data.draw(st.sampled_from(["--values", "--values=all", "--format=json", "--format=sarif"]))
    )


@MANY
@given(
    content=st.binary(max_size=300),
    index=st.binary(max_size=300) | JUNK.map(lambda v: json.dumps(v).encode()),
)
def test_any_bytes(
    content: bytes, index: bytes, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bytes")
    (path / "config.json").write_text((folder / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    (path / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    (path / "model.safetensors.index.json").write_bytes(index)
    judged(path, "--values=all")


@MANY
@given(
    words=st.lists(
        st.text(max_size=6)
        | st.sampled_from(["--values", "--format", "json", "--", "-h", "--tensor-parallel"]),
        max_size=5,
    )
)
def test_any_arguments(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code in {0, 1, 2}
    assert result.exception is None or isinstance(result.exception, SystemExit)


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


HOSTILE: dict[str, bytes] = {
    "deep config": deep(150_000),
    "many brackets": b"[" * 900_000,
    "many empty arrays": b'{"a":[' + b"[]," * 300_000 + b"[]]}",
    "a long number": b'{"a":' + b"9" * 900_000 + b"}",
    "many patterns": json.dumps(
        {
            "quantization_config": {
                "quant_method": "quark",
                "exclude": ["*a*b*c*d" + str(n) for n in range(40_000)],
            }
        }
    ).encode(),
    "catastrophic expressions": json.dumps(
        {
            "quantization_config": {
                "quant_method": "quark",
                "exclude": [f"re:(.*)*(a|a)*{n}$" for n in range(2_000)],
            }
        }
    ).encode(),
    "many layers": json.dumps(
        {
            "quantization_config": {
                "quant_method": "quark",
                "layer_quant_config": {f"*.{n}.*": {"weight": {"dtype": "int8"}} for n in range(15_000)},
            }
        }
    ).encode(),
    "a long name": json.dumps(
        {"quantization_config": {"quant_method": "quark", "exclude": ["x" * 900_000]}}
    ).encode(),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_config_in_bounded_time_and_memory(content: bytes, tmp_path: Path) -> None:
    assert len(content) < 1 << 20
    path = exports.write(exports.load("llama_int4_fp8"), tmp_path)
    (path / "config.json").write_bytes(content)
    limited(path)


def limited(path: Path) -> str:
    """Run the command in a process of bounded memory and assert that it ends in time."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in {0, 1, 2}, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert "This is a bug" not in done.stderr
    assert time.monotonic() - start < SECONDS
    return done.stdout


def test_a_header_of_a_million_bytes_of_tiny_entries(tmp_path: Path) -> None:
    entries = {f"{n:x}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(17_000)}
    raw = json.dumps(entries, separators=(",", ":")).encode()
    path = exports.write(exports.load("llama_int4_fp8"), tmp_path)
    (path / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    limited(path)


def test_escape_sequences_are_never_printed(tmp_path: Path) -> None:
    export = exports.load("llama_int4_fp8")
    export["config"]["quantization_config"]["exclude"] = ["\x1b[2J\x1b]0;owned\x07", "\u202egnp"]
    (content,) = export["files"].values()
    content["tensors"]["\x1b[31mred\x1b[0m.weight_scale"] = ["F32", [1]]
    path = exports.write(export, tmp_path)
    for form in ("text", "json", "sarif", "github", "junit"):
        output = judged(path, f"--format={form}", "--all")
        assert not {"\x1b", "\x07", "\u202e"} & set(output)


def test_a_read_only_folder(tmp_path: Path) -> None:
    path = exports.write(exports.load("llama_fp8_kv"), tmp_path / "checkpoint")
    path.chmod(0o555)
    try:
        judged(path, "--values=all")
    finally:
        path.chmod(0o755)
