"""Workflow commands of GitHub Actions, which shows them as annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from quark_format.validators.findings import Severity
from quark_format.validators.report import Report
from quark_format.validators.reporters.places import file_of, place_of
from quark_format.validators.reporters.printable import printable

COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
PROPERTY = DATA | str.maketrans({":": "%3A", ",": "%2C"})


def render(reports: Sequence[Report], stream: TextIO) -> None:
    """Write one command for each finding."""
    for report in reports:
        for finding in report.findings:
            file = printable(file_of(report, finding).as_posix()).translate(PROPERTY)
            title = f"{finding.code} {finding.name}".translate(PROPERTY)
            lines = (place_of(finding), finding.message, f"Fix: {finding.fix}")
            message = "\n".join(printable(line) for line in lines if line).translate(DATA)
            stream.write(f"::{COMMANDS[finding.severity]} file={file},title={title}::{message}\n")
