"""What `validate` returns: the findings of one checkpoint, and the document made of several reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from quark_format.validators.findings import SEVERITIES, Finding

SCHEMA_VERSION = "1.2"
"""Version of `schema/report.schema.json`: the second number grows with additions, the first otherwise."""


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """Whether the consumer `name`, such as `vllm@0.32`, loads the checkpoint; `reasons` say why not.

    `outcome` is "loads", "wrong" where it loads and computes something else, or "fails"; `platform` the one
    that was asked for.
    """

    name: str
    loads: bool
    reasons: tuple[str, ...] = ()
    outcome: str = "loads"
    platform: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The judgement of one checkpoint.

    `path` is the path as given. `format_version`, `mode` ("quark", "fp8" or "awq") and `writer` are None
    where the checkpoint does not tell. `readable` is False where nothing could be judged at all. `tensors`,
    `shards` and `tensor_bytes` count what the safetensors headers describe.
    """

    path: str
    readable: bool
    findings: tuple[Finding, ...] = ()
    format_version: str | None = None
    mode: str | None = None
    writer: str | None = None
    targets: tuple[TargetVerdict, ...] = ()
    tensors: int = 0
    shards: int = 0
    tensor_bytes: int = 0

    @property
    def ok(self) -> bool:
        """True where the checkpoint was judged and no finding is an error."""
        return self.readable and not self.counts["error"]

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each severity, the gravest first."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in SEVERITIES}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an entry of `checkpoints` in `schema/report.schema.json`."""
        return {
            "path": self.path,
            "format_version": self.format_version,
            "writer": self.writer,
            "ok": self.ok,
            "summary": {
                "readable": self.readable,
                "mode": self.mode,
                "errors": self.counts["error"],
                "warnings": self.counts["warning"],
                "infos": self.counts["info"],
                "tensors": self.tensors,
                "shards": self.shards,
                "tensor_bytes": self.tensor_bytes,
            },
            "targets": [
                {
                    "name": target.name,
                    "platform": target.platform,
                    "loads": target.loads,
                    "outcome": target.outcome,
                    "reasons": list(target.reasons),
                }
                for target in self.targets
            ],
            "findings": [asdict(finding) for finding in self.findings],
        }


def document(reports: Iterable[Report]) -> dict[str, Any]:
    """Return the JSON document of `reports`, described by `schema/report.schema.json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": version("quark-format"),
        "checkpoints": [report.to_dict() for report in reports],
    }


def exit_code(reports: Sequence[Report]) -> int:
    """Return 2 where a checkpoint could not be read, else 1 where one has an error, else 0."""
    if not all(report.readable for report in reports):
        return 2
    return int(not all(report.ok for report in reports))
