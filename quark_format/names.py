"""Which pattern of a config captures a module name, under each reader's semantics (`schema/names.json`).

Equal names are found in a set, globs by a compiled alternation of those that need a component of the name,
keys that contain the name by one search in the joined keys, and `re:` expressions in time linear in the name
(`quark_format.regular`).
"""

from __future__ import annotations

import fnmatch
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from quark_format.regular import Expression, PatternError
from quark_format.tables import table

_WILD = re.compile(r"[*?\[]")
_WILDCARDS = re.compile(r"[*?]+")
_NEVER = 1 << 62
_SEPARATOR = "\0"

Fused = Mapping[str, Sequence[str]]
_Search = Callable[[str], int]
_Entry = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to compare a pattern with a name, and the patterns and names it is for."""

    operator: str
    pattern_starts: str = ""
    pattern_contains: str = ""
    name_without: tuple[str, ...] = ()

    def takes(self, pattern: str) -> bool:
        """Whether `pattern` is compared in this way."""
        return pattern.startswith(self.pattern_starts) and self.pattern_contains in pattern


Semantics = tuple[tuple[Operator, ...], ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """How one reader, from one of its releases on, reads `exclude` and `layer_quant_config`."""

    exclude: Semantics
    layers: Semantics
    fused: bool
    fused_by_name: bool
    experts_by_children: bool


@cache
def _semantics(name: str) -> Semantics:
    passes = table("names.json")["semantics"][name]["passes"]
    return tuple(
        tuple(Operator(**entry | {"name_without": tuple(entry.get("name_without", ()))}) for entry in entries)
        for entries in passes
    )


def _release(version: str) -> tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d+)", version).groups()  # type: ignore[union-attr]
    return int(major), int(minor)


@cache
def reader(name: str, version: str | None = None) -> Reader:
    """The semantics of the reader `name` at `version`, e.g. `reader("quark", "0.11")`, or at its newest.

    Raises:
        KeyError: no row is declared for the reader, or none as old as `version`.
    """
    rows = [row for row in table("names.json")["readers"] if row["reader"] == name]
    if version is not None:
        rows = [row for row in rows if _release(row["since"]) <= _release(version)]
    if not rows:
        raise KeyError(f"{name} {version or ''}".strip())
    row = max(rows, key=lambda candidate: _release(candidate["since"]))
    return Reader(
        _semantics(row["exclude"]),
        _semantics(row["layers"]),
        row["fused"],
        row.get("fused_by_name", False),
        row["experts_by_children"],
    )


def _equal(entries: Sequence[_Entry], _problems: dict[int, str]) -> _Search:
    ordinals: dict[str, int] = {}
    for ordinal, pattern in entries:
        ordinals.setdefault(pattern, ordinal)
    return lambda name: ordinals.get(name, _NEVER)


def _components(glob: str) -> set[str]:
    """Dotted components that every name the glob captures must have, as far as its wildcards show them."""
    found: set[str] = set()
    before, bracket, _ = glob.partition("[")
    chunks = re.split(r"[*?]+", before)
    for at, chunk in enumerate(chunks):
        parts = chunk.split(".")
        found.update(parts[1:-1])
        ends = at == len(chunks) - 1 and not bracket
        if at == 0 and (len(parts) > 1 or ends):
            found.add(parts[0])
        if ends and (len(parts) > 1 or at == 0):
            found.add(parts[-1])
    return found - {""}


class _Alternation:
    """Globs, of which a name is compared only with those whose longest literal part it holds."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self._literals: list[str] = []
        self._compiled: dict[int, re.Pattern[str]] = {}

    def search(self, name: str) -> int:
        """The first of the entries that captures `name`."""
        if not self._literals:
            self._literals = [literal(glob) for _, glob in self.entries]
        for at, part in enumerate(self._literals):
            if part in name:
                expression = self._compiled.get(at)
                if expression is None:
                    expression = self._compiled[at] = re.compile(fnmatch.translate(self.entries[at][1]))
                if expression.match(name):
                    return self.entries[at][0]
        return _NEVER


def literal(glob: str) -> str:
    """The longest text that every name captured by `glob` holds."""
    before, _, _ = glob.partition("[")
    return max(_WILDCARDS.split(before), key=len)


