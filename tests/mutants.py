"""Real exports in memory, changed without copying them, and the validator over such an export."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import exports

from quark_format import formats
from quark_format.checkpoint import Checkpoint
from quark_format.modules import abstract
from quark_format.safetensors_header import Shard, Tensor
from quark_format.validators import identity, validate
from quark_format.validators.context import Context
from quark_format.validators.findings import Finding, merged

Json = dict[str, Any]
Own = dict[str, "Stored"]
Stored = tuple[str, tuple[int, ...]]

FLOATS = ("BF16", "F16", "F32")
HEAD, EMBEDDING = "lm_head", "embed_tokens"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
PLACES = 2
"""Places that a kind is tried at in one export."""
_OPEN = 1 << 40


@dataclass(frozen=True)
class Export:
    """An export in memory: config, tensors by name in file order, the file of each, metadata of each file."""

    name: str
    config: Json
    tensors: Mapping[str, Stored]
    files: Mapping[str, str]
    metadata: Mapping[str, Any]
    seed: int = 0
    index: Json | None = None

    @classmethod
    def read(cls, name: str, seed: int = 0) -> Export:
        """Read the export `name` of tests/data; `seed` moves the places that `pick` chooses."""
        raw = exports.load(name)
        parts = raw["files"].items()
        return cls(
            name,
            raw["config"],
            {n: (d, tuple(s)) for _, part in parts for n, (d, s) in part["tensors"].items()},
            {n: file for file, part in parts for n in part["tensors"]},
            {file: part.get("metadata") for file, part in parts},
            seed,
            raw.get("index"),
        )

    @property
    def block(self) -> Json:
        """The quantization block."""
        block: Json = self.config["quantization_config"]
        return block

    @property
    def quark(self) -> bool:
        """Whether the block is in quark mode."""
        return self.block.get("quant_method") == "quark"

    @property
    def real(self) -> bool:
        """Whether weights are stored as codes, as far as the block says."""
        stored: str = self.block.get("export", {}).get("weight_format", "real_quantized")
        return stored == "real_quantized"

    @cached_property
    def modules(self) -> dict[str, Own]:
        """Tensors by module and suffix."""
        found: dict[str, Own] = {}
        for name, stored in self.tensors.items():
            module, _, suffix = name.rpartition(".")
            found.setdefault(module, {})[suffix] = stored
        return found

    @cached_property
    def context(self) -> Context:
        """What the validator works out of the export."""
        found = validate._context(self.checkpoint(), 1)
        assert found is not None
        return found

    @cached_property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Logical (out, in) of the modules, as the healthy export's tensors give them."""
        found: dict[str, tuple[int, int]] = {}
        for entry in self.context.judged:
            out, into = entry.fit.sizes.get("out"), entry.fit.sizes.get("in")
            if out and into and out[1] < _OPEN and into[1] < _OPEN:
                found |= dict.fromkeys((module.name for module in entry.members), (out[1], into[1]))
        return found

    @cached_property
    def codes(self) -> list[str]:
        """The modules that store codes, in file order."""
        return [m.name for entry in self.context.judged if entry.stores_codes for m in entry.members]

    def pick(self, wanted: Callable[[Own], bool], salt: int = 0, leaves: Sequence[str] = ()) -> list[str]:
        """A few modules whose tensors are `wanted`: the first of one name, the last of another.

        With `leaves`, only modules of these last names count.
        """
        groups: dict[str, list[str]] = {}
        for module, own in self.modules.items():
            if wanted(own) and (not leaves or module.rpartition(".")[2] in leaves):
                groups.setdefault(abstract(module), []).append(module)
        names = sorted(groups)
        chosen = (
            [names[(self.seed + salt + step * 3) % len(names)] for step in range(PLACES)] if names else []
        )
        return list(dict.fromkeys(groups[name][-(at % 2)] for at, name in enumerate(chosen)))

    def quantized(self, *suffixes: str, salt: int = 0) -> list[str]:
        """A few modules that store codes with a scale and have tensors of these suffixes."""
        wanted = {"weight", "weight_scale", *suffixes}
        return self.pick(lambda own: wanted <= own.keys() and own["weight"][0] not in FLOATS, salt)

    def below(self, prefix: str) -> list[str]:
        """The tensors of the module `prefix` and of those in it."""
        return [name for name in self.tensors if name.startswith(f"{prefix}.")]

    def without(self, *names: str) -> Export:
        """The export without these tensors."""
        gone = set(names)
        return self.having({name: stored for name, stored in self.tensors.items() if name not in gone})

    def renamed(self, old: str, new: str) -> Export:
        """The export with one tensor, or all below a module, under another name."""
        return self.having(
            {
                (new + name[len(old) :] if name == old or name.startswith(f"{old}.") else name): stored
                for name, stored in self.tensors.items()
            }
        )

    def changed(self, name: str, dtype: str | None = None, shape: Sequence[int] | None = None) -> Export:
        """The export with one tensor of another dtype or shape, or with one more."""
        was = self.tensors.get(name, ("", ()))
        return self.having(
            {**self.tensors, name: (dtype or was[0], was[1] if shape is None else tuple(shape))}
        )

    def having(self, tensors: Mapping[str, Stored]) -> Export:
        """The export with other tensors."""
        return replace(self, tensors=tensors)

    def configured(self, change: Callable[[Json], object]) -> Export:
        """The export with a changed config.json."""
        config = copy.deepcopy(self.config)
        change(config)
        return replace(self, config=config)

    def edited(self, change: Callable[[Json], object]) -> Export:
        """The export with a changed quantization block."""
        return self.configured(lambda config: change(config["quantization_config"]))

    def sharded(self) -> Export:
        """The export in two shards with an index."""
        names = list(self.tensors)
        half = len(names) // 2
        files = {name: SHARDS[at >= half] for at, name in enumerate(names)}
        total = sum(exports.nbytes(dtype, list(shape)) for dtype, shape in self.tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": files}
        return replace(self, files=files, metadata={file: {"format": "pt"} for file in SHARDS}, index=index)

    def checkpoint(self) -> Checkpoint:
        """What reading the export from disk gives."""
        default = next(iter(self.metadata))
        shards: dict[str, dict[str, Tensor]] = {file: {} for file in self.metadata}
        for name, (dtype, shape) in self.tensors.items():
            file = self.files.get(name, default)
            shards[file][name] = Tensor(name, dtype, shape, file, 0, 0)
        return Checkpoint(
            path=Path(self.name),
            config=self.config,
            config_file="config.json",
            shards=[Shard(file, own, self.metadata[file], 0) for file, own in shards.items()],
            tensors={name: tensor for own in shards.values() for name, tensor in own.items()},
        )

    def write(self, folder: Path) -> Path:
        """Write the export as a checkpoint and return its folder."""
        files: Json = {file: {"metadata": meta, "tensors": {}} for file, meta in self.metadata.items()}
        for name, (dtype, shape) in self.tensors.items():
            files[self.files.get(name, next(iter(files)))]["tensors"][name] = [dtype, list(shape)]
        raw = {"config": self.config, "files": files}
        return exports.write(raw if self.index is None else {**raw, "index": self.index}, folder)


@dataclass(frozen=True)
class Mutant:
    """A faulty export, and a text that a finding must mention: the tensor, module or pointer at fault.

    Of several texts, one is enough. `spoil` damages the checkpoint after it was written; `codes` replace the
    kind's.
    """

    export: Export
    mentions: str | tuple[str, ...]
    codes: tuple[str, ...] = ()
    spoil: Callable[[Path], object] | None = None


@dataclass(frozen=True)
class Kind:
    """One row of the table of fault kinds: `severity` is the least one that its mutants must get."""

    name: str
    does: str
    make: Callable[[Export], Iterator[Mutant]]
    codes: tuple[str, ...]
    severity: str


RANKS = {"info": 0, "warning": 1, "error": 2}


@lru_cache(maxsize=1024)
def _verdict(text: str) -> formats.Format:
    return formats.detect(json.loads(text))


def _detect(block: Json) -> formats.Format:
    """`formats.detect`, which works out the verdict on equal blocks once."""
    return _verdict(json.dumps(block))


def judge(checkpoint: Checkpoint, *, tensors_only: bool = False) -> list[Finding]:
    """What the validator finds; with `tensors_only`, without the checks that look at the config alone."""
    checks = validate._CHECKS[1:] if tensors_only else validate._CHECKS
    with (
        patch.object(validate, "_CHECKS", checks),
        patch.object(validate, "detect", _detect),
        patch.object(identity, "detect", _detect),
    ):
        return list(merged(validate._findings(checkpoint, validate._context(checkpoint, 1))))


def caught(mutant: Mutant, kind: Kind, found: Sequence[Finding]) -> bool:
    """Whether a finding has an expected code, is severe enough and mentions what is at fault."""
    codes = mutant.codes or kind.codes
    wanted = (mutant.mentions,) if isinstance(mutant.mentions, str) else mutant.mentions
    return any(
        one.code in codes
        and RANKS[one.severity] >= RANKS[kind.severity]
        and any(text in _places(one) for text in wanted)
        for one in found
    )


def _places(one: Finding) -> str:
    """What a finding names, and its sentence."""
    return " ".join(filter(None, (one.tensor, one.module, one.pointer, one.file, one.message)))
