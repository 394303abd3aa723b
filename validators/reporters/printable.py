"""Text of an untrusted checkpoint made safe to print: it may hold escape sequences and endless names."""

from __future__ import annotations

LIMIT = 2000
"""Characters of one text that are printed."""


def printable(text: str) -> str:
    """Return `text` with what is not printable escaped, and without its middle where it is too long."""
    if len(text) > LIMIT:
        half = LIMIT // 2
        text = f"{text[:half]}[… {len(text) - 2 * half:,} characters …]{text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
