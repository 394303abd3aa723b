"""Sizes that modules must share with their neighbours, and those that config.json gives."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

from quark_format.layouts import Dim, Interval
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.tree import within_layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quark_format.modules import Module
    from quark_format.validators.tree import Tree

_LAYER, _EXPERTS = "layer", "experts"
_TOP = 2
_MATRIX = 2


def check(tree: Tree) -> Iterator[Finding]:
    """Yield sizes of modules beside each other that differ, then those that config.json contradicts."""
    yield from _neighbours(tree)
    yield from _against_config(tree)


def _neighbours(tree: Tree) -> Iterator[Finding]:
    found: dict[tuple[str, str, str, str, str], list[tuple[Module, Module]]] = {}
    pairs = list(_pairs())
    for children in tree.children.values():
        for first, first_dim, second, second_dim in pairs:
            if first in children and second in children:
                left = tree.sizes(children[first]).get(first_dim)
                right = tree.sizes(children[second]).get(second_dim)
                if left and right and (left[0] > right[1] or right[0] > left[1]):
                    key = (first, second, second_dim, _text(right), _text(left))
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


def _text(interval: Interval) -> str:
    low, high = interval
    return str(low) if low == high else f"{low} to {high}"


def _pairs() -> Iterator[tuple[str, Dim, str, Dim]]:
    for group in table("roles.json")["fused"]:
        first, *others = group["members"]
        yield from ((first, dim, other, dim) for other in others for dim in group["equal"])
    for chain in table("roles.json")["chains"]:
        yield chain["first"], "out", chain["second"], "in"
        yield chain["first"], "in", chain["second"], "out"


def _against_config(tree: Tree) -> Iterator[Finding]:
    by_leaf: dict[str, list[tuple[Mapping[str, Any], str, int]]] = defaultdict(list)
    for row in table("roles.json")["sizes"]:
        expected = None if tree.says(row.get("unless", [])) else _expected(tree, row)
        if expected is not None:
            for leaf in {ending.rpartition(".")[2] for ending in row["modules"]}:
                by_leaf[leaf].append((row, *expected))
    found: dict[tuple[str, str, str, int], list[Module]] = {}
    for parent, children in tree.children.items():
        above = within_layer(parent)
        for leaf, module in children.items():
            inner = None if above is None else f"{above}.{leaf}" if above else leaf
            for row, key, number in by_leaf.get(leaf, ()):
                if not _is_one_of(row["modules"], parent, leaf, inner):
                    continue
                actual = _contradicts(tree, row, module, number)
                if actual is not None:
                    found.setdefault((row["dim"], key, actual, number), []).append(module)
    for (dim, key, actual, number), modules in found.items():
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
            expected=number,
        )


def _expected(tree: Tree, row: Mapping[str, Any]) -> tuple[str, int] | None:
    """The key, or keys, of config.json that give the size of `row`, and the number; None if none does."""
    if "product" in row:
        numbers = [tree.number(key) for key in row["product"]]
        known = [number for number in numbers if number is not None]
        return (" times /".join(row["product"]), prod(known)) if len(known) == len(numbers) else None
    return next(((key, number) for key in row["config"] if (number := tree.number(key)) is not None), None)


def _contradicts(tree: Tree, row: Mapping[str, Any], module: Module, number: int) -> str | None:
    """The size of `module` in words where it cannot be the one that `row` gives, else None."""
    if tree.deviates(module.name):
        return None
    weight = module.weight
    known = tree.sizes(module).get(row["dim"])
    if known is None:
        flat = weight is not None and len(weight.shape) < _MATRIX and row["dim"] != "out"
        return f"nothing, being {list(weight.shape)}" if weight is not None and flat else None
    low, high = known
    if row.get("at_least"):
        most = number * row.get("below_times", high // max(number, 1) + 1)
        return None if high >= number and low < most else _text(known)
    factors = row["draft_factors"] if tree.is_draft and "draft_factors" in row else row["factors"]
    return None if any(low <= number * factor <= high for factor in factors) else _text(known)


def _is_one_of(endings: Sequence[str], parent: str, leaf: str, inner: str | None) -> bool:
    """Whether a module is named by `layer.…`, `experts.…` or, at the top, by its last name alone."""
    for ending in endings:
        place, dot, rest = ending.partition(".")
        if not dot:
            if ending == leaf and parent.count(".") < _TOP and not any(map(str.isdecimal, parent.split("."))):
                return True
        elif place == _EXPERTS:
            head, _, number = parent.rpartition(".")
            if rest == leaf and number.isdecimal() and head.rpartition(".")[2] == _EXPERTS:
                return True
        elif place == _LAYER and inner == rest:
            return True
    return False
