"""Commands of this project, run for the pages that show their output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from quark_format.validators import cli

WIDTH = "100"
_BINARIES = Path(sys.executable).parent


def validate(arguments: list[str], folder: Path) -> str:
    """What `quark-validate` prints in `folder`, in this process."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(cli.app, arguments, prog_name="quark-validate", env={"COLUMNS": WIDTH})
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def shell(line: str, folder: Path) -> str:
    """What a line of shell prints in `folder`, errors included, with this environment's commands."""
    path = os.pathsep.join((str(_BINARIES), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, "COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
