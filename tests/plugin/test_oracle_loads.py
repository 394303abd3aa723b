"""Some of the loads of `data/oracle` once more: the table is what the real vLLM does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from oracle.cases import Case, known
from oracle.consumers import CONSUMERS
from oracle.loader import Loader
from oracle.results import FAILS, RUNS, read

NUMBER = 36
TARGET = "vllm@0.32"


def some() -> list[tuple[str, str]]:
    """A fixed sample of cases of which the repository holds the headers, and what vLLM did with them."""
    held = [one for one in read(TARGET)[1] if Case.parse(one.case).export in known()]
    ordered = sorted(held, key=lambda one: crc32(one.case.encode()))
    return [(one.case, one.did) for one in ordered[:NUMBER]]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """The real vLLM without the plugin, on a CPU without AMX."""
    started = CONSUMERS[TARGET].start(tmp_path_factory.mktemp("oracle") / "log")
    yield started
    started.close()


@pytest.mark.parametrize(("case", "did"), some())
def test_vllm_does_it_again(vllm: Loader, exports: Path, tmp_path: Path, case: str, did: str) -> None:
    """With the data of the export where it was made, with made up data otherwise."""
    load = vllm.load(Case.parse(case).write(tmp_path / "checkpoint", exports))

    assert (RUNS if load.ok else FAILS) == did, load.error
