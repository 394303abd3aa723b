"""Layers against each other and against their number in config.json."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING

from quark_format.modules import abstract
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quark_format.safetensors_header import Tensor
    from quark_format.validators.tree import Tree

Layer = dict[str, "Tensor"]
"""Weights, biases and bare parameters of one layer by their name within it, of numbered parts the first."""

_SHOWN = 20


def check(tree: Tree) -> Iterator[Finding]:
    """Yield layers that are missing or too many, that lack something, or of which one weight is unlike."""
    rows = table("roles.json")["layers"]
    key = next((key for key in rows["counts"] if tree.number(key) is not None), None)
    expected = (tree.number(key) or 0) if key else 0
    for container, layers in _numbered(tree, rows["containers"]).items():
        yield from _count(tree, container, layers, key, expected)
        main = {number: layer for number, layer in layers.items() if not expected or number < expected}
        yield from _incomplete(tree, container, main)
        yield from _unlike(tree, main)
        yield from _last_norm(tree, container)


def _count(
    tree: Tree, container: str, layers: Mapping[int, Layer], key: str | None, expected: int
) -> Iterator[Finding]:
    drafts = table("roles.json")["draft_modules"]
    allowed = sum(tree.number(name) or 0 for name in table("roles.json")["layers"]["extra"])
    missing = [number for number in range(expected) if number not in layers]
    extra = [
        number
        for number in layers
        if number >= expected > 0
        and not any(word in name for name in layers[number] for word in drafts)
        and number >= expected + allowed
    ]
    for code, numbers in (("QF415", missing), ("QF417", extra)):
        if numbers:
            yield finding(
                code,
                module=container,
                pointer=f"/{key}",
                actual=_spans(sorted(layers)),
                expected=expected,
            )


def _spans(numbers: Sequence[int]) -> str:
    whole = bool(numbers) and list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    if whole and len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers[:_SHOWN]))


def _numbered(tree: Tree, containers: Sequence[str]) -> dict[str, dict[int, Layer]]:
    """For each container of layers, what each layer has whatever the quantization."""
    found: dict[str, dict[int, Layer]] = {}
    heads = [(container, f"{container}.") for container in containers]
    for tensor in _basic(tree):
        for container, head in heads:
            if not tensor.name.startswith(head):
                continue
            number, _, rest = tensor.name[len(head) :].partition(".")
            if number.isdecimal() and rest:
                layer = found.setdefault(container, {}).setdefault(int(number), {})
                layer.setdefault(abstract(rest), tensor)
                break
    return found


def _basic(tree: Tree) -> Iterator[Tensor]:
    """Weights, biases and bare parameters; a module without its weight counts by whatever it has."""
    for module in tree.context.modules.by_name.values():
        bias = module.tensors.get("bias")
        first = module.weight or next(iter({**module.tensors, **module.foreign}.values()))
        yield first
        if bias is not None and bias is not first:
            yield bias
    yield from tree.context.modules.loose.values()


def _incomplete(tree: Tree, container: str, layers: Mapping[int, Layer]) -> Iterator[Finding]:
    """One layer that alone lacks one thing, or one whole part, that layers otherwise like it have."""
    names = {number: frozenset(map(_plain, layer)) for number, layer in layers.items()}
    examples: dict[frozenset[str], int] = {}
    for number, own in names.items():
        examples.setdefault(own, number)
    for number, own in names.items():
        for theirs, other in examples.items():
            extra = sorted(theirs - own)
            part = _common_part(extra)
            if not extra or not part or any(name == part or name.startswith(f"{part}.") for name in own):
                continue
            lacking = sum(1 for held in names.values() if not held & set(extra))
            unexplained = own - theirs
            if lacking != 1 or _excused(tree, part) or _replaces(unexplained, part):
                continue
            first = next(name for name in layers[other] if _plain(name) == extra[0])
            yield finding(
                "QF413",
                tensor=layers[other][first].name.replace(
                    f"{container}.{other}.", f"{container}.{number}.", 1
                ),
                module=f"{container}.{number}.{part}",
                sibling=f"layer {other}",
                verb="has it",
            )
            break


def _plain(name: str) -> str:
    """A weight's module, so that it counts under whatever suffix; a bias or parameter by its own name."""
    module, _, suffix = name.rpartition(".")
    return name if suffix == "bias" or not module else module


def _common_part(names: Sequence[str]) -> str:
    """The longest part of a layer that holds all `names`, "" if there is none."""
    if not names:
        return ""
    pairs = zip(names[0].split("."), names[-1].split("."), strict=False)
    return ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _excused(tree: Tree, part: str) -> bool:
    leaf = part.rpartition(".")[2]
    return any(
        leaf in row["modules"] and ("when" not in row or tree.says(row["when"]))
        for row in table("roles.json")["may_be_absent"]
    )


def _replaces(unexplained: frozenset[str], part: str) -> bool:
    """Whether the layer has something of its own where it lacks the part, as hybrid models do."""
    parent = part.rpartition(".")[0]
    return any(name.rpartition(".")[0] == parent or not parent for name in unexplained)


def _unlike(tree: Tree, layers: Mapping[int, Layer]) -> Iterator[Finding]:
    """A weight whose shape is not that of the other layers, although everything around it is.

    Changing an inner size changes two modules at least, so one alone is a fault.
    """
    groups: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = defaultdict(list)
    for number, layer in layers.items():
        groups[tuple(sorted((name, tensor.shape) for name, tensor in layer.items()))].append(number)
    ordered = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
    for shapes, numbers in ordered[1:]:
        usual, odd = dict(ordered[0][0]), dict(shapes)
        different = [name for name in odd if odd[name] != usual.get(name)]
        if odd.keys() != usual.keys() or len(different) != 1:
            continue
        tensor, sibling = layers[numbers[0]][different[0]], layers[ordered[0][1][0]][different[0]]
        if any(tree.deviates(one.name.rpartition(".")[0]) for one in (tensor, sibling)):
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
    yield from _retyped(layers)


def _retyped(layers: Mapping[int, Layer]) -> Iterator[Finding]:
    """One layer's float weight that has another dtype than in all other layers."""
    dtypes: dict[str, Counter[str]] = defaultdict(Counter)
    for layer in layers.values():
        for name, tensor in layer.items():
            dtypes[name][tensor.dtype] += 1
    for name, counted in dtypes.items():
        (usual, most), *others = counted.most_common()
        for dtype, times in others:
            if times == 1 and most > 1:
                odd = next(
                    layer[name] for layer in layers.values() if name in layer and layer[name].dtype == dtype
                )
                yield finding(
                    "QF320", file=odd.file, tensor=odd.name, actual=dtype, expected=usual, others=most
                )


def _last_norm(tree: Tree, container: str) -> Iterator[Finding]:
    """The norm behind the last layer."""
    rows = table("roles.json")["layers"]
    parent = container.rpartition(".")[0]
    if tree.gives(rows["final_norm_unless"]) or tree.is_draft or container not in rows["with_norm"]:
        return
    prefix = f"{parent}." if parent else ""
    modules = tree.context.modules.by_name
    beside = (
        name[len(prefix) :] for name in modules if name.startswith(prefix) and not name.startswith(container)
    )
    if not any(_is_norm(name) for name in beside if "." not in name):
        yield finding(
            "QF413",
            tensor=f"{prefix}{rows['with_norm'][container]}.weight",
            module=f"{prefix}{rows['with_norm'][container]}",
            sibling=f"`{container}`",
            verb="is there and needs a norm behind it",
        )


def _is_norm(name: str) -> bool:
    return name in table("roles.json")["layers"]["final_norms"] or "norm" in name.lower()
