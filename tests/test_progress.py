"""The progress bar, seen as a terminal sees it: a real command on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama-fp8-kv"
SCRIPT = """
import sys, time
from quark_format.validators import progress
from quark_format.validators.cli import main
progress.DELAY = float(sys.argv.pop(1))
slow = float(sys.argv.pop(1))
begin = progress._State.begin
progress._State.begin = lambda self, path: (time.sleep(slow), begin(self, path))[1]
main()
"""


def on_a_terminal(delay: float, slow: float, *arguments: str) -> tuple[str, str]:
    """What the command writes to its standard output and to the terminal that its standard error is."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", SCRIPT, str(delay), str(slow), *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    shown += os.read(master, 65536)
                except OSError:
                    break
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(master)
    return out.decode(), shown.decode(errors="replace")


@pytest.mark.parametrize(("delay", "slow", "expected"), [(0.0, 0.3, True), (60.0, 0.0, False)])
def test_the_bar_shows_when_work_lasts(delay: float, slow: float, expected: bool) -> None:
    """It names the checkpoint and counts; quick work shows nothing; the report is the same."""
    out, shown = on_a_terminal(delay, slow, str(EXAMPLE), str(EXAMPLE))

    assert ("llama-fp8-kv" in shown and "%" in shown) == expected
    assert out.count("llama-fp8-kv") == 2


def test_names_from_outside_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """A path with an escape sequence is shown without it."""
    folder = tmp_path / "a\x1b]0;owned\x07b"
    folder.mkdir()
    out, shown = on_a_terminal(0.0, 0.3, str(folder), str(folder))

    assert "\x1b]0;owned" not in out + shown
