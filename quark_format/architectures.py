"""How a target joins and renames a checkpoint's modules, by model architecture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from quark_format.models.targets.tables import (
    Architectures,
    ExpertMapping,
    Implementation,
    Pair,
    Renamed,
    Renames,
)

Rename = Callable[[str], str]
_WEIGHT = ".weight"


@dataclass(frozen=True)
class Architecture:
    """One architecture as a target implements it.

    `known`: the target lists it; otherwise the target's usual fused modules and no renames stand in.
    `added`: renames of a target that extends another, after the other's.
    """

    name: str | None
    known: bool
    fused: Mapping[str, Sequence[str]]
    renames: Renames
    experts: ExpertMapping | None
    added: tuple[Renames, ...] = ()

    @cached_property
    def _rules(self) -> tuple[Rename, ...]:
        return tuple(rule for renames in (self.renames, *self.added) for rule in _rules(renames))

    def rename(self, name: str) -> str:
        """The target's name for the checkpoint's module, or config pattern, `name`.

        Stacking and dropping rules are not applied, as in vLLM's `get_rename_mapper`
        (vllm 0.32.0 model_executor/models/utils.py:180-199).
        """
        for rule in self._rules:
            name = rule(name)
        return name

    @cached_property
    def joined(self) -> Mapping[str, str]:
        """From the last component of a part to that of the fused module that joins it."""
        return {part: whole for whole, members in self.fused.items() for part in members}


def _rules(renames: Renames) -> Iterable[Rename]:
    kinds: Iterable[tuple[Callable[[str, str], Rename], Sequence[Pair] | None]] = (
        (_regex, renames.regex),
        (_substring, renames.substring),
        (_prefix, renames.prefix),
        (_suffix, renames.suffix),
    )
    rules = tuple(make(*pair.root) for make, pairs in kinds for pair in pairs or ())
    return (_of_weight(rules),) if renames.weights else rules


def _of_weight(rules: Iterable[Rename]) -> Rename:
    def rename(name: str) -> str:
        weight = f"{name}{_WEIGHT}"
        for rule in rules:
            weight = rule(weight)
        return weight.removesuffix(_WEIGHT)

    return rename


def _regex(pattern: str, new: str) -> Rename:
    compiled = re.compile(pattern)
    return lambda name: compiled.sub(new, name) if compiled.search(name) else name


def _substring(old: str, new: str) -> Rename:
    return lambda name: name.replace(old, new, 1)


def _prefix(old: str, new: str) -> Rename:
    return lambda name: new + name[len(old) :] if name.startswith(old) else name


def _suffix(old: str, new: str) -> Rename:
    return lambda name: name[: len(name) - len(old)] + new if old and name.endswith(old) else name


class ArchitectureIndex:
    """The architectures of one target by name."""

    def __init__(self, tables: Architectures, renamed: Sequence[Renamed] = ()) -> None:
        """Index the implementations; `renamed` adds rules of a target that extends the tables' own."""
        self._tables = tables
        self._renamed = renamed
        self._implementations = {
            name: implementation
            for implementation in tables.implementations
            for name in implementation.architectures
        }

    def extended(self, renamed: Sequence[Renamed]) -> ArchitectureIndex:
        """The same architectures with more rules."""
        return ArchitectureIndex(self._tables, renamed)

    def get(self, name: str | None) -> Architecture:
        """The architecture `name` of a config.json's `architectures`, known or not."""
        found = self._implementations.get(name or "")
        if found is None:
            return Architecture(name, False, self._tables.fused[self._tables.default_fused], Renames(), None)
        return self._architecture(name, found)

    def _architecture(self, name: str | None, found: Implementation) -> Architecture:
        inner = self._tables.default_fused if found.inner else None
        fused = [self._tables.fused[key] for key in (inner, found.fused, found.sometimes_fused) if key]
        return Architecture(
            name,
            True,
            {whole: members for one in fused for whole, members in one.items()},
            self._tables.renames[found.renames] if found.renames else Renames(),
            self._tables.experts[found.experts] if found.experts else None,
            tuple(one.rules for one in self._renamed if name in one.architectures),
        )
