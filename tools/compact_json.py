"""JSON that a person can review: what fits on one line stays on one line."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 150


def compact(value: Any) -> str:
    """The text of a whole file that holds `value`."""
    return _lines(value, 0) + "\n"


def _lines(value: Any, indent: int) -> str:
    one = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(one) + indent <= WIDTH:
        return one
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(key)}: {_lines(item, indent + 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(pad + _lines(item, indent + 2) for item in value) + f"\n{' ' * indent}]"
