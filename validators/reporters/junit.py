"""JUnit XML: a suite for each checkpoint, a case for each finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from quark_format.validators.findings import Finding
from quark_format.validators.report import Report
from quark_format.validators.reporters.places import place_of
from quark_format.validators.reporters.printable import printable


def render(reports: Sequence[Report], stream: TextIO) -> None:
    """Write the suites. Errors are failures; warnings and infos are passed cases that print their message."""
    document = JUnitXml("quark-validate")
    for report in reports:
        suite = TestSuite(printable(report.path))
        suite.add_testcases([_case(report, finding) for finding in report.findings] or [_clean(report)])
        document.add_testsuite(suite)
    text: str = document.tostring().decode("utf-8")  # type: ignore[no-untyped-call]
    stream.write(text if text.endswith("\n") else f"{text}\n")


def _case(report: Report, finding: Finding) -> TestCase:
    title = " ".join(part for part in (f"{finding.code} {finding.name}", place_of(finding)) if part)
    case = TestCase(printable(title), classname=printable(report.path))
    message = printable(finding.message)
    details = f"{message}\nFix: {printable(finding.fix)}"
    if finding.severity == "error":
        problem = (Failure if report.readable else Error)(message, finding.name)
        problem.text = details
        case.result = [problem]
    else:
        case.system_out = details
    return case


def _clean(report: Report) -> TestCase:
    return TestCase("no findings", classname=printable(report.path))
