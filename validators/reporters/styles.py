"""How findings look on a terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from quark_format.validators.findings import Severity
from quark_format.validators.reporters.printable import printable

SEVERITY: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


def console_of(stream: TextIO) -> Console:
    """Return a console that prints what it is given: no markup, no emoji names, no colours by guess."""
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def marked(text: str) -> Text:
    """Return `text`, made printable, with what stands between backticks in another colour."""
    line = Text(printable(text))
    line.highlight_regex(r"`[^`]*`", style="cyan")
    return line
