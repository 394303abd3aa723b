"""Blocks with thousands of layer entries hold few distinct ones, and judging each of those once is enough."""

from __future__ import annotations

import json
from typing import Any

from quark_format.tables import table


def distinct(block: Any) -> tuple[Any, dict[tuple[str, str], int]]:
    """Return the block with one entry for each distinct value of its maps, and how often each occurs.

    The kept entry is the first of its value; the counts are by (map, entry). What is no object is returned as
    it is.
    """
    counts: dict[tuple[str, str], int] = {}
    if not isinstance(block, dict):
        return block, counts
    smaller = dict(block)
    for key in table("catalog.json")["maps"]:
        entries = block.get(key)
        if not isinstance(entries, dict):
            continue
        kept: dict[str, str] = {}
        for name, value in entries.items():
            first = kept.setdefault(json.dumps(value, default=repr), name)
            counts[key, first] = counts.get((key, first), 0) + 1
        smaller[key] = {name: entries[name] for name in kept.values()}
    return smaller, counts
