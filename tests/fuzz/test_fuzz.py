"""Every seed, and a short run of the fuzzer on each reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fuzz_targets
import pytest

HERE = Path(__file__).parent
RUNS = {"header": 20_000, "index": 20_000, "config": 20_000, "checks": 1_000}
SEEDS = [(path.parent.name, path.name) for path in sorted((HERE / "seeds").glob("*/*"))]


@pytest.mark.parametrize(("target", "seed"), SEEDS)
def test_seed(target: str, seed: str) -> None:
    fuzz_targets.TARGETS[target]((HERE / "seeds" / target / seed).read_bytes())


@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
def test_short_run(target: str, tmp_path: Path) -> None:
    command = [
        *(sys.executable, str(HERE / "fuzz_reader.py"), target),
        *(f"-runs={RUNS[target]}", "-max_len=2000", "-seed=1", f"-artifact_prefix={tmp_path}/"),
        *(f"-dict={HERE / 'json.dict'}", str(tmp_path), str(HERE / "seeds" / target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {RUNS[target]} runs" in done.stderr
