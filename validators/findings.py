"""Findings: what a check says, worded by `schema/rules.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from string import digits
from typing import Any, Literal

from quark_format.tables import table
from quark_format.validators.plugin_findings import plugin_checks

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `schema/rules.json`, or of a plugin's."""

    code: str
    name: str
    severity: Severity
    message: str
    why: str
    fix: str
    sources: tuple[str, ...]
    page: str | None = None


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
    """Every declared rule by its code, in code order, and then those of plugins.

    Raises:
        PluginError: a plugin cannot be used.
    """
    declared = chain(table("rules.json")["rules"], *(one.rules for one in plugin_checks()))
    return {entry["code"]: Rule(**{**entry, "sources": tuple(entry["sources"])}) for entry in declared}


def letters(code: str) -> str:
    """The letters that a code or the beginning of one begins with; a plugin has its own."""
    return code.rstrip(digits)


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

    `severity` replaces the declared one where other data decides it (a target that cannot load a scheme).

    Raises:
        KeyError: the rule is not declared, or its templates use a field that is not given.
    """
    rule = rules()[code]
    places = {"file": file, "tensor": tensor, "module": module, "pointer": pointer, "count": count}
    fields = {**places, **values}
    return Finding(
        code=code,
        name=rule.name,
        severity=severity or rule.severity,
        message=f"{rule.message.format_map(fields)} {rule.why.format_map(fields)}".strip(),
        fix=rule.fix.format_map(fields),
        file=file,
        tensor=tensor,
        module=module,
        pointer=pointer,
        count=count,
    )


def merged(found: Iterable[Finding]) -> list[Finding]:
    """One finding for all that say the same of different modules, in code order.

    The first one's place stays; the message tells how many more there are and names a few of them.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in found:
        groups.setdefault((one.code, one.severity, _without_names(one)), []).append(one)
    return sorted((_together(group) for group in groups.values()), key=lambda one: one.code)


def _name(one: Finding) -> str:
    return one.module or (one.tensor or "").rpartition(".")[0]


def _without_names(one: Finding) -> str:
    text = f"{one.message} {one.fix}"
    return text.replace(_name(one), "…") if _name(one) else text


def _together(group: Sequence[Finding]) -> Finding:
    first, *others = group
    count = sum(one.count for one in group)
    if count == 1:
        return first
    named = list(dict.fromkeys(f"`{_name(one)}`" for one in others if _name(one) != _name(first)))[:_NAMED]
    rest = count - 1 - len(named)
    more = ", ".join(named) + (f" and {rest:,} more" if named and rest else f"{rest:,} more" if rest else "")
    return replace(first, count=count, message=f"{first.message} The same holds for {more}.")


_NAMED = 2
