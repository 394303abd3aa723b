"""Some of the loads of `data/oracle` once more: the tables are what the real consumers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from oracle.cases import Case, known
from oracle.consumers import CONSUMERS
from oracle.loader import Loader
from oracle.results import FAILS, RUNS, read

NUMBERS = {"vllm@0.32": 36, "transformers@5.19": 24}


def some() -> Iterator[tuple[str, str, str]]:
    """A fixed sample of cases of which the repository holds the headers, and what was done with them."""
    for target, number in NUMBERS.items():
        held = [one for one in read(target)[1] if Case.parse(one.case).export in known()]
        ordered = sorted(held, key=lambda one: crc32(one.case.encode()))
        yield from ((target, one.case, one.did) for one in ordered[:number])


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Loader]]:
    """A process of each consumer, started as it is asked for."""
    started: dict[str, Loader] = {}

    def of(target: str) -> Loader:
        if target not in started:
            started[target] = CONSUMERS[target].start(tmp_path_factory.mktemp("oracle") / "log")
        return started[target]

    yield of
    for one in started.values():
        one.close()


@pytest.mark.parametrize("one", list(some()), ids=":".join)
def test_it_does_so_again(
    consumer: Callable[[str], Loader], exports: Path, tmp_path: Path, one: tuple[str, str, str]
) -> None:
    """With the data of the export where it was made, with made up data otherwise."""
    target, case, did = one
    load = consumer(target).load(Case.parse(case).write(tmp_path / "checkpoint", exports))

    assert (RUNS if load.ok else FAILS) == did, load.error
