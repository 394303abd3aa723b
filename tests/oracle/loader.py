"""A process of a consumer that loads one checkpoint after the other, in a forked child each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

ROOT = Path(__file__).parents[2]
PROMPT = [5 + index * 37 % 500 for index in range(32)]
SECONDS = 180.0
"""After which a load counts as one that hangs."""


@dataclass(frozen=True)
class Load:
    """What became of a load: log probabilities after each token of the prompt by token, or the error."""

    ok: bool
    error: str = ""
    logprobs: tuple[Mapping[str, float], ...] = ()


class Loader:
    """Answers requests by the process of a module, which reads and writes lines of JSON."""

    def __init__(
        self,
        python: str,
        module: str,
        environment: Mapping[str, str],
        options: Mapping[str, Any],
        log: Path,
    ):
        """Start it in `python`; what it writes goes to `log`. `options` are sent with every request."""
        self._python, self._module, self._log, self._options = python, module, log, options
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), **environment}
        self._start()

    def _start(self) -> None:
        with self._log.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [self._python, "-P", "-m", self._module],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def load(self, path: Path) -> Load:
        """Load a checkpoint and answer a prompt."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"path": str(path), "prompt": PROMPT, **self._options}
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
        return Load(reply["ok"], reply.get("error", ""), tuple(reply.get("logprobs", ())))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
