"""The config blocks that every tool has to judge alike: all real and found ones, mutants and faults."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import blocks
import config_mutations  # noqa: F401 - enters its kinds
import exports
import spec_mutations  # noqa: F401 - enters its kinds
from jsonschema import Draft202012Validator
from mutants import Export
from mutations import KINDS

from quark_format.tables import table

SCHEMA = Path(__file__).parents[2] / "schema"
MUTANTS = 3
"""Random mutants of each block."""
SPOILED = ("q0.6.0_llama_int4", "q0.10_llama_fp8kv", "llama_mxfp4")
"""Exports into which every fault of a config is planted."""


@cache
def faulty() -> list[tuple[str, Any]]:
    """(format version, block) of the exports with one fault each; each once."""
    found = {
        (export.name, json.dumps(one)): one
        for export in map(Export.read, SPOILED)
        for kind in KINDS.values()
        for mutant in kind.make(export)
        if (one := mutant.export.config.get("quantization_config")) not in (None, export.block)
    }
    return [(blocks.exporter_version(name), one) for (name, _), one in found.items()]


@cache
def documents() -> list[tuple[str, Any]]:
    """(schema file, block) of every block, mutant and fault, by both schemas of its version; each once."""
    generator = random.Random(7)  # noqa: S311 - the same mutants each time
    real = [(blocks.exporter_version(name), blocks.exported(name)) for name in exports.all_names()]
    found = [("0.13", blocks.wild(name)) for name in blocks.wild_names()]
    files = {
        entry["version"]: (entry["config"], entry["strict"]) for entry in table("catalog.json")["versions"]
    }
    mutated = [
        (version, one)
        for version, block in real + found
        for one in [block, *(blocks.mutate(block, generator) for _ in range(MUTANTS))]
    ]
    unique = {
        (file, json.dumps(one)): one for version, one in [*mutated, *faulty()] for file in files[version]
    }
    return [(file, one) for (file, _), one in unique.items()]


@cache
def expected() -> list[bool]:
    """The verdicts of the reference, the Python package jsonschema."""
    validators = {file: Draft202012Validator(table(file)) for file, _ in documents()}
    return [validators[file].is_valid(one) for file, one in documents()]


def write_job(path: Path) -> Path:
    """Write all documents as one job of a tool that reads them all at once."""
    files = sorted({file for file, _ in documents()})
    job = {
        "schemas": [str(SCHEMA / file) for file in files],
        "documents": [(str(SCHEMA / file), one) for file, one in documents()],
    }
    path.write_text(json.dumps(job), encoding="utf-8")
    return path
