"""The page of one rule, and the list of all of them."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from quark_format.validators.findings import Rule, rules
from quark_format.validators.reporters.styles import SEVERITY, marked
from quark_format.validators.templates import template_text


def explain(rule: Rule, console: Console) -> None:
    """Print what `rule` says, why it matters, how to fix it and where it comes from."""
    title = Text.assemble(
        (f"{rule.code} {rule.name}", "bold"), "  ", (rule.severity, SEVERITY[rule.severity])
    )
    sections: list[tuple[str, RenderableType]] = [
        ("What it says", marked(template_text(rule.message))),
        ("Why it matters", marked(template_text(rule.why))),
        ("How to fix it", marked(template_text(rule.fix))),
        ("Sources", Group(*(Text(f"• {source}") for source in rule.sources))),
        *([("Page", Text(rule.page))] if rule.page else []),
    ]
    console.print(title)
    for heading, body in sections:
        console.print()
        console.print(Text(heading, style="bold"))
        console.print(Padding.indent(body, 2))


def list_rules(console: Console) -> None:
    """Print a line for each rule."""
    table = Table.grid(padding=(0, 2))
    for rule in rules().values():
        table.add_row(Text(rule.code, "bold"), Text(rule.severity, SEVERITY[rule.severity]), Text(rule.name))
    console.print(table)
