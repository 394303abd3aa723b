"""Modules against each other: fused shards, experts, layers, tied embeddings, and sizes that must agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quark_format.declarations import describe
from quark_format.layouts import DIMS, Dim
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quark_format.modules import Module
    from quark_format.safetensors_header import Tensor
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_MATRIX = 2


def check(context: Context) -> Iterator[Finding]:
    """Yield what only shows when modules are compared with their neighbours or with config.json."""
    if not context.checkpoint.tensors:
        return
    tree = Tree(context)
    yield from _fused(tree)
    yield from _experts(tree)
    yield from _shared_experts(tree)
    yield from _sizes(tree)
    yield from _tied(tree)
    if context.complete:
        yield from _companions(tree)
        yield from _layers(tree)


@dataclass
class Tree:
    """The modules of a checkpoint by parent, with the class each belongs to."""

    context: Context

    @cached_property
    def entries(self) -> dict[str, Judged]:
        """The class of each module by the module's name."""
        return {module.name: entry for entry in self.context.judged for module in entry.members}

    @cached_property
    def children(self) -> dict[str, dict[str, Module]]:
        """The modules with a weight below each parent, by their last name."""
        found: dict[str, dict[str, Module]] = defaultdict(dict)
        for name, module in self.context.modules.by_name.items():
            if module.weight is not None:
                parent, _, leaf = name.rpartition(".")
                found[parent][leaf] = module
        return dict(found)

    def sizes(self, module: Module) -> dict[Dim, int]:
        """The exact logical sizes of `module`, empty where its own tensors contradict each other."""
        entry, weight = self.entries[module.name], module.weight
        if entry.fit.deviations:
            return {}
        exact = {dim: pair[0] for dim, pair in entry.fit.sizes.items() if pair[0] == pair[1]}
        if not exact and weight is not None and not entry.stores_codes and len(weight.shape) == _MATRIX:
            return dict(zip(DIMS, weight.shape, strict=True))
        return exact


def _declaration(entry: Judged) -> str:
    spec = " / ".join(describe(entry.specs[part]) for part in ("weight", "input"))
    return "excluded" if entry.declared.excluded else spec


def _fused(tree: Tree) -> Iterator[Finding]:
    """Shards that loaders fuse but the config treats differently."""
    found: dict[tuple[str, ...], list[str]] = {}
    for parent, children in tree.children.items():
        for group in table("roles.json")["fused"]:
            members = [leaf for leaf in group["members"] if leaf in children]
            said = {leaf: _declaration(tree.entries[children[leaf].name]) for leaf in members}
            if len(set(said.values())) > 1:
                key = (", ".join(members), ", ".join(f"{leaf} {text}" for leaf, text in said.items()))
                found.setdefault(key, []).append(parent)
    for (shards, difference), parents in found.items():
        yield finding("QF405", module=parents[0], count=len(parents), members=shards, difference=difference)


def _expert_groups(tree: Tree) -> dict[str, dict[int, str]]:
    """The containers of numbered experts, each with the parents of the experts' modules by number."""
    containers = table("roles.json")["experts"]["containers"]
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for parent in tree.children:
        head, _, number = parent.rpartition(".")
        if number.isdecimal() and head.rpartition(".")[2] in containers:
            found[head][int(number)] = parent
    return dict(found)


