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

LEAST = {"vllm@0.32": 300, "vllm@0.22": 220, "transformers@5.19": 60}
RUNNING = {"vllm@0.32": 12, "vllm@0.22": 5, "transformers@5.19": 12}
"""Specs that run; on a CPU vLLM 0.22 has INT8 and MXFP6 alone."""
OLD, NEW = "vllm@0.22", "vllm@0.32"
SPECS, ARCHITECTURES, AGREEMENT, UNSEEN = 12, 4, 0.98, 0.95
ANSWERS = {path.stem: read(path.stem) for path in sorted(TABLES.glob("*.tsv"))}
BY_CHANCE = {path.stem: read(f"unseen/{path.stem}") for path in sorted(TABLES.glob("unseen/*.tsv"))}
HELD = [
    pytest.param(target, one, id=f"{target}-{one.case}")
    for target, (_, rows) in [*ANSWERS.items(), *BY_CHANCE.items()]
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
    assert len({one.specs for one in rows}) >= SPECS
    assert len({one.specs for one in rows if one.did == RUNS}) >= RUNNING[target]
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


@pytest.mark.parametrize("target", BY_CHANCE)
def test_verdicts_are_right_about_faults_planted_by_chance(target: str) -> None:
    """Loaded after the tables were written; one row of vLLM's came of them since."""
    _, rows = BY_CHANCE[target]

    assert {one.case for one in rows}.isdisjoint(one.case for one in ANSWERS[target][1])
    assert [one.case for one in rows if bool(one.cause) == one.agrees] == []
    assert share(rows) >= UNSEEN


def test_verdicts_are_right_about_what_is_computed() -> None:
    """Where a mutant answers otherwise than the export it is wrong; else it is as right as the export."""
    rows = ANSWERS[VLLM][1]
    exports = {one.case: one.verdict for one in rows}
    planted = [one for one in rows if one.did == RUNS and one.agrees and Case.parse(one.case).kind and one.kl]
    right = [one for one in planted if one.verdict == one.computes(exports.get(Case.parse(one.case).export))]

    assert len(right) / len(planted) >= AGREEMENT


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


def apart() -> list[str]:
    """The exports that only one of two releases of vLLM runs."""
    old, new = ({one.case: one.did for one in ANSWERS[target][1]} for target in (OLD, NEW))
    return sorted(case for case in old.keys() & new.keys() if old[case] != new[case])


def test_two_releases_load_differently() -> None:
    """The older one serves no INT4 and, on a CPU, no FP8; the newer one has no kernel for MXFP6 there."""
    assert {"llama_int4_g128", "llama_fp8_ptpc", "llama_mxfp6_e3m2"} <= set(apart())


@pytest.mark.parametrize("case", [case for case in apart() if case in known()])
def test_verdicts_of_two_releases_differ_as_their_loads_do(case: str, tmp_path: Path) -> None:
    """The same engine judges both, by the tables of each."""
    did = {target: next(one.did for one in ANSWERS[target][1] if one.case == case) for target in (OLD, NEW)}
    path = Case.parse(case).sparse(tmp_path / "checkpoint")
    report = validate(path, target=[OLD, NEW], platform=CONSUMERS[OLD].platform)

    assert {one.name: one.outcome == FAILS for one in report.targets} == {
        target: what == FAILS for target, what in did.items()
    }
