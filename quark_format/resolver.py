"""From one module of a model to the scheme of a target that serves it, or the reason why none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from jsonschema.exceptions import best_match
from pydantic import BaseModel

from quark_format.architectures import Architecture
from quark_format.declarations import as_quark
from quark_format.formats import detect
from quark_format.loading import Platform
from quark_format.models.targets.tables import Argument, Kind, KvCache, MultipleOf, Row
from quark_format.names import Exclusion, LayerConfigs, Reader, ShardConflictError, identity, parts, reader
from quark_format.selection import PACK_METHOD, Combination, Difference, Nearest, read, stages
from quark_format.tables import table
from quark_format.targets import Target
from quark_format.targets import target as find_target

WRITER = "quark"
_TYPES = "layer_type_quant_config"
_WRITERS: list[str] = [one["name"] for one in table("catalog.json")["writers"]]


class UnknownKindError(ValueError):
    """A kind of layer that a target does not have; the text lists those it has."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A `dimension` of the module's weight on one partition must be a multiple of `multiple_of`."""

    dimension: str
    multiple_of: int
    when: str
    source: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a target does with one layer config.

    `row` is null and `scheme` serves an unquantized layer where the config excludes the module. `specs` and
    `keys` name what each position of the layer config was taken for. `kernels` lists by platform what the
    target tries, in order. `keyed` lists the arguments that name a quantization key. `preferred` has the
    choices of an extended target that come first where they hold.
    """

    row: str | None
    scheme: str | None
    specs: Mapping[str, str]
    keys: Mapping[str, str | None]
    arguments: Mapping[str, Any]
    family: str | None
    kernels: Mapping[str, tuple[str, ...]]
    requires: tuple[Requirement, ...]
    capability: int | None
    notes: tuple[str, ...]
    keyed: tuple[str, ...] = ()
    preferred: tuple[Preferred, ...] = ()

    def on(self, platform: Platform) -> tuple[Choice, ...]:
        """What the target tries on `platform`, in order."""
        first = next((one.choice for one in self.preferred if one.holds(platform)), None)
        return (self,) if first is None else (first, self)


@dataclass(frozen=True, slots=True)
class Preferred:
    """A choice that comes first on some platforms, on all of their devices or on those with some features."""

    choice: Choice
    platforms: frozenset[str]
    features: frozenset[str] | None
    without: frozenset[str]

    def holds(self, platform: Platform) -> bool:
        """Whether it comes first on `platform`."""
        there = platform.features
        wanted = self.features is None or bool(self.features & there)
        return platform.name in self.platforms and wanted and not self.without & there


@dataclass(frozen=True, slots=True)
class Resolution:
    """The target serves the module.

    `key` is the key of layer_quant_config that decides (None: the global config), renamed as the target
    renames it, and `layer` the layer config; it is null for an excluded module. `parts` are the answers for
    the modules that are joined in this one, where the target looks each up; in a mixed module they differ.
    """

    module: str
    kind: str
    key: str | None
    layer: Any
    choice: Choice
    parts: tuple[Resolution, ...] = ()

    @property
    def excluded(self) -> bool:
        """Whether the config leaves the module unquantized."""
        return self.choice.row is None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The target cannot serve the module.

    `cause` is config (the config as a whole), names (the parts of a fused module disagree) or spec (no row
    takes the specs). For spec, `nearest` is the id of the nearest row and `differences` say what it wants.
    """

    module: str
    kind: str
    key: str | None
    layer: Any
    cause: Literal["config", "names", "spec"]
    reason: str
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refused:
    reason: str
    nearest: str
    differences: tuple[Difference, ...]


class _ConfigError(ValueError):
    """The config as a whole is refused by the target."""


