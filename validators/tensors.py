"""The tensors of each module against the layout row of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quark_format.declarations import describe
from quark_format.layouts import ANY, Conditions, fit, layouts, recognize
from quark_format.layouts import describe as describe_tensor
from quark_format.modules import abstract
from quark_format.roles import is_packed
from quark_format.tables import table
from quark_format.validators.agreement import disagreement
from quark_format.validators.context import counterpart
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.layouts import Deviation, Layouts
    from quark_format.safetensors_header import Tensor
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_NEEDS_WEIGHT = frozenset({"weight", "input"})


def check(context: Context) -> Iterator[Finding]:
    """Yield what is missing, extra, of a wrong dtype or shape, and layouts that few readers expect."""
    for entry in context.judged:
        yield from _foreign(context, entry)
        if entry.first.weight is None:
            yield from _weightless(context, entry)
    for entry in context.sound:
        as_declared = entry.stored_as_declared or entry.expects_float
        if entry.first.weight is not None and as_declared and disagreement(entry) is None:
            yield from _against_rows(context, entry)
    yield from _loose(context)
    yield from _file2file(context)
    yield from _rotation(context)


def _weightless(context: Context, entry: Judged) -> Iterator[Finding]:
    module = entry.first
    if not context.complete or module.foreign:
        return
    for suffix, tensor in module.tensors.items():
        if context.layouts.parts.get(suffix) in _NEEDS_WEIGHT:
            yield finding(
                "QF307",
                file=tensor.file,
                tensor=tensor.name,
                module=module.name,
                count=len(entry.members),
            )
            return


def _foreign(context: Context, entry: Judged) -> Iterator[Finding]:
    known = {row["suffix"]: row for row in context.layouts.raw["foreign_suffixes"]}
    for suffix, tensor in entry.first.foreign.items():
        place: dict[str, Any] = {
            "file": tensor.file,
            "tensor": tensor.name,
            "module": entry.first.name,
            "count": len(entry.members),
        }
        row = known[suffix]
        expected = counterpart(row, on_attention=context.kv_holder == "attention")
        if expected is None:
            told = f"; it is one of {row['convention']}"
            yield finding("QF312", **place, dtype=describe_tensor(tensor), convention=told)
        else:
            full = f"{entry.first.name}.{expected}"
            yield finding("QF308", **place, convention=row["convention"], expected=full)


def _loose(context: Context) -> Iterator[Finding]:
    """Tensors of a dtype that only codes have, under names that are none of the format's."""
    found: dict[tuple[str, str], list[Tensor]] = {}
    for tensor in context.modules.loose.values():
        if is_packed(tensor.dtype):
            found.setdefault((abstract(tensor.name), tensor.dtype), []).append(tensor)
    for tensors in found.values():
        yield finding(
            "QF312",
            file=tensors[0].file,
            tensor=tensors[0].name,
            count=len(tensors),
            dtype=describe_tensor(tensors[0]),
            convention="",
        )


def _against_rows(context: Context, entry: Judged) -> Iterator[Finding]:
    for part, row in entry.rows.items():
        spec = entry.specs[part]
        if spec and all(stage.get("dtype") for stage in spec) and (row is None or row.unexportable):
            yield finding(
                "QF311",
                module=entry.first.name,
                pointer=context.at(entry.declared.pointer),
                count=len(entry.members),
                spec=f"{part} {describe(spec)}",
                version=context.version,
            )
            return
    elsewhere = _other_mode(context, entry) or _elsewhere(context, entry)
    if elsewhere is not None:
        yield elsewhere
        return
    for deviation in entry.fit.deviations:
        if entry.kv and context.layouts.parts.get(deviation.suffix) == "output":
            continue
        name = f"{entry.first.name}.{deviation.suffix}"
        absent = deviation.kind == "missing"
        if not absent or (context.complete and name not in context.expected_elsewhere):
            yield _deviation(context, entry, deviation)


def _other_mode(context: Context, entry: Judged) -> Finding | None:
    """The names of another mode of the exporter that the tensors have."""
    if not any(deviation.kind == "extra" for deviation in entry.fit.deviations):
        return None
    for mode in table("catalog.json")["modes"]:
        found = recognize(entry.first.tensors, context.layouts, mode["name"], context.weight_format)
        if found is not None and context.mode not in found.modes:
            return finding(
                "QF319",
                module=entry.first.name,
                count=len(entry.members),
                other=mode["quant_method"],
                row=found.title,
                mode=context.mode,
            )
    return None


def _elsewhere(context: Context, entry: Judged) -> Finding | None:
    """The layout of another format version that the tensors have instead of their own."""
    row = entry.rows["weight"]
    shapes = [deviation for deviation in entry.fit.deviations if deviation.kind == "shape"]
    if row is None or not shapes:
        return None
    for version in table("catalog.json")["versions"]:
        other = layouts(version["version"])
        found = recognize(entry.first.tensors, other, context.mode, context.weight_format)
        if (
            found is not None
            and not fit([(found, entry.specs["weight"])], _of_weight(entry, other), other).deviations
            and found.id not in {known.id for known in context.layouts.rows}
            and found.takes(entry.specs["weight"])
            and context.writer in found.writers
        ):
            return finding(
                "QF310",
                module=entry.first.name,
                count=len(entry.members),
                actual=f"“{found.title}”",
                other=other.version,
                version=context.version,
            )
    return None


