"""Every fault kind, planted in every real export where it makes sense: the finding for it comes.

Each export gets a third of the kinds here; `QUARK_FORMAT_ALL_MUTANTS=1` gives it all of them (some 45,000
mutants, ten minutes on two cores), and then the excuses below must all be needed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import config_mutations
import exports
import pytest
from mutants import Export, Mutant, caught, judge
from mutations import KINDS

from quark_format import validate
from quark_format.validators.findings import Finding

ALL = bool(os.environ.get("QUARK_FORMAT_ALL_MUTANTS"))
STEP = 1 if ALL else 3
LEAST_CAUGHT = 0.99
LEAST_KINDS = 40

EXCUSED: dict[tuple[str, str], str] = {
    ("drop-norm", "d*s*v2_*"): "two layers of two kinds: no layer to compare the one without a norm with",
    (
        "drop-bias",
        "opt_*",
    ): "the only norm behind the layers: whether it has a bias is the model's own affair",
    ("add-weight-zero-point", "*custommode"): "with it the names are those of quark mode, as QF319 says",
    ("rename-module", "opt_*"): "the finding names the projection as most models call it, o_proj",
    ("lengthen-weight", "llama_fp8_nolmexcl"): "an output layer may be padded beyond the vocabulary",
    ("lengthen-bias", "*int4*"): "the longer bias fits the sizes of an older layout, which QF310 names",
    ("*-weight-zero-point", "q0.11_llama_int3g"): "the shape of packed 3-bit zero points has no term",
    (
        "*-weight-scale",
        "q0.11_llama_int3g",
    ): "the scale is transposed: QF310 names the version that has it so",
    ("narrow-weight-scale", "q0.[67]*"): "the shape fits a later layout, which QF310 names",
    ("unknown-observer-cls", "q0.[6789]*"): "no reader of formats before 0.10 looks at it",
    ("unknown-observer-cls", "bf16"): "a bfloat16 spec needs no observer",
    ("more-kv-heads", "qwen2*"): "config.json gives no head_dim",
}
"""By kind and export, as globs: why the fault cannot be told there."""


class Planted(NamedTuple):
    """A mutant that was judged: whether it was caught, and what it should have said and did."""

    kind: str
    export: str
    caught: bool
    told: str


def found(mutant: Mutant) -> list[Finding]:
    """What the validator finds; a damaged folder is written and read."""
    if mutant.spoil is None:
        return judge(mutant.export.checkpoint())
    with TemporaryDirectory() as folder:
        path = mutant.export.write(Path(folder) / "checkpoint")
        mutant.spoil(path)
        return list(validate(path).findings)


def plant(task: tuple[Path, str, int]) -> list[Planted]:
    """Plant this export's share of the kinds; none in an export that has errors by itself."""
    folder, name, seed = task
    exports.FOLDER = folder
    export = Export.read(name, seed)
    if any(one.severity == "error" for one in judge(export.checkpoint())):
        return []
    planted = []
    for number, kind in enumerate(KINDS.values()):
        for mutant in kind.make(export) if (number + seed) % STEP == 0 else ():
            told = found(mutant)
            wanted = f"{mutant.mentions}: {', '.join(mutant.codes or kind.codes)}"
            given = ", ".join(f"{one.code} {one.severity} {one.module or one.tensor}" for one in told)
            planted.append(Planted(kind.name, name, caught(mutant, kind, told), f"{wanted} but {given}"))
    return planted


def tasks() -> Iterator[tuple[Path, str, int]]:
    """Every export with its folder and number."""
    for folder in (exports.FOLDER, exports.FOLDER.with_name("exports_more")):
        yield from ((folder, path.stem, at) for at, path in enumerate(sorted(folder.glob("*.json"))))


@pytest.fixture(scope="module")
def planted() -> list[Planted]:
    """All mutants of this run."""
    with ProcessPoolExecutor() as pool:
        return [one for some in pool.map(plant, tasks(), chunksize=4) for one in some]


def excuses(one: Planted) -> list[tuple[str, str]]:
    """The excuses that hold for a mutant."""
    return [key for key in EXCUSED if fnmatchcase(one.kind, key[0]) and fnmatchcase(one.export, key[1])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_caught_everywhere(kind: str, planted: list[Planted]) -> None:
    """Each mutant of the kind is caught, but for those that are excused."""
    mutants = [one for one in planted if one.kind == kind]

    assert mutants, "no export has a place for it"
    missed = [f"{one.export}: {one.told}" for one in mutants if not one.caught and not excuses(one)]
    assert not missed, "\n".join(missed[:20])


def test_nearly_all_are_caught(planted: list[Planted]) -> None:
    """At least 99 % of all mutants, of at least 40 kinds, excused or not."""
    counted = Counter(one.caught for one in planted)
    kinds = len({one.kind for one in planted})
    print(f"{kinds} kinds, {len(planted):,} mutants, {counted[True] / len(planted):.2%} caught")

    assert kinds == len(KINDS) >= LEAST_KINDS
    assert counted[True] >= LEAST_CAUGHT * len(planted)


def test_the_table_has_both_halves() -> None:
    """Faults of tensors and faults of config and files."""
    assert {"drop-weight", "empty-exclude", "file-cut"} <= KINDS.keys()
    assert config_mutations.SPOILED


@pytest.mark.skipif(not ALL, reason="a share of the mutants does not need every excuse")
def test_every_excuse_is_needed(planted: list[Planted]) -> None:
    """An excuse that no missed mutant needs is one too many."""
    needed = {key for one in planted if not one.caught for key in excuses(one)}

    assert EXCUSED.keys() == needed
