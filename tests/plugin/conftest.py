"""Real exports, made once for all tests, and the real vLLM that loads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin.served_exports import DENSE, EXPERTS, REFUSED

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "tests"),
    "OMP_NUM_THREADS": "1",
    "QUARK_DISABLE_COMPILE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
STOCK = {"QUARK_FORMAT_VLLM": "0"}
"""Turns the plugin off."""
PROMPT = [5 + index * 37 % 500 for index in range(32)]

Reply = dict[str, Any]
"""What load_server.py answers."""


def kernels(reply: Reply) -> set[tuple[str, str, str]]:
    """Of a model that was loaded: its layers with the schemes and kernels that serve them."""
    return {(one["name"], one["scheme"], one["kernel"]) for one in reply["layers"]}


class Loader:
    """One process that has imported vLLM."""

    def __init__(self, log: Path, server: str = "oracle.without_amx", **environment: str) -> None:
        """Start the module `server`; what vLLM writes goes to `log`."""
        self.log = log
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", server],
                env={**ENVIRONMENT, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def load(self, path: Path, **request: Any) -> Reply:
        """What became of the checkpoint; see load_server.py."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"path": str(path), "prompt": PROMPT, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log.read_text(encoding="utf-8")[-4000:]
        reply: Reply = json.loads(line)
        return reply

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every export of served_exports.py and its reference logits."""
    if made_before := os.environ.get("QUARK_FORMAT_EXPORTS"):
        return Path(made_before)
    folder = tmp_path_factory.mktemp("exports")
    made = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools" / "make_exports.py"),
            str(folder),
            *DENSE,
            *EXPERTS,
            *REFUSED,
            "--reference",
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """The plugin in the real vLLM."""
    started = Loader(tmp_path_factory.mktemp("vllm") / "log")
    yield started
    started.close()


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """The real vLLM with the plugin turned off."""
    started = Loader(tmp_path_factory.mktemp("stock") / "log", **STOCK)
    yield started
    started.close()
