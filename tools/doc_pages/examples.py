"""The example of each finding: a real export made faulty, and what `quark-validate` says of it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from doc_pages.faults import FOLDER, Fault, faults, rendered
from doc_pages.terminal import validate

from mutants import Export, judge  # isort: skip - found by what `faults` adds to the path

_LINES = 24
_FIRST = 3


class NoExampleError(LookupError):
    """No fault gives the finding; the text names it."""


@dataclass(frozen=True)
class Example:
    """What is wrong, the difference to the healthy export, the command and all that it prints."""

    does: str
    base: str
    difference: str
    command: str
    output: str


def example(code: str) -> Example:
    """The first fault that gives the finding `code`.

    Raises:
        NoExampleError: none does.
    """
    tried = 0
    for fault in faults(code):
        if (output := _judged(fault, code)) is not None:
            command = " ".join(("quark-validate", FOLDER, *fault.arguments, "--select", code))
            return Example(fault.does, fault.base, _difference(fault), command, output)
        tried += 1
    raise NoExampleError(f"no fault of {tried} gives {code}: plant one in tools/doc_pages/faults.py")


def _judged(fault: Fault, code: str) -> str | None:
    """The text report of the faulty checkpoint, None where it lacks the finding."""
    if fault.faulty is not None and not fault.arguments and not _gives(fault.faulty, code):
        return None
    with TemporaryDirectory() as name:
        folder = Path(name)
        fault.write(folder / FOLDER)
        output = validate([FOLDER, *fault.arguments, "--select", code], folder)
        return output if f" {code} " in output else None


def _gives(export: Export, code: str) -> bool:
    """Whether the checks find it, without a checkpoint on the disk."""
    return any(one.code == code for one in judge(export.checkpoint()))


def _difference(fault: Fault) -> str:
    """The lines that differ between the healthy and the faulty export, the first of them where many do."""
    if fault.healthy is None or fault.faulty is None:
        return ""
    before, after = rendered(fault.healthy), rendered(fault.faulty)
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    return "\n".join(_shortened(lines))


def _shortened(lines: Sequence[str]) -> list[str]:
    told = [("…" if line.startswith("@@") else line) for line in lines]
    told = told[1:] if told[:1] == ["…"] else told
    more = len(told) - _LINES
    return [*told[:_LINES], f"… and {more:,} more lines"] if more > _FIRST else told
