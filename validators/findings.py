"""Findings: what a check says, worded by `schema/rules.json`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from quark_format.tables import table

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `schema/rules.json`."""

    code: str
    name: str
    severity: Severity
    message: str
    why: str
    fix: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found in one checkpoint.

    `message` states the fact with both values and the consequence, `fix` what to do. `count` is the number of
    places that share the finding; `tensor`, `module` and `pointer` name the first of them.
    """

    code: str
    name: str
    severity: Severity
    message: str
    fix: str
    file: str | None = None
    tensor: str | None = None
    module: str | None = None
    pointer: str | None = None
    count: int = 1


@cache
def rules() -> dict[str, Rule]:
    """Every declared rule by its code, in code order."""
    return {
        entry["code"]: Rule(**{**entry, "sources": tuple(entry["sources"])})
        for entry in table("rules.json")["rules"]
    }


def finding(  # noqa: PLR0913 - the places a finding can name are independent
    code: str,
    *,
    file: str | None = None,
    tensor: str | None = None,
    module: str | None = None,
    pointer: str | None = None,
    count: int = 1,
    severity: Severity | None = None,
    **values: Any,
) -> Finding:
    """Word the rule `code` with `values`, the fields of its message, why and fix templates.

    `severity` replaces the declared one where a rule's own data says so (a target that cannot load the scheme).

    Raises:
        KeyError: the rule is not declared, or its templates use a field that is not given.
    """
    rule = rules()[code]
    places = {"file": file, "tensor": tensor, "module": module, "pointer": pointer, "count": count}
    fields = {**places, **values}
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    return Finding(
        code=code,
        name=rule.name,
        severity=severity or rule.severity,
        message=f"{rule.message.format_map(fields)}{more} {rule.why.format_map(fields)}".strip(),
        fix=rule.fix.format_map(fields),
        file=file,
        tensor=tensor,
        module=module,
        pointer=pointer,
        count=count,
    )
