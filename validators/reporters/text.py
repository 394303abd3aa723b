"""The readable report: each checkpoint's findings, gravest first, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from quark_format.validators.findings import SEVERITIES, Finding
from quark_format.validators.report import Report, TargetVerdict
from quark_format.validators.reporters.places import place_of
from quark_format.validators.reporters.printable import printable
from quark_format.validators.reporters.styles import SEVERITY, console_of, marked

PER_RULE = 3
"""Findings of one rule and severity that are shown in full."""


def render(reports: Sequence[Report], stream: TextIO, per_rule: int | None = PER_RULE) -> None:
    """Write the reports, at most `per_rule` findings of one rule each (None: all of them)."""
    console = console_of(stream)
    for number, report in enumerate(reports):
        if number:
            _print(console, Text())
        _print(console, Text(printable(report.path), style="bold"))
        _print(console, Text(_facts(report), style="dim"), 2)
        for line, indent in _findings(report, per_rule):
            _print(console, line, indent)
        for target in report.targets:
            _print(console, _target(target, report.findings), 2)
        _print(console, _verdict(report), 2)


def render_all(reports: Sequence[Report], stream: TextIO) -> None:
    """Write the reports with all their findings."""
    render(reports, stream, per_rule=None)


def _print(console: Console, line: Text, indent: int = 0) -> None:
    """Print `line`, wrapped on a terminal only: elsewhere it stays one line, so that it can be searched."""
    if console.is_terminal and line:
        console.print(Padding.indent(line, indent))
    else:
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _facts(report: Report) -> str:
    """Return what the checkpoint is, in one line."""
    version = f"Quark format {report.format_version}" if report.format_version else "format unknown"
    mode = f"{report.mode} mode" if report.mode else None
    writer = f"{report.writer} writer" if report.writer else None
    size = f"{_amount(report.tensors, 'tensor')} in {_amount(report.shards, 'file')}"
    return printable(", ".join(part for part in (version, mode, writer, size) if part))


def _findings(report: Report, per_rule: int | None) -> Iterator[tuple[Text, int]]:
    """Yield the lines of the findings with their indents."""
    ranked = sorted(report.findings, key=lambda found: (SEVERITIES.index(found.severity), found.code))
    for (severity, code, name), group in groupby(
        ranked, key=lambda found: (found.severity, found.code, found.name)
    ):
        same = list(group)
        shown = same[:per_rule]
        for finding in shown:
            yield from _finding(finding)
        if len(same) > len(shown):
            more = f"… and {len(same) - len(shown):,} more {code} {name} (--all shows them)"
            yield Text(), 0
            yield Text(more, style=SEVERITY[severity]), 2
    yield Text(), 0


def _finding(finding: Finding) -> Iterator[tuple[Text, int]]:
    yield Text(), 0
    head = Text.assemble(
        (finding.severity, SEVERITY[finding.severity]), " ", (f"{finding.code} {finding.name}", "bold")
    )
    if place := place_of(finding):
        head.append(f"  {printable(place)}", style="dim")
    yield head, 2
    yield marked(finding.message), 4
    yield Text.assemble(("Fix: ", "green"), marked(finding.fix)), 4


_TARGETS = {
    "loads": ("loads it", "green"),
    "wrong": ("loads it and computes something else", "yellow"),
    "fails": ("does not load it", "red"),
}


def _target(target: TargetVerdict, found: Sequence[Finding]) -> Text:
    """What a target does: because of which findings, or else its first reason."""
    words, style = _TARGETS[target.outcome]
    place = f" on {target.platform}" if target.platform else ""
    line = Text.assemble(f"{target.name}{place} ", (words, style))
    shown = dict.fromkeys(f"{one.code} {one.name}" for one in found if one.message.startswith(target.reasons))
    if shown:
        line.append(f": {', '.join(shown)}")
    elif target.reasons:
        line.append_text(Text(": ") + marked(target.reasons[0].removeprefix(f"{target.name} ")))
    return line


def _verdict(report: Report) -> Text:
    counts = [_amount(count, severity) for severity, count in report.counts.items() if count]
    found = ", ".join(counts) or "nothing found"
    if report.ok:
        return Text.assemble(("OK", "bold green"), f": {found}")
    return Text.assemble(("FAILED" if report.readable else "NOT READ", "bold red"), f": {found}")


def _amount(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
