"""What the checks look at: one checkpoint, its config read as Quark's, its modules and their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quark_format.config_errors import SchemaError, schema_errors
from quark_format.declarations import Declarations, as_quark
from quark_format.layouts import Conditions, Layouts, layouts
from quark_format.modules import Modules, classes, group
from quark_format.tables import table
from quark_format.validators.judgement import Judge, Judged

if TYPE_CHECKING:
    from quark_format.checkpoint import Checkpoint
    from quark_format.formats import Format

_REAL = "real_quantized"
_ATTENTION = "attention"
_FALLBACK = "/global_quant_config"


def counterpart(foreign: Mapping[str, Any], *, on_attention: bool) -> str | None:
    """Quark's suffix for a foreign one, None where Quark has no such tensor.

    A KV scale's depends on whether KV scales hang on the attention module.
    """
    name: str | None = foreign.get("on_attention" if on_attention else "expected") or foreign.get("expected")
    return name


def _concerns(broken: set[str], pointer: str) -> bool:
    """Whether an error at one of the `broken` pointers makes the layer config at `pointer` unusable."""
    own = pointer or _FALLBACK
    missing = not own.removeprefix(_FALLBACK) and "" in broken
    return missing or any(one == own or one.startswith(f"{own}/") for one in broken)


@dataclass
class Context:
    """One checkpoint whose config is Quark's, and everything that is worked out from it once.

    `block` is the config as written at `pointer`, `quark` the same in quark mode, for custom modes too.
    """

    checkpoint: Checkpoint
    pointer: str
    block: Mapping[str, Any]
    format: Format
    version: str
    tensor_parallel_size: int = 1
    expert_parallel: bool = False

    @cached_property
    def mode(self) -> str:
        """The mode that the block is in."""
        return self.format.mode or "quark"

    @cached_property
    def quark(self) -> Mapping[str, Any]:
        """The block as a quark-mode one."""
        return as_quark(self.block, self.mode)

    @cached_property
    def export(self) -> Mapping[str, Any]:
        """The block's export settings, empty where there are none."""
        export = self.block.get("export")
        return export if isinstance(export, Mapping) else {}

    @cached_property
    def weight_format(self) -> str:
        """How weights are stored; what an export without the key does."""
        value = self.export.get("weight_format")
        known = {name for row in self.layouts.rows for name in row.weight_formats}
        return value if isinstance(value, str) and value in known else _REAL

    @cached_property
    def layouts(self) -> Layouts:
        """The layout rows of the format version."""
        return layouts(self.version)

    @cached_property
    def modules(self) -> Modules:
        """The checkpoint's tensors by module."""
        return group(self.checkpoint.tensors, self.layouts.raw)

    @cached_property
    def declarations(self) -> Declarations:
        """The config's patterns and specs."""
        return Declarations(self.quark, self.version)

    @cached_property
    def complete(self) -> bool:
        """Whether every tensor of the checkpoint is known, so that an absent one is really absent."""
        return bool(self.checkpoint.tensors) and not self.checkpoint.unread

    @cached_property
    def text(self) -> Mapping[str, Any]:
        """The language model's own config: config.json, overlaid by its nested text config."""
        config = dict(self.checkpoint.config or {})
        for key in table("roles.json")["text_configs"]:
            nested = config.get(key)
            if isinstance(nested, Mapping):
                config.update(nested)
        return config

    @cached_property
    def writer(self) -> str:
        """Which of Quark's writers made the tensors.

        Key order and header metadata decide where both say so; else the layouts that fit more modules.
        """
        hint = self.format.writer or self.reference_writer
        if hint == self.reference_writer and any(shard.metadata for shard in self.checkpoint.shards):
            return hint
        writers: list[str] = [writer["name"] for writer in table("catalog.json")["writers"]]
        return min(writers, key=lambda writer: (self._misfits(writer), writer != hint))

    @property
    def reference_writer(self) -> str:
        """The writer whose layouts other readers expect."""
        name: str = table("catalog.json")["writers"][0]["name"]
        return name

    def _misfits(self, writer: str) -> int:
        judged = self._judge(writer)
        return sum(len(entry.members) for entry in judged if entry.fit.deviations)

    def _judge(self, writer: str) -> list[Judged]:
        conditions = Conditions(writer, self.weight_format, self.mode, "")
        judge = Judge(self.declarations, self.layouts, conditions, self.kv_holder)
        return judge.all(classes(self.modules.by_name.values()))

    @cached_property
    def kv_holder(self) -> str:
        """The module on which this version and mode hang KV scales: `projection` or `attention`."""
        entry = next((row for row in self.layouts.raw["kv_cache"] if self.mode in row["modes"]), None)
        return entry["holder"] if entry else "projection"

    @cached_property
    def judged(self) -> list[Judged]:
        """Every class of modules with its spec, its rows and what deviates."""
        return self._judge(self.writer)

    @cached_property
    def by_module(self) -> Mapping[str, Judged]:
        """The class of each module."""
        return {module.name: entry for entry in self.judged for module in entry.members}

    @cached_property
    def errors(self) -> list[SchemaError]:
        """What no reader of the format version can use in the block: nothing if its exporter may write it."""
        return self.strict_errors and list(schema_errors(dict(self.block), self.version, mode=self.mode))

    @cached_property
    def strict_errors(self) -> list[SchemaError]:
        """What the exporter of the format version does not write."""
        return list(schema_errors(dict(self.block), self.version, strict=True, mode=self.mode))

    @cached_property
    def sound(self) -> list[Judged]:
        """The classes of modules whose part of the config is valid, so that its tensors can be held to it."""
        broken = {error.pointer for error in self.errors}
        if not broken:
            return self.judged
        if self.mode in table("modes.json")["modes"] or any(one.startswith("/exclude") for one in broken):
            return []
        return [entry for entry in self.judged if not _concerns(broken, entry.declared.pointer)]

    @cached_property
    def expected_elsewhere(self) -> frozenset[str]:
        """Names of Quark's whose tensor is in the file under another convention's name."""
        known = {row["suffix"]: row for row in self.layouts.raw["foreign_suffixes"]}
        on_attention = self.kv_holder == _ATTENTION
        return frozenset(
            f"{module.name}.{counterpart(known[suffix], on_attention=on_attention)}"
            for module in self.modules.by_name.values()
            for suffix in module.foreign
        )

    def at(self, pointer: str) -> str:
        """The pointer into config.json of a place in the block."""
        return f"{self.pointer}{pointer}"
