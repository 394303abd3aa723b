"""What a target does when it loads a checkpoint, beyond the schemes it has: its `loading.json`."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, get_args

from quark_format.declarations import stages

if TYPE_CHECKING:
    from quark_format.resolver import Choice, Refusal
    from quark_format.targets import Target

Outcome = Literal["loads", "wrong", "fails"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""The mildest first."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform as asked for, such as `cuda:90`: its name and what is known of the device.

    `capability` is a CUDA compute capability times ten, `features` are other words.
    """

    name: str
    capability: int | None
    features: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read `NAME` or `NAME:DETAIL,…`; a number is a capability, any other word a feature."""
        name, _, details = text.partition(":")
        words = [word for word in details.split(",") if word]
        numbers = [int(word) for word in words if word.isdecimal()]
        return cls(name, max(numbers, default=None), frozenset(words))

    def __str__(self) -> str:
        """The platform as asked for."""
        details = ",".join(sorted(self.features))
        return f"{self.name}:{details}" if details else self.name


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a platform does not serve a scheme, and whether it fails or computes something else."""

    reason: str
    outcome: Outcome = OUTCOMES[-1]


@dataclass(frozen=True)
class Loading:
    """The loading table of one target, of the one it extends where it has none."""

    raw: Mapping[str, Any]

    def misread(self, layer: Any, scheme: str | None) -> str | None:
        """Why the scheme row `scheme` computes something else for a layer config, None if it does not."""
        for row in self.raw["misread"]:
            spec = layer.get(row["part"]) if isinstance(layer, Mapping) else None
            first = next(iter(stages(spec)), {})
            if _one_of(scheme, row["rows"]) and all(
                first.get(key) in values for key, values in row["stage"].items()
            ):
                return str(row["reason"])
        return None

    def unread(self, refused: Refusal) -> bool:
        """Whether the target does not look at the fields for which the tables refuse a spec."""
        told = {one.field for one in refused.differences}
        return bool(told) and any(
            _one_of(refused.nearest, row["rows"]) and told <= set(row["fields"])
            for row in self.raw.get("unread", ())
        )

    def layout(self, layout: str | None, row: str | None) -> Mapping[str, Any] | None:
        """The row that says that the scheme `row` does not take tensors of `layout`."""
        rows = self.raw["layouts"]
        return next(
            (one for one in rows if _one_of(layout, one["layouts"]) and _one_of(row, one["rows"])), None
        )

    def kernel_problem(self, choice: Choice, platform: Platform, dtype: str | None = None) -> Problem | None:
        """What no kernel of the family of `choice` does right on the platform, None if one does.

        `dtype` is the model's.
        """
        if platform.capability is not None and platform.capability < (choice.capability or 0):
            return Problem(f"the scheme needs compute capability {choice.capability}")
        if choice.family is None:
            return None
        if not choice.kernels.get(platform.name):
            return Problem("it has no kernel of this kind for the platform")
        for row in self.raw["platforms"].get(platform.name, ()):
            if (
                choice.family in row["families"]
                and all(choice.keys.get(part) in keys for part, keys in row.get("keys", {}).items())
                and dtype in row.get("dtypes", (dtype,))
                and ("with" not in row or platform.features & set(row["with"]))
            ):
                works = row["works"] or platform.features & set(row.get("features", ()))
                return None if works else Problem(row["reason"], row.get("outcome", OUTCOMES[-1]))
        return None


def _one_of(name: str | None, globs: list[str]) -> bool:
    return name is not None and any(fnmatchcase(name, glob) for glob in globs)


def loading(to: Target) -> Loading | None:
    """The loading table of `to`, in front of that of the target it extends; None where there is none."""
    found: list[Mapping[str, Any]] = []
    one: Target | None = to
    while one is not None:
        found += [one.table("loading")] if one.has("loading") else []
        one = one.base
    return Loading(ChainMap(*map(dict, found))) if found else None
