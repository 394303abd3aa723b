"""Run every check of the project in an environment of its own; needs nothing but Python 3.11 and pip.

    python tools/run_tests.py [STEP...]

The first run makes `.venv-test` and installs the `test` extra into it, later runs do so again only where
`pyproject.toml` or `tools/test-overrides.txt` changed. Every step runs even if one before it failed; the exit
code is 1 where any did. STEP is the name of a step, such as `ruff` or `pytest`; without one all of them run.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-test"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = str(BIN / "python")
OVERRIDES = ROOT / "tools" / "test-overrides.txt"
OLDEST_PYTHON = (3, 11)

UV_NAMES = {"find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
"""What uv calls the settings of pip, which it does not read itself."""


@dataclass(frozen=True)
class Step:
    """One check: what it is called, and its command."""

    name: str
    command: tuple[str, ...]


def steps() -> list[Step]:
    """Return the checks in their order; each generator in `tools/` tells whether its output is current."""
    generators = sorted((ROOT / "tools").glob("build_*.py"))
    return [
        Step("ruff", (PYTHON, "-m", "ruff", "check", ".")),
        Step("format", (PYTHON, "-m", "ruff", "format", "--check", ".")),
        Step("mypy", (PYTHON, "tools/typecheck.py")),
        *(Step(tool.stem, (PYTHON, f"tools/{tool.name}", "--check")) for tool in generators),
        Step("pytest", (PYTHON, "-m", "pytest")),
    ]


def main(wanted: list[str]) -> int:
    """Prepare the environment, run the wanted steps and return the exit code."""
    if sys.version_info < OLDEST_PYTHON:
        print(f"This is Python {sys.version.split()[0]}; 3.11 or newer is needed.")
        return 2
    chosen = [step for step in steps() if not wanted or step.name in wanted]
    if unknown := set(wanted) - {step.name for step in chosen}:
        print(f"No step {', '.join(sorted(unknown))}. Steps: {', '.join(step.name for step in steps())}")
        return 2
    prepare()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    failed = [step.name for step in chosen if not run(step.name, step.command, environment)]
    print(
        f"Failed: {', '.join(failed)}" if failed else f"All passed: {', '.join(step.name for step in chosen)}"
    )
    return int(bool(failed))


def prepare() -> None:
    """Make the environment and install what the current `pyproject.toml` asks for, unless that is done."""
    stamp = VENV / "installed"
    wanted = digest((ROOT / "pyproject.toml", OVERRIDES))
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return
    if not Path(PYTHON).exists():
        venv.create(VENV, with_pip=True)
    uv_environment = os.environ | uv_settings()
    extra = ("-e", ".[test]", "--overrides", str(OVERRIDES), "--python", PYTHON)
    for name, command in (
        ("install uv", (PYTHON, "-m", "pip", "install", "--quiet", "uv")),
        ("install the test extra", (PYTHON, "-m", "uv", "pip", "install", *extra)),
    ):
        if not run(name, command, uv_environment):
            sys.exit(1)
    stamp.write_text(wanted, encoding="ascii")


def uv_settings() -> dict[str, str]:
    """Return pip's settings as the variables that uv reads.

    Where pip is given no folder of wheels, PyTorch's CPU builds come from its own index, which uv knows.
    """
    listed = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings: dict[str, str] = {}
    for line in reversed(listed.splitlines()):  # environment variables come first in the list, and win
        place, _, value = line.partition("=")
        name = UV_NAMES.get(place.rpartition(".")[2])
        if name and name not in os.environ:
            settings[name] = ",".join(ast.literal_eval(value).split())
    if "UV_FIND_LINKS" not in settings | os.environ:
        settings["UV_TORCH_BACKEND"] = "cpu"
    return settings


def digest(files: Iterable[Path]) -> str:
    """Return a hash of what the files hold and of the Python that runs."""
    content = b"\0".join(file.read_bytes() for file in files) + sys.version.encode()
    return hashlib.sha256(content).hexdigest()


def run(name: str, command: tuple[str, ...], environment: dict[str, str]) -> bool:
    """Run one command in the repository's root, say how it went, and return whether it passed."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    print(
        f"== {name}: {'ok' if not code else f'exit code {code}'}, {time.monotonic() - start:.1f} s",
        flush=True,
    )
    return code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