def _glob(entries: Sequence[_Entry], problems: dict[int, str]) -> _Search:
    """Globs by the rarest component that they need, so that a name is compared with few of them.

    Those without a wildcard are names.
    """
    plain = _equal([entry for entry in entries if not _WILD.search(entry[1])], problems)
    entries = [entry for entry in entries if _WILD.search(entry[1])]
    needed = [_components(glob) for _, glob in entries]
    counts = Counter(component for components in needed for component in components)
    grouped: dict[str, _Alternation] = {}
    others = _Alternation()
    for entry, components in zip(entries, needed, strict=True):
        rarest = min(components, key=lambda one: (counts[one], one), default=None)
        group = others if rarest is None else grouped.setdefault(rarest, _Alternation())
        group.entries.append(entry)

    def search(name: str) -> int:
        best = min(plain(name), others.search(name) if others.entries else _NEVER)
        if grouped:
            for component in name.split("."):
                group = grouped.get(component)
                if group is not None:
                    best = min(best, group.search(name))
        return best

    return search


def _contained(entries: Sequence[_Entry], _problems: dict[int, str]) -> _Search:
    joined = _SEPARATOR.join(pattern for _, pattern in entries)
    starts: list[int] = []
    at = 0
    for _, pattern in entries:
        starts.append(at)
        at += len(pattern) + len(_SEPARATOR)

    def search(name: str) -> int:
        if _SEPARATOR in name:
            return next((ordinal for ordinal, pattern in entries if name in pattern), _NEVER)
        found = joined.find(name)
        return _NEVER if found < 0 else entries[bisect_right(starts, found) - 1][0]

    return search


def _regex(entries: Sequence[_Entry], problems: dict[int, str]) -> _Search:
    limit = table("names.json")["limits"]["name_characters"]
    compiled: list[tuple[int, Expression]] = []
    for ordinal, pattern in entries:
        try:
            compiled.append((ordinal, Expression(pattern)))
        except PatternError as error:
            problems[ordinal] = str(error)

    def search(name: str) -> int:
        if len(name) > limit:
            return _NEVER
        return next((ordinal for ordinal, expression in compiled if expression.match(name)), _NEVER)

    return search


_OPERATORS: dict[str, Callable[[Sequence[_Entry], dict[int, str]], _Search]] = {
    "equal": _equal,
    "glob": _glob,
    "contained": _contained,
    "regex": _regex,
}


class Matcher:
    """Patterns in file order, ready to say which captures a name.

    `problems` holds the patterns that are not evaluated and why; they capture nothing.
    """

    def __init__(self, patterns: Iterable[str], semantics: Semantics) -> None:
        """Index `patterns`; entries that are not strings are ignored."""
        self._patterns = [pattern for pattern in patterns if isinstance(pattern, str)]
        problems: dict[int, str] = {}
        self._passes = [self._searches(operators, problems) for operators in semantics]
        self.problems = {self._patterns[ordinal]: reason for ordinal, reason in problems.items()}

    def _searches(
        self, operators: Sequence[Operator], problems: dict[int, str]
    ) -> list[tuple[tuple[str, ...], _Search]]:
        taken: dict[int, list[_Entry]] = {}
        for ordinal, pattern in enumerate(self._patterns):
            place = next((at for at, operator in enumerate(operators) if operator.takes(pattern)), None)
            if place is not None:
                text = pattern.removeprefix(operators[place].pattern_starts)
                taken.setdefault(place, []).append((ordinal, text))
        return [
            (operators[place].name_without, _OPERATORS[operators[place].operator](entries, problems))
            for place, entries in taken.items()
        ]

    def first(self, name: str) -> str | None:
        """The pattern that captures `name`, or None."""
        for searches in self._passes:
            best = _NEVER
            for without, search in searches:
                if not (without and any(text in name for text in without)):
                    best = min(best, search(name))
            if best < _NEVER:
                return self._patterns[best]
        return None

    def matches(self, name: str) -> bool:
        """Whether any pattern captures `name`."""
        return self.first(name) is not None


class ShardConflictError(ValueError):
    """The parts of a fused module are treated differently, which the reader refuses.

    `parts` are the names of the parts and what captures each (None: nothing does).
    """

    def __init__(self, module: str, parts: Mapping[str, str | None]) -> None:
        """Word the conflict over `module`."""
        told = ", ".join(f"`{name}` by {repr(by) if by else 'nothing'}" for name, by in parts.items())
        super().__init__(f"the parts of `{module}` are captured differently: {told}")
        self.module = module
        self.parts = dict(parts)


