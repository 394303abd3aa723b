"""Layout rows (`vX.Y/tensors.json`): which tensors a module has for a spec, and whether the file has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from quark_format.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.declarations import Spec, Stages
    from quark_format.safetensors_header import Tensor

Dim = Literal["out", "in"]
DIMS: tuple[Dim, ...] = ("out", "in")
Interval = tuple[int, int]
Sizes = Mapping[Dim, Interval]
"""What is known of the logical `out` and `in` of a module: the least and the greatest value that fit."""

ANY: Interval = (0, 1 << 62)
_SCALAR = "scalar"
_SCALAR_SHAPES = ((), (1,))


@dataclass(frozen=True, slots=True)
class Term:
    """One axis of a stored tensor: `of` times `times`, divided by `over`, rounded as `round` says."""

    of: Dim
    times: int
    over: int | str
    round: str

    def divisor(self, parameters: Mapping[str, int]) -> int | None:
        """The number that `over` stands for, None if the spec does not give it."""
        return self.over if isinstance(self.over, int) else parameters.get(self.over)

    def sizes(self, stored: int, parameters: Mapping[str, int]) -> Interval | None:
        """The values of `of` that give `stored` elements, None if there is no such value."""
        over = self.divisor(parameters)
        if over is None:
            return ANY
        if over <= 0:
            return ANY if stored == 1 else None
        return _PREIMAGES[self.round](stored, self.times, over)

    def elements(self, size: Interval, parameters: Mapping[str, int]) -> int | None:
        """How many elements the axis has for a known `size`, None where that is open."""
        over = self.divisor(parameters)
        if over is None or size[0] != size[1]:
            return None
        if over <= 0:
            return 1
        return _IMAGES[self.round](size[0] * self.times, over)


def _exact(stored: int, times: int, over: int) -> Interval | None:
    size, rest = divmod(stored * over, times)
    return None if rest else (size, size)


def _up(stored: int, times: int, over: int) -> Interval | None:
    low, high = ((stored - 1) * over) // times + 1, (stored * over) // times
    return (max(low, 0), high) if low <= high else None


def _down(stored: int, times: int, over: int) -> Interval | None:
    low, high = -((-stored * over) // times), ((stored + 1) * over - 1) // times
    return (low, high) if low <= high else None


_PREIMAGES: dict[str, Callable[[int, int, int], Interval | None]] = {
    "exact": _exact,
    "up": _up,
    "down": _down,
}
_IMAGES: dict[str, Callable[[int, int], int]] = {
    "exact": lambda value, over: value // over,
    "up": lambda value, over: -(-value // over),
    "down": lambda value, over: value // over,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a row: its suffix, its dtypes (a list, or a set the spec chooses from), its shape."""

    suffix: str
    dtypes: tuple[str, ...] | str
    shape: tuple[Term, ...] | Literal["scalar"] | None
    optional: bool
    beside: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One layout row; see `schema/tensors.schema.json` for the fields."""

    id: str
    title: str
    part: str
    writers: tuple[str, ...]
    weight_formats: tuple[str, ...]
    modes: tuple[str, ...]
    roles: tuple[str, ...]
    stages: tuple[Mapping[str, tuple[Any, ...]], ...]
    entries: tuple[Entry, ...]
    forbidden: frozenset[str]
    unexportable: str | None
    uncalibrated: bool
    source: str

    def takes(self, stages: Stages) -> bool:
        """Whether the row is for a spec of these stages."""
        return len(stages) == len(self.stages) and all(
            _among(spec.get(field), values)
            for spec, allowed in zip(stages, self.stages, strict=True)
            for field, values in allowed.items()
        )


def _among(value: Any, values: tuple[Any, ...]) -> bool:
    return any(value is other or (type(value) is type(other) and value == other) for other in values)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What else, beside the spec, chooses a row."""

    writer: str
    weight_format: str
    mode: str
    role: str

    def allow(self, row: Row) -> bool:
        """Whether `row` exists under these conditions."""
        return (
            self.writer in row.writers
            and self.weight_format in row.weight_formats
            and self.mode in row.modes
            and self.role in row.roles
        )


class Layouts:
    """The layout table of one format version."""

    def __init__(self, version: str) -> None:
        """Read the table of format `version`."""
        self.raw = table(f"v{version}/tensors.json")
        self.version = version
        self.rows = tuple(_row(entry) for entry in self.raw["rows"])
        self.parts = {suffix: part for part, suffixes in self.raw["suffixes"].items() for suffix in suffixes}

    def row(self, part: str, stages: Stages, conditions: Conditions) -> Row | None:
        """The one row of `part` for a spec of these stages, None if the format has no layout for it."""
        found = (row for row in self.rows if row.part == part and conditions.allow(row) and row.takes(stages))
        return next(found, None)

    def dtypes(self, entry: Entry, stages: Stages) -> tuple[str, ...]:
        """The safetensors dtypes that `entry` allows for a spec of these stages."""
        if isinstance(entry.dtypes, tuple):
            return entry.dtypes
        chosen = self.raw["dtype_sets"][entry.dtypes]
        if "dtypes" in chosen:
            return tuple(chosen["dtypes"])
        cases, field = chosen["cases"], chosen["by"]
        names = (_name(spec.get(field)) for spec in stages)
        return tuple(chain.from_iterable(cases.get(name, ()) for name in names)) or tuple(
            chain.from_iterable(cases.values())
        )


