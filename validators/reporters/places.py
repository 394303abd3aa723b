"""Where a finding lies, in words and as a file."""

from __future__ import annotations

from pathlib import PurePath

from quark_format.validators.findings import Finding
from quark_format.validators.report import Report


def file_of(report: Report, finding: Finding) -> PurePath:
    """Return the path of the file a finding is about, the checkpoint's own path where it names none."""
    path = PurePath(report.path)
    if finding.file is None or finding.file in {report.path, path.name}:
        return path
    folder = path.parent if path.suffix == ".json" else path
    return folder / finding.file


def place_of(finding: Finding) -> str:
    """Return the file and the first of tensor, module and pointer that a finding names."""
    inner = finding.tensor or finding.module or finding.pointer
    return " · ".join(part for part in (finding.file, inner) if part)
