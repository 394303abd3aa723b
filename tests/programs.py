"""Programs that some tests need and that pip does not install."""

from __future__ import annotations

import shutil

import pytest


def program(name: str, package: str) -> str:
    """The path of a program; the test fails where it is missing, and names Debian's package of it."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed; Debian has it in the package {package}", pytrace=False)
    return found
