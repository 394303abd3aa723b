"""Checks of other distributions, each a module with a `check` like those here and a `rules.json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from importlib.resources import files
from string import digits
from typing import TYPE_CHECKING, Any

import msgspec

from quark_format.plugins import FINDINGS, ProblemError, blamed, plugins
from quark_format.tables import table

if TYPE_CHECKING:
    from quark_format.validators.context import Context
    from quark_format.validators.findings import Finding

_RULES = "rules.json"
_PREFIX = re.compile("[A-Z]{2,8}")
_OWN = "QF"


@dataclass(frozen=True)
class PluginCheck:
    """One check: the entry point, whose name begins its codes, the entries of its rules, and the function."""

    entry: EntryPoint
    rules: tuple[dict[str, Any], ...]
    check: Callable[[Context], Iterable[Finding]]

    def found(self, context: Context) -> list[Finding]:
        """What the check finds.

        Raises:
            PluginError: the check raised, or used a code that is not its own.
        """
        with blamed(self.entry):
            found = list(self.check(context))
            foreign = {one.code for one in found} - {rule["code"] for rule in self.rules}
            if foreign:
                raise ProblemError(f"its check reported {', '.join(sorted(foreign))}, not in its {_RULES}")
            return found


@cache
def plugin_checks() -> tuple[PluginCheck, ...]:
    """The checks that installed plugins add, in the order of their prefixes.

    Raises:
        PluginError: one of them cannot be used.
    """
    taken = [_OWN]
    names = {rule["name"] for rule in table(_RULES)["rules"]}
    made = []
    for entry in plugins(FINDINGS):
        with blamed(entry):
            one = _loaded(entry, taken)
            twice = sorted(names & {rule["name"] for rule in one.rules})
            if twice:
                raise ProblemError(f"there are other rules named {', '.join(twice)}")
        taken.append(entry.name)
        names |= {rule["name"] for rule in one.rules}
        made.append(one)
    return tuple(made)


def _loaded(entry: EntryPoint, taken: Iterable[str]) -> PluginCheck:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - not needed where nothing is installed
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    prefix = entry.name
    if not _PREFIX.fullmatch(prefix):
        raise ProblemError("its name is the prefix of its codes: 2 to 8 capital letters")
    near = [other for other in taken if prefix.startswith(other) or other.startswith(prefix)]
    if near:
        raise ProblemError(f"its codes would look like those of {near[0]}")
    module = entry.load()
    content = msgspec.json.decode(files(module.__package__).joinpath(_RULES).read_bytes())
    error = best_match(Draft202012Validator(table("rules.schema.json")).iter_errors(content))
    if error is not None:
        raise ProblemError(f"{_RULES}, {error.json_path}: {error.message}")
    rules = sorted(content["rules"], key=lambda rule: str(rule["code"]))
    codes = [str(rule["code"]) for rule in rules]
    foreign = [code for code in codes if code.rstrip(digits) != prefix]
    if foreign or len(set(codes)) < len(codes):
        raise ProblemError(f"the codes in its {_RULES} must be {prefix} and three digits, each once: {codes}")
    return PluginCheck(entry, tuple(rules), module.check)
