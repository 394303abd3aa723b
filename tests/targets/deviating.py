"""Which declared deviation a layer config falls under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quark_format.models.targets.tables import Deviation, Deviations
from quark_format.selection import PACK_METHOD, accepts, condition, read, stages
from quark_format.tables import table
from quark_format.targets import Target


def deviations(target: Target) -> Deviations:
    """The deviations of a target."""
    name = f"{target.header.name}-{target.header.version}"
    return Deviations.model_validate(table(f"targets/{name}/deviations.json"))


class Known:
    """The deviations of one kind of module."""

    def __init__(self, target: Target, kind: str) -> None:
        """Read the conditions."""
        self._fields = {field.id: field for field in target.schemes.fields}
        self.all: list[Deviation] = [one for one in deviations(target).selection if kind in one.kinds]
        self._boxes = [
            (one, [(path, condition(predicate)) for path, predicate in box.items()])
            for one in self.all
            for box in one.when
        ]

    def of(self, subject: Mapping[str, Any], pack_method: Any) -> list[Deviation]:
        """The deviations whose conditions the specs of `subject` satisfy."""
        found = []
        for one, box in self._boxes:
            if all(accepts(wanted, self._value(path, subject, pack_method)) for path, wanted in box):
                found.append(one)
        return found

    def _value(self, path: str, subject: Mapping[str, Any], pack_method: Any) -> Any:
        if path == PACK_METHOD:
            return pack_method
        position, *rest = path.split(".")
        listed = stages(subject.get(position))
        if rest == ["stages"]:
            return len(listed)
        at, name = rest
        return read(listed[int(at)], self._fields[name]) if int(at) < len(listed) else None
