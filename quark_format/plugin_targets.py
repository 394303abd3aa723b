"""Folders of targets in other distributions, held against the schemas of `schema/targets/` when read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from quark_format.plugins import TARGETS, ProblemError, blamed, plugins
from quark_format.tables import has_table, table

_HEADER, _SCHEMES, _KERNELS = "target", "schemes", "kernels"
_FILES = {
    False: ("config.schema", _SCHEMES, _KERNELS, "architectures", "loading"),
    True: ("config.schema", "extension", _KERNELS),
}
"""The files that a target needs besides its header, by whether it extends another."""


@dataclass(frozen=True)
class PluginFolder:
    """The folder of one target; `entry` names it and the package it lies in."""

    entry: EntryPoint
    place: Traversable

    def has(self, file: str) -> bool:
        """Whether there is a `file`.json."""
        return self.place.joinpath(f"{file}.json").is_file()

    def read(self, file: str) -> Any:
        """The content of `file`.json, which is as its schema says.

        Raises:
            PluginError: it is not, or there is no such file.
        """
        name = f"{self.entry.name}/{file}.json"
        with blamed(self.entry):
            if not self.has(file):
                raise ProblemError(f"there is no {name}")
            try:
                content = msgspec.json.decode(self.place.joinpath(f"{file}.json").read_bytes())
            except msgspec.DecodeError as error:
                raise ProblemError(f"{name}: {error}") from None
            wrong = best_match(Draft202012Validator(_schema(file)).iter_errors(content))
            if wrong is not None:
                raise ProblemError(f"{name}, {wrong.json_path}: {wrong.message}")
            if file == _SCHEMES and (lost := sorted(_undeclared(content, self.read(_KERNELS)))):
                raise ProblemError(f"{name}: rows name {', '.join(lost)}, which is not declared")
            return content

    def header(self) -> Any:
        """The content of target.json, where all files that the target needs are there.

        Raises:
            PluginError: one is missing, or target.json is not as its schema says.
        """
        header = self.read(_HEADER)
        with blamed(self.entry):
            missing = [f"{name}.json" for name in _FILES["extends" in header] if not self.has(name)]
            if missing:
                raise ProblemError(f"{self.entry.name} lacks {', '.join(missing)}")
        return header


def _undeclared(schemes: Any, kernels: Any) -> Iterator[str]:
    """Kinds, specs and kernel families that rows name and nothing declares."""
    for row in schemes["rows"]:
        kind = schemes["kinds"].get(row["kind"])
        if kind is None:
            yield row["kind"]
        for names in {**(kind or {}).get("specs", {}), **row["specs"]}.values():
            yield from set(names) - set(schemes["specs"])
        if row["kernels"] not in {None, *kernels["families"]}:
            yield row["kernels"]


def _schema(file: str) -> dict[str, Any]:
    """The schema of a file of a target: its own, a definition of target.schema.json, or that of schemas."""
    whole: dict[str, Any] = table("targets/target.schema.json")
    if file in whole["$defs"]:
        return {"$ref": f"#/$defs/{file}", "$defs": whole["$defs"]}
    if has_table(f"targets/{file}.schema.json"):
        own: dict[str, Any] = table(f"targets/{file}.schema.json")
        return own
    return dict(Draft202012Validator.META_SCHEMA)


def plugin_folders() -> list[PluginFolder]:
    """The folders that installed plugins add."""
    found = []
    for entry in plugins(TARGETS):
        with blamed(entry):
            place = files(entry.value).joinpath(entry.name)
            if not place.is_dir():
                raise ProblemError(f"the package {entry.value} has no folder {entry.name}")
            found.append(PluginFolder(entry, place))
    return found
