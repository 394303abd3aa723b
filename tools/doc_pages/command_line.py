"""The page of the commands: what their `--help` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from doc_pages.markdown import block
from doc_pages.terminal import shell

COMMANDS = (
    "quark-validate",
    "quark-format",
    "quark-format resolve",
    "quark-format serve-check",
    "quark-format schema",
    "quark-format schema export",
)


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of the page."""
    parts = ["# Command line\n"]
    for command in COMMANDS:
        shown = f"$ {command} --help\n{shell(f'{command} --help', Path.cwd())}"
        parts.append(f"## {command}\n\n{block(shown, 'console')}")
    yield "reference/command-line.md", "\n".join(parts)
