"""Rules shown without a finding: their templates with the names of the fields."""

from __future__ import annotations

from string import Formatter


def template_text(template: str) -> str:
    """Return a rule's template with its fields as <names>."""
    return "".join(
        f"{literal}<{field}>" if field else literal for literal, field, _, _ in Formatter().parse(template)
    )
