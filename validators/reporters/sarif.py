"""SARIF 2.1.0 (OASIS), which code scanning services read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, TextIO
from urllib.parse import quote

from quark_format.validators.findings import Finding, Rule, Severity, rules
from quark_format.validators.report import Report
from quark_format.validators.reporters.places import file_of
from quark_format.validators.reporters.printable import printable
from quark_format.validators.templates import template_text

LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(reports: Sequence[Report], stream: TextIO) -> None:
    """Write one log with one run for all checkpoints."""
    index = {code: number for number, code in enumerate(rules())}
    driver = {
        "name": "quark-validate",
        "version": version("quark-format"),
        "rules": [_rule(rule) for rule in rules().values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(report, finding, index[finding.code]) for report in reports for finding in report.findings
        ],
    }
    json.dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, stream, indent=2)
    stream.write("\n")


def _rule(rule: Rule) -> dict[str, Any]:
    described = {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": template_text(rule.message)},
        "fullDescription": {"text": template_text(f"{rule.message} {rule.why}")},
        "help": {"text": template_text(rule.fix)},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }
    links = [link for link in (rule.page, *rule.sources) if link and link.startswith("https://")]
    return described | {"helpUri": links[0]} if links else described


def _result(report: Report, finding: Finding, index: int) -> dict[str, Any]:
    logical = [
        {"fullyQualifiedName": printable(name), "kind": kind}
        for kind, name in (
            ("tensor", finding.tensor),
            ("module", finding.module),
            ("property", finding.pointer),
        )
        if name
    ]
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(file_of(report, finding))},
            "region": {"startLine": 1},
        }
    }
    if logical:
        location["logicalLocations"] = logical
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": f"{printable(finding.message)}\nFix: {printable(finding.fix)}"},
        "locations": [location],
        "occurrenceCount": finding.count,
        "partialFingerprints": {"quarkFormat/v1": _fingerprint(finding)},
    }


def _uri(path: PurePath) -> str:
    """Return a path below the working folder as a relative URI, any other as an absolute one."""
    here = Path.cwd()
    absolute = here / path
    if absolute.is_relative_to(here):
        return quote(printable(absolute.relative_to(here).as_posix()))
    return f"file:///{quote(printable(absolute.as_posix().lstrip('/')), safe='/:')}"


def _fingerprint(finding: Finding) -> str:
    places = (finding.code, finding.file, finding.tensor, finding.module, finding.pointer)
    return sha256(json.dumps(places).encode("ascii")).hexdigest()[:32]
