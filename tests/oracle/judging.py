"""The verdict of now on a checkpoint whose load is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from oracle.results import FAILS, Result
from quark_format import validate
from quark_format.checkpoint import read_checkpoint
from quark_format.plan import NoQuarkConfigError, plan
from quark_format.targets import target
from quark_format.validators.report import Report

NO_VERDICT = "none"


def judged(result: Result, path: Path, consumer: str, platform: str) -> Result:
    """`result` with the verdict of now on the checkpoint at `path`."""
    report = validate(path, target=consumer, platform=platform)
    codes = dict.fromkeys(one.code for one in report.findings if one.severity == "error")
    architecture, specs = _kind(path, consumer)
    told = replace(
        result, architecture=architecture, specs=specs, verdict=outcome(report), codes=" ".join(sorted(codes))
    )
    return replace(told, cause="") if told.agrees else told


def outcome(report: Report) -> str:
    """The verdict of a report about one target; what cannot be read does not load."""
    if report.targets:
        return report.targets[0].outcome
    return NO_VERDICT if report.readable else FAILS


def _kind(path: Path, consumer: str) -> tuple[str, str]:
    """The architecture and what the modules are quantized to."""
    checkpoint = read_checkpoint(path)
    try:
        made = plan(checkpoint, target(consumer))
    except NoQuarkConfigError:
        return "", ""
    specs = dict.fromkeys(one.spec for one in made.planned if one.spec != "excluded")
    return made.architecture or "", "; ".join(specs)
