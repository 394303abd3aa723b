"""Measure `validate` and the command against what others take, and print a table in Markdown.

    python benchmarks/run.py [--rounds N] [--folder FOLDER] [--only SECTION]

Checkpoints are made in FOLDER (a temporary one by default; the data is sparse, some 300 MB on disk, and 1 GB
for the values). Every figure is of a process of its own, contenders take turns, and the ratio is that of
medians. It needs `pip install -e . huggingface_hub safetensors orjson`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import synthetic

HERE = Path(__file__).parent
LARGE, MILLION = "90,122 tensors in 163 shards", "1,007,945 tensors in 1,830 shards"
MB = 1_000_000
Sample = dict[str, float]


def in_process(name: str, folder: Path) -> Sample:
    """Time one contender's call in a new process."""
    command = [sys.executable, str(HERE / "contenders.py"), name, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    sample: Sample = json.loads(done.stdout)
    return sample


def whole(command: Sequence[str], cache: Path) -> Sample:
    """Time a whole process, from start to end, with the byte code of its modules in the folder `cache`."""
    unset = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(
        command, check=False, capture_output=True, env={**unset, "PYTHONPYCACHEPREFIX": str(cache)}
    )
    return {"seconds": time.perf_counter() - start, "peak_bytes": 0}


def median(samples: Sequence[Sample], key: str = "seconds") -> float:
    """Return the median of one figure."""
    return statistics.median(sample[key] for sample in samples)


def turns(names: Sequence[str], folder: Path, rounds: int) -> dict[str, list[Sample]]:
    """Time contenders in turn, so that a busy machine slows all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            samples[name].append(in_process(name, folder))
    return samples


def table(title: str, samples: dict[str, list[Sample]], over: str) -> None:
    """Print medians, spreads, peaks, and the ratio of the first contender to each."""
    print(f"\n{title}\n\n| | seconds (median) | least to most | peak MB | {over} takes |")
    print("|---|--:|--:|--:|--:|")
    for name, taken in samples.items():
        times = [sample["seconds"] for sample in taken]
        peak = max(sample["peak_bytes"] for sample in taken) / MB
        ratio = median(samples[over]) / median(taken)
        spread = f"{min(times):.3f} to {max(times):.3f}"
        print(f"| {name} | {median(taken):.3f} | {spread} | {peak:.0f} | {ratio:.2f} x |")


def machine() -> str:
    """Describe the machine and the releases in a line."""
    releases = []
    for name in ("quark-format", "huggingface_hub", "safetensors", "orjson", "msgspec", "numpy"):
        try:
            releases.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            releases.append(f"no {name}")
    system = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return f"{system}; {', '.join(releases)}"


def headers(place: Path, rounds: int) -> None:
    """Compare reading and judging headers, then look at growth and memory."""
    large, million = place / "large", place / "million"
    synthetic.make(large, 58, 163)
    names = ("validate", "read_checkpoint", "huggingface_hub", "safe_open", "orjson", "msgspec", "json")
    samples = turns(names, large, rounds)
    table(f"In one process, {LARGE}:", samples, "validate")
    synthetic.make(million, 649, 1830)
    grown: dict[str, list[Sample]] = {"validate": [], "huggingface_hub": [], "safe_open": []}
    again: list[Sample] = []
    for _ in range(rounds):
        again.append(in_process("validate", large))
        for name, taken in grown.items():
            taken.append(in_process(name, million))
    table(f"In one process, {MILLION}:", grown, "validate")
    growth = median(grown["validate"]) / median(again) / (1_007_945 / 90_122)
    print(f"\nTime per tensor at a million against that at 90,122, measured in turn: {growth:.2f} x")


def processes(place: Path, rounds: int) -> None:
    """Compare the command with a bare script, start to end, with byte code as pip leaves it."""
    large, cache = place / "large", place / "byte-code"
    synthetic.make(large, 58, 163)
    bare = [sys.executable, str(HERE / "contenders.py"), "safe_open", str(large)]
    command = [str(Path(sys.executable).with_name("quark-validate")), str(large)]
    samples: dict[str, list[Sample]] = {"quark-validate": [], "bare safe_open script": []}
    for contender in (command, bare):
        whole(contender, cache)
    for _ in range(rounds):
        samples["quark-validate"].append(whole(command, cache))
        samples["bare safe_open script"].append(whole(bare, cache))
    table(f"Whole process, {LARGE}:", samples, "quark-validate")


def values(place: Path, rounds: int) -> None:
    """Compare judging every value with reading the file."""
    folder = place / "filled"
    synthetic.make_filled(folder, 1024)
    table(
        "Every value of 1 GB:",
        turns(("validate(values=all)", "plain read"), folder, rounds),
        "validate(values=all)",
    )


SECTIONS: dict[str, Any] = {"headers": headers, "processes": processes, "values": values}


def main() -> None:
    """Run the sections and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=SECTIONS)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        place = options.folder or Path(temporary)
        for name, section in SECTIONS.items():
            if options.only in {None, name}:
                section(place, options.rounds)


if __name__ == "__main__":
    main()
