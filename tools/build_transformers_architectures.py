"""Read how transformers' model classes join and rename tensors into a target's architectures.json.

`--check` writes nothing and exits 1 when the file on disk differs from what transformers has.

The classes are those that its auto classes build for text; what happens to names is its table of conversions.
A conversion that joins the projections of single experts names them. A class that holds all experts in one
parameter, and has no such conversion, takes no tensors of single ones.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from compact_json import compact
from transformers import conversion_mapping
from transformers.core_model_loading import WeightConverter
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "schema" / "targets" / "transformers-5.19"
AUTO = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
MODELS = Path(modeling_auto.__file__).parents[1]
EXPERT = ".experts.*."
WEIGHT = ".weight"
NO_EXPERT: dict[str, str | None] = {"gate": None, "down": None, "up": None}


def conversions(name: str, model_type: str) -> list[Any]:
    """The conversions of a model class, its own or those of its type."""
    lookup = conversion_mapping.get_checkpoint_conversion_mapping
    found = lookup(name)
    return list(lookup(model_type) or () if found is None else found)


def experts(rules: Iterable[Any], held: bool) -> dict[str, str | None] | None:
    """The names of the projections of one expert that the conversions join."""
    joined = {
        rule.target_patterns[0].rpartition(".")[2]: [
            one.rpartition(EXPERT)[2].removesuffix(WEIGHT) for one in rule.source_patterns
        ]
        for rule in rules
        if isinstance(rule, WeightConverter) and all(EXPERT in one for one in rule.source_patterns)
    }
    down = next(iter(joined.pop("down_proj", ())), None)
    first = next(iter(joined.values()), [])
    if down is None or not first:
        return NO_EXPERT if held else None
    gate, up = (*first, None)[:2]
    return {"gate": gate, "down": down, "up": up}


def renames(rules: Iterable[Any]) -> list[list[str]]:
    """Rules on the names of weights; a target's dots are written as in a pattern, too."""
    return [[old, new.replace("\\.", ".")] for old, new in _renamings(rules)]


def _renamings(rules: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        if not isinstance(rule, WeightConverter):
            old = rule._original_source_patterns
            yield from zip(old, rule._original_target_patterns, strict=False)


@cache
def holders(module: str) -> frozenset[str]:
    """The classes of a model's source that hold all experts in one parameter."""
    file = MODELS / module / f"modeling_{module}.py"
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(_is_joined(one) for one in ast.walk(node))
    )


def _is_joined(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "self.down_proj"
        and ast.unparse(node.value).startswith("nn.Parameter(")
    )


def content() -> dict[str, Any]:
    """What the file should hold."""
    tables: dict[str, dict[str, Any]] = {"renames": {}, "experts": {}}
    implementations: dict[str, dict[str, Any]] = {}
    for model_type, names in sorted((key, one) for auto in AUTO for key, one in auto.items()):
        module = model_type_to_module_name(model_type)
        for name in [names] if isinstance(names, str) else names:
            rules = conversions(name, model_type)
            pairs = renames(rules)
            entry = {
                "class": f"transformers.models.{module}.modeling_{module}:{name}",
                "architectures": [name],
            }
            mapping = experts(rules, bool(holders(module)))
            shared = {"renames": {"regex": pairs, "weights": True} if pairs else None, "experts": mapping}
            for kind, value in shared.items():
                if value is not None:
                    entry[kind] = _stored(tables[kind], value, name)
            implementations.setdefault(name, entry)
    return {
        "$schema": "../target.schema.json#/$defs/architectures",
        "default_fused": "none",
        "fused": {"none": {}},
        **tables,
        "implementations": list(implementations.values()),
    }


def _stored(values: dict[str, Any], value: Any, name: str) -> str:
    """The key of an equal value, entered under `name` if there is none."""
    key = next((key for key, known in values.items() if known == value), name)
    values[key] = value
    return key


def main() -> int:
    """Write the file, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    file, found = TARGET / "architectures.json", content()
    if file.is_file() and json.loads(file.read_text(encoding="utf-8")) == found:
        return 0
    sys.stdout.write(f"{file.relative_to(ROOT)} {'differs' if check else 'written'}\n")
    if not check:
        file.write_text(compact(found), encoding="utf-8")
    return 1 if check else 0


if __name__ == "__main__":
    raise SystemExit(main())
