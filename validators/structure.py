"""Modules against their neighbours: fused shards, companions, the output layer and the embedding."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from quark_format.tables import table
from quark_format.validators import experts, layers, sizes
from quark_format.validators.findings import Finding, finding
from quark_format.validators.tree import Tree, within_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.validators.context import Context


def check(context: Context) -> Iterator[Finding]:
    """Yield what only shows when modules are compared with their neighbours or with config.json."""
    if not context.checkpoint.tensors:
        return
    tree = Tree(context)
    yield from _fused(tree)
    yield from experts.check(tree)
    yield from sizes.check(tree)
    yield from _ends(tree)
    if context.complete:
        yield from _companions(tree)
        yield from layers.check(tree)


def _fused(tree: Tree) -> Iterator[Finding]:
    """Shards that loaders fuse but the config treats differently."""
    found: dict[tuple[str, ...], list[str]] = {}
    for parent, children in tree.children.items():
        for group in table("roles.json")["fused"]:
            members = [leaf for leaf in group["members"] if leaf in children]
            told = {leaf: tree.declarations[children[leaf].name] for leaf in members}
            if len(set(told.values())) > 1:
                key = (", ".join(members), ", ".join(f"{leaf} {text}" for leaf, text in told.items()))
                found.setdefault(key, []).append(parent)
    for (shards, difference), parents in found.items():
        yield finding("QF405", module=parents[0], count=len(parents), members=shards, difference=difference)


def _ends(tree: Tree) -> Iterator[Finding]:
    """The output layer of models that share it with the embedding, or that need their own."""
    row = table("roles.json")["tied"]
    tied = tree.context.text.get(row["key"])
    modules = tree.context.modules.by_name
    heads = [modules[name] for name in modules if name.rpartition(".")[2] in row["head"]]
    embedded = any(
        entry.role.role == row["tokens"] and not any(fnmatchcase(name, glob) for glob in row["not_tokens"])
        for name, entry in tree.entries.items()
    )
    needs_head = any(fnmatchcase(name, glob) for name in tree.architectures for glob in row["needs_head"])
    if tied is True and heads:
        tensor = next(iter({**heads[0].tensors, **heads[0].foreign}.values()))
        yield finding("QF409", file=tensor.file, tensor=tensor.name, module=heads[0].name)
    if not needs_head or tree.is_draft or not tree.context.complete:
        return
    if tied is False and not heads and embedded:
        head = row["head"][0]
        yield finding("QF410", tensor=f"{head}.weight", module=head, pointer=f"/{row['key']}")
    if (heads or tied is True) and not embedded:
        user = f"`{heads[0].name}.weight`" if heads else f"/{row['key']}"
        yield finding("QF413", tensor=_EMBEDDING_WEIGHT, sibling=user, verb="needs it")


_EMBEDDING_WEIGHT = "model.embed_tokens.weight"


def _companions(tree: Tree) -> Iterator[Finding]:
    """Modules that cannot be without another one beside them."""
    found: dict[tuple[str, str], list[str]] = {}
    known = tree.context.modules.by_name
    rows = [row for row in table("roles.json")["companions"] if not tree.says(row.get("unless", []))]
    rows = [row for row in rows if "when" not in row or tree.gives(row["when"])]
    for parent, children in tree.children.items():
        for row in rows:
            if row["has"] not in children or any(f"{parent}.{name}" in known for name in row["needs"]):
                continue
            if "when" not in row or within_layer(parent):
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
