"""Project schema/source/tensors.yaml on every format version: `vX.Y/tensors.json` and `header.schema.json`.

`--check` compares with the files on disk instead of writing them and exits 1 when they differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).resolve().parent.parent / "schema"
BASE = "https://quark-format.github.io/schema"
ACTIVATION_PARTS = ("input", "output", "bias")

Json = dict[str, Any]


def release(version: str) -> tuple[int, ...]:
    """Order key of a format version."""
    return tuple(int(part) for part in version.split("."))


def holds(entry: Json, version: str) -> bool:
    """Whether `entry` exists in format `version` by its `since` and `until`."""
    return release(entry.get("since", "0")) <= release(version) <= release(entry.get("until", "99"))


def project_tensor(tensor: Json, part: str) -> Json:
    """One published tensor entry of a row."""
    suffix = tensor["suffix"]
    if part in ACTIVATION_PARTS:
        suffix = f"{part}_{suffix}" if suffix else part
    dtypes = tensor["dtypes"]
    published: Json = {"suffix": suffix, "dtypes": {"set": dtypes} if isinstance(dtypes, str) else dtypes}
    if isinstance(tensor.get("shape"), list):
        published["shape"] = [{"times": 1, "over": 1, "round": "exact", **term} for term in tensor["shape"]]
    elif "shape" in tensor:
        published["shape"] = tensor["shape"]
    published["optional"] = tensor.get("optional", False)
    if "beside" in tensor:
        published["beside"] = tensor["beside"]
    return published


def project_row(row: Json, part: str, defaults: Json, suffixes: Json) -> Json:
    """The published row of one source row for `part`."""
    merged = {**defaults, **row}
    tensors = [project_tensor(tensor, part) for tensor in row["tensors"]]
    named = {entry["suffix"] for entry in tensors}
    return {
        "id": f"{part}/{row['id']}",
        "title": row["title"],
        "part": part,
        **{key: merged[key] for key in ("writers", "weight_formats", "modes", "roles", "stages")},
        "tensors": tensors,
        "forbidden": [suffix for suffix in suffixes[part] if suffix not in named],
        "unexportable": row.get("unexportable"),
        "uncalibrated": row.get("uncalibrated", False),
        "source": row["source"],
    }


def project(source: Json, version: str) -> Json:
    """The published layout table of one format version."""
    rows = [
        project_row(row, part, source["defaults"], source["suffixes"])
        for row in source["rows"]
        if holds(row, version)
        for part in row.get("parts", [row.get("part")])
    ]
    rotation = source["rotation"]
    return {
        "$schema": "../tensors.schema.json",
        "version": version,
        "suffixes": source["suffixes"],
        "foreign_suffixes": source["foreign_suffixes"],
        "dtype_sets": {
            entry["id"]: {key: entry[key] for key in ("dtypes", "by", "cases") if key in entry}
            for entry in source["dtype_sets"]
            if holds(entry, version)
        },
        "rows": rows,
        "rotation": {
            "algorithms": rotation["algorithms"] if holds(rotation, version) else [],
            "layers": rotation["layers"],
            "tensors": [{"optional": False, **tensor} for tensor in rotation["tensors"]],
        },
        "kv_cache": [
            {key: entry[key] for key in ("modes", "holder", "suffixes", "dtypes", "source")}
            for entry in source["kv_cache"]
            if holds(entry, version)
        ],
        "softmax": [
            {key: entry[key] for key in ("suffix", "dtypes")}
            for entry in source["softmax"]
            if holds(entry, version)
        ],
    }


def all_dtypes(dtypes: Any, sets: Json) -> list[str]:
    """Every dtype that an entry can have for some spec."""
    if isinstance(dtypes, list):
        return dtypes
    chosen = sets[dtypes["set"]]
    return list(chosen.get("dtypes", [])) + [
        name for case in chosen.get("cases", {}).values() for name in case
    ]


def header_schema(layout: Json) -> Json:
    """A JSON Schema of a safetensors header: every suffix with the dtypes and ranks its rows allow."""
    seen: dict[str, tuple[set[str], set[int | None]]] = {}
    for row in layout["rows"]:
        for tensor in row["tensors"]:
            dtypes, ranks = seen.setdefault(tensor["suffix"], (set(), set()))
            dtypes.update(all_dtypes(tensor["dtypes"], layout["dtype_sets"]))
            shape = tensor.get("shape")
            ranks.update({0, 1} if shape == "scalar" else {None} if shape is None else {len(shape)})
    for entry in layout["kv_cache"]:
        for suffix in entry["suffixes"]:
            dtypes, ranks = seen.setdefault(suffix, (set(), set()))
            dtypes.update(entry["dtypes"])
            ranks.update({0, 1})
    for entry in layout["softmax"]:
        seen[entry["suffix"]] = (set(entry["dtypes"]), {0, 1})
    if layout["rotation"]["algorithms"]:
        for tensor in layout["rotation"]["tensors"]:
            seen[tensor["suffix"]] = (set(tensor["dtypes"]), {tensor["rank"]})
    patterns = {}
    for suffix, (dtypes, ranks) in sorted(seen.items()):
        dimensions: Json = {}
        if None not in ranks:
            numbers = [rank for rank in ranks if rank is not None]
            dimensions = {"type": "array", "minItems": min(numbers), "maxItems": max(numbers)}
        patterns[rf"^(?:.+\.)?{suffix}$"] = {
            "$ref": "#/$defs/tensor",
            "type": "object",
            "properties": {
                "dtype": {"enum": sorted(dtypes)},
                **({"shape": dimensions} if dimensions else {}),
            },
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{BASE}/v{layout['version']}/header.schema.json",
        "title": f"Safetensors header of a Quark {layout['version']} checkpoint",
        "description": "Dtypes and ranks by tensor name, whatever the spec;"
        " tensors.json says which of them a spec allows.",
        "type": "object",
        "properties": {"__metadata__": {"type": "object", "additionalProperties": {"type": "string"}}},
        "patternProperties": patterns,
        "additionalProperties": {"$ref": "#/$defs/tensor"},
        "$defs": {
            "tensor": {
                "type": "object",
                "required": ["dtype", "shape", "data_offsets"],
                "properties": {
                    "dtype": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                    "data_offsets": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0},
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
            },
        },
    }


def outputs() -> dict[Path, str]:
    """Every generated file with its text."""
    source = yaml.safe_load((SCHEMA / "source" / "tensors.yaml").read_text(encoding="utf-8"))
    meta = json.loads((SCHEMA / "source" / "tensors-source.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(meta).validate(source)
    catalog = json.loads((SCHEMA / "catalog.json").read_text(encoding="utf-8"))
    files = {}
    for entry in catalog["versions"]:
        layout = project(source, entry["version"])
        folder = SCHEMA / f"v{entry['version']}"
        files[folder / "tensors.json"] = dump(layout)
        files[folder / "header.schema.json"] = dump(header_schema(layout))
    return files


def dump(value: Json) -> str:
    """The text of a generated file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or compare them with `--check`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for path, text in outputs().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(SCHEMA.parent)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