def _name(value: Any) -> str:
    return "null" if value is None else str(value)


def _row(entry: Mapping[str, Any]) -> Row:
    return Row(
        id=entry["id"],
        title=entry["title"],
        part=entry["part"],
        writers=tuple(entry["writers"]),
        weight_formats=tuple(entry["weight_formats"]),
        modes=tuple(entry["modes"]),
        roles=tuple(entry["roles"]),
        stages=tuple({key: tuple(values) for key, values in stage.items()} for stage in entry["stages"]),
        entries=tuple(_entry(tensor) for tensor in entry["tensors"]),
        forbidden=frozenset(entry["forbidden"]),
        unexportable=entry["unexportable"],
        uncalibrated=entry["uncalibrated"],
        source=entry["source"],
    )


def _entry(tensor: Mapping[str, Any]) -> Entry:
    dtypes, shape = tensor["dtypes"], tensor.get("shape")
    return Entry(
        suffix=tensor["suffix"],
        dtypes=dtypes["set"] if isinstance(dtypes, Mapping) else tuple(dtypes),
        shape=tuple(Term(**term) for term in shape) if isinstance(shape, list) else shape,
        optional=tensor["optional"],
        beside=tensor.get("beside"),
    )


@cache
def layouts(version: str) -> Layouts:
    """The layout table of format `version`, read once."""
    return Layouts(version)


def parameters(stages: Stages) -> dict[str, int]:
    """The numbers that shapes divide by: `group_size`, and the two of `block_size`."""
    found: dict[str, int] = {}
    for spec in stages:
        group, block = spec.get("group_size"), spec.get("block_size")
        if isinstance(group, int):
            found.setdefault("group_size", group)
        if (
            isinstance(block, Sequence)
            and len(block) == len(DIMS)
            and all(isinstance(size, int) for size in block)
        ):
            found.setdefault("block_rows", block[0])
            found.setdefault("block_columns", block[1])
    return found


