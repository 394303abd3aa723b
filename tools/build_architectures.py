"""Read how vLLM's model classes join and rename modules into a target's architectures.json.

It is the target's whose release is installed; others are made in an environment that has theirs. `--check`
writes nothing and exits 1 when the file on disk differs from what vLLM has.

The source is read, not imported: many model classes import torchvision and the like, and none of what is
wanted needs to run. An expression that cannot be read is named under `unread`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from compact_json import compact
from target_folders import made_here

ROOT = Path(__file__).resolve().parent.parent
MODELS = "vllm.model_executor.models"
HOMES = (f"{MODELS}.", "vllm.models.")
FUSED = "packed_modules_mapping"
RENAMES = "hf_to_vllm_mapper"
EXPERTS = "expert mapping"
RULES = {
    "regex": "orig_to_new_regex",
    "substring": "orig_to_new_substr",
    "prefix": "orig_to_new_prefix",
    "suffix": "orig_to_new_suffix",
}
MAPPER_FIELDS = (*RULES.values(), "orig_to_new_renaming", "orig_to_new_stacked")
CKPT_NAMES = ("gate", "down", "up")
DEFAULT_CKPT_NAMES = ("gate_proj", "down_proj", "up_proj")
USUAL = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class Unreadable(Exception):  # noqa: N818 - says what was met, not what failed
    """An expression that only running it could tell."""


@dataclass
class Mapper:
    """A WeightsMapper."""

    fields: dict[str, Any] = field(default_factory=dict)

    def __or__(self, other: Mapper) -> Mapper:
        """Merge as WeightsMapper does."""
        return Mapper(
            {name: {**self.fields.get(name, {}), **other.fields.get(name, {})} for name in MAPPER_FIELDS}
        )

    def renames(self) -> dict[str, list[list[str]]]:
        """The rules that its get_rename_mapper keeps."""
        if self.fields.get("orig_to_new_renaming"):
            raise Unreadable("orig_to_new_renaming")
        kept = {
            name: [[old, new] for old, new in self.fields.get(rule, {}).items() if new is not None]
            for name, rule in RULES.items()
        }
        return {name: pairs for name, pairs in kept.items() if pairs}


@dataclass(frozen=True)
class Module:
    """One source file of vLLM."""

    name: str
    tree: ast.Module
    is_package: bool

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Its top-level classes."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def values(self) -> dict[str, ast.expr]:
        """Its top-level constants; of those that a condition chooses between, the last."""
        chosen = [node for node in self.tree.body if isinstance(node, ast.If)]
        branches = [one for node in chosen for one in (*node.body, *node.orelse)]
        return dict(assignments([*branches, *self.tree.body]))

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Names imported from modules of vLLM: the module and the name there.

        Of imports by platform the last one counts, which is CUDA's in every package that has them.
        """
        return {name: sources[-1] for name, sources in self.all_imports.items()}

    @cached_property
    def all_imports(self) -> dict[str, list[tuple[str, str]]]:
        """The same with every import of a name."""
        found: dict[str, list[tuple[str, str]]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                source = node.module or ""
                if node.level:
                    above = self.name.split(".")
                    above = above[: len(above) - node.level + self.is_package]
                    source = ".".join([*above, *([source] if source else [])])
                if source.startswith("vllm"):
                    for alias in node.names:
                        found.setdefault(alias.asname or alias.name, []).append((source, alias.name))
        return found


def assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The names that a body assigns directly, with their values."""
    for node in body:
        if isinstance(node, ast.Assign):
            yield from ((one.id, node.value) for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


@cache
def installed() -> Path:
    """The folder of the installed vllm package.

    Raises:
        SystemExit: there is none.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed")
    return Path(spec.origin).parent


@cache
def module(name: str) -> Module:
    """Parse the source of a module of vLLM.

    Raises:
        Unreadable: it has no source file.
    """
    path = installed().joinpath(*name.split(".")[1:])
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    if not file.is_file():
        raise Unreadable(name)
    return Module(name, ast.parse(file.read_text(encoding="utf-8")), file.name == "__init__.py")


@dataclass(frozen=True)
class Class:
    """A class of a module of vLLM."""

    home: Module
    node: ast.ClassDef

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it."""
        return self.home.name, self.node.name

    @cached_property
    def bases(self) -> list[Class]:
        """Its bases that are classes of vLLM."""
        names = [one.id for base in self.node.bases if isinstance(one := unwrapped(base), ast.Name)]
        return [found for name in names if (found := class_of(self.home, name)) is not None]

    @cached_property
    def order(self) -> list[Class]:
        """Its method resolution order among classes of vLLM."""
        return [self, *merge([*([*base.order] for base in self.bases), [*self.bases]])]

    def attribute(self, name: str) -> Any:
        """The value that a class attribute has, or None where no class of the order sets it.

        Raises:
            Unreadable: it is set by something that only running could tell.
        """
        for one in self.order:
            for node in one.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    raise Unreadable(f"{name} is computed by {one.node.name}")
            values = dict(assignments(one.node.body))
            if name in values:
                return evaluate(values[name], one.home, values)
        return None

    @property
    def builds_another(self) -> bool:
        """Whether it builds another registered model inside."""
        return any(
            isinstance(node, ast.Call) and ast.unparse(node.func) == "init_vllm_registered_model"
            for one in self.order
            for node in ast.walk(one.node)
        )

    def on_instance(self, name: str) -> tuple[dict[str, Any], bool]:
        """What methods add to a dict attribute of the instance, and whether they set it as a whole."""
        added: dict[str, Any] = {}
        whole = False
        for one in self.order:
            methods = [node for node in one.node.body if isinstance(node, ast.FunctionDef)]
            for node in (node for method in methods for node in ast.walk(method)):
                if not isinstance(node, ast.Assign):
                    continue
                for target in node.targets:
                    if isinstance(target, ast.Subscript) and ast.unparse(target.value) == f"self.{name}":
                        added.setdefault(
                            evaluate(target.slice, one.home, {}), evaluate(node.value, one.home, {})
                        )
                    whole |= ast.unparse(target) == f"self.{name}"
        return added, whole


def unwrapped(node: ast.expr) -> ast.expr:
    """A call such as as_seq_cls_model(LlamaForCausalLM) gives a subclass of its argument."""
    return node.args[0] if isinstance(node, ast.Call) and node.args else node


def merge(sequences: list[list[Class]]) -> list[Class]:
    """C3: the common order of several orders."""
    merged: list[Class] = []
    while rest := [sequence for sequence in sequences if sequence]:
        tails = {one.key for sequence in rest for one in sequence[1:]}
        head = next(sequence[0] for sequence in rest if sequence[0].key not in tails)
        merged.append(head)
        sequences = [
            sequence[1:] if sequence and sequence[0].key == head.key else sequence for sequence in rest
        ]
    return merged


@cache
def _class(home: str, name: str) -> Class | None:
    source = module(home)
    if name in source.classes:
        return Class(source, source.classes[name])
    alias = unwrapped(source.values[name]) if name in source.values else None
    if isinstance(alias, ast.Name) and alias.id != name:
        return _class(home, alias.id)
    if name in source.imports:
        try:
            return _class(*source.imports[name])
        except Unreadable:
            return None
    return None


def class_of(home: Module, name: str) -> Class | None:
    """The class that `name` is in a module, wherever it is defined."""
    return _class(home.name, name)


def evaluate(node: ast.expr, home: Module, local: dict[str, ast.expr]) -> Any:
    """The value of an expression of dicts, lists, texts, mappers and references to those.

    Raises:
        Unreadable: it is another expression.
    """
    read = _READ.get(type(node))
    if read is None:
        raise Unreadable(ast.unparse(node)[:80])
    return read(node, home, local)


def _constant(node: ast.Constant, _home: Module, _local: dict[str, ast.expr]) -> Any:
    return node.value


def _sequence(node: ast.List | ast.Tuple, home: Module, local: dict[str, ast.expr]) -> list[Any]:
    return [evaluate(item, home, local) for item in node.elts]


def _dict(node: ast.Dict, home: Module, local: dict[str, ast.expr]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        inner = evaluate(value, home, local)
        if key is None:
            found.update(inner)
        else:
            found[evaluate(key, home, local)] = inner
    return found


def _name(node: ast.Name, home: Module, local: dict[str, ast.expr]) -> Any:
    if node.id in local:
        return evaluate(local[node.id], home, {})
    if node.id in home.values:
        return evaluate(home.values[node.id], home, {})
    if node.id in home.imports:
        source, name = home.imports[node.id]
        other = module(source)
        return evaluate(ast.Name(name), other, {})
    raise Unreadable(node.id)


def _attribute(node: ast.Attribute, home: Module, _local: dict[str, ast.expr]) -> Any:
    owner = class_of(home, node.value.id) if isinstance(node.value, ast.Name) else None
    if owner is None:
        raise Unreadable(ast.unparse(node))
    return owner.attribute(node.attr)


def _or(node: ast.BinOp, home: Module, local: dict[str, ast.expr]) -> Any:
    if not isinstance(node.op, ast.BitOr):
        raise Unreadable(ast.unparse(node)[:80])
    return evaluate(node.left, home, local) | evaluate(node.right, home, local)


def _call(node: ast.Call, home: Module, local: dict[str, ast.expr]) -> Any:
    called = ast.unparse(node.func)
    values = {one.arg: evaluate(one.value, home, local) for one in node.keywords if one.arg}
    if called == "WeightsMapper" and not node.args:
        return Mapper(values)
    if called == "replace" and len(node.args) == 1:
        return Mapper({**evaluate(node.args[0], home, local).fields, **values})
    if called in {"re.compile", "regex.compile"} and len(node.args) == 1:
        return evaluate(node.args[0], home, local)
    if called == "dict.fromkeys":
        return dict.fromkeys(*(evaluate(one, home, local) for one in node.args))
    raise Unreadable(ast.unparse(node)[:80])


_READ: dict[type, Callable[[Any, Module, dict[str, ast.expr]], Any]] = {
    ast.Constant: _constant,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Dict: _dict,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BinOp: _or,
    ast.Call: _call,
}


@cache
def expert_names(name: str) -> frozenset[tuple[Any, ...]]:
    """The names of the projections of one expert in the checkpoints that a module reads."""
    source = module(name)
    found: set[tuple[Any, ...]] = set()
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        given = {one.arg: one.value for one in node.keywords if one.arg}
        try:
            if called.endswith("make_expert_params_mapping") and "ckpt_gate_proj_name" in given:
                names = (given[f"ckpt_{name}_proj_name"] for name in CKPT_NAMES)
                found.add(tuple(evaluate(name, source, {}) for name in names))
            elif called == "FusedMoEFactory":
                names_of = given.get("ckpt_names")
                found.add(tuple(evaluate(names_of, source, {})) if names_of else DEFAULT_CKPT_NAMES)
        except Unreadable:
            continue
    return frozenset(found)


def experts(one: Class) -> tuple[Any, ...] | None:
    """The expert mapping of a model class, or None where it has no routed experts.

    Raises:
        Unreadable: several differ.
    """
    homes = list(dict.fromkeys(base.home.name for base in one.order if base.home.name.startswith(HOMES)))
    found = next((set(names) for home in homes if (names := expert_names(home))), set())
    if not found and any(base.node.name == "MixtureOfExperts" for base in one.order):
        near = {source for source, _ in one.home.imports.values() if source.startswith(HOMES)}
        found = set().union(*(expert_names(source) for source in near))
    if len(found - {DEFAULT_CKPT_NAMES}) == 1:
        found -= {DEFAULT_CKPT_NAMES}
    if len(found) > 1:
        raise Unreadable(f"several expert mappings: {sorted(map(str, found))}")
    return found.pop() if found else None


def registry() -> dict[str, tuple[str, str]]:
    """The module and class of every architecture in vLLM's registry.

    A comprehension there only repeats entries of another dict of the registry, and is left out.
    """
    source = module(f"{MODELS}.registry")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Dict):
            kept = [
                pair
                for pair in zip(node.keys, node.values, strict=True)
                if not isinstance(pair[1], ast.DictComp)
            ]
            node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
    listed = evaluate(source.values["_VLLM_MODELS"], source, {})
    return {
        architecture: (home if home.startswith("vllm.") else f"{MODELS}.{home}", name)
        for architecture, (home, name) in listed.items()
    }


@dataclass
class Names:
    """Equal values under one name each."""

    own: list[str]
    known: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def of(self, value: Any, hint: str) -> str:
        """The name of `value`, made from `hint` at its first use."""
        text = json.dumps(value)
        if text not in self.known:
            self.known[text] = hint
            self.values[hint] = value
        return self.known[text]


def implementation(
    path: tuple[str, str], architectures: list[str], fused: Names, renames: Names, mappings: Names
) -> dict[str, Any]:
    """The entry of one model class."""
    home, name = path
    entry: dict[str, Any] = {"class": f"{home}:{name}", "architectures": sorted(architectures)}
    unread: list[str] = []
    if len(set(module(home).all_imports.get(name, ()))) > 1:
        unread.append("the class differs by platform; this is CUDA's")
    try:
        one = _class(home, name)
    except Unreadable as reason:
        return {**entry, "unread": [str(reason)]}
    if one is None:
        return {**entry, "unread": [f"{name} is not in the source of {home}"]}

    def keep(key: str, names: Names, read: Callable[[], Any]) -> None:
        try:
            value = read()
        except Unreadable as reason:
            unread.append(f"{key}: {reason}")
            return
        if value:
            entry[key] = names.of(value, name if key in names.own else f"{name}.{key}")

    keep("fused", fused, lambda: one.attribute(FUSED))
    keep("renames", renames, lambda: found.renames() if (found := one.attribute(RENAMES)) else None)
    keep(
        "experts",
        mappings,
        lambda: dict(zip(CKPT_NAMES, found, strict=True)) if (found := experts(one)) else None,
    )
    keep("sometimes_fused", fused, lambda: one.on_instance(FUSED)[0])
    unread += [
        f"{attribute} is set anew on the instance"
        for attribute in (FUSED, RENAMES)
        if one.on_instance(attribute)[1]
    ]
    if one.builds_another:
        entry["inner"] = True
    if unread:
        entry["unread"] = unread
    return entry


def architectures() -> dict[str, Any]:
    """The whole table."""
    classes: dict[tuple[str, str], list[str]] = {}
    for architecture, path in registry().items():
        classes.setdefault(path, []).append(architecture)
    fused, renames, mappings = Names(["fused"]), Names(["renames"]), Names(["experts"])
    default = fused.of(USUAL, "usual")
    entries = [
        implementation(path, listed, fused, renames, mappings) for path, listed in sorted(classes.items())
    ]
    return {
        "$schema": "../target.schema.json#/$defs/architectures",
        "default_fused": default,
        "fused": fused.values,
        "renames": renames.values,
        "experts": mappings.values,
        "implementations": entries,
    }


def spelled_out(tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each architecture with the values that its entry names."""
    homes = {"fused": "fused", "sometimes_fused": "fused", "renames": "renames", "experts": "experts"}
    return {
        name: {"class": one["class"], "inner": one.get("inner", False)}
        | {key: tables[home].get(one.get(key)) for key, home in homes.items()}
        for one in tables["implementations"]
        for name in one["architectures"]
    }


def main() -> int:
    """Write architectures.json, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    stale = 0
    for folder in made_here("vllm"):
        file = folder / "architectures.json"
        text = compact(architectures())
        if file.read_text(encoding="utf-8") != text:
            stale += 1
            sys.stdout.write(f"{file.relative_to(ROOT)} {'differs' if check else 'written'}\n")
            if not check:
                file.write_text(text, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
