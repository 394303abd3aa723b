"""What a finding about the format means for a load: the rows `findings` of a target's loading table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from quark_format.declarations import PARTS, stages
from quark_format.modules import abstract
from quark_format.resolver import Refusal
from quark_format.roles import is_float
from quark_format.tables import table
from quark_format.validators.parallel import split_of
from quark_format.validators.taken import takes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quark_format.layouts import Deviation
    from quark_format.loading import Loading, Outcome
    from quark_format.modules import Module
    from quark_format.plan import Plan, Planned
    from quark_format.validators.context import Context
    from quark_format.validators.findings import Finding


@dataclass(frozen=True)
class Effects:
    """The effects of findings on a load by one target.

    `context` is None where the checkpoint has no config of Quark, `plan` where the target refuses it whole.
    """

    rows: Loading
    context: Context | None = None
    plan: Plan | None = None
    _by_code: Mapping[str, list[Mapping[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        """Index the rows."""
        by_code: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in self.rows.raw["findings"]:
            for code in row["codes"]:
                by_code[code].append(row)
        object.__setattr__(self, "_by_code", by_code)

    def of(self, one: Finding) -> Outcome | None:
        """What the finding means: the outcome of the first row that fits, None where none does."""
        for row in self._by_code.get(one.code, ()):
            if all(_CONDITIONS[name](self, one, wanted) for name, wanted in row.get("when", {}).items()):
                outcome: Outcome = row["outcome"]
                return outcome
        return None

    def told(self, found: Iterable[Finding]) -> list[tuple[Outcome, str]]:
        """The effects of all findings that have one, with their messages."""
        return [(effect, one.message) for one in found if (effect := self.of(one))]

    def plain(self, name: str) -> bool:
        """Whether the target builds the module of the checkpoint, one that can be quantized, unquantized."""
        planned = self._planned(name)
        if planned is None:
            return False
        if planned.kind in self.rows.raw["unquantized"]["kinds"]:
            return True
        answer = planned.answer
        layer = answer.layer if isinstance(answer.layer, dict) else {}
        return not isinstance(answer, Refusal) and not stages(layer.get(PARTS["weight"]))

    def below_linear(self, name: str) -> bool:
        """Whether `name` is one of a tensor or module below a linear layer."""
        holder = name if self.plan is None else self.plan.implementation.rename(name)
        leaf = holder.rpartition(".")[0].rpartition(".")[2]
        return leaf in _linear_leaves() or (self.plan is not None and leaf in self.plan.implementation.joined)

    def _planned(self, name: str) -> Planned | None:
        return None if self.plan is None else self.plan.by_module.get(name)

    def _module(self, one: Finding) -> Module | None:
        return None if self.context is None else self.context.modules.by_name.get(_name(one))

    def _file(self, one: Finding, globs: Iterable[str]) -> bool:
        return _like(one.file, globs)

    def _pointer(self, one: Finding, globs: Iterable[str]) -> bool:
        return _like(one.pointer, globs)

    def _tensor(self, one: Finding, globs: Iterable[str]) -> bool:
        return _like(one.tensor, globs)

    def _row(self, one: Finding, globs: Iterable[str]) -> bool:
        planned = self._planned(_name(one))
        if planned is None:
            return False
        answer = planned.answer
        return _like(answer.nearest if isinstance(answer, Refusal) else answer.choice.row, globs)

    def _stage(self, one: Finding, wanted: Mapping[str, Mapping[str, list[Any]]]) -> bool:
        planned = self._planned(_name(one))
        layer = planned.answer.layer if planned else None
        return isinstance(layer, dict) and all(
            next(iter(stages(layer.get(PARTS[part]))), {}).get(key) in values
            for part, fields in wanted.items()
            for key, values in fields.items()
        )

    def _float(self, one: Finding, wanted: bool) -> bool:
        tensor = self.context.checkpoint.tensors.get(one.tensor or "") if self.context else None
        return tensor is not None and is_float(tensor.dtype) == wanted

    def _dtype(self, one: Finding, wanted: Iterable[str]) -> bool:
        tensor = self.context.checkpoint.tensors.get(one.tensor or "") if self.context else None
        return tensor is not None and tensor.dtype in wanted

    def _quantized(self, one: Finding, wanted: bool) -> bool:
        known = self.plan is None or _name(one) in self.plan.by_module
        return (known and not self.plain(_name(one))) == wanted

    def _linear(self, one: Finding, wanted: bool) -> bool:
        return (_name(one).rpartition(".")[2] in _linear_leaves()) == wanted

    def _single(self, one: Finding, wanted: bool) -> bool:
        stored = self.context.checkpoint.tensors.get(one.tensor or "") if self.context else None
        return (stored is not None and prod(stored.shape) == 1) == wanted

    def _boxed(self, one: Finding, wanted: bool) -> bool:
        deviation = self._deviation(one)
        return (deviation is not None and prod(deviation.shape or ()) == 1) == wanted

    def _overwritten(self, one: Finding, wanted: bool) -> bool:
        """Whether the target keeps one tensor for the modules that it joins, that of another one."""
        leaf = _name(one).rpartition(".")[2]
        joined = {} if self.plan is None else self.plan.implementation.joined
        members = self.plan.implementation.fused[joined[leaf]] if self.plan and leaf in joined else (leaf,)
        return (leaf != max(members)) == wanted

    def _renamed(self, one: Finding, wanted: bool) -> bool:
        """Whether a module lies beside that no other layer has."""
        parent = _name(one).rpartition(".")[0]
        own: set[str] = set()
        others: set[str] = set()
        for name in self.context.modules.by_name if self.context else ():
            holder, _, leaf = name.rpartition(".")
            if abstract(holder) == abstract(parent):
                (own if holder == parent else others).add(leaf)
        return (bool(others) and not own <= others) == wanted

    def _taken(self, one: Finding, wanted: bool) -> bool:
        """Whether the target takes the tensor although its shape is another."""
        deviation, module = self._deviation(one), self._module(one)
        rows = (row for row in self.rows.raw["shapes"] if self._row(one, row["rows"]))
        row = next((row for row in rows if deviation and _like(deviation.suffix, row["suffixes"])), None)
        if row is None or module is None or deviation is None:
            return not wanted
        joined = self.plan is not None and module.name.rpartition(".")[2] in self.plan.implementation.joined
        dim = split_of(self.context, module.name)[0] if self.context else None
        stored = module.tensors[deviation.suffix].shape
        return takes(row, deviation, stored, dim, joined=joined) == wanted

    def _deviation(self, one: Finding) -> Deviation | None:
        """How the shape of the tensor differs from what the format says."""
        entry = self.context.by_module.get(_name(one)) if self.context else None
        suffix = (one.tensor or "").rpartition(".")[2]
        deviations = entry.fit.deviations if entry else ()
        return next((d for d in deviations if d.suffix == suffix and d.shape is not None), None)

    def _everywhere(self, one: Finding, wanted: bool) -> bool:
        """Whether the tensor has another shape than the format's in each module of that name."""
        name, suffix = _name(one), (one.tensor or "").rpartition(".")[2]
        modules = self.context.by_module if self.context else {}
        alike = [
            entry.fit.deviations for other, entry in modules.items() if abstract(other) == abstract(name)
        ]
        deviating = [any(d.suffix == suffix and d.shape is not None for d in found) for found in alike]
        return (len(alike) > 1 and all(deviating)) == wanted


@cache
def _linear_leaves() -> frozenset[str]:
    rows = table("roles.json")["parallel"]["modules"]
    return frozenset(leaf for row in rows if "padded_to" not in row for leaf in row["modules"])


def _name(one: Finding) -> str:
    return one.module or (one.tensor or "").rpartition(".")[0]


def _like(name: str | None, globs: Iterable[str]) -> bool:
    return name is not None and any(fnmatchcase(name, glob) for glob in globs)


_CONDITIONS: Mapping[str, Callable[[Effects, Finding, Any], bool]] = {
    "files": Effects._file,
    "pointers": Effects._pointer,
    "tensors": Effects._tensor,
    "rows": Effects._row,
    "stage": Effects._stage,
    "dtypes": Effects._dtype,
    "float": Effects._float,
    "quantized": Effects._quantized,
    "linear": Effects._linear,
    "single": Effects._single,
    "boxed": Effects._boxed,
    "overwritten": Effects._overwritten,
    "renamed": Effects._renamed,
    "everywhere": Effects._everywhere,
    "taken": Effects._taken,
}
