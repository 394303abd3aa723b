"""Routed experts against each other, their number in config.json, and what stands beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.tree import Tree, said

if TYPE_CHECKING:
    from collections.abc import Iterator

Group = dict[int, str]
"""The parents of the modules of each expert, by its number."""


def check(tree: Tree) -> Iterator[Finding]:
    """Yield experts that are missing, too many, incomplete, of another spec or size, or without a router."""
    groups = _groups(tree)
    key, expected = _declared(tree)
    yield from _number(tree, groups, key, expected)
    yield from _specs(tree, groups)
    yield from _sizes(tree, groups)
    yield from _shared(tree, groups)
    if tree.context.complete:
        yield from _routers(tree, groups)


def _groups(tree: Tree) -> dict[str, Group]:
    containers = table("roles.json")["experts"]["containers"]
    found: dict[str, Group] = defaultdict(dict)
    for parent in tree.children:
        head, _, number = parent.rpartition(".")
        if number.isdecimal() and head.rpartition(".")[2] in containers:
            found[head][int(number)] = parent
    return dict(found)


def _declared(tree: Tree) -> tuple[str, int]:
    """The key of config.json that counts the experts and the number, ("", 0) where none does."""
    keys = table("roles.json")["experts"]["counts"]
    given = {key: number for key in keys if (number := tree.number(key)) is not None}
    key = max(given, key=lambda name: given[name], default="")
    return key, given.get(key, 0)


def _number(tree: Tree, groups: dict[str, Group], key: str, expected: int) -> Iterator[Finding]:
    lacking: dict[str, list[str]] = {}
    extra: dict[str, list[str]] = {}
    for container, experts in groups.items():
        leaves = {leaf for parent in experts.values() for leaf in tree.children[parent]}
        incomplete = [
            f"{number}.{leaf}"
            for number, parent in sorted(experts.items())
            for leaf in sorted(leaves - tree.children[parent].keys())
            if f"{parent}.{leaf}" not in tree.context.modules.by_name
        ]
        wanted = range(expected or max(experts) + 1)
        missing = [*(number for number in wanted if number not in experts), *incomplete]
        if missing and tree.context.complete:
            lacking.setdefault(said(missing), []).append(container)
        beyond = sorted(number for number in experts if expected and number >= expected)
        if beyond:
            extra.setdefault(said(beyond), []).append(container)
    fields: dict[str, Any] = {"key": key or "the greatest expert number + 1", "expected": expected or "more"}
    for code, found in (("QF407", lacking), ("QF418", extra)):
        for members, containers in found.items():
            yield finding(code, module=containers[0], count=len(containers), members=members, **fields)


def _specs(tree: Tree, groups: dict[str, Group]) -> Iterator[Finding]:
    mixed: dict[str, list[str]] = {}
    for container, experts in groups.items():
        told = {
            tree.declarations[module.name]
            for parent in experts.values()
            for module in tree.children[parent].values()
        }
        if len(told) > 1:
            mixed.setdefault(", ".join(sorted(told)), []).append(container)
    for difference, containers in mixed.items():
        yield finding("QF406", module=containers[0], count=len(containers), difference=difference)


def _sizes(tree: Tree, groups: dict[str, Group]) -> Iterator[Finding]:
    """Experts whose modules have other sizes than those of most experts beside them."""
    for experts in groups.values():
        for leaf in {leaf for parent in experts.values() for leaf in tree.children[parent]}:
            modules = [own[leaf] for parent in experts.values() if leaf in (own := tree.children[parent])]
            sizes = {module.name: tree.sizes(module) for module in modules}
            counted = Counter(tuple(size.items()) for size in sizes.values() if size)
            if len(counted) < 2:  # noqa: PLR2004 - all alike
                continue
            usual = dict(counted.most_common(1)[0][0])
            sibling = next(module for module in modules if sizes[module.name] == usual)
            for module in modules:
                own_size = sizes[module.name]
                dim = next((dim for dim in own_size if own_size[dim] != usual.get(dim)), None)
                if dim is not None and module.weight is not None and sibling.weight is not None:
                    yield finding(
                        "QF316",
                        file=module.weight.file,
                        tensor=module.weight.name,
                        dim=dim,
                        actual=_size(own_size[dim]),
                        sibling=sibling.weight.name,
                        expected=_size(usual.get(dim, own_size[dim])),
                    )


def _size(interval: tuple[int, int]) -> str:
    low, high = interval
    return str(low) if low == high else f"{low} to {high}"


def _shared(tree: Tree, groups: dict[str, Group]) -> Iterator[Finding]:
    found: list[str] = []
    for name in table("roles.json")["shared_experts"]:
        for container, experts in groups.items():
            shared = f"{container.rpartition('.')[0]}.{name}"
            routed = tree.children[next(iter(experts.values()))]
            told = [
                {tree.declarations[module.name] for module in part.values()}
                for part in (tree.children.get(shared, {}), routed)
            ]
            if all(told) and told[0] != told[1]:
                found.append(shared)
    if found:
        yield finding("QF408", module=found[0], count=len(found))


def _routers(tree: Tree, groups: dict[str, Group]) -> Iterator[Finding]:
    """Layers of experts without anything that could choose among them."""
    words = table("roles.json")["experts"]["routers"]
    parents = {container.rpartition(".")[0]: container for container in groups}
    routed: set[str] = set()
    named = chain(tree.context.modules.by_name, tree.context.modules.loose)
    for name in (name for name in named if any(word in name for word in words)):
        for parent in _above(name):
            rest = name[len(parent) + 1 :]
            first = rest.partition(".")[0]
            if parent in parents and any(word in first for word in words) and first not in _PROJECTIONS:
                routed.add(parent)
    lacking = sorted(parents.keys() - routed)
    if lacking:
        yield finding(
            "QF413",
            tensor=f"{lacking[0]}.{words[0]}.weight",
            module=f"{lacking[0]}.{words[0]}",
            count=len(lacking),
            sibling=f"`{parents[lacking[0]]}`",
            verb="is there and needs a router",
        )


_PROJECTIONS = frozenset(member for group in table("roles.json")["fused"] for member in group["members"])


def _above(name: str) -> Iterator[str]:
    at = name.rfind(".")
    while at > 0:
        yield name[:at]
        at = name.rfind(".", 0, at)
