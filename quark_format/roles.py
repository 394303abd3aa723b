"""What a module is by its name and the rank of its weight (`schema/roles.json`)."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Globs:
    """Globs, sorted by how they are matched: most are plain text with a star on one or both sides."""

    exact: frozenset[str]
    endings: tuple[str, ...]
    within: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, globs: Iterable[str]) -> Globs:
        """Sort `globs`."""
        forms: dict[str, list[str]] = {form.pattern: [] for form in _FORMS}
        for glob in globs:
            form, text = next((form, found) for form in _FORMS if (found := form.fullmatch(glob)))
            forms[form.pattern].append(text["text"])
        exact, *others = forms.values()
        return cls(frozenset(exact), *map(tuple, others))

    def match(self, name: str) -> bool:
        """Whether one of the globs matches the whole of `name`."""
        return (
            name in self.exact
            or name.endswith(self.endings)
            or any(text in name for text in self.within)
            or any(fnmatch.fnmatchcase(name, glob) for glob in self.others)
        )


_FORMS = [
    re.compile(form, re.DOTALL)
    for form in (r"(?P<text>[^*?[]*)", r"\*(?P<text>[^*?[]*)", r"\*(?P<text>[^*?[]*)\*", r"(?P<text>.*)")
]
"""The forms of globs in the order of the fields of `Globs`."""


@dataclass(frozen=True, slots=True)
class Role:
    """One row of the role table; see `schema/roles.schema.json` for the fields."""

    role: str
    names: Globs
    ranks: frozenset[int]
    declared_by: frozenset[str]
    quantizable: bool
    may_be_parameter: bool
    unless_scaled: bool

    @property
    def layout(self) -> str:
        """The role that layout rows know this one by."""
        known: dict[str, str] = table("roles.json")["layout_roles"]
        return known.get(self.role, "linear")


@cache
def _roles() -> tuple[Role, ...]:
    return tuple(
        Role(
            role=row["role"],
            names=Globs.of(row["names"]),
            ranks=frozenset(row["ranks"]),
            declared_by=frozenset(row["declared_by"]),
            quantizable=row["quantizable"],
            may_be_parameter=row.get("may_be_parameter", False),
            unless_scaled=row.get("unless_scaled", False),
        )
        for row in table("roles.json")["roles"]
    )


@lru_cache(maxsize=4096)
def role_of(module: str, rank: int, *, scaled: bool = False) -> Role:
    """The role of `module`, a name whose layer and expert numbers are abstracted, with a weight of `rank`.

    A weight with a scale (`scaled`) whose rank no scaled role has is taken for a matrix of a wrong rank.
    """
    for one in (rank, _MATRIX):
        for role in _roles():
            if one in role.ranks and role.names.match(module) and not (scaled and role.unless_scaled):
                return role
    return _roles()[-1]


_MATRIX = 2


@cache
def is_packed(dtype: str) -> bool:
    """Whether only quantized tensors have the safetensors `dtype`."""
    return dtype in table("roles.json")["packed_dtypes"]


@cache
def is_float(dtype: str) -> bool:
    """Whether the safetensors `dtype` is one of an unquantized weight."""
    return dtype in table("roles.json")["float_dtypes"]


@lru_cache(maxsize=4096)
def is_draft(module: str) -> bool:
    """Whether `module` belongs to a multi-token prediction head."""
    return any(fnmatch.fnmatchcase(module, glob) for glob in table("roles.json")["draft_layers"])


_EXPERT = re.compile(r"(?P<experts>(?:.*\.)?experts)\.(?:\d+\.)?[^.]+")


@lru_cache(maxsize=4096)
def routed_experts(module: str) -> str | None:
    """The name of the routed experts that `module` is a part of, None where it is not of any."""
    match = _EXPERT.fullmatch(module)
    return match["experts"] if match else None
