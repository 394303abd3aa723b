"""Selections of a release that is not installed are those it was recorded to make, see `record_selection`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deviating import Known

from quark_format.targets import target

RECORDED = sorted((Path(__file__).parents[1] / "data" / "selection").glob("*.tsv"))
KINDS, AT_LEAST = ("linear", "experts"), 300


def lines(path: Path, kind: str) -> list[tuple[dict[str, Any], str]]:
    """The layer configs of a kind, with what the release did."""
    split = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(json.loads(layer), did) for one, layer, did in split if one == kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_selections_are_the_recorded_ones(path: Path, kind: str) -> None:
    """The row has the class that was taken; what we refuse was refused, or is a declared deviation."""
    table = target(path.stem)
    index, known = table.kinds[kind], Known(table, kind)
    positions = {name: one.key for name, one in table.schemes.positions.items() if one.key}
    classes = {str(row.scheme).rpartition(".")[2] for row in table.schemes.rows if row.kind == kind}
    seen: set[str] = set()
    wrong: list[Any] = []
    for layer, did in lines(path, kind):
        subject = {name: layer.get(key) for name, key in positions.items()}
        accepted = index.accepted(subject, "reorder")
        if accepted:
            ours = str(index.combinations[accepted.bit_length() - 1].row.scheme).rpartition(".")[2]
            seen.add(ours)
            if ours != did:
                wrong.append((layer, did, ours))
        elif did in classes and not known.of(subject, "reorder"):
            wrong.append((layer, did, None))

    assert wrong == []
    assert seen == classes
    assert len(lines(path, kind)) >= AT_LEAST
