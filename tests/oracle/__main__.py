"""Load checkpoints in a real consumer, compare with the verdicts, and write the table in tests/data/oracle.

    PYTHONPATH=tests python -m oracle TARGET EXPORTS [--only GLOB] [--python INTERPRETER]

EXPORTS is the folder of exports that tools/make_exports.py has filled; mutants are made of them. Those that
are not there are made up from the headers in tests/data. `--python` is the interpreter of an environment that
has the consumer, for a release that is not installed beside this one. `--judge` keeps the loads of the table
and judges anew. `--others` plants the same faults in other exports, to see verdicts on unknown checkpoints.
"""

from __future__ import annotations

import argparse
import math
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

import torch
from safetensors.torch import load_file

from oracle import results
from oracle.cases import Case, cases, others
from oracle.consumers import CONSUMERS
from oracle.judging import judged
from oracle.loader import Load, Loader
from oracle.results import FAILS, RUNS, Result

_LONGEST = 160


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1 where a verdict is wrong about loading."""
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=list(CONSUMERS))
    parser.add_argument("exports", type=Path, help="folder of real exports")
    parser.add_argument("--only", default="*", help="glob on the names of cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the consumer")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the consumer")
    parser.add_argument("--judge", action="store_true", help="keep the loads of the table")
    parser.add_argument(
        "--others",
        type=int,
        default=0,
        metavar="N",
        help="the Nth other export of each kind; no table",
    )
    asked = parser.parse_args(arguments)
    oracle = Oracle(asked.target, asked.exports, asked.python)
    if asked.judge:
        versions, old = results.read(asked.target)
        found = [oracle.judged(one) for one in old if fnmatchcase(one.case, asked.only)]
    else:
        running = CONSUMERS[asked.target].running
        planted = others(asked.others) if asked.others else cases(asked.exports, running)
        wanted = [case for case in planted if fnmatchcase(str(case), asked.only)]
        versions, found = oracle.versions(), oracle.run(wanted, asked.jobs)
    if asked.only == "*" and not asked.others:
        results.write(asked.target, found, versions)
    return report(found)


def report(found: Sequence[Result]) -> int:
    """Print how many verdicts are right, and those that are not."""
    wrong = [one for one in found if not one.agrees]
    for one in wrong:
        print(one.case, f"it {one.did}, verdict {one.verdict}", one.codes, one.error, sep="\t")
    print(f"{len(found)} cases, {1 - len(wrong) / len(found):.2%} agree")
    return int(bool(wrong))


class Oracle:
    """Asks one consumer, which `python` has; `reals` is the folder of real exports."""

    def __init__(self, target: str, reals: Path, python: str) -> None:
        """Start nothing yet."""
        self._target, self._reals, self._python = target, reals, python
        self._consumer = CONSUMERS[target]
        self._free: queue.SimpleQueue[Loader] = queue.SimpleQueue()
        self._bases: dict[str, Load] = {}

    def versions(self) -> str:
        """What is asked, and what judges."""
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        ).stdout.strip()
        packages = self._consumer.versions(self._python)
        own = f"quark-format {version('quark-format')} ({commit})"
        return f"{packages}, {own}, {self._target} on {self._consumer.platform}"

    def run(self, wanted: Iterable[Case], jobs: int) -> list[Result]:
        """Load and judge all cases: exports first, as their mutants are compared with them."""
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
            for number in range(jobs):
                self._free.put(self._consumer.start(Path(folder) / f"{number}.log", self._python))
            ordered = sorted(wanted, key=lambda case: (bool(case.kind), crc32(str(case).encode())))
            found = list(pool.map(self._loaded, ordered))
            for _ in range(jobs):
                self._free.get().close()
        return found

    def judged(self, result: Result) -> Result:
        """`result` with the verdict of now."""
        with tempfile.TemporaryDirectory() as folder:
            return self._judged(result, Case.parse(result.case).write(Path(folder) / "one", self._reals))

    def _judged(self, result: Result, path: Path) -> Result:
        return judged(result, path, self._target, self._consumer.platform)

    def _loaded(self, case: Case) -> Result:
        """What the consumer did with a case, and the verdict."""
        loader = self._free.get()
        with tempfile.TemporaryDirectory() as folder:
            path = case.write(Path(folder) / "checkpoint", self._reals)
            load = loader.load(path)
            if not case.kind:
                self._bases[case.export] = load
            elif case.export not in self._bases:
                base_path = Case(case.export).write(Path(folder) / "base", self._reals)
                self._bases[case.export] = loader.load(base_path)
            self._free.put(loader)
            kl = (
                _divergence(self._bases[case.export], load) if case.kind else self._from_reference(case, load)
            )
            result = Result(str(case), "", "", RUNS if load.ok else FAILS, kl, "", "", _line(load.error))
            found = self._judged(result, path)
        print(*asdict(found).values(), sep="\t", flush=True)
        return found

    def _from_reference(self, case: Case, load: Load) -> str:
        file = self._reals / "references" / f"{case.export}.safetensors"
        if not load.ok or not file.is_file():
            return ""
        return _kl(load_file(file)["quantized_float32"].log_softmax(-1), _logits(load))


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


def _divergence(reference: Load, load: Load) -> str:
    """KL of the answers of `load` from those of `reference`."""
    if not (reference.ok and load.ok):
        return ""
    return _kl(_logits(reference), _logits(load))


def _logits(load: Load) -> torch.Tensor:
    return torch.tensor([[row[token] for token in sorted(row, key=int)] for row in load.logprobs])


def _kl(exact: torch.Tensor, other: torch.Tensor) -> str:
    rows, width = min(len(exact), len(other)), min(exact.shape[-1], other.shape[-1])
    exact, other = exact[:rows, :width], other[:rows, :width]
    number = float((exact.exp() * (exact - other)).sum(-1).mean())
    return "nan" if math.isnan(number) else f"{number:.2g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
