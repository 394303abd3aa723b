"""Groups a checkpoint's tensors by the module they belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from quark_format.roles import Role, role_of
from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from quark_format.safetensors_header import Tensor

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_WEIGHTS = ("weight", "qweight")


@lru_cache(maxsize=200_000)
def abstract(name: str) -> str:
    """`name` with its layer and expert numbers replaced by `N`."""
    return _NUMBER.sub("N", name)


@dataclass(slots=True)
class Module:
    """The tensors of one module, by suffix."""

    name: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    foreign: dict[str, Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> Tensor | None:
        """The stored weight, whatever its suffix, or None."""
        for suffix in _WEIGHTS:
            if suffix in self.tensors:
                return self.tensors[suffix]
        return self.tensors.get("")

    @property
    def role(self) -> Role:
        """The module's role by its name and its weight's rank (2 where no weight is stored)."""
        weight = self.weight
        rank = 2 if weight is None else len(weight.shape)
        return role_of(abstract(self.name), rank, scaled=bool(self.scales))

    @property
    def scales(self) -> list[str]:
        """Suffixes of the stored tensors that only a quantized weight has."""
        return [suffix for suffix in self.tensors if suffix.lstrip("_").startswith(_WEIGHT_PARAMETERS)]

    def key(self) -> tuple[Any, ...]:
        """What modules of one class share: the abstract name and each tensor's suffix, dtype and shape."""
        own = tuple((suffix, tensor.dtype, tensor.shape) for suffix, tensor in sorted(self.tensors.items()))
        return abstract(self.name), own, tuple(self.foreign)


_WEIGHT_PARAMETERS = ("weight_scale", "weight_zero_point", "scales", "qzeros")


@dataclass(slots=True)
class Modules:
    """Every module of a checkpoint by name, and the tensors that belong to none."""

    by_name: dict[str, Module]
    loose: dict[str, Tensor]


def group(tensors: Mapping[str, Tensor], layout: Mapping[str, Any]) -> Modules:
    """Group `tensors` by the suffixes that the layout table `layout` (`vX.Y/tensors.json`) knows.

    A tensor whose suffix is another convention's goes to `Module.foreign`; one of no known suffix is loose.
    """
    known = frozenset(suffix for part in layout["suffixes"].values() for suffix in part)
    foreign = frozenset(entry["suffix"] for entry in layout["foreign_suffixes"])
    ends = {ending.rpartition(".")[2] for ending in foreign if "." in ending}
    bare = tuple(table("roles.json")["bare_weights"])
    modules: dict[str, Module] = {}
    loose: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        head, _, suffix = name.rpartition(".")
        if suffix in known and not (suffix in ends and _foreign_suffix(name, foreign)[1]):
            _module(modules, head).tensors[suffix] = tensor
        elif name.endswith(bare):
            _module(modules, name).tensors[""] = tensor
        else:
            holder, ending = _foreign_suffix(name, foreign)
            if ending is None:
                loose[name] = tensor
            else:
                _module(modules, holder).foreign[ending] = tensor
    return Modules(modules, loose)


def _module(modules: dict[str, Module], name: str) -> Module:
    module = modules.get(name)
    if module is None:
        module = modules[name] = Module(name)
    return module


def _foreign_suffix(name: str, foreign: frozenset[str]) -> tuple[str, str | None]:
    """The module and the foreign suffix of `name`; suffixes of two components are tried first."""
    parts = name.rsplit(".", 2)
    for size in (2, 1):
        ending = ".".join(parts[-size:])
        if len(parts) > size and ending in foreign:
            return ".".join(parts[:-size]), ending
    return name, None


def classes(modules: Iterable[Module]) -> dict[tuple[Any, ...], list[Module]]:
    """Modules by class (`Module.key`): a million tensors are a few dozen classes."""
    found: dict[tuple[Any, ...], list[Module]] = {}
    for module in modules:
        found.setdefault(module.key(), []).append(module)
    return found
