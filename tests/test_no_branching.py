"""The code decides nothing by the name of a dtype, scheme, writer or format version: such facts are data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quark_format.tables import table
from quark_format.targets import targets

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "quark_format" / "models"
SOURCES = sorted(
    file
    for folder in ("quark_format", "validators")
    for file in (ROOT / folder).rglob("*.py")
    if not file.is_relative_to(GENERATED)
)
SPEC_ENUMS = ("dtype", "qscheme", "scale_type", "scale_format", "round_method", "zero_point_type")
DECIDING_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count"}


def enum_values(node: Any) -> Iterator[str]:
    """Every text of an enum or constant in a part of a schema."""
    if isinstance(node, dict):
        yield from (value for value in node.get("enum", []) if isinstance(value, str))
        if isinstance(node.get("const"), str):
            yield node["const"]
        for child in node.values():
            yield from enum_values(child)
    elif isinstance(node, list):
        for child in node:
            yield from enum_values(child)


def names() -> set[str]:
    """The names of dtypes, schemes, packings, writers, format versions and of the targets' tables."""
    found: set[str] = set()
    catalog = table("catalog.json")
    for version in catalog["versions"]:
        found.add(version["version"])
        spec = table(version["config"])["$defs"]["TensorSpec"]["properties"]
        found |= {value for key in SPEC_ENUMS if key in spec for value in enum_values(spec[key])}
        found |= set(enum_values(table(version["config"])["$defs"]["Export"]))
    found |= {entry["name"] for entry in catalog["writers"]}
    found |= {dtype for dtype, facts in table("safetensors.json")["dtypes"].items() if facts}
    for declared in targets().values():
        schemes = declared.schemes
        found |= {*schemes.specs, *(row.id for row in schemes.rows)}
        found |= {row.scheme.rpartition(".")[2] for row in schemes.rows if row.scheme}
        found |= {spec.key for spec in schemes.specs.values() if spec.key}
        found |= {*declared.kernels.families, declared.header.name, declared.header.version}
    return found - {"none"}


def texts(node: ast.AST) -> Iterator[str]:
    """The texts in a constant or a display of constants."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from texts(item)
    elif isinstance(node, ast.Call):
        for item in node.args:
            yield from texts(item)


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text that code compares something with, and its line."""
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            operands: list[ast.AST] = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = list(node.args) if node.func.attr in DECIDING_METHODS else []
        else:
            continue
        for operand in operands:
            known = constants.get(operand.id, operand) if isinstance(operand, ast.Name) else operand
            yield from ((getattr(node, "lineno", operand.lineno), text) for text in texts(known))  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_comparison_with_a_declared_name(file: Path) -> None:
    forbidden = names()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [(line, text) for line, text in compared(tree) if text in forbidden]
    assert not found, f"{file.relative_to(ROOT)} compares with {found}; put the fact into schema/"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('if dtype == "fp8_e4m3": pass', ["fp8_e4m3"]),
        ('x = "per_group" != q', ["per_group"]),
        ('if q in ("per_tensor", "per_block"): pass', ["per_tensor", "per_block"]),
        ('if q in frozenset({"int4"}): pass', ["int4"]),
        ('FP4 = "fp4"\nif q == FP4: pass', ["fp4"]),
        ('match q:\n    case "mx": pass', ["mx"]),
        ('q.startswith("int4")', ["int4"]),
        ('q = {"dtype": "int4"}', []),
    ],
)
def test_the_search_finds_every_form(source: str, found: list[str]) -> None:
    assert [text for _, text in compared(ast.parse(source))] == found
