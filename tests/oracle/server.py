"""Loads in the real vLLM without the plugin: one process that has imported it, a forked child for each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT / "tests"),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "QUARK_FORMAT_VLLM": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
PROMPT = [5 + index * 37 % 500 for index in range(32)]
SECONDS = 180.0
"""After which a load counts as one that hangs."""
_BLOCKS = 16


@dataclass(frozen=True)
class Load:
    """What became of a load: tokens and log probabilities of the prompt, or the error."""

    ok: bool
    error: str = ""
    schemes: tuple[str, ...] = ()
    logprobs: tuple[dict[str, float], ...] = ()


class Vllm:
    """One process that loads checkpoints one after the other."""

    def __init__(self, log: Path) -> None:
        """Start it; what vLLM writes goes to `log`."""
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "oracle.without_amx"],
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def load(self, path: Path, **arguments: Any) -> Load:
        """Load a checkpoint, answer a prompt and generate a few tokens; `arguments` are those of LLM."""
        request = {
            "path": str(path),
            "prompt": PROMPT,
            "logprobs": True,
            "arguments": {"num_gpu_blocks_override": _BLOCKS, **arguments},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        timer = Timer(SECONDS, self._kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._process.wait()
            self._start()
            return Load(False, f"no answer in {SECONDS:g} s")
        reply = json.loads(line)
        if not reply["ok"]:
            return Load(False, reply["error"])
        schemes = dict.fromkeys(str(one["scheme"]) for one in reply["layers"])
        return Load(True, "", tuple(schemes), tuple(reply["logprobs"]))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
