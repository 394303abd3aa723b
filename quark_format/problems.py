"""What is wrong with a container, in the terms of `schema/rules.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule's code and the fields of its templates.

    `values["count"]` places share the problem, the others of its fields tell of the first.
    """

    code: str
    values: dict[str, Any]


class Problems:
    """Collects problems, one per code, file and kind, so that a million equal ones cost no memory."""

    def __init__(self) -> None:
        """Begin with no problem."""
        self._groups: dict[tuple[str, str | None, str], dict[str, Any]] = {}

    def add(self, code: str, kind: str = "", *, count: int = 1, **values: Any) -> None:
        """Note a problem; `kind` keeps apart what one code says for different reasons."""
        group = self._groups.setdefault((code, values.get("file"), kind), values)
        group["count"] = group.get("count", 0) + count

    def collected(self) -> list[Problem]:
        """Return the problems in the order their first one was noted."""
        return [Problem(code, values) for (code, _, _), values in self._groups.items()]
