"""The consumers whose demands are declared in `schema/targets/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint
from importlib.resources import files
from itertools import chain
from typing import Any

from jsonschema import Draft202012Validator

from quark_format.architectures import ArchitectureIndex
from quark_format.models.targets.tables import Architectures, Extension, Kernels, Kind, Row, Schemes
from quark_format.models.targets.tables import Target as Header
from quark_format.names import Reader, reader
from quark_format.plugin_targets import PluginFolder, plugin_folders
from quark_format.plugins import ProblemError, blamed
from quark_format.selection import KindIndex, Kinds
from quark_format.tables import has_table, table

_FOLDER = "targets"


class UnknownTargetError(ValueError):
    """No tables are declared for a target; the text lists those that are."""


@dataclass(frozen=True)
class Target:
    """One release of one consumer, its tables read on first use.

    A target that extends another has its own rows, and the other's for the kinds of which it has none.
    `plugin` is the folder of one that a plugin adds.
    """

    header: Header
    folder: str
    plugin: PluginFolder | None = None

    @property
    def name(self) -> str:
        """Such as `vllm@0.32`."""
        return f"{self.header.name}@{self.header.version}"

    @property
    def entry(self) -> EntryPoint | None:
        """The entry point of the plugin that adds it."""
        return None if self.plugin is None else self.plugin.entry

    def has(self, file: str) -> bool:
        """Whether the target has a table `file`.json of its own."""
        name = f"{_FOLDER}/{self.folder}/{file}.json"
        return has_table(name) if self.plugin is None else self.plugin.has(file)

    def table(self, file: str) -> Any:
        """The content of the target's `file`.json.

        Raises:
            PluginError: it is a plugin's, and not as its schema says.
        """
        name = f"{_FOLDER}/{self.folder}/{file}.json"
        return table(name) if self.plugin is None else self.plugin.read(file)

    @cached_property
    def base(self) -> Target | None:
        """The target that this one extends."""
        return None if self.header.extends is None else target(self.header.extends)

    @cached_property
    def extension(self) -> Extension | None:
        """The rows it adds, and which of the base's it tries before them."""
        return None if self.base is None else Extension.model_validate(self.table("extension"))

    @cached_property
    def schemes(self) -> Schemes:
        """The scheme rows and the specs they are made of."""
        if self.base is None or self.extension is None:
            return Schemes.model_validate(self.table("schemes"))
        own = self.extension
        kinds = {**self.base.schemes.kinds, **own.kinds}
        there = {row.kind for row in own.rows}
        rows = [*own.rows, *(row for row in self.base.schemes.rows if row.kind not in there)]
        named = {name for row in rows for name in _spec_names(row, kinds[row.kind])}
        specs = {
            name: spec for name, spec in {**self.base.schemes.specs, **own.specs}.items() if name in named
        }
        return self.base.schemes.model_copy(update={"kinds": kinds, "specs": specs, "rows": rows})

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels by family and platform."""
        own = Kernels.model_validate(self.table("kernels"))
        if self.base is None:
            return own
        inherited = {row.kernels for row in self.schemes.rows}
        families = {name: one for name, one in self.base.kernels.families.items() if name in inherited}
        return own.model_copy(update={"families": {**families, **own.families}})

    @cached_property
    def architectures(self) -> ArchitectureIndex:
        """The model architectures."""
        if self.base is not None and self.extension is not None:
            return self.base.architectures.extended(self.extension.renamed or ())
        return ArchitectureIndex(Architectures.model_validate(self.table("architectures")))

    @cached_property
    def config(self) -> Draft202012Validator:
        """What the target needs of the config beyond the format."""
        return Draft202012Validator(self.table("config.schema"))

    @cached_property
    def kinds(self) -> Mapping[str, KindIndex]:
        """The scheme rows by kind of module, ready for look-up."""
        return Kinds(self.schemes)

    @property
    def reader(self) -> Reader:
        """How the target matches names."""
        return reader(self.header.reader, self.header.version)


def _spec_names(row: Row, kind: Kind) -> Iterator[str]:
    yield from chain.from_iterable({**kind.specs, **row.specs}.values())


@cache
def _own() -> dict[str, Target]:
    """The targets of `schema/targets/`."""
    root = files("quark_format.schema").joinpath(_FOLDER)
    declared = [
        Target(Header.model_validate(table(f"{_FOLDER}/{folder.name}/target.json")), folder.name)
        for folder in root.iterdir()
        if folder.joinpath("target.json").is_file()
    ]
    return {one.name: one for one in declared}


@cache
def targets() -> dict[str, Target]:
    """Every declared target by its name with version, oldest release first.

    Raises:
        PluginError: a plugin's cannot be used.
    """
    declared = dict(_own())
    for folder in plugin_folders():
        with blamed(folder.entry):
            added = Target(Header.model_validate(folder.header()), folder.entry.name, folder)
            if added.name in declared:
                raise ProblemError(f"there is another target {added.name}")
            declared[added.name] = added
    return dict(sorted(declared.items(), key=lambda item: (item[1].header.name, _release(item[1]))))


def _release(one: Target) -> tuple[int, ...]:
    return tuple(int(part) for part in one.header.version.split("."))


def newest() -> list[Target]:
    """The newest release of every consumer."""
    return list({one.header.name: one for one in targets().values()}.values())


def target(name: str) -> Target:
    """The target `name`, such as `vllm@0.32`, or without a version the newest of that consumer.

    Raises:
        UnknownTargetError: no such target is declared.
        PluginError: a plugin's target cannot be used, and it may be the one.
    """
    if name in _own():
        return _own()[name]
    declared = targets()
    if name in declared:
        return declared[name]
    releases = [one for one in declared.values() if one.header.name == name]
    if not releases:
        raise UnknownTargetError(f"no target {name!r} is declared; there are {', '.join(declared)}")
    return releases[-1]
