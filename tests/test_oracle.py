"""Verdicts against what the real consumers did: `data/oracle`, which `python -m oracle` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.cases import Case, known
from oracle.consumers import CONSUMERS
from oracle.judging import outcome
from oracle.results import FAILS, RUNS, TABLES, Result, read
from test_loadability import VLLM, listed

from quark_format import validate

LEAST = {"vllm@0.32": 300, "vllm@0.22": 30, "transformers@5.19": 60}
SPECS, ARCHITECTURES, AGREEMENT = 12, 4, 0.98
ANSWERS = {path.stem: read(path.stem) for path in sorted(TABLES.glob("*.tsv"))}
HELD = [
    pytest.param(target, one, id=f"{target}-{one.case}")
    for target, (_, rows) in ANSWERS.items()
    for one in rows
    if Case.parse(one.case).export in known()
]


def share(rows: list[Result]) -> float:
    """The share of verdicts that are right about loading."""
    return sum(one.agrees for one in rows) / len(rows)


@pytest.mark.parametrize("target", ANSWERS)
def test_the_table_covers_the_format(target: str) -> None:
    """Enough cases, specs and architectures, both outcomes, and the versions that loaded them."""
    versions, rows = ANSWERS[target]

    assert all(name in versions for name in CONSUMERS[target].distributions)
    assert len({one.case for one in rows}) == len(rows) >= LEAST[target]
    assert len({one.specs for one in rows if one.did == RUNS}) >= SPECS
    assert len({one.architecture for one in rows}) >= ARCHITECTURES
    assert {one.did for one in rows} == {RUNS, FAILS}


@pytest.mark.parametrize("target", ANSWERS)
def test_verdicts_are_right_about_loading(target: str) -> None:
    """At least 98 in a hundred."""
    assert share(ANSWERS[target][1]) >= AGREEMENT


def test_verdicts_are_right_about_other_cases() -> None:
    """Those besides the exports whose loads are the source of rows of vLLM's tables."""
    seen = {name for name, _ in listed()}
    unseen = [one for one in ANSWERS[VLLM][1] if one.case not in seen]

    assert share(unseen) >= AGREEMENT
    assert len(unseen) > len(seen)


@pytest.mark.parametrize("target", ANSWERS)
def test_what_is_wrong_has_a_cause(target: str) -> None:
    """Every other verdict is right about loading, and has none."""
    assert [one.case for one in ANSWERS[target][1] if bool(one.cause) == one.agrees] == []


@pytest.mark.parametrize(("target", "one"), HELD)
def test_the_verdict_is_the_one_of_the_table(target: str, one: Result, tmp_path: Path) -> None:
    """Of today's tables and checks."""
    path = Case.parse(one.case).sparse(tmp_path / "checkpoint")
    report = validate(path, target=target, platform=CONSUMERS[target].platform)

    assert outcome(report) == one.verdict