def _experts(tree: Tree) -> Iterator[Finding]:
    """Experts that are missing, incomplete, or of another spec than their neighbours."""
    counts = [
        key for key in table("roles.json")["experts"]["counts"] if isinstance(tree.context.text.get(key), int)
    ]
    lacking: dict[tuple[str, str, int], list[str]] = {}
    mixed: dict[str, list[str]] = {}
    for container, experts in _expert_groups(tree).items():
        leaves = {leaf for parent in experts.values() for leaf in tree.children[parent]}
        missing = [
            f"{number}.{leaf}"
            for number, parent in sorted(experts.items())
            for leaf in sorted(leaves - tree.children[parent].keys())
            if f"{parent}.{leaf}" not in tree.context.modules.by_name
        ]
        expected = max((tree.context.text[key] for key in counts), default=0)
        wanted = range(expected or max(experts) + 1)
        missing = [str(number) for number in wanted if number not in experts] + missing
        if missing and tree.context.complete:
            shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")  # noqa: PLR2004
            lacking.setdefault((shown, counts[0] if counts else "", expected), []).append(container)
        said = {
            _declaration(tree.entries[module.name])
            for parent in experts.values()
            for module in tree.children[parent].values()
        }
        if len(said) > 1:
            mixed.setdefault(", ".join(sorted(said)), []).append(container)
    for (members, key, expected), containers in lacking.items():
        yield finding(
            "QF407",
            module=containers[0],
            count=len(containers),
            members=members,
            key=key or "the greatest expert number + 1",
            expected=expected or "more",
        )
    for difference, containers in mixed.items():
        yield finding("QF406", module=containers[0], count=len(containers), difference=difference)


def _shared_experts(tree: Tree) -> Iterator[Finding]:
    found: list[str] = []
    groups = _expert_groups(tree)
    for name in table("roles.json")["shared_experts"]:
        for container, experts in groups.items():
            shared = f"{container.rpartition('.')[0]}.{name}"
            routed = tree.children[next(iter(experts.values()))]
            said = [
                {_declaration(tree.entries[module.name]) for module in part.values()}
                for part in (tree.children.get(shared, {}), routed)
            ]
            if all(said) and said[0] != said[1]:
                found.append(shared)
    if found:
        yield finding("QF408", module=found[0], count=len(found))


def _sizes(tree: Tree) -> Iterator[Finding]:
    yield from _neighbours(tree)
    yield from _against_config(tree)


def _neighbours(tree: Tree) -> Iterator[Finding]:
    """Sizes that modules beside each other must share."""
    found: dict[tuple[str, str, str, int, int], list[tuple[Module, Module]]] = {}
    for children in tree.children.values():
        for first, first_dim, second, second_dim in _pairs():
            if first in children and second in children:
                left, right = tree.sizes(children[first]), tree.sizes(children[second])
                actual, expected = right.get(second_dim), left.get(first_dim)
                if actual is not None and expected is not None and actual != expected:
                    key = (first, second, second_dim, actual, expected)
                    found.setdefault(key, []).append((children[second], children[first]))
    for (_, _, dim, actual, expected), modules in found.items():
        tensor, sibling = modules[0][0].weight, modules[0][1].weight
        assert tensor is not None and sibling is not None  # noqa: S101, PT018 - children have a weight
        yield finding(
            "QF316",
            file=tensor.file,
            tensor=tensor.name,
            count=len(modules),
            dim=dim,
            actual=actual,
            sibling=sibling.name,
            expected=expected,
        )


def _pairs() -> Iterator[tuple[str, Dim, str, Dim]]:
    for group in table("roles.json")["fused"]:
        first, *others = group["members"]
        yield from ((first, dim, other, dim) for other in others for dim in group["equal"])
    for chain in table("roles.json")["chains"]:
        yield chain["first"], "out", chain["second"], "in"
        yield chain["first"], "in", chain["second"], "out"


