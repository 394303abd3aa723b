"""Read access to the declared data in `schema/`, the project's single source of facts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_ROOT = files("quark_format.schema")


@cache
def table(name: str) -> Any:
    """Parse the schema file `name`, a path relative to `schema/` such as `v0.13/tensors.json`.

    The parsed value is shared between callers and must not be changed.

    Raises:
        FileNotFoundError: no such file is declared.
    """
    return msgspec.json.decode(_ROOT.joinpath(*name.split("/")).read_bytes())


@cache
def has_table(name: str) -> bool:
    """Whether the schema file `name` is declared."""
    return _ROOT.joinpath(*name.split("/")).is_file()
