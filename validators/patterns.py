"""Entries of `exclude` and keys of `layer_quant_config` against the modules that the file holds."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quark_format.declarations import PARTS, describe, escape, stages
from quark_format.modules import Module, abstract
from quark_format.names import Matcher, identity, literal, reader
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quark_format.declarations import Declared
    from quark_format.names import Semantics
    from quark_format.validators.context import Context

_LONG = 3
_LAYERS = "layer_quant_config"
_NO_MODULE = "a name that no module has"


def check(context: Context) -> Iterator[Finding]:
    """Yield entries that match nothing, twice, too much, or differently for different readers."""
    yield from _duplicates(context)
    yield from _invalid(context)
    if not context.complete:
        return
    yield from _dead(context)
    yield from _reader_dependent(context)
    yield from _layers_disputed(context)
    yield from _over_broad(context)
    yield from _shadowed(context)


def _exclude_pointer(context: Context) -> str:
    modes = table("modes.json")["modes"]
    key = modes[context.mode]["exclude_key"] if context.mode in modes else "exclude"
    return context.at(f"/{key}")


def _duplicates(context: Context) -> Iterator[Finding]:
    for pattern, times in Counter(context.declarations.exclude).items():
        if times > 1:
            yield finding(
                "QF222",
                file=context.checkpoint.config_file,
                pointer=_exclude_pointer(context),
                pattern=pattern,
                times=times,
            )


def _invalid(context: Context) -> Iterator[Finding]:
    for pattern, reason in context.declarations.vllm_exclusion.problems.items():
        yield finding(
            "QF227",
            file=context.checkpoint.config_file,
            pointer=_exclude_pointer(context),
            pattern=pattern,
            reason=reason,
        )


def _dead(context: Context) -> Iterator[Finding]:
    """Entries that take no module under any reader: near misses as warnings, the others as information."""
    names = list(context.modules.by_name)
    harmless: dict[str, list[str]] = {}
    quark, vllm = reader("quark", context.version), reader("vllm")
    patterns = [
        (_exclude_pointer(context), pattern, quark.exclude, vllm.exclude)
        for pattern in dict.fromkeys(context.declarations.exclude)
    ]
    patterns += [
        (context.at(f"/{_LAYERS}"), key, quark.layers, vllm.layers) for key in context.declarations.layers
    ]
    known = _Names(names)
    for pointer, pattern, *semantics in patterns:
        if any(known.any_match(pattern, one) for one in semantics):
            continue
        near = _fused_near(context, pattern, known) or _near(pattern, known)
        if near is None:
            harmless.setdefault(pointer, []).append(pattern)
            continue
        code, candidate, advice = near
        yield finding(
            code,
            file=context.checkpoint.config_file,
            pointer=pointer,
            pattern=pattern,
            candidate=candidate,
            advice=advice,
        )
    for pointer, dead in harmless.items():
        yield finding(
            "QF220",
            file=context.checkpoint.config_file,
            pointer=pointer,
            pattern=dead[0],
            count=len(dead),
        )


class _Names:
    """The module names of a checkpoint and everything above them, to be asked for matches."""

    def __init__(self, names: Sequence[str]) -> None:
        self._modules = names
        self._set = frozenset(names)

    @cached_property
    def leaves(self) -> dict[str, list[str]]:
        leaves: dict[str, list[str]] = {}
        for name in self._modules:
            leaves.setdefault(name.rpartition(".")[2], []).append(name)
        return leaves

    @cached_property
    def _all(self) -> list[str]:
        above: set[str] = set()
        for name in self._modules:
            while (name := name.rpartition(".")[0]) and name not in above:
                above.add(name)
        return [*self._modules, *sorted(above - self._set)]

    @cached_property
    def _joined(self) -> str:
        return "\n".join(self._all)

    def any_match(self, pattern: str, semantics: Semantics) -> bool:
        if pattern in self._set:
            return True
        if "*" in pattern and not pattern.startswith("re:") and literal(pattern) not in self._joined:
            return False
        matcher = Matcher([pattern], semantics)
        return any(matcher.matches(name) for name in self._all)

    def by_suffix(self, pattern: str) -> str | None:
        """A module that ends like the plain name `pattern`, behind another prefix."""
        parts = pattern.split(".")
        for start in range(1, len(parts)):
            ending = ".".join(parts[start:])
            if len(parts) - start < min(_LONG, len(parts) - 1):
                return None
            for name in self.leaves.get(parts[-1], ()):
                if name == ending or name.endswith(f".{ending}"):
                    return name
        return None


_Near = tuple[str, str, str]


def _fused_near(context: Context, pattern: str, known: _Names) -> _Near | None:
    """A pattern whose last name is a fused module of which the file holds the members."""
    head, _, leaf = pattern.rpartition(".")
    for group in table("roles.json")["fused"]:
        if group["name"] != leaf:
            continue
        members = [f"{head}.{member}" if head else member for member in group["members"]]
        semantics = reader("quark", context.version).exclude
        if any(known.any_match(member, semantics) for member in members):
            return "QF226", ", ".join(f"`{member}`" for member in members), ""
    return None


def _near(pattern: str, known: _Names) -> _Near | None:
    """A plain name that misses a module only by its prefix, or is the bare last name of modules."""
    if set(pattern) & set("*?[") or pattern.startswith("re:"):
        return None
    if "." not in pattern:
        holders = known.leaves.get(pattern)
        return ("QF221", f"`{holders[0]}`", f"*.{pattern}") if holders else None
    name = known.by_suffix(pattern)
    return ("QF221", f"`{name}`", name) if name else None


def _reader_dependent(context: Context) -> Iterator[Finding]:
    """Modules that one reader excludes and another does not, one finding for each entry that does it."""
    cases: dict[str, list[Module]] = {}
    for entry in context.judged:
        if not entry.declared.disputed or entry.first.weight is None or not entry.role.quantizable:
            continue
        pattern = entry.declared.excluded_by or entry.declared.excluded_elsewhere or ""
        cases.setdefault(pattern, []).extend(entry.members)
    for pattern, modules in cases.items():
        by_quark = context.declarations.quark_exclusion.first(modules[0].name) is not None
        yield finding(
            "QF224",
            file=context.checkpoint.config_file,
            pointer=_exclude_pointer(context),
            pattern=pattern,
            count=len(modules),
            module=modules[0].name,
            quark="a pattern" if by_quark else _NO_MODULE,
            vllm=_NO_MODULE if by_quark else "a pattern",
            candidate=f"`{modules[0].name}`",
            advice="Write the exact module names.",
        )


def _layers_disputed(context: Context) -> Iterator[Finding]:
    """Modules that get one layer config from Quark and another from vLLM."""
    cases: dict[tuple[str | None, str], dict[str, Module]] = {}
    for module, own in _candidates(context):
        key, theirs = context.declarations.vllm_layers.find(module.name)
        taken = own.pointer.startswith(f"/{_LAYERS}/")
        if (taken or key is not None) and identity(theirs) != identity(own.layer):
            cases.setdefault((key, own.pointer), {})[module.name] = module
    for (key, pointer), modules in cases.items():
        name, module = next(iter(modules.items()))
        own = context.declarations.of(module)
        pattern = pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~") if key is None else key
        yield finding(
            "QF224",
            file=context.checkpoint.config_file,
            pointer=context.at(f"/{_LAYERS}"),
            pattern=pattern,
            count=len(modules),
            module=name,
            quark=_meaning(own.layer, name) if key is None else f"nothing for `{name}` ({pointer} decides)",
            vllm=_NO_MODULE if key is None else _meaning(context.declarations.layers[key], name),
            candidate=f"`{name}`",
            advice="Write the exact module names, in front of every pattern that takes them too.",
        )


def _candidates(context: Context) -> Iterator[tuple[Module, Declared]]:
    """One module of each kind, and those whose name begins a key, which vLLM takes for the key's."""
    if not context.declarations.layers:
        return
    chosen: dict[tuple[str, str], tuple[Module, Declared]] = {}
    for entry in context.judged:
        if entry.first.weight is not None and entry.role.quantizable and not entry.declared.excluded:
            kind = abstract(entry.first.name), abstract(entry.declared.pointer)
            chosen.setdefault(kind, (entry.first, entry.declared))
    yield from chosen.values()
    known = context.modules.by_name
    leaves: dict[str, list[str]] = {}
    for name in known:
        parent, _, leaf = name.rpartition(".")
        leaves.setdefault(parent, []).append(leaf)
    for key in context.declarations.layers:
        parent, _, last = key.rpartition(".")
        for leaf in leaves.get(parent, ()):
            if last.startswith(leaf) and last != leaf:
                module = known[f"{parent}.{leaf}"]
                own = context.declarations.of(module)
                if module.weight is not None and module.role.quantizable and not own.excluded:
                    yield module, own


