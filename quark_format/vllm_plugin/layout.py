"""How the weight of one module lies in the checkpoint: its layout row, and the steps that dequantize it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from quark_format.declarations import stages
from quark_format.formats import detect
from quark_format.layouts import DIMS, Conditions, Entry, Layouts, Row, layouts, parameters
from quark_format.tables import table
from quark_format.vllm_plugin.kernels.dequantize import Step, apply_steps, spread
from quark_format.vllm_plugin.kernels.elements import Element, decode, element, known

WEIGHT = "weight"
INPUT = "input"
OUTPUT = "output"
_LINEAR = "linear"
_REAL = "real_quantized"
_FLOATS = "stored_float"
_SCALAR = "scalar"
_INTEGER = "integer"


class NoLayoutError(ValueError):
    """A spec of which the format has no layout, so that no checkpoint can hold it."""


class Checkpoint:
    """What of a config decides how tensors lie: format version, writer, weight format, packing."""

    def __init__(self, block: Mapping[str, Any]) -> None:
        """Read the block of one config."""
        self.block = block
        verdict = detect(dict(block))
        export = block.get("export") or {}
        self.table: Layouts = layouts(verdict.version or table("catalog.json")["versions"][-1]["version"])
        self.pack_method: str | None = export.get("pack_method")
        self.conditions = Conditions(
            writer=verdict.writer or table("catalog.json")["writers"][0]["name"],
            weight_format=export.get("weight_format") or _REAL,
            mode=verdict.mode or table("catalog.json")["modes"][0]["name"],
            role=_LINEAR,
        )

    @property
    def rotation(self) -> tuple[Entry, ...]:
        """The tensors of a layer whose input is rotated at run time."""
        declared = self.table.raw.get("rotation") or {"tensors": ()}
        return tuple(
            Entry(one["suffix"], tuple(one["dtypes"]), None, True, None) for one in declared["tensors"]
        )

    @cached_property
    def rotated(self) -> frozenset[str]:
        """The checkpoint's names of the layers whose input is rotated at run time."""
        declared = self.table.raw.get("rotation")
        algorithms = self.block.get("algo_config") or ()
        if declared is None or not isinstance(algorithms, Sequence):
            return frozenset()
        found: list[str] = []
        for algorithm in algorithms:
            if algorithm.get("name") in declared["algorithms"]:
                value: Any = algorithm
                for step in declared["layers"]:
                    value = (value or {}).get(step)
                found += value or ()
        return frozenset(found)

    def row(self, part: str, spec: Any, conditions: Conditions | None = None) -> Row:
        """The layout row of `part` (weight, input) for its spec; of a linear layer unless `conditions` say.

        Raises:
            NoLayoutError: the format has none.
        """
        found = self.table.row(part, stages(spec), conditions or self.conditions)
        if found is None or found.unexportable is not None:
            why = f": {found.unexportable}" if found is not None else ""
            raise NoLayoutError(f"format {self.table.version} has no layout for this {part}{why}: {spec!r}")
        return found


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """The stored tensors of one weight and what they mean.

    `elements` says by suffix of what numbers a tensor is made; a suffix that is not there holds floats.
    """

    row: Row
    numbers: Mapping[str, int]
    elements: Mapping[str, Element]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, spec: Any) -> WeightLayout:
        """The layout of a weight with this spec.

        Raises:
            NoLayoutError: the format has none.
        """
        row = checkpoint.row(WEIGHT, spec)
        listed = stages(spec)
        declared = table("elements.json")
        recipe = next(one for one in declared["steps"] if one["layouts"] is None or row.id in one["layouts"])
        steps = tuple(Step(one["minus"], tuple(one["times"])) for one in recipe["steps"])
        _check_zero_points(row, steps, listed)
        if any(entry.suffix == WEIGHT and entry.dtypes == _FLOATS for entry in row.entries):
            return cls(row, parameters(listed), {}, ())
        order = declared["orders_by_layout"].get(row.id, checkpoint.pack_method)
        numbers = element(listed[recipe.get("code_stage", 0)]["dtype"], order)
        elements = {WEIGHT: numbers, **{step.minus: numbers for step in steps if step.minus is not None}}
        scales = _scale_element(listed)
        if scales is not None:
            elements[steps[0].times[0]] = scales
        return cls(row, parameters(listed), elements, steps)

    def dequantize(self, stored: Mapping[str, torch.Tensor], out: int, inner: int) -> torch.Tensor:
        """The float32 weight [out, inner] of its tensors by suffix.

        Raises:
            KeyError: a tensor that the layout needs is missing.
        """
        entries = {entry.suffix: entry for entry in self.row.entries}
        oriented = {suffix: self._oriented(entries[suffix], tensor) for suffix, tensor in stored.items()}
        values = oriented.pop(WEIGHT)[:out, :inner]
        if not self.steps:
            return values
        grids = {suffix: spread(grid, out, inner, self._block()) for suffix, grid in oriented.items()}
        return apply_steps(values, self.steps, grids)

    def _block(self) -> tuple[int, int] | None:
        rows, columns = self.numbers.get("block_rows"), self.numbers.get("block_columns")
        if rows is not None and columns is not None:
            return rows, columns
        group = self.numbers.get("group_size")
        return None if group is None else (1, group)

    def _oriented(self, entry: Entry, tensor: torch.Tensor) -> torch.Tensor:
        """The float32 values of a stored tensor as a grid over [out, in]."""
        if entry.shape == _SCALAR:
            return tensor.to(torch.float32).reshape(1, 1)
        of = self.elements.get(entry.suffix)
        values = tensor.to(torch.float32) if of is None else decode(tensor, of)
        if not isinstance(entry.shape, tuple):
            return values
        dims = [term.of for term in entry.shape]
        if len(dims) == 1:
            return values.unsqueeze(1 - DIMS.index(dims[0]))
        return values if tuple(dims) == DIMS else values.t()


def _check_zero_points(row: Row, steps: Sequence[Step], listed: Sequence[Mapping[str, Any]]) -> None:
    there = {entry.suffix for entry in row.entries}
    lost = [step.minus for step in steps if step.minus is not None and step.minus not in there]
    integers = any(element(stage["dtype"]).number == _INTEGER for stage in listed if known(stage["dtype"]))
    if lost and integers and any(stage.get("symmetric") is False for stage in listed):
        raise NoLayoutError(
            f"{row.title}: the weight is asymmetric, so {lost[0]} is needed to read it, and it is not stored"
        )


def _scale_element(listed: Sequence[Mapping[str, Any]]) -> Element | None:
    """The numbers of scales stored as bytes: the format of the first stage or the dtype of the second."""
    names = [listed[0].get("scale_format"), *(stage["dtype"] for stage in listed[1:])]
    declared = table("elements.json")["scale_elements"]
    return next((element(name) for name in names if name in declared), None)
