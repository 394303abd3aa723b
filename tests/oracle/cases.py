"""Which checkpoints the oracle loads: real exports, and each fault kind planted in a few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import exports
import file_mutations  # noqa: F401 - enters its kinds
import spec_mutations  # noqa: F401 - enters its kinds
from mutants import Export, Mutant
from mutations import KINDS

from oracle import materials

RUNNING = (
    *("llama_int4_g128", "llama_int8_pt", "llama_fp8_ptpc", "opt_int8", "qwen3_moe_int8_attnonly"),
    *("llama_int8_pc_static", "llama_uint4_g128", "llama_ptpc_kv", "opt_int4_wo_128", "q0.6.0_llama_int4"),
    *("llama_int8_pt_asym_a", "f2f_llama_ptpc", "qwen3_moe_int4_attnonly", "llama_int8_kv", "llama_int4_g32"),
    *("llama_int8_pc_dyn_asym", "opt_ptpc_fp8", "llama_int4_kv", "q0.8.2_llama_int8pc", "llama_ptpc_kv_attn"),
    *("llama_int4_g128_order", "llama_int8_pc_dyn", "q0.10_llama_int4", "llama_uint4_g128_sym"),
)
"""Exports that run on a CPU: a kind is planted in one of them that has a place for it."""
FAILING = (
    *("llama_fp8_kv", "llama_mxfp4", "qwen3_moe_int4_g128", "llama_nvfp4", "mixtral_fp8", "deepseek_v2_int8"),
    *("llama_int8_wo_pt", "llama_mixed_attn_ptpc_mlp_mxfp4", "qwen2_moe_int4_fp8", "rot_online_r1"),
    *("llama_fp8_custommode", "llama_int4_nolmexcl"),
)
STRIDE = 7
_SEPARATOR = "~"


@dataclass(frozen=True)
class Case:
    """An export, or with `kind` the `number`th mutant of that kind of it."""

    export: str
    kind: str = ""
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read what `str` gives."""
        export, _, rest = text.partition(_SEPARATOR)
        kind, _, number = rest.partition(_SEPARATOR)
        return cls(export, kind, int(number or 0))

    def __str__(self) -> str:
        """The case in one word, as in `llama_int4_g128~drop-weight~1`."""
        parts = (self.export, self.kind, str(self.number or ""))
        return _SEPARATOR.join(part for part in parts if part)

    def write(self, folder: Path, reals: Path | None) -> Path:
        """Write the checkpoint, with the data of the real one in `reals` if it is there; return its folder.

        A real export that is not changed stays where it is.
        """
        real = reals / self.export if reals and (reals / self.export / "config.json").is_file() else None
        if not self.kind:
            return real or materials.write(_export(self.export), folder)
        mutant = mutants(self.export, self.kind)[self.number]
        path = materials.write(mutant.export, folder, real)
        if mutant.spoil is not None:
            mutant.spoil(path)
        return path

    def sparse(self, folder: Path) -> Path:
        """Write the checkpoint with right headers and no data; return its folder."""
        if not self.kind:
            return _export(self.export).write(folder)
        mutant = mutants(self.export, self.kind)[self.number]
        path = mutant.export.write(folder)
        if mutant.spoil is not None:
            mutant.spoil(path)
        return path


@lru_cache(maxsize=64)
def _export(name: str) -> Export:
    return Export.read(name)


def mutants(export: str, kind: str) -> list[Mutant]:
    """Every mutant of the kind of the export."""
    return list(KINDS[kind].make(_export(export)))


def cases(reals: Path, running: Sequence[str] = RUNNING) -> Iterator[Case]:
    """Every export of the folder `reals`, and mutants of a few exports, those that are `running` first."""
    yield from (Case(path.parent.name) for path in sorted(reals.glob("*/config.json")))
    yield from sorted(_planted(running), key=str)


def others(number: int) -> Iterator[Case]:
    """Of each kind the mutant of another export, the `number`th after the one that `cases` gives."""
    yield from sorted(_planted(RUNNING, number), key=str)


def _planted(running: Sequence[str], number: int = 0) -> Iterator[Case]:
    for at, kind in enumerate(KINDS):
        start = at * STRIDE % len(running)
        turned = [*running[start:], *running[:start], *FAILING]
        yield from islice(_of(kind, turned), number, number + 1)


def _of(kind: str, names: Sequence[str]) -> Iterator[Case]:
    """A mutant of the kind of each export that has a place for it."""
    for at, name in enumerate(names):
        found = len(mutants(name, kind))
        if found:
            yield Case(name, kind, at % found)


def known() -> set[str]:
    """The exports of which the repository holds the headers."""
    return set(exports.all_names())
