"""Lines of Python for linear layers and the spec combinations they serve, ours and vLLM's. Needs vLLM."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from quark_format.targets import target

PLUGIN, VLLM = "vllm-plugin@0.32", "vllm@0.32"
OURS = ["schemes/*.py", "kernels/*.py", "layout.py", "stored.py"]
THEIRS = ["model_executor/layers/quantization/quark/schemes/*.py"]


def folder(package: str) -> Path:
    """Where a package is, without importing it."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is not installed")
    return Path(found.origin).parent


def lines(root: Path, globs: Iterable[str]) -> int:
    """The lines of the files that match."""
    files = [file for glob in globs for file in root.glob(glob)]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def combinations(of: str) -> int:
    """How many pairs of a weight and an input spec, with an output spec, the rows for linear layers list."""
    rows = [row for row in target(of).schemes.rows if row.kind == "linear"]
    return sum(math.prod(map(len, row.specs.values())) for row in rows)


def main() -> None:
    """Print one table."""
    print("| | lines | spec combinations for linear layers | lines each |")
    print("|---|--:|--:|--:|")
    ours = lines(folder("quark_format") / "vllm_plugin", OURS), combinations(PLUGIN)
    theirs = lines(folder("vllm"), THEIRS), combinations(VLLM)
    for who, (count, served) in (("this plugin", ours), ("vLLM 0.32", theirs)):
        print(f"| {who} | {count:,} | {served} | {count / served:.0f} |")


if __name__ == "__main__":
    main()
