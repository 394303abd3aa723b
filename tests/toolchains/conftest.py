"""The tools of other languages and environments, installed once below `build/`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from programs import program

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "toolchains"


def cache_for(*names: str) -> Path:
    """The folder of what these files of pins, and this Python, ask for."""
    content = b"\0".join((HERE / name).read_bytes() for name in names) + sys.version.encode()
    return CACHE / hashlib.sha256(content).hexdigest()[:16]


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """A folder in which the pinned npm packages are installed."""
    folder = cache_for("package.json", "package-lock.json")
    if not (folder / "done").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        subprocess.run([program("npm", "npm"), "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
        (folder / "done").touch()
    return folder


@pytest.fixture(scope="session")
def clean_bin() -> Path:
    """The programs of an environment with the pinned Python tools and without this project."""
    folder = cache_for("requirements.txt")
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    if not (folder / "done").is_file():
        venv.create(folder, with_pip=True)
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
        (folder / "done").touch()
    return programs
