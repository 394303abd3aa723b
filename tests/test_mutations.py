"""Every fault kind, planted in every real export where it makes sense: the finding for it comes.

Each export gets a fifth of the kinds here, and all of those that few exports have a place for;
`QUARK_FORMAT_ALL_MUTANTS=1` gives it all (some 45,000 mutants, ten minutes on two cores), and then all of the
excuses below must be needed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import exports
import file_mutations  # noqa: F401 - enters its kinds
import pytest
import spec_mutations  # noqa: F401 - enters its kinds
from config_mutations import DAMAGES
from mutants import Export, Mutant, caught, judge
from mutations import KINDS

from quark_format import validate
from quark_format.validators.findings import Finding

ALL = bool(os.environ.get("QUARK_FORMAT_ALL_MUTANTS"))
STEP = 1 if ALL else 5
LEAST_CAUGHT = 0.99
LEAST_KINDS = 40

FEW = (
    *("*-2", "*-2-to-*", "*rotation", "*attention-scale", "declare-input-static", "retype-pinned-scale"),
    *("untie-*", "*-experts", "twice-shared-*", "twice-kv-*", "*-bias", "*-excluded", "*-layer-pattern"),
    *("*-stage", "*-stages", "*-kv", "*-kv-*", "*-zero-point-2*"),
)
"""Kinds, as globs, that few exports have a place for: planted in all of them, like damaged files."""

EXCUSED: dict[tuple[str, str], str] = {
    ("drop-norm", "d*s*v2_*"): "two layers of two kinds: no layer to compare the one without a norm with",
    ("drop-bias", "opt_*"): "the only norm behind the layers: whether it has a bias is the model's affair",
    ("add-weight-zero-point", "*custommode"): "with it the names are those of quark mode, as QF319 says",
    ("rename-module", "opt_*"): "the finding names the projection as most models call it, o_proj",
    ("lengthen-weight", "llama_fp8_nolmexcl"): "an output layer may be padded beyond the vocabulary",
    ("lengthen-bias", "*int4*"): "the longer bias fits the sizes of an older layout, which QF310 names",
    ("*-weight-zero-point", "q0.11_llama_int3g"): "the shape of packed 3-bit zero points has no term",
    ("*-weight-scale", "q0.11_llama_int3g"): "transposed, it fits the layout of the version QF310 names",
    ("narrow-weight-scale", "q0.[67]*"): "the shape fits a later layout, which QF310 names",
    ("unknown-observer-cls", "q0.[6789]*"): "no reader of formats before 0.10 looks at it",
    ("unknown-observer-cls", "bf16"): "a bfloat16 spec needs no observer",
    ("more-kv-heads", "qwen2*"): "config.json gives no head_dim",
    ("swap-scale-format", "f2f_amdfp4"): "the file-to-file writer stores E5M3 scales as floats, too",
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


def is_due(number: int, kind: str, seed: int) -> bool:
    """Whether a kind is planted in an export in this run."""
    few = kind in DAMAGES or any(fnmatchcase(kind, glob) for glob in FEW)
    return few or (number + seed) % STEP == 0


def plant(task: tuple[str, int]) -> list[Planted]:
    """Plant this export's share of the kinds; none in an export that has errors by itself."""
    name, seed = task
    export = Export.read(name, seed)
    if any(one.severity == "error" for one in judge(export.checkpoint())):
        return []
    planted = []
    for number, kind in enumerate(KINDS.values()):
        for mutant in kind.make(export) if is_due(number, kind.name, seed) else ():
            told = found(mutant)
            wanted = f"{mutant.mentions}: {', '.join(mutant.codes or kind.codes)}"
            given = ", ".join(f"{one.code} {one.severity} {one.module or one.tensor}" for one in told)
            planted.append(Planted(kind.name, name, caught(mutant, kind, told), f"{wanted} but {given}"))
    return planted


def tasks() -> Iterator[tuple[str, int]]:
    """Every export with its number in its folder."""
    for folder in (exports.FOLDER, exports.MORE):
        yield from ((path.stem, at) for at, path in enumerate(sorted(folder.glob("*.json"))))


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
    sys.stdout.write(f"{kinds} kinds, {len(planted):,} mutants, {counted[True] / len(planted):.2%} caught\n")

    assert kinds == len(KINDS) >= LEAST_KINDS
    assert counted[True] >= LEAST_CAUGHT * len(planted)


def test_the_table_has_all_parts() -> None:
    """Faults of tensors, of the config, of specs and of files."""
    assert {"drop-weight", "empty-exclude", "swap-stages", "file-cut", "shard-empty"} <= KINDS.keys()


def test_every_excuse_is_needed(planted: list[Planted]) -> None:
    """An excuse names kinds and exports that exist; where all mutants are planted, a missed one needs it."""
    needed = {key for one in planted if not one.caught for key in excuses(one)}
    names = [name for name, _ in tasks()]

    for kinds, globs in EXCUSED:
        assert any(fnmatchcase(kind, kinds) for kind in KINDS), kinds
        assert any(fnmatchcase(name, globs) for name in names), globs
    assert not ALL or EXCUSED.keys() == needed
