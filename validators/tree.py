"""The modules of a checkpoint by parent and by layer, to be compared with each other."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from quark_format.declarations import describe
from quark_format.layouts import ANY, DIMS, Dim, Interval
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quark_format.modules import Module
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_MATRIX = 2


@dataclass(frozen=True)
class Tree:
    """One checkpoint's modules, worked out once for all comparisons."""

    context: Context
    _sizes: dict[str, dict[Dim, Interval]] = field(default_factory=dict)

    @cached_property
    def entries(self) -> dict[str, Judged]:
        """The class of each module by the module's name."""
        return {module.name: entry for entry in self.context.judged for module in entry.members}

    @cached_property
    def declarations(self) -> dict[str, str]:
        """What the config says of each module, in words."""
        return {
            module.name: text
            for entry in self.context.judged
            for text in [_declaration(entry)]
            for module in entry.members
        }

    @cached_property
    def children(self) -> dict[str, dict[str, Module]]:
        """The modules with a weight below each parent, by their last name."""
        found: dict[str, dict[str, Module]] = defaultdict(dict)
        for name, module in self.context.modules.by_name.items():
            if module.weight is not None:
                parent, _, leaf = name.rpartition(".")
                found[parent][leaf] = module
        return dict(found)

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """The architectures that config.json names."""
        named = (self.context.checkpoint.config or {}).get("architectures")
        return tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else ()

    @cached_property
    def is_draft(self) -> bool:
        """Whether the checkpoint is a draft model."""
        globs = table("roles.json")["drafts"]
        return any(fnmatchcase(name, glob) for name in self.architectures for glob in globs)

    def number(self, key: str) -> int | None:
        """The whole number that config.json gives for `key`, None if it gives none."""
        value = self.context.text.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def says(self, keys: list[str]) -> bool:
        """Whether config.json sets one of `keys`."""
        return any(self.context.text.get(key) for key in keys)

    def gives(self, values: Mapping[str, Sequence[Any]]) -> bool:
        """Whether config.json gives one of the `values` for one of their keys."""
        return any(self.context.text.get(key) in wanted for key, wanted in values.items())

    def deviates(self, module: str) -> bool:
        """Whether the tensors of `module` already contradict its own layout."""
        entry = self.entries.get(module)
        return entry is not None and bool(entry.fit.deviations)

    def sizes(self, module: Module) -> dict[Dim, Interval]:
        """What is known of the sizes of `module`, nothing where its own tensors contradict each other."""
        known = self._sizes.get(module.name)
        if known is None:
            known = self._sizes[module.name] = self._measured(module)
        return known

    def _measured(self, module: Module) -> dict[Dim, Interval]:
        entry, weight = self.entries[module.name], module.weight
        if entry.fit.deviations or weight is None:
            return {}
        known = {dim: pair for dim, pair in entry.fit.sizes.items() if pair != ANY}
        if entry.stores_codes or len(weight.shape) > _MATRIX:
            return known
        return known | {dim: (size, size) for dim, size in zip(DIMS, weight.shape, strict=False)}

    def exact(self, module: Module) -> dict[Dim, int]:
        """The sizes of `module` that are certain."""
        return {dim: low for dim, (low, high) in self.sizes(module).items() if low == high}


def _declaration(entry: Judged) -> str:
    spec = " / ".join(describe(entry.specs[part]) for part in ("weight", "input"))
    return "excluded" if entry.declared.excluded else spec


def said(values: list[Any], most: int = 4) -> str:
    """The first few of `values` in words."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return ", ".join(str(value) for value in values[:most]) + more


def within_layer(name: str) -> str | None:
    """The name of a module within the layer of the language model that it is in, None if it is in none."""
    found = _in_layer().match(name)
    return found["rest"] if found else None


@cache
def _in_layer() -> re.Pattern[str]:
    containers = "|".join(map(re.escape, table("roles.json")["layers"]["containers"]))
    return re.compile(rf"(?:{containers})\.[0-9]+(?:\.|$)(?P<rest>.*)", re.DOTALL)