def _meaning(layer: Mapping[str, Any], name: str) -> str:
    return f"weight {describe(stages(layer.get(PARTS['weight'])))} for `{name}`"


def _over_broad(context: Context) -> Iterator[Finding]:
    """Patterns that also take modules which are stored quantized, beside others which are not."""
    taken: dict[str, list[Module]] = {}
    kept: dict[str, int] = Counter()
    for entry in context.judged:
        pattern = entry.declared.excluded_elsewhere or entry.declared.excluded_by
        if pattern is None:
            continue
        if entry.stores_codes and entry.has_scales:
            taken.setdefault(pattern, []).extend(entry.members)
        elif entry.first.weight is not None:
            kept[pattern] += len(entry.members)
    for pattern, modules in taken.items():
        if kept[pattern]:
            yield finding(
                "QF223",
                file=context.checkpoint.config_file,
                pointer=_exclude_pointer(context),
                pattern=pattern,
                module=modules[0].name,
                count=len(modules),
                candidate=f"`{modules[0].name}`",
                advice=f"{pattern}$" if pattern.startswith("re:") else "the exact names",
            )


def _shadowed(context: Context) -> Iterator[Finding]:
    """Layer patterns all of whose modules an earlier pattern takes with another config."""
    layers = context.declarations.layers
    if not layers:
        return
    semantics = reader("quark", context.version).layers
    names = list(context.modules.by_name)
    used = {context.declarations.quark_layers.first(name) for name in names}
    for key in layers:
        if key in used:
            continue
        matcher = Matcher([key], semantics)
        captured = [name for name in names if matcher.matches(name)]
        earlier = context.declarations.quark_layers.first(captured[0]) if captured else None
        if earlier is not None and layers[earlier] != layers[key]:
            yield finding(
                "QF225",
                file=context.checkpoint.config_file,
                pointer=context.at(f"/{_LAYERS}/{escape(key)}"),
                pattern=key,
                earlier=earlier,
                count=len(captured),
            )