def _against_config(tree: Tree) -> Iterator[Finding]:
    """Sizes that config.json gives."""
    by_leaf: dict[str, list[Any]] = defaultdict(list)
    for row in table("roles.json")["sizes"]:
        for leaf in {ending.rpartition(".")[2] for ending in row["modules"]}:
            by_leaf[leaf].append(row)
    places = table("roles.json")["layers"]["containers"]
    found: dict[tuple[str, str, int, int], list[Module]] = {}
    for parent, children in tree.children.items():
        for leaf, module in children.items():
            for row in by_leaf.get(leaf, ()):
                if not _names(row["modules"], parent, leaf, places):
                    continue
                key = next(
                    (key for key in row["config"] if isinstance(tree.context.text.get(key), int)), None
                )
                actual = tree.sizes(module).get(row["dim"])
                if key is None or actual is None:
                    continue
                expected = tree.context.text[key]
                fits = (
                    actual >= expected
                    if row.get("at_least")
                    else actual in [expected * factor for factor in row["factors"]]
                )
                if not fits:
                    found.setdefault((row["dim"], key, actual, expected), []).append(module)
    for (dim, key, actual, expected), modules in found.items():
        weight = modules[0].weight
        assert weight is not None  # noqa: S101 - children have a weight
        yield finding(
            "QF416",
            file=weight.file,
            tensor=weight.name,
            module=modules[0].name,
            pointer=f"/{key}",
            count=len(modules),
            dim=dim,
            actual=actual,
            expected=expected,
        )


def _names(endings: Sequence[str], parent: str, leaf: str, places: Sequence[str]) -> bool:
    for ending in endings:
        inner, _, last = ending.rpartition(".")
        if last != leaf:
            continue
        if not inner:
            return parent.count(".") < _MATRIX
        if parent.endswith(f".{inner}"):
            holder, _, number = parent[: -len(inner) - 1].rpartition(".")
            return number.isdecimal() and holder in places
    return False


def _tied(tree: Tree) -> Iterator[Finding]:
    """The output layer of models that share it with the embedding, or that need their own."""
    row = table("roles.json")["tied"]
    tied = tree.context.text.get(row["key"])
    heads = [
        tree.context.modules.by_name[name] for name in row["head"] if name in tree.context.modules.by_name
    ]
    embedded = any(name in tree.context.modules.by_name for name in row["embedding"])
    causal = (
        any("ForCausalLM" in str(name) for name in tree.context.checkpoint.config.get("architectures") or ())
        if tree.context.checkpoint.config
        else False
    )
    if tied is True and heads:
        tensor = next(iter(heads[0].tensors.values()), None) or next(iter(heads[0].foreign.values()))
        yield finding("QF409", file=tensor.file, tensor=tensor.name, module=heads[0].name)
    if tied is False and not heads and embedded and causal and tree.context.complete:
        yield finding(
            "QF410", tensor=f"{row['head'][0]}.weight", module=row["head"][0], pointer=f"/{row['key']}"
        )
    if heads and not embedded and causal and tree.context.complete:
        yield finding(
            "QF413",
            tensor=f"{row['embedding'][0]}.weight",
            sibling=f"`{heads[0].name}.weight`",
            verb="is in the file",
        )


def _companions(tree: Tree) -> Iterator[Finding]:
    """Modules that cannot be without another one beside them."""
    found: dict[tuple[str, str], list[str]] = {}
    for parent, children in tree.children.items():
        for row in table("roles.json")["companions"]:
            known = tree.context.modules.by_name
            if row["has"] in children and not any(f"{parent}.{name}" in known for name in row["needs"]):
                found.setdefault((row["has"], row["needs"][0]), []).append(parent)
    for (has, needs), parents in found.items():
        yield finding(
            "QF413",
            tensor=f"{parents[0]}.{needs}.weight",
            module=f"{parents[0]}.{needs}",
            count=len(parents),
            sibling=f"`{parents[0]}.{has}`",
            verb="is there and needs it",
        )


def _layers(tree: Tree) -> Iterator[Finding]:
    """Layers that are missing, that lack a tensor, or of which one weight has another shape."""
    rows = table("roles.json")["layers"]
    key = next((key for key in rows["counts"] if isinstance(tree.context.text.get(key), int)), None)
    for container, layers in _numbered(tree, rows["containers"]).items():
        expected = tree.context.text[key] if key else 0
        missing = [number for number in range(expected) if number not in layers]
        if missing:
            yield finding(
                "QF415",
                module=container,
                pointer=f"/{key}",
                actual=_spans(sorted(layers)),
                expected=expected,
            )
        main = {number: parts for number, parts in layers.items() if not expected or number < expected}
        yield from _incomplete_layers(container, main)
        yield from _odd_shapes(tree, main)


