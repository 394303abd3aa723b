"""The consumers whose demands are declared in `schema/targets/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from quark_format.architectures import ArchitectureIndex
from quark_format.models.targets.tables import Architectures, Kernels, Schemes
from quark_format.models.targets.tables import Target as Header
from quark_format.names import Reader, reader
from quark_format.selection import KindIndex
from quark_format.tables import table

_FOLDER = "targets"


class UnknownTargetError(ValueError):
    """No tables are declared for a target; the text lists those that are."""


@dataclass(frozen=True)
class Target:
    """One release of one consumer, its tables read on first use."""

    header: Header

    @property
    def name(self) -> str:
        """Such as `vllm@0.32`."""
        return f"{self.header.name}@{self.header.version}"

    def _table(self, file: str) -> Any:
        return table(f"{_FOLDER}/{self.header.name}-{self.header.version}/{file}.json")

    @cached_property
    def schemes(self) -> Schemes:
        """The scheme rows and the specs they are made of."""
        return Schemes.model_validate(self._table("schemes"))

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels by family and platform."""
        return Kernels.model_validate(self._table("kernels"))

    @cached_property
    def architectures(self) -> ArchitectureIndex:
        """The model architectures."""
        return ArchitectureIndex(Architectures.model_validate(self._table("architectures")))

    @cached_property
    def config(self) -> Draft202012Validator:
        """What the target needs of the config beyond the format."""
        return Draft202012Validator(self._table("config.schema"))

    @cached_property
    def kinds(self) -> dict[str, KindIndex]:
        """The scheme rows by kind of module, ready for look-up."""
        return {kind: KindIndex(self.schemes, kind) for kind in self.schemes.kinds}

    @property
    def reader(self) -> Reader:
        """How the target matches names."""
        return reader(self.header.reader, self.header.version)


@cache
def targets() -> dict[str, Target]:
    """Every declared target by its name with version, oldest release first."""
    root = files("quark_format.schema").joinpath(_FOLDER)
    headers = (
        Header.model_validate(table(f"{_FOLDER}/{folder.name}/target.json"))
        for folder in root.iterdir()
        if folder.joinpath("target.json").is_file()
    )
    declared = [Target(header) for header in headers]
    return {one.name: one for one in sorted(declared, key=lambda one: (one.header.name, _release(one)))}


def _release(one: Target) -> tuple[int, ...]:
    return tuple(int(part) for part in one.header.version.split("."))


def target(name: str) -> Target:
    """The target `name`, such as `vllm@0.32`, or without a version the newest of that consumer.

    Raises:
        UnknownTargetError: no such target is declared.
    """
    declared = targets()
    if name in declared:
        return declared[name]
    releases = [one for one in declared.values() if one.header.name == name]
    if not releases:
        raise UnknownTargetError(f"no target {name!r} is declared; there are {', '.join(declared)}")
    return releases[-1]