def _of_weight(entry: Judged, other: Layouts) -> dict[str, Tensor]:
    return {suffix: one for suffix, one in entry.first.tensors.items() if other.parts.get(suffix) == "weight"}


_CODES = {"missing": "QF301", "extra": "QF302", "dtype": "QF303", "shape": "QF304", "indivisible": "QF412"}


def _deviation(context: Context, entry: Judged, deviation: Deviation) -> Finding:
    module, row = entry.first, deviation.row
    spec = f"{row.part} {describe(entry.specs[row.part])}"
    tensor = module.tensors.get(deviation.suffix)
    place: dict[str, Any] = {
        "file": tensor.file if tensor else None,
        "tensor": f"{module.name}.{deviation.suffix}",
        "module": module.name,
        "count": len(entry.members),
    }
    if deviation.kind == "indivisible":
        return finding(
            "QF412",
            **place,
            dim=deviation.dim,
            size=deviation.size,
            divisor=deviation.divisor,
            number=deviation.number,
        )
    if deviation.kind == "extra" and "zero_point" in deviation.suffix:
        return finding("QF313", **place, spec=spec)
    fields: dict[str, Any] = {
        "spec": spec,
        "row": row.title,
        "actual": deviation.actual,
        "expected": deviation.expected,
    }
    if deviation.kind != "shape" or tensor is None:
        return finding(_CODES[deviation.kind], **place, **fields)
    if deviation.shape is not None and _transposed(tensor.shape, deviation.shape):
        return finding("QF305", **place, **fields)
    stored = recognize(module.tensors, context.layouts, context.mode, context.weight_format)
    if stored is not None and stored.id != row.id and deviation.suffix == "weight":
        return finding("QF306", **place, **{**fields, "stored": stored.title, "expected": row.title})
    others = [
        describe_tensor(other) for suffix, other in module.tensors.items() if suffix != deviation.suffix
    ]
    return finding("QF304", **place, **fields, others=" and ".join(others) or "nothing else")


def _transposed(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[::-1] == expected and shape != expected


def _file2file(context: Context) -> Iterator[Finding]:
    """One finding for layouts that only this writer makes, and one for static scales that it never stores."""
    if context.writer == context.reference_writer:
        return
    own = [
        (entry, row)
        for entry in context.judged
        if (row := entry.rows["weight"]) and row.writers == (context.writer,) and entry.has_scales
    ]
    if own:
        entry, row = own[0]
        tensor = entry.first.tensors[entry.first.scales[0]]
        reference = Conditions(
            context.reference_writer, context.weight_format, context.mode, entry.role.layout
        )
        expected = context.layouts.row("weight", entry.specs["weight"], reference)
        yield finding(
            "QF309",
            file=tensor.file,
            tensor=tensor.name,
            module=entry.first.name,
            count=sum(len(entry.members) for entry, _ in own),
            actual=row.title,
            expected=expected.title if expected else "none",
        )
    bare = [
        (entry, part)
        for entry in context.judged
        for part, row in entry.rows.items()
        if row is not None and row.uncalibrated and entry.first.weight is not None
    ]
    if bare:
        entry, part = bare[0]
        yield finding(
            "QF317",
            module=entry.first.name,
            pointer=context.at(entry.declared.pointer),
            count=sum(len(entry.members) for entry, _ in bare),
            part=part,
            spec=describe(entry.specs[part]),
        )


def _rotation(context: Context) -> Iterator[Finding]:
    rotated = _rotated(context)
    name_of = context.layouts.raw["rotation"]["tensors"][0]["suffix"]
    for entry in context.judged:
        tensor = entry.first.tensors.get(name_of)
        size = entry.fit.sizes.get("in", ANY)
        if tensor is None:
            continue
        square = len(tensor.shape) == _MATRIX and tensor.shape[0] == tensor.shape[1]
        if not square or (size[0] == size[1] and size[0] % max(tensor.shape[0], 1)):
            yield finding(
                "QF318",
                file=tensor.file,
                tensor=tensor.name,
                module=entry.first.name,
                count=len(entry.members),
                actual=list(tensor.shape),
                size=size[0],
            )
        if rotated is None:
            yield finding(
                "QF315",
                file=tensor.file,
                tensor=tensor.name,
                module=entry.first.name,
                count=len(entry.members),
            )
    modules = context.modules.by_name
    missing = [name for name in rotated or () if name in modules and name_of not in modules[name].tensors]
    if missing and context.complete:
        yield finding("QF314", module=missing[0], count=len(missing), pointer=context.at("/algo_config"))


def _rotated(context: Context) -> list[str] | None:
    """The modules that algo_config lists as rotated at run time; None if it declares no such algorithm."""
    declared = context.block.get("algo_config")
    algorithms = declared if isinstance(declared, list) else [declared]
    table_ = context.layouts.raw["rotation"]
    for algorithm in algorithms:
        if isinstance(algorithm, Mapping) and algorithm.get("name") in table_["algorithms"]:
            value: Any = algorithm
            for key in table_["layers"]:
                value = value.get(key) if isinstance(value, Mapping) else None
            return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    return None


_MATRIX = 2