def quantization_config(config: Any) -> dict[str, Any]:
    """The quantization_config of a whole config.json, or the block or the generated model itself, as a dict.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(config, BaseModel):
        config = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if not isinstance(config, dict):
        raise TypeError(f"expected a config, not {type(config).__name__}")
    inner = config.get("quantization_config")
    return inner if isinstance(inner, dict) else config


class Resolver:
    """One config for one target and one model architecture, indexed once."""

    def __init__(
        self, config: Any, target: str | Target = "vllm", architecture: str | Architecture | None = None
    ) -> None:
        """Index `config`: a whole config.json, its quantization_config, or the generated model of that.

        `architecture` names the model class; without it the first of a config.json's `architectures` does.

        Raises:
            TypeError: `config` is none of these.
            UnknownTargetError: the target is not declared.
        """
        self.target = target if isinstance(target, Target) else find_target(target)
        block = quantization_config(config)
        mode = detect(block).mode
        self.block = as_quark(block, mode) if mode and mode in (self.target.header.modes or ()) else block
        if architecture is None and isinstance(config, dict) and config is not block:
            architecture = next(iter(config.get("architectures") or ()), None)
        self.architecture = (
            architecture
            if isinstance(architecture, Architecture)
            else self.target.architectures.get(architecture)
        )
        self._choices: dict[tuple[str, str | None], Choice | _Refused] = {}
        self._excluded: dict[str, Choice] = {}
        self._by_names: dict[str, tuple[Exclusion, LayerConfigs]] = {}

    @cached_property
    def problem(self) -> str | None:
        """Why the target refuses the config as a whole, or None."""
        error = best_match(self.target.config.iter_errors(self.block))
        if error is not None:
            return f"{self.target.name} needs {error.json_path.removeprefix('$.')}: {error.message}"
        try:
            _ = self._kv
        except _ConfigError as refused:
            return str(refused)
        return None

    @cached_property
    def _kv(self) -> tuple[Any, dict[str, Any]]:
        """The KV cache spec that the target derives, and the layer configs without what it takes for it."""
        declared = self.target.header.kv_cache
        if declared is None:
            return None, self.block.get("layer_quant_config") or {}
        groups: Any = self.block
        for step in declared.groups:
            groups = (groups or {}).get(step)
        layers = self.block.get("layer_quant_config")
        if not groups:
            return None, self._cleared(declared, layers or {}, ())
        if not isinstance(layers, dict) and not declared.specs:
            raise _ConfigError(f"{declared.groups[-1]} is {groups!r}, but there is no layer_quant_config")
        sources = [self.block.get(key) or {} for key in declared.specs or ("layer_quant_config",)]
        specs = {
            name: (source[name] or {}).get("output_tensors")
            for source in reversed(sources)
            for name in source
            if any(fnmatchcase(name, pattern) for pattern in groups)
        }
        taken = list(specs)
        if declared.unmatched is not None and not any(specs.values()):
            return None, self._cleared(declared, layers or {}, ())
        if not taken:
            raise _ConfigError(f"no key of layer_quant_config matches {declared.groups[-1]} {groups!r}")
        first = specs[taken[0]]
        if any(identity(spec) != identity(first) for spec in specs.values()):
            raise _ConfigError(f"the layer configs {taken!r} quantize the KV cache differently")
        if first is None:
            raise _ConfigError(f"the layer configs {taken!r} have no output_tensors for the KV cache")
        return first, self._cleared(declared, layers or {}, (*taken, *declared.also_cleared))

    def _cleared(self, declared: KvCache, layers: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """The layer configs without the outputs that are quantized for the attention."""
        every = declared.attention is not None and self.block.get(declared.attention) is not None
        return {
            name: {**layer, "output_tensors": None} if layer and (every or name in names) else layer
            for name, layer in layers.items()
        }

    def _names(self, whose: str) -> tuple[Exclusion, LayerConfigs]:
        found = self._by_names.get(whose)
        if found is None:
            found = self._by_names[whose] = self._index_names(whose)
        return found

    def _index_names(self, whose: str) -> tuple[Exclusion, LayerConfigs]:
        readings: dict[str, tuple[Reader, Callable[[str], str]]] = {
            "target": (self.target.reader, self.architecture.rename),
            "writer": (reader(WRITER), str),
        }
        semantics, rename = readings[whose]
        fused = self.architecture.fused
        rename = str if self.target.header.names_as_written else rename
        exclude = [rename(entry) for entry in self.block.get("exclude") or ()]
        layers = {rename(name): layer for name, layer in self._kv[1].items()}
        return (
            Exclusion(exclude, semantics, fused),
            LayerConfigs(layers, self.block.get("global_quant_config"), semantics, fused),
        )

    @property
    def kv_cache(self) -> Any:
        """The spec that the target takes for the KV cache; None where there is none, or a `problem`."""
        return None if self.problem else self._kv[0]

    @cached_property
    def unevaluated(self) -> dict[str, str]:
        """The patterns that are not evaluated, and so capture nothing here, with the reason."""
        return {} if self.problem else dict(self._names("target")[0].problems)

    def resolve(self, module: str, kind: str) -> Resolution | Refusal:
        """What the target does with `module`, named as the target names it, of the given kind.

        Heads and embeddings, which the target does not look up, are named as in the checkpoint.

        Raises:
            UnknownKindError: the target has no such kind.
        """
        declared = self.target.schemes.kinds.get(kind)
        if declared is None:
            known = ", ".join(self.target.schemes.kinds)
            raise UnknownKindError(f"{self.target.name} knows no kind {kind!r}; it has {known}")
        if self.problem is not None:
            return Refusal(module, kind, None, None, "config", self.problem)
        joined = self._joined(module, declared) if kind in (self.target.header.mixes or ()) else None
        if joined and joined != [module]:
            return self._join(module, [self._resolve(one, kind, declared) for one in joined])
        return self._resolve(module, kind, declared)

    def _joined(self, module: str, declared: Kind) -> Sequence[str] | None:
        """The modules that the target joins in one; of routed experts those of the first expert."""
        if not declared.children:
            return parts(module, self.architecture.fused)
        leaves = self.architecture.experts
        if leaves is None:
            return None
        return [f"{module}.0.{leaf}" for leaf in (leaves.gate, leaves.up, leaves.down) if leaf is not None]

    def _join(self, module: str, answers: Sequence[Resolution | Refusal]) -> Resolution | Refusal:
        """The answer for a module that joins others: theirs if they are equal, else a mixture of them."""
        refused = next((one for one in answers if isinstance(one, Refusal)), None)
        if refused is not None:
            return refused
        served = tuple(one for one in answers if isinstance(one, Resolution))
        alike = len({(one.choice.row, identity(one.layer)) for one in served}) == 1
        main = next((one for one in served if not one.excluded), served[0])
        choice = main.choice if alike else replace(main.choice, preferred=())
        return replace(main, module=module, choice=choice, parts=served)

    def _resolve(self, module: str, kind: str, declared: Kind) -> Resolution | Refusal:
        exclusion, layers = self._names(declared.names)
        try:
            if exclusion.excludes(module, experts=declared.children):
                return Resolution(module, kind, None, None, self._plain(kind, declared))
            key, layer = layers.find(module)
        except ShardConflictError as conflict:
            reason = f"{conflict}; {self.target.name} wants one treatment"
            return Refusal(module, kind, None, None, "names", reason)
        typed = (self.block.get(_TYPES) or {}).get(declared.layer_type) if key is None else None
        if typed is not None:
            key, layer = f"{_TYPES}/{declared.layer_type}", typed
        elif key is None and not declared.global_config:
            layer = None
        found = self._choices.get((kind, key))
        if found is None:
            found = self._choices[kind, key] = self._choose(kind, layer)
        if isinstance(found, Choice):
            return Resolution(module, kind, key, layer, found)
        return Refusal(module, kind, key, layer, "spec", found.reason, found.nearest, found.differences)

    def _plain(self, kind: str, declared: Kind) -> Choice:
        plain = self._excluded.get(kind)
        if plain is None:
            plain = Choice(None, declared.excluded, {}, {}, {}, None, {}, (), None, ())
            self._excluded[kind] = plain
        return plain

    def _choose(self, kind: str, layer: Any) -> Choice | _Refused:
        subject = {
            name: self._kv[0]
            if position.key is None
            else layer.get(position.key)
            if isinstance(layer, dict)
            else None
            for name, position in self.target.schemes.positions.items()
        }
        pack_method = (self.block.get("export") or {}).get(PACK_METHOD)
        found = self.target.kinds[kind].find(subject, pack_method)
        if isinstance(found, Nearest):
            return self._refuse(kind, found)
        choice = self._accept(self.target, found, subject, pack_method)
        return replace(choice, preferred=self._inherited(kind, subject, pack_method))

    def _inherited(self, kind: str, subject: Mapping[str, Any], pack_method: Any) -> tuple[Preferred, ...]:
        """The choices of the extended target that this one tries first, and where."""
        base, extension = self.target.base, self.target.extension
        if base is None or extension is None:
            return ()
        found = base.kinds[kind].find(subject, pack_method)
        if isinstance(found, Nearest):
            return ()
        choice = self._accept(base, found, subject, pack_method)
        return tuple(
            Preferred(
                choice if one.scheme is None else replace(choice, scheme=one.scheme),
                frozenset(one.platforms),
                None if one.with_ is None else frozenset(one.with_),
                frozenset(one.without or ()),
            )
            for one in extension.inherited
            if one.row == found.row.id
            and (one.writers is None or self._writer in one.writers)
            and all(found.specs[position] in names for position, names in (one.specs or {}).items())
        )

    @cached_property
    def _writer(self) -> str:
        """The code path of Quark that wrote the checkpoint, the usual one where the config does not tell."""
        return detect(self.block).writer or _WRITERS[0]

    def _refuse(self, kind: str, nearest: Nearest) -> _Refused:
        row = nearest.combination.row
        words = "; ".join(
            f"{one.field} is {_told(one.found)} (wanted: {one.wanted})" for one in nearest.differences
        )
        what = self.target.schemes.kinds[kind].words
        wish = f"the nearest row `{row.id}` differs: {words}"
        reason = f"{self.target.name} has no scheme for {what} like this; {wish}"
        return _Refused(reason, row.id, nearest.differences)

    def _accept(self, of: Target, found: Combination, subject: Mapping[str, Any], pack_method: Any) -> Choice:
        row = found.row
        specs = of.schemes.specs
        keys = {position: specs[name].key for position, name in found.specs.items()}

        def field(path: str) -> Any:
            return pack_method if path == PACK_METHOD else self._field(path, subject)

        sources: dict[str, Callable[[Any], Any]] = {
            "value": lambda value: value,
            "key": keys.get,
            "field": field,
            "spec": subject.get,
        }

        def argument(given: Argument) -> Any:
            name, value = next(iter(given.model_dump(exclude_unset=True).items()))
            return sources[name](value)

        notes = (row.note, *(specs[name].note for name in found.specs.values()))
        return Choice(
            row=row.id,
            scheme=row.scheme,
            specs=found.specs,
            keys=keys,
            arguments={name: argument(given) for name, given in row.arguments.items()},
            family=row.kernels,
            kernels=_kernels(of, row, keys),
            requires=tuple(
                Requirement(
                    one.dimension,
                    one.multiple_of.root
                    if isinstance(one.multiple_of, MultipleOf)
                    else field(one.multiple_of),
                    one.when,
                    one.source,
                )
                for one in row.requires
            ),
            capability=row.capability,
            notes=tuple(note for note in notes if note),
            keyed=tuple(name for name, given in row.arguments.items() if given.key is not None),
        )

    def _field(self, path: str, subject: Mapping[str, Any]) -> Any:
        position, at, name = path.split(".")
        field = next(one for one in self.target.schemes.fields if one.id == name)
        return read(stages(subject.get(position))[int(at)], field)


def _kernels(of: Target, row: Row, keys: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    if row.kernels is None:
        return {}
    family = of.kernels.families[row.kernels]
    pair = [keys.get("weight"), keys.get("input")]
    return {
        platform: tuple(
            kernel
            for kernel in family.platforms.get(platform, ())
            if family.schemes is None or pair in family.schemes.get(kernel, [pair])
        )
        for platform in of.header.platforms
    }


def _told(value: Any) -> str:
    return "absent" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def resolve(
    config: Any,
    module: str,
    kind: str = "linear",
    target: str | Target = "vllm",
    architecture: str | Architecture | None = None,
) -> Resolution | Refusal:
    """What a target does with one module; for many modules keep a `Resolver`.

    Raises:
        UnknownKindError: the target has no such kind.
        TypeError: `config` is no config.
        UnknownTargetError: the target is not declared.
    """
    return Resolver(config, target, architecture).resolve(module, kind)
