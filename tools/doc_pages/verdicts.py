"""The tables of the oracle: how well verdicts agree with loads, and what runs and computes something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import doc_pages.faults  # noqa: F401 - finds the tests, and enters all kinds
from doc_pages.markdown import code, text
from doc_pages.markdown import table as markdown_table

# isort: split
from mutations import KINDS
from oracle.cases import Case
from oracle.results import RUNS, TABLES, WRONG, Result, read

PATH = "reference/verdicts.md"


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of the page."""
    names = sorted((path.stem for path in TABLES.glob("*.tsv")), reverse=True)
    yield PATH, "\n".join(["# Verdicts against loads\n", *map(_target, names)])


def _target(name: str) -> str:
    """The section of a target: how many verdicts are right, which are not, and faults that go unnoticed."""
    versions, rows = read(name)
    ran = sum(one.did == RUNS for one in rows)
    told = [
        f"## {name}\n",
        f"{text(versions)}\n",
        f"{len(rows)} checkpoints were loaded; {ran} ran and {len(rows) - ran} failed. {_share(rows)}\n",
    ]
    unseen: list[Result] = []
    if (TABLES / "unseen" / f"{name}.tsv").is_file():
        _, unseen = read(f"unseen/{name}")
        told.append(f"{len(unseen)} faults planted by chance were loaded afterwards. {_share(unseen)}\n")
    others = [one for one in [*rows, *unseen] if not one.agrees]
    silent = list(_silent(rows))
    if others:
        cells = [(code(one.case), one.did, one.verdict, text(one.cause)) for one in others]
        told += ["Those it is wrong about:\n", markdown_table(("Case", "It", "Verdict", "Why"), cells)]
    if silent:
        told += [
            "Faults that run without a message and compute something else, one case each, with the\n"
            "divergence of the answers from those of the export without the fault.\n",
            markdown_table(("Fault", "Of", "KL divergence", "Findings"), silent),
        ]
    return "\n".join(told)


def _share(rows: Sequence[Result]) -> str:
    agreeing = sum(one.agrees for one in rows)
    return f"The verdict is right about {agreeing} of them ({agreeing / len(rows):.1%})."


def _silent(rows: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """A row for each kind of fault that runs, is judged wrong, and answers otherwise."""
    seen = set()
    for one in rows:
        case = Case.parse(one.case)
        wrong = one.did == RUNS and one.verdict == WRONG and one.kl and one.computes(None) == WRONG
        if case.kind and wrong and case.kind not in seen:
            seen.add(case.kind)
            yield text(KINDS[case.kind].does), code(case.export), one.kl, one.codes.replace(" ", ", ")
