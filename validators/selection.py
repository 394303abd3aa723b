"""Which findings to report: `--select` and `--ignore`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from quark_format.validators.findings import letters, rules
from quark_format.validators.report import Report


class UnknownRule(ValueError):  # noqa: N818 - it names the mistake of the command's user
    """A selector that is no code, no beginning of one and no name of a rule."""


def prefix(selector: str) -> str:
    """Return the code or beginning of codes that `selector` means: a code, a prefix (QF3) or a rule's name.

    Raises:
        UnknownRule: it means none; the message names what is close.
    """
    code = selector.upper()
    if any(known.startswith(code) and letters(known) == letters(code) for known in rules()):
        return code
    return rule_code(selector)


def rule_code(selector: str) -> str:
    """Return the code of the rule that `selector` names by its code or its name.

    Raises:
        UnknownRule: there is none; the message names what is close.
    """
    code, name = selector.upper(), selector.lower()
    codes = {rule.name: rule.code for rule in rules().values()}
    if code in rules():
        return code
    if name in codes:
        return codes[name]
    close = get_close_matches(name, codes, n=1) or get_close_matches(code, rules(), n=1)
    hint = f"Did you mean {close[0]}?" if close else "`quark-validate --explain all` lists the rules."
    raise UnknownRule(f"{selector!r} is no rule. {hint}")


@dataclass(frozen=True, slots=True)
class Selection:
    """Prefixes of the codes to report and of those to leave out; the longer one that matches a code wins."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]

    @classmethod
    def parse(cls, select: Iterable[str], ignore: Iterable[str]) -> Selection:
        """Read comma-separated selectors. Nothing selected means every rule.

        Raises:
            UnknownRule: a selector is unknown.
        """
        every = tuple(dict.fromkeys(map(letters, rules())))
        return cls(select=_prefixes(select) or every, ignore=_prefixes(ignore))

    def keeps(self, code: str) -> bool:
        """Tell whether findings of `code` are reported."""
        return _longest(self.select, code) > _longest(self.ignore, code)

    def apply(self, report: Report) -> Report:
        """Return `report` with the findings that are kept."""
        return replace(report, findings=tuple(found for found in report.findings if self.keeps(found.code)))


def _prefixes(selectors: Iterable[str]) -> tuple[str, ...]:
    parts = (part.strip() for selector in selectors for part in selector.split(","))
    return tuple(prefix(part) for part in parts if part)


def _longest(prefixes: tuple[str, ...], code: str) -> int:
    return max((len(known) for known in prefixes if code.startswith(known)), default=0)
