"""The values themselves: scales and zero points, and on request every weight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quark_format.safe_files import CannotOpenError
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.options import Values
from quark_format.values import Data, Survey, numbers, opened

if TYPE_CHECKING:
    from quark_format.modules import Module
    from quark_format.safetensors_header import Tensor
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged


_ZERO_POINT = ("zero_point", "qzeros")
_SCALE = ("scale", "scales", "scale_2")
_MATRIX = 2
_TWO_STAGES = 2


@dataclass(frozen=True, slots=True)
class _Small:
    """A scale or zero point, and what it belongs to."""

    tensor: Tensor
    suffix: str
    part: str
    module: Module
    entry: Judged


def check(context: Context, values: Values) -> Iterator[Finding]:
    """Yield what is wrong with values: of scales and zero points, with `Values.ALL` of weights too."""
    if values is not Values.NONE:
        yield from _one_of_each(_all(context, values))


def _one_of_each(found: Iterable[Finding]) -> Iterator[Finding]:
    """The first finding of each rule and kind of tensor, with the number of all."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        kind = (one.tensor or "").rpartition(".")[2]
        group = groups.setdefault((one.code, kind), [one])
        if group[0] is not one:
            group[0] = replace(group[0], count=group[0].count + one.count)
    return (group[0] for group in groups.values())


def _all(context: Context, values: Values) -> Iterator[Finding]:
    folder = context.checkpoint.path.resolve()
    plan = _plan(context, values)
    single: dict[str, float] = {}
    zeros: list[tuple[_Small, Any]] = []
    for file, rows in plan.items():
        try:
            with opened(folder, file) as data:
                for tensor, small in sorted(rows, key=lambda row: row[0].start):
                    if small is None:
                        yield from _of_large(tensor, data)
                    else:
                        yield from _of_small(small, data, single, zeros)
        except CannotOpenError as error:
            yield finding("QF710", file=file, reason=str(error))
    yield from _global_scales(context, single)
    if values is Values.ALL:
        yield from _useless_zeros(folder, zeros)


def _plan(context: Context, values: Values) -> dict[str, list[tuple[Tensor, _Small | None]]]:
    """The tensors to read by file: scales and zero points with what they belong to, others with None."""
    small = {one.tensor.name: one for one in _small(context)}
    plan: dict[str, list[tuple[Tensor, _Small | None]]] = defaultdict(list)
    for one in small.values():
        plan[one.tensor.file].append((one.tensor, one))
    if values is Values.ALL:
        for tensor in context.checkpoint.tensors.values():
            if tensor.name not in small:
                plan[tensor.file].append((tensor, None))
    return dict(sorted(plan.items()))


def _small(context: Context) -> Iterator[_Small]:
    limit = table("values.json")["largest_scale_bytes"]
    for entry in context.judged:
        for module in entry.members:
            for suffix, tensor in module.tensors.items():
                part = context.layouts.parts.get(suffix)
                if part and suffix.endswith((*_SCALE, *_ZERO_POINT)) and tensor.end - tensor.start <= limit:
                    yield _Small(tensor, suffix, part, module, entry)


def _meaning(one: _Small) -> str | None:
    """The spec's name for the format of a scale."""
    stages = one.entry.specs.get(one.part, ())
    for stage in stages:
        if stage.get("scale_format"):
            return str(stage["scale_format"])
    return str(stages[1].get("dtype")) if len(stages) == _TWO_STAGES else None


def _of_small(
    one: _Small, data: Data, single: dict[str, float], zeros: list[tuple[_Small, Any]]
) -> Iterator[Finding]:
    found = numbers(data.read(one.tensor), one.tensor.dtype, None if _is_zero_point(one) else _meaning(one))
    if found is None or not len(found):
        return
    if _is_zero_point(one):
        yield from _zero_points(one, found)
        return
    if len(found) == 1:
        single[one.tensor.name] = float(found[0])
    yield from _scales(one, found, zeros)


def _is_zero_point(one: _Small) -> bool:
    return any(word in one.suffix for word in _ZERO_POINT)


def _scales(one: _Small, found: Any, zeros: list[tuple[_Small, Any]]) -> Iterator[Finding]:
    import numpy  # noqa: PLC0415

    rows = table("values.json")
    found = found.astype("f8")
    finite = numpy.isfinite(found)
    place: dict[str, Any] = {"file": one.tensor.file, "tensor": one.tensor.name, "module": one.module.name}
    unwritten = found <= rows["never_written"]["at_most"]
    for code, wrong in (
        ("QF701", ~finite),
        ("QF702", unwritten),
        ("QF703", finite & (found < 0) & ~unwritten),
        ("QF704", finite & (found == 0)),
    ):
        count = int(numpy.count_nonzero(wrong))
        if not count:
            continue
        if code == "QF704" and one.part == "weight" and len(found) > 1:
            zeros.append((one, wrong))
            continue
        if code == "QF704" and one.part in _KV_PARTS and _is_kv(one):
            continue
        first = int(wrong.argmax())
        yield finding(code, **place, number=f"{count:,}", of=f"{len(found):,}", actual=f"{found[first]:g}")
    if _is_kv(one) and len(found) == 1 and float(found[0]) in rows["uncalibrated_kv"]:
        yield finding("QF708", **place, actual=f"{float(found[0]):g}")


