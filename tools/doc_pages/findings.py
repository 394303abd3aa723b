"""A page for each finding, in ruff's order, and the page that lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from doc_pages.examples import Example, example
from doc_pages.markdown import block, code, link, text
from doc_pages.markdown import table as markdown_table
from quark_format.tables import table
from quark_format.validators.templates import template_text

FAMILY_TEXT = table("rules.schema.json")["$defs"]["Rule"]["properties"]["code"]["description"]


def rules() -> list[dict[str, Any]]:
    """The declared rules, in the order of their codes."""
    declared: list[dict[str, Any]] = table("rules.json")["rules"]
    return declared


def families() -> dict[str, str]:
    """What each family of codes is about, by its digit, as the rules' schema says."""
    return {
        digit: words[0].upper() + words[1:]
        for digit, words in re.findall(r"(\d) ([\w ]+?)(?:,|\))", FAMILY_TEXT)
    }


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of each page."""
    yield "findings/index.md", overview()
    codes = [rule["code"] for rule in rules()]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for rule, shown in zip(rules(), pool.map(example, codes), strict=True):
            yield f"findings/{rule['code']}.md", page(rule, shown)


def overview() -> str:
    """The list of all findings by family."""
    parts = [
        "# Findings\n\nEach finding has a code that never changes its meaning, and a page of its own. "
        "`quark-validate --explain CODE` says the same in a terminal.\n"
    ]
    for digit, words in families().items():
        rows = [
            (
                f"[{rule['code']}]({rule['code']}.md)",
                code(rule["name"]),
                rule["severity"],
                text(said(rule["message"])),
            )
            for rule in rules()
            if rule["code"][2] == digit
        ]
        parts.append(f"## {words}\n\n{markdown_table(('Code', 'Name', 'Severity', 'What it says'), rows)}")
    return "\n".join(parts)


def said(template: str) -> str:
    """A template of a rule for a reader, its fields as words in brackets."""
    return template_text(template)


def page(rule: dict[str, Any], shown: Example) -> str:
    """The page of one finding."""
    sources = "\n".join(f"- {link(source)}" for source in rule["sources"])
    command = f"$ {shown.command}\n{shown.output}"
    difference = f"{block(shown.difference, 'diff')}\n" if shown.difference else ""
    return f"""# {rule["code"]} {rule["name"]}

Severity: **{rule["severity"]}**

## What it does

Reports that: {text(said(rule["message"]))}

## Why is this bad?

{text(said(rule["why"]))}

## Example

{text(shown.does)} Planted in the real export `{shown.base}`:

{difference}{block(command, "console")}
## How to fix

{text(said(rule["fix"]))}

## References

{sources}
"""
