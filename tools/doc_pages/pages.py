"""All generated pages, by their path below the site's root."""

from __future__ import annotations

from doc_pages import command_line, compressed_tensors, findings, layouts, matrix, releases, schemas, verdicts

MAKERS = (findings, schemas, layouts, matrix, releases, verdicts, compressed_tensors, command_line)


def generated() -> dict[str, str]:
    """The Markdown of every generated page by its path."""
    return {path: content for maker in MAKERS for path, content in maker.pages()}