Kind = Literal["missing", "extra", "dtype", "shape", "indivisible"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way in which a module's tensors are not those of its row.

    `actual` and `expected` are texts such as `F32 [512, 2]`; `shape` is the expected shape where it is known.
    """

    kind: Kind
    suffix: str
    row: Row
    actual: str = ""
    expected: str = ""
    shape: tuple[int, ...] | None = None
    dim: Dim | None = None
    size: int = 0
    number: int = 0
    divisor: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of laying rows over a module: what deviates, and what is known of its sizes."""

    deviations: tuple[Deviation, ...]
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class _Bound:
    """What one axis of one stored tensor says of a dimension."""

    suffix: str
    dim: Dim
    interval: Interval | None


Claim = tuple["Row", "Stages"]
"""A row and the spec it is laid for."""


def fit(
    claims: Sequence[Claim], tensors: Mapping[str, Tensor], table_: Layouts, anchor: Sizes | None = None
) -> Fit:
    """Lay the rows of `claims`, at most one of each part, over the `tensors` of one module.

    `anchor` gives sizes known from elsewhere (the same module in other layers): where tensors disagree, it
    tells which of them is wrong. Without one, scales and zero points are blamed before the weight.
    """
    deviations: list[Deviation] = []
    entries: dict[str, tuple[Entry, Row, Mapping[str, int]]] = {}
    for row, stages in claims:
        numbers = parameters(stages)
        deviations += _presence(row, tensors)
        for entry in row.entries:
            tensor = tensors.get(entry.suffix)
            if tensor is None:
                continue
            allowed = table_.dtypes(entry, stages)
            if tensor.dtype not in allowed:
                deviations.append(Deviation("dtype", entry.suffix, row, tensor.dtype, " or ".join(allowed)))
            entries[entry.suffix] = (entry, row, numbers)
    bounds: list[_Bound] = []
    misshapen: dict[str, None] = {}
    for suffix, (entry, _, divisors) in entries.items():
        found = list(_bounds(entry, tensors[suffix], divisors))
        if any(bound.interval is None for bound in found) or _wrong_rank(entry, tensors[suffix]):
            misshapen[suffix] = None
        else:
            bounds += found
    blamed = _blame(bounds, anchor or {})
    sizes = _meet([bound for bound in bounds if bound.suffix not in blamed], anchor or {}) or dict.fromkeys(
        DIMS, ANY
    )
    for suffix in (*misshapen, *blamed):
        entry, row, divisors = entries[suffix]
        deviations.append(_shape_deviation(entry, row, divisors, tensors[suffix], sizes))
    return Fit(tuple(deviations), sizes)


def _presence(row: Row, tensors: Mapping[str, Tensor]) -> Iterator[Deviation]:
    for entry in row.entries:
        needed = not entry.optional and (entry.beside is None or entry.beside in tensors)
        if needed and entry.suffix not in tensors:
            yield Deviation("missing", entry.suffix, row)
    for suffix in tensors:
        if suffix in row.forbidden:
            yield Deviation("extra", suffix, row, describe(tensors[suffix]))


def _wrong_rank(entry: Entry, tensor: Tensor) -> bool:
    if entry.shape is None:
        return False
    if entry.shape == _SCALAR:
        return tensor.shape not in _SCALAR_SHAPES
    return len(tensor.shape) != len(entry.shape)


def _bounds(entry: Entry, tensor: Tensor, numbers: Mapping[str, int]) -> Iterator[_Bound]:
    if isinstance(entry.shape, tuple) and len(entry.shape) == len(tensor.shape):
        for term, stored in zip(entry.shape, tensor.shape, strict=True):
            yield _Bound(entry.suffix, term.of, term.sizes(stored, numbers))


def _meet(bounds: Sequence[_Bound], anchor: Sizes) -> dict[Dim, Interval] | None:
    """The sizes that all `bounds` allow, None if there are none."""
    sizes: dict[Dim, Interval] = {dim: anchor.get(dim, ANY) for dim in DIMS}
    for bound in bounds:
        if bound.interval is None:
            return None
        low, high = sizes[bound.dim]
        low, high = max(low, bound.interval[0]), min(high, bound.interval[1])
        if low > high:
            return None
        sizes[bound.dim] = (low, high)
    return sizes


def _blame(bounds: Sequence[_Bound], anchor: Sizes) -> list[str]:
    """The fewest suffixes whose removal lets the others agree: one, or all that contradict the rest."""
    if _meet(bounds, anchor) is not None:
        return []
    suffixes = sorted({bound.suffix for bound in bounds}, key=_trust)
    for suffix in suffixes:
        if _meet([bound for bound in bounds if bound.suffix != suffix], anchor) is not None:
            return [suffix]
    kept: list[_Bound] = []
    blamed = []
    for suffix in reversed(suffixes):
        own = [bound for bound in bounds if bound.suffix == suffix]
        if _meet([*kept, *own], anchor) is None:
            blamed.append(suffix)
        else:
            kept += own
    return blamed


_TRUSTED_LAST_TO_FIRST = ("zero_point", "qzeros", "scale", "bias", "weight")


def _trust(suffix: str) -> int:
    """How late a tensor is blamed: weights last."""
    return next(
        (rank for rank, word in enumerate(_TRUSTED_LAST_TO_FIRST) if word in suffix.removeprefix("weight_")),
        0,
    )


def _shape_deviation(
    entry: Entry, row: Row, numbers: Mapping[str, int], tensor: Tensor, sizes: Sizes
) -> Deviation:
    if isinstance(entry.shape, tuple):
        for term in entry.shape:
            size, over = sizes[term.of], term.divisor(numbers)
            known = size[0] == size[1] and over is not None and over > 1
            if known and term.round == "exact" and over is not None and (size[0] * term.times) % over:
                return Deviation(
                    "indivisible",
                    entry.suffix,
                    row,
                    describe(tensor),
                    dim=term.of,
                    size=size[0],
                    number=over,
                    divisor=term.over if isinstance(term.over, str) else "the pack factor",
                )
        values = [term.elements(sizes[term.of], numbers) for term in entry.shape]
        shape = tuple(value for value in values if value is not None)
        text = ", ".join(
            str(value) if value is not None else _term_text(term, numbers)
            for value, term in zip(values, entry.shape, strict=True)
        )
        complete = shape if len(shape) == len(values) else None
        return Deviation("shape", entry.suffix, row, str(list(tensor.shape)), f"[{text}]", complete)
    return Deviation("shape", entry.suffix, row, str(list(tensor.shape)), "[] or [1]", ())


def _term_text(term: Term, numbers: Mapping[str, int]) -> str:
    over = term.divisor(numbers)
    times = f"{term.times}·" if term.times > 1 else ""
    return f"{times}{term.of}" + (f"/{over if over is not None else term.over}" if over != 1 else "")


def describe(tensor: Tensor) -> str:
    """Dtype and shape of `tensor`, as in `F32 [512, 2]`."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def recognize(tensors: Mapping[str, Tensor], table_: Layouts, mode: str, weight_format: str) -> Row | None:
    """The weight row whose tensors these are, whatever the config says; None if none or several fit.

    Group and block sizes are free, so a row is found by suffixes, dtypes, ranks and packing alone.
    """
    own = {suffix: tensor for suffix, tensor in tensors.items() if table_.parts.get(suffix) == "weight"}
    free: Spec = {}
    found = [
        row
        for row in table_.rows
        if row.part == "weight"
        and mode in row.modes
        and weight_format in row.weight_formats
        and row.stages
        and row.entries
        and not fit([(row, (free,) * len(row.stages))], own, table_).deviations
    ]
    titles = {row.title for row in found}
    return found[0] if len(titles) == 1 else None