def parts(name: str, fused: Fused) -> list[str] | None:
    """The checkpoint's module names that a reader joins into the module `name`; None if it is not fused.

    As in vLLM every occurrence of the last component within `name` is replaced
    (vllm 0.32.0 quark/quark.py:733, utils/config_utils.py:361).
    """
    leaf = name.rpartition(".")[2]
    members = fused.get(leaf)
    return None if members is None else [name.replace(leaf, member) for member in members]


class Exclusion:
    """The `exclude` list of a config, as one reader reads it."""

    def __init__(self, patterns: Iterable[str], semantics: Reader, fused: Fused | None = None) -> None:
        """Index `patterns`; `fused` maps the last component of a fused module to those of its parts."""
        listed = [pattern for pattern in patterns if isinstance(pattern, str)]
        self._matcher = Matcher(listed, semantics.exclude)
        self._fused: Fused = (fused or {}) if semantics.fused else {}
        self._by_name = semantics.fused_by_name
        self._parents = frozenset(_with_parents(listed, semantics) if semantics.experts_by_children else ())
        self.problems = self._matcher.problems

    def first(self, name: str) -> str | None:
        """The entry that captures `name` itself, whatever its parts."""
        return self._matcher.first(name)

    def excludes(self, name: str, *, experts: bool = False) -> bool:
        """Whether the reader leaves the module `name`, with `experts` one of routed experts, unquantized.

        Raises:
            ShardConflictError: some parts of the fused module are excluded and others are not.
        """
        if experts and name in self._parents:
            return True
        names = parts(name, self._fused)
        if (names is None or self._by_name) and self._matcher.matches(name):
            return True
        if names is None:
            return False
        captured = {part: self._matcher.first(part) for part in names}
        hits = [pattern is not None for pattern in captured.values()]
        if any(hits) and not all(hits):
            raise ShardConflictError(name, captured)
        return all(hits)


def _with_parents(patterns: Iterable[str], semantics: Reader) -> Iterator[str]:
    prefixes = tuple(op.pattern_starts for ops in semantics.exclude for op in ops if op.pattern_starts)
    for pattern in patterns:
        if not pattern.startswith(prefixes or _SEPARATOR):
            yield pattern
            yield from (pattern[:at] for at, char in enumerate(pattern) if char == ".")


class LayerConfigs:
    """`layer_quant_config` over a fallback, as one reader reads them."""

    def __init__(
        self,
        layers: Mapping[str, Any],
        fallback: Any,
        semantics: Reader,
        fused: Fused | None = None,
    ) -> None:
        """Index the keys of `layers`; `fused` as for `Exclusion`."""
        self._layers = layers
        self._fallback = fallback
        self._matcher = Matcher(layers, semantics.layers)
        self._fused: Fused = (fused or {}) if semantics.fused else {}
        self._identity = {pattern: identity(value) for pattern, value in layers.items()}
        self._identity_of_fallback = identity(fallback)

    def first(self, name: str) -> str | None:
        """The key that captures `name`; None for the fallback, also where the captured entry is null.

        Parts of `name` that are themselves fused modules are looked up in turn.

        Raises:
            ShardConflictError: the captured parts of a fused module have different configs.
        """
        names = parts(name, self._fused)
        if names is None:
            key = self._matcher.first(name)
            return None if key is None or self._layers[key] is None else key
        captured = {part: self.first(part) for part in names if part != name}
        keys = [key for key in captured.values() if key is not None]
        if len({self._identity[key] for key in keys}) > 1:
            raise ShardConflictError(name, captured)
        return keys[0] if keys else None

    def find(self, name: str) -> tuple[str | None, Any]:
        """The key that decides for the module `name` (None: the fallback does) and its layer config.

        A fused module takes the one config that all its parts have; its own name is not looked up.

        Raises:
            ShardConflictError: the parts have different configs.
        """
        names = parts(name, self._fused)
        if names is None:
            key = self.first(name)
        else:
            captured = {part: None if part == name else self.first(part) for part in names}
            keys = list(captured.values())
            if len({self._identity_of(key) for key in keys}) > 1:
                raise ShardConflictError(name, captured)
            key = keys[0] if keys else None
        return key, self._fallback if key is None else self._layers[key]

    def _identity_of(self, key: str | None) -> str:
        return self._identity_of_fallback if key is None else self._identity[key]


def identity(value: Any) -> str:
    """A text that two JSON values share if and only if they are equal, types included."""
    return json.dumps(value, sort_keys=True)