def _spans(numbers: Sequence[int]) -> str:
    whole = numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else False
    return (
        f"{numbers[0]} to {numbers[-1]}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers[:20]))
    )


Layer = dict[str, "Tensor"]


def _numbered(tree: Tree, containers: Sequence[str]) -> dict[str, dict[int, Layer]]:
    """For each container of layers, the tensors of each layer by their name within it, experts left out."""
    found: dict[str, dict[int, Layer]] = {}
    own: dict[str, bool] = {}
    for name, tensor in tree.context.checkpoint.tensors.items():
        for container in containers:
            if not name.startswith(f"{container}."):
                continue
            number, _, rest = name[len(container) + 1 :].partition(".")
            if number.isdecimal() and rest:
                layer = found.setdefault(container, {}).setdefault(int(number), {})
                if rest not in own:
                    own[rest] = not any(part.isdecimal() for part in rest.split("."))
                if own[rest]:
                    layer[rest] = tensor
    return found


def _basic(layer: Layer) -> frozenset[str]:
    """Names of weights, biases and bare parameters: what a layer has whatever the quantization."""
    return frozenset(name for name in layer if not name.endswith(_PARAMETERS))


_PARAMETERS = (
    "_scale",
    "_scale_2",
    "_zero_point",
    "_zero_point_2",
    "scales",
    "qzeros",
    "_rotation",
    "_prescale",
    "_scale_inv",
)


def _incomplete_layers(container: str, layers: Mapping[int, Layer]) -> Iterator[Finding]:
    names = {number: _basic(layer) for number, layer in layers.items()}
    optional = table("roles.json")["may_be_absent"]
    distinct: dict[frozenset[str], int] = {}
    for number, own in names.items():
        distinct.setdefault(own, number)
    for number, own in names.items():
        for theirs, other in distinct.items():
            extra = theirs - own
            if number == other or len(extra) != 1 or not own <= theirs:
                continue
            (name,) = extra
            module = name.rpartition(".")[0]
            lacking = [layer for layer, held in names.items() if name not in held]
            has_rest = any(rest.startswith(f"{module}.") for rest in layers[number]) and name.endswith(
                "weight"
            )
            if len(lacking) == 1 and module.rpartition(".")[2] not in optional and not has_rest:
                yield finding(
                    "QF413",
                    tensor=f"{container}.{number}.{name}",
                    module=f"{container}.{number}.{module}",
                    sibling=f"layer {other}",
                    verb="has it",
                )
            break


def _odd_shapes(tree: Tree, layers: Mapping[int, Layer]) -> Iterator[Finding]:
    """A weight whose shape differs from that in other layers although everything around it is alike.

    Changing an inner size changes two modules at least, so one alone is a fault.
    """
    shapes = {
        number: {name: layer[name].shape for name in sorted(_basic(layer))}
        for number, layer in layers.items()
    }
    groups: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
    for number, found in shapes.items():
        groups.setdefault(tuple(found.items()), []).append(number)
    ordered = sorted(groups.values(), key=len, reverse=True)
    if not ordered:
        return
    usual = ordered[0][0]
    for numbers in ordered[1:]:
        odd = shapes[numbers[0]]
        different = [name for name in odd if odd[name] != shapes[usual].get(name)]
        if odd.keys() != shapes[usual].keys() or len(different) != 1:
            continue
        tensor, sibling = layers[numbers[0]][different[0]], layers[usual][different[0]]
        entry = tree.entries.get(tensor.name.rpartition(".")[0])
        if entry is not None and entry.fit.deviations:
            continue
        yield finding(
            "QF316",
            file=tensor.file,
            tensor=tensor.name,
            count=len(numbers),
            dim="shape",
            actual=list(tensor.shape),
            sibling=sibling.name,
            expected=list(sibling.shape),
        )
