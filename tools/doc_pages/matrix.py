"""Schemes, platforms and versions: what each declared target does with real exports on each platform."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import doc_pages.faults  # noqa: F401 - adds the tests' tables to the path
from doc_pages.markdown import code, text
from doc_pages.markdown import table as markdown_table
from quark_format.declarations import PARTS, describe, stages
from quark_format.loading import Platform
from quark_format.tables import table
from quark_format.targets import targets
from quark_format.validators.loadability import judge as loads

import exports  # isort: skip - found by what `faults` adds to the path
from mutants import Export, judge  # isort: skip

SIGNS = {"loads": "✓", "wrong": "✗ wrong", "fails": "no"}

INTRODUCTION = """\
# Schemes, platforms and versions

What the declared targets do with real exports, one row a scheme: ✓ loads; no: does not;
**✗ wrong** loads, but computes something else; on every platform, or on those that are named. The answers
are those of `quark-validate --target TARGET --platform PLATFORM`, which says why; on a CPU they are held
against real loads. A platform is asked for without a device here; `cuda:90` or `rocm:gfx942` may tell more.
Versions are those of the exports at hand that have the scheme and load alike.
"""


class Row(NamedTuple):
    """One export's scheme and the outcome for each target and platform."""

    model: str
    weight: str
    input: str
    version: str
    outcomes: tuple[str, ...]
    export: str


def columns() -> list[tuple[str, str]]:
    """Each target and each platform of it."""
    return [(name, platform) for name, one in targets().items() for platform in one.header.platforms]


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of the page."""
    names = exports.all_names()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = [row for row in pool.map(judged, names, chunksize=8) if row is not None]
    yield "reference/matrix.md", page(rows)


def judged(name: str) -> Row | None:
    """The row of one export, None where it has faults or more than one scheme."""
    export = Export.read(name)
    layer = export.block.get("global_quant_config")
    if (
        not export.quark
        or not export.real
        or not isinstance(layer, dict)
        or export.block.get("layer_quant_config")
    ):
        return None
    found = judge(export.checkpoint())
    context = export.context
    if any(one.severity == "error" for one in found):
        return None
    outcomes = []
    for target, platform in columns():
        _, verdict = loads(context, found, targets()[target], Platform.parse(platform))
        outcomes.append(SIGNS[verdict.outcome])
    weight, into = (_described(layer.get(PARTS[part])) for part in ("weight", "input"))
    model = f"{export.config['model_type']}, {context.writer} writer"
    return Row(model, weight, into, context.version, tuple(outcomes), name)


def _described(spec: Any) -> str:
    """A spec in words, with what is computed at run time."""
    told = (describe((stage,)) + " dynamic" * bool(stage.get("is_dynamic")) for stage in stages(spec))
    return " + ".join(told) or "no spec"


def page(rows: list[Row]) -> str:
    """The tables, one for each model type."""
    order = [entry["version"] for entry in table("catalog.json")["versions"]]
    parts = [INTRODUCTION]
    heads = ("Weight", "Input", "Versions", *targets(), "Export")
    for model in sorted({row.model for row in rows}):
        alike: dict[tuple[str, str, tuple[str, ...]], list[Row]] = {}
        for row in rows:
            if row.model == model:
                alike.setdefault((row.weight, row.input, row.outcomes), []).append(row)
        told = (
            (
                text(weight),
                text(into),
                ", ".join(sorted({row.version for row in same}, key=order.index)),
                *_by_target(outcomes),
                code(same[0].export),
            )
            for (weight, into, outcomes), same in sorted(alike.items())
        )
        parts.append(f"## {code(model)}\n\n{markdown_table(heads, told)}")
    return "\n".join(parts)


def _by_target(outcomes: tuple[str, ...]) -> Iterator[str]:
    """A cell for each target: its answer, or each of its answers with the platforms that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for (target, platform), outcome in zip(columns(), outcomes, strict=True):
        found.setdefault(target, {}).setdefault(outcome, []).append(platform)
    for answers in found.values():
        told = (f"{outcome} {', '.join(platforms)}" for outcome, platforms in answers.items())
        yield next(iter(answers)) if len(answers) == 1 else "<br>".join(told)