_KV_PARTS = ("output", "attention")


def _is_kv(one: _Small) -> bool:
    return one.part == "attention" or (one.part == "output" and one.entry.kv)


def _zero_points(one: _Small, found: Any) -> Iterator[Finding]:
    import numpy  # noqa: PLC0415

    stages = one.entry.specs.get(one.part, ())
    if not stages or not all(stage.get("symmetric") is True for stage in stages):
        return
    count = int(numpy.count_nonzero(found))
    if count:
        yield finding(
            "QF706",
            file=one.tensor.file,
            tensor=one.tensor.name,
            module=one.module.name,
            number=f"{count:,}",
            of=f"{len(found):,}",
            actual=str(found[found != 0][0]),
        )


def _global_scales(context: Context, single: Mapping[str, float]) -> Iterator[Finding]:
    """Shards of a fused module whose one-number scales of a two-stage spec differ."""
    two_stage: dict[tuple[str, str], dict[str, Tensor]] = defaultdict(dict)
    for entry in context.judged:
        for part, spec in entry.specs.items():
            if len(spec) != _TWO_STAGES or entry.rows[part] is None:
                continue
            for module in entry.members:
                parent, _, leaf = module.name.rpartition(".")
                for suffix, tensor in module.tensors.items():
                    if tensor.name in single and context.layouts.parts.get(suffix) == part:
                        two_stage[parent, suffix][leaf] = tensor
    for (parent, suffix), leaves in two_stage.items():
        for group in table("roles.json")["fused"]:
            held = [leaves[leaf] for leaf in group["members"] if leaf in leaves]
            values = [single[tensor.name] for tensor in held]
            if len(set(values)) > 1:
                yield finding(
                    "QF705",
                    file=held[0].file,
                    tensor=held[0].name,
                    module=parent,
                    members=", ".join(tensor.name.split(".")[-2] for tensor in held),
                    suffix=suffix,
                    actual=", ".join(f"{value:g}" for value in values),
                )


def _of_large(tensor: Tensor, data: Data) -> Iterator[Finding]:
    survey = Survey(tensor.dtype)
    for seen in data.each(tensor, survey.look):
        survey.add(seen)
    place: dict[str, Any] = {"file": tensor.file, "tensor": tensor.name}
    if survey.unusable:
        yield finding("QF707", **place, number=f"{survey.unusable:,}", dtype=tensor.dtype, first=survey.first)
    if survey.constant and len(tensor.shape) >= _MATRIX and tensor.end > tensor.start:
        yield finding("QF709", **place)
    if survey.saturated > table("values.json")["saturation"]["share"] and not survey.constant:
        yield finding("QF711", **place, share=f"{survey.saturated:.0%}")


def _useless_zeros(folder: Any, zeros: Sequence[tuple[_Small, Any]]) -> Iterator[Finding]:
    """Zero scales whose codes are not all zero, so that weights are lost."""
    import numpy  # noqa: PLC0415

    for one, wrong in zeros:
        weight = one.module.weight
        if weight is None or len(weight.shape) != _MATRIX:
            continue
        grid = wrong.reshape(one.tensor.shape if len(one.tensor.shape) == _MATRIX else (-1, 1))
        view = table("values.json")["codes"].get(weight.dtype, {"view": "<u1"})["view"]
        try:
            with opened(folder, weight.file) as data:
                codes = numpy.frombuffer(data.read(weight), view).reshape(weight.shape[0], -1)
        except (CannotOpenError, ValueError):
            continue
        if codes.shape[0] % grid.shape[0] or codes.shape[1] % grid.shape[1]:
            continue
        rows, columns = codes.shape[0] // grid.shape[0], codes.shape[1] // grid.shape[1]
        blocks = codes.reshape(grid.shape[0], rows, grid.shape[1], columns)
        lost = int(numpy.count_nonzero(grid & (blocks != 0).any(axis=(1, 3))))
        if lost:
            yield finding(
                "QF704",
                file=one.tensor.file,
                tensor=one.tensor.name,
                module=one.module.name,
                number=f"{lost:,}",
                of=f"{grid.size:,}",
                actual="0",
            )
