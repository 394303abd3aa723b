"""Values of a config, cut to what a message can hold."""

from __future__ import annotations

import json
from typing import Any

_SHOWN = 80


def short(value: Any) -> str:
    """`value` in JSON notation, cut behind 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
