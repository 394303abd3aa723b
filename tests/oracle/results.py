"""The tables of what a consumer did and what the verdict was, one row for each case."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parents[1] / "data" / "oracle"
RUNS, FAILS, LOADS, WRONG = "runs", "fails", "loads", "wrong"
CLOSE = 1e-4
"""Divergence below which answers count as the same."""
_MARK = "# "
_FORMAT: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}


@dataclass(frozen=True)
class Result:
    """One case: what it is, what the consumer did, and what the verdict says.

    `kl` is the divergence of its answers from amd-quark's float32 ones for an export, from the export's
    own for a mutant; empty where it failed or there is nothing to compare with. `codes` are those of
    the findings that are errors. `cause` says why a verdict is wrong about loading.
    """

    case: str
    architecture: str
    specs: str
    did: str
    kl: str
    verdict: str
    codes: str
    error: str
    cause: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the verdict is right about loading."""
        return (self.did == FAILS) == (self.verdict == FAILS)

    def computes(self, export: str | None) -> str:
        """The right verdict on a mutant that runs: where its answers are the same, the `export`'s."""
        return (export or LOADS) if self.kl != "nan" and float(self.kl) < CLOSE else WRONG


def _path(target: str) -> Path:
    return TABLES / f"{target}.tsv"


def write(target: str, results: Iterable[Result], versions: str) -> None:
    """Write the table of a target, ordered by case, below a line with the versions."""
    with _path(target).open("w", encoding="utf-8", newline="") as file:
        file.write(f"{_MARK}{versions}\n")
        columns = [field.name for field in fields(Result)]
        rows = csv.DictWriter(file, columns, lineterminator="\n", **_FORMAT)
        rows.writeheader()
        rows.writerows(asdict(one) for one in sorted(results, key=lambda one: one.case))


def read(target: str) -> tuple[str, list[Result]]:
    """Return the line with the versions and the rows."""
    with _path(target).open(encoding="utf-8", newline="") as file:
        versions = file.readline().removeprefix(_MARK).strip()
        rows = csv.DictReader(file, **_FORMAT)
        return versions, [Result(**row) for row in rows]
