"""Markdown from values: tables, code, text that must not be read as markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


def text(value: str) -> str:
    """`value` as words in a table cell or paragraph; code between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", value)
    return "".join(map(_plain, parts)).replace("|", "\\|").replace("\n", " ")


def _plain(part: str) -> str:
    """A part of a sentence without markup, unless it is code."""
    if part.startswith("`"):
        return part
    escaped = re.sub(r"([*_\[\]])", r"\\\1", part)
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def code(value: Any) -> str:
    """A JSON value or a string as inline code."""
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{told}`".replace("|", "\\|")


def codes(values: Iterable[Any]) -> str:
    """Several values as inline code, separated by commas."""
    return ", ".join(code(value) for value in values)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def block(content: str, language: str = "text") -> str:
    """A block of code."""
    return f"```` {language}\n{content.rstrip()}\n````\n"


def link(source: str) -> str:
    """A source as a reader finds it: an address, or the words that name a place in a release."""
    issue = re.fullmatch(r"([\w.-]+/)?([\w.-]+)#(\d+)", source)
    if source.startswith("https://"):
        return f"<{source}>"
    owner = OWNERS.get(issue[2]) if issue and not issue[1] else issue and issue[1].rstrip("/")
    if issue and owner:
        return f"[{source}](https://github.com/{owner}/{issue[2]}/issues/{issue[3]})"
    return text(source)


OWNERS = {
    "vllm": "vllm-project",
    "sglang": "sgl-project",
    "transformers": "huggingface",
    "llm-compressor": "vllm-project",
    "ATOM": "ROCm",
}
"""Who owns a repository that sources name without its owner."""
