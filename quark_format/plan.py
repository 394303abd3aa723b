"""What a target builds from a checkpoint: its modules, joined and renamed, each with its scheme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quark_format.architectures import Architecture
from quark_format.checkpoint import Checkpoint
from quark_format.declarations import PARTS, describe, stages
from quark_format.formats import Format, detect, locate
from quark_format.layouts import Conditions, Layouts, layouts, recognize
from quark_format.modules import Module, abstract, group
from quark_format.resolver import Refusal, Resolution, Resolver
from quark_format.roles import is_float, routed_experts
from quark_format.targets import Target

EXPERTS = "experts"
_ATTENTION = "attention"
_KV_CACHE = "KV cache"


class NoQuarkConfigError(ValueError):
    """A checkpoint without a quantization config of Quark; the text says what there is instead."""


@dataclass
class Planned:
    """Modules of the target that are alike: the same abstract name, specs and answer, and the same layout.

    `example` is the first of them, made of the checkpoint's modules `stored`, by their last names. `modules`
    counts them, `parts` the checkpoint's modules they are made of, and `bytes` what those take in the files.
    `layout` is the id of the layout row that the specs ask for, or for an unquantized module of the one that
    its stored tensors have.
    """

    name: str
    kind: str
    example: str
    spec: str
    layout: str | None
    answer: Resolution | Refusal
    modules: int = 0
    parts: int = 0
    bytes: int = 0
    stored: dict[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    """A checkpoint for a target, which builds `architecture` by its `implementation`.

    `unlooked` modules are built unquantized whatever the config says. `by_module` has the checkpoint's other
    modules by name.
    """

    target: Target
    architecture: str | None
    known: bool
    version: str
    problem: str | None
    implementation: Architecture
    planned: list[Planned] = field(default_factory=list)
    by_module: dict[str, Planned] = field(default_factory=dict)
    unlooked: int = 0
    unlooked_bytes: int = 0

    @property
    def refused(self) -> list[Planned]:
        """The modules that the target cannot serve."""
        return [one for one in self.planned if isinstance(one.answer, Refusal)]


def plan(checkpoint: Checkpoint, to: Target) -> Plan:
    """Resolve every module of `checkpoint` for the target.

    Raises:
        NoQuarkConfigError: its config has no quantization block of Quark.
    """
    config = checkpoint.config or {}
    blocks = [(value, detect(value)) for _, value in locate(config) if isinstance(value, dict)]
    if not blocks:
        raise NoQuarkConfigError("the config has no quantization_config")
    block, verdict = next((one for one in blocks if one[1].version is not None), blocks[0])
    if verdict.version is None:
        raise NoQuarkConfigError(f"the quantization_config is not Quark's: {'; '.join(verdict.evidence)}")
    named = config.get("architectures")
    first = next(iter(named), None) if isinstance(named, list) else None
    architecture = first if isinstance(first, str) else None
    resolver = Resolver(block, to, architecture)
    table = layouts(verdict.version)
    made = Plan(
        to,
        architecture,
        resolver.architecture.known,
        verdict.version,
        resolver.problem,
        resolver.architecture,
    )
    modules = group(checkpoint.tensors, table.raw).by_name
    _fill(made, resolver, _Layout(table, verdict, block), modules)
    return made


class _Layout:
    """Finds the layout row of a module."""

    def __init__(self, table: Layouts, verdict: Format, block: Mapping[str, Any]) -> None:
        formats = dict.fromkeys(name for row in table.rows for name in row.weight_formats)
        export = block.get("export")
        declared = export.get("weight_format") if isinstance(export, dict) else None
        self._table = table
        self._weight_format: str = next(iter(formats))
        if isinstance(declared, str) and declared in formats:
            self._weight_format = declared
        self._mode = verdict.mode or ""
        self._writer = verdict.writer or next(iter(table.rows[0].writers))

    def of(self, module: Module, answer: Resolution | Refusal) -> str | None:
        spec = stages(answer.layer.get(PARTS["weight"])) if isinstance(answer.layer, dict) else ()
        conditions = Conditions(self._writer, self._weight_format, self._mode, module.role.layout)
        plain = module.weight is not None and is_float(module.weight.dtype)
        row = self._table.row("weight", spec, conditions) if spec or plain else None
        if row is None:
            row = recognize(module.tensors, self._table, self._mode, self._weight_format)
        return None if row is None else row.id


def _fill(made: Plan, resolver: Resolver, layout: _Layout, modules: Mapping[str, Module]) -> None:
    renamed = {name: resolver.architecture.rename(name) for name in modules}
    there = frozenset(renamed.values())
    answers: dict[tuple[str, str], Resolution | Refusal] = {}
    rows: dict[tuple[Any, ...], str | None] = {}
    found: dict[tuple[Any, ...], Planned] = {}
    for module in modules.values():
        size = sum(tensor.end - tensor.start for tensor in module.tensors.values())
        kind = made.target.header.roles.get(module.role.role)
        if kind is None or module.weight is None:
            made.unlooked += 1
            made.unlooked_bytes += size
            continue
        name = module.name
        if made.target.schemes.kinds[kind].names == "target":
            name, kind = _built_as(renamed[name], kind, resolver, there)
        new = (name, kind) not in answers
        if new:
            answers[name, kind] = resolver.resolve(name, kind)
        answer = answers[name, kind]
        alike = (abstract(name), kind, *_alike(answer))
        shape = (*alike, module.key())
        if shape not in rows:
            rows[shape] = layout.of(module, answer)
        entry = found.get((*alike, rows[shape]))
        if entry is None:
            entry = Planned(abstract(name), kind, name, described(answer), rows[shape], answer)
            found[*alike, rows[shape]] = entry
        made.by_module[module.name] = entry
        entry.modules += new
        entry.stored.setdefault(module.name.rpartition(".")[2], module.name)
        entry.parts += 1
        entry.bytes += size
    made.planned = [*found.values(), *_kv_cache(resolver)]


def _kv_cache(resolver: Resolver) -> Iterator[Planned]:
    if resolver.problem is None and resolver.kv_cache is not None:
        answer = resolver.resolve(_KV_CACHE, _ATTENTION)
        yield Planned(_KV_CACHE, _ATTENTION, _KV_CACHE, describe(stages(resolver.kv_cache)), None, answer)


def _built_as(name: str, kind: str, resolver: Resolver, there: frozenset[str]) -> tuple[str, str]:
    """The target's module that `name` becomes a part of, and its kind; parts join where all are there."""
    experts = routed_experts(name)
    if experts is not None:
        return experts, EXPERTS
    parent, dot, leaf = name.rpartition(".")
    whole = resolver.architecture.joined.get(leaf, leaf)
    members = resolver.architecture.fused.get(whole, ())
    return (f"{parent}{dot}{whole}" if all(f"{parent}{dot}{one}" in there for one in members) else name), kind


def _alike(answer: Resolution | Refusal) -> tuple[str | None, str]:
    what = abstract(answer.reason) if isinstance(answer, Refusal) else answer.choice.row
    return what, described(answer)


def described(answer: Resolution | Refusal) -> str:
    """The specs of a module in words."""
    layer = answer.layer
    if not isinstance(layer, dict):
        return "excluded" if isinstance(answer, Resolution) else "parts differ"
    told = {part: stages(layer.get(key)) for part, key in PARTS.items()}
    return ", ".join(f"{part} {describe(spec)}" for part, spec in told.items() if spec or part == "weight")
