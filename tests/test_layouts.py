"""The layout rows as a table, and the solver that lays them over tensors: what holds for any sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quark_format.layouts import Conditions, Dim, Entry, Fit, Row, Sizes, Term, fit, layouts, parameters
from quark_format.safetensors_header import Tensor
from quark_format.tables import table

VERSIONS = [entry["version"] for entry in table("catalog.json")["versions"]]
ROUNDED: dict[str, Callable[[Fraction], int]] = {"exact": int, "up": math.ceil, "down": math.floor}
GROUPS = st.sampled_from([16, 32, 64, 128])
BLOCKS = st.tuples(GROUPS, GROUPS).map(list)
_MATRIX = 2

Shapes = Mapping[str, tuple[int, ...]]
Box = tuple[Mapping[str, tuple[Any, ...]], ...]


class Stored(NamedTuple):
    """A module as a row lays it out: its row, the spec, the logical sizes, the tensors."""

    version: str
    row: Row
    stages: tuple[dict[str, Any], ...]
    sizes: dict[Dim, int]
    shapes: Shapes

    def fit(self, shapes: Shapes | None = None, anchor: Sizes | None = None) -> Fit:
        """The row laid over these shapes, or over its own."""
        known = layouts(self.version)
        tensors = {
            entry.suffix: tensor(
                known.dtypes(entry, self.stages)[0], (shapes or self.shapes)[entry.suffix], entry.suffix
            )
            for entry in self.row.entries
        }
        return fit([(self.row, self.stages)], tensors, known, anchor)

    @property
    def anchor(self) -> Sizes:
        """The sizes as they are known from other layers."""
        return {dim: (size, size) for dim, size in self.sizes.items()}


def tensor(dtype: str, shape: tuple[int, ...], name: str) -> Tensor:
    """A tensor of a header."""
    return Tensor(name, dtype, shape, "model.safetensors", 0, 0)


def terms(row: Row) -> Iterator[Term]:
    """The axes of all tensors of a row."""
    for entry in row.entries:
        if isinstance(entry.shape, tuple):
            yield from entry.shape


def axis(term: Term, sizes: Mapping[Dim, int], numbers: Mapping[str, int]) -> int:
    """How long an axis is, by the meaning of the term's fields in `tensors.schema.json`."""
    over = term.over if isinstance(term.over, int) else numbers[term.over]
    return ROUNDED[term.round](Fraction(sizes[term.of] * term.times, over))


def shape(entry: Entry, sizes: Mapping[Dim, int], numbers: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor of a module of these sizes; one that the row leaves open is one number."""
    return tuple(axis(term, sizes, numbers) for term in entry.shape) if isinstance(entry.shape, tuple) else ()


def step(row: Row, dim: Dim, numbers: Mapping[str, int]) -> int:
    """What a size has to be a multiple of so that all its exact axes are whole."""
    divisors = [
        (term.times, term.over if isinstance(term.over, int) else numbers[term.over])
        for term in terms(row)
        if term.of == dim and term.round == "exact"
    ]
    return math.lcm(*(over // math.gcd(times, over) for times, over in divisors))


LAID_OUT = [
    (version, row)
    for version in VERSIONS
    for row in layouts(version).rows
    if row.entries and not row.unexportable
]


@st.composite
def modules(draw: st.DrawFn, rows: Sequence[tuple[str, Row]] = tuple(LAID_OUT)) -> Stored:
    """Any row of any version, a spec it is for, and sizes that it can store."""
    version, row = draw(st.sampled_from(rows))
    extra = {"group_size": GROUPS, "block_size": BLOCKS}
    stages = tuple(
        {
            **{field: draw(values) for field, values in extra.items()},
            **{field: draw(st.sampled_from(values)) for field, values in stage.items()},
        }
        for stage in row.stages
    )
    numbers = parameters(stages)
    sizes: dict[Dim, int] = {
        "out": draw(st.integers(1, 40)) * step(row, "out", numbers),
        "in": draw(st.integers(1, 40)) * step(row, "in", numbers),
    }
    shapes = {entry.suffix: shape(entry, sizes, numbers) for entry in row.entries}
    return Stored(version, row, stages, sizes, shapes)


@given(modules())
def test_a_row_fits_what_it_describes(stored: Stored) -> None:
    """No deviation, and sizes found: exactly where an axis is exact, else an interval around them."""
    found = stored.fit()

    assert found.deviations == ()
    for dim, size in stored.sizes.items():
        low, high = found.sizes[dim]
        assert low <= size <= high
        if any(term.of == dim and term.round == "exact" for term in terms(stored.row)):
            assert low == high


def rounded(row: Row) -> set[Dim]:
    """The dimensions that only rounded axes of a row tell."""
    exact = {term.of for term in terms(row) if term.round == "exact"}
    return {term.of for term in terms(row)} - exact


@given(modules([(version, row) for version, row in LAID_OUT if rounded(row)]), st.data())
def test_every_size_found_gives_the_same_shapes(stored: Stored, data: st.DataObject) -> None:
    """The interval of a rounded dimension holds the sizes that give the shapes, and no other."""
    dim = data.draw(st.sampled_from(sorted(rounded(stored.row))))
    numbers = parameters(stored.stages)
    low, high = stored.fit().sizes[dim]
    inside = data.draw(st.integers(low, high))

    def shapes(size: int) -> Shapes:
        sizes = {**stored.sizes, dim: size}
        return {entry.suffix: shape(entry, sizes, numbers) for entry in stored.row.entries}

    assert shapes(inside) == stored.shapes
    assert all(shapes(size) != stored.shapes for size in (low - 1, high + 1))


@given(modules(), st.data())
def test_a_transposed_tensor_does_not_fit(stored: Stored, data: st.DataObject) -> None:
    """Where the sizes are known, the tensor that was transposed is named; otherwise other sizes come out."""
    uneven = [suffix for suffix, own in stored.shapes.items() if len(own) == _MATRIX and own[0] != own[1]]
    assume(uneven)
    suffix = data.draw(st.sampled_from(uneven))
    turned = {**stored.shapes, suffix: stored.shapes[suffix][::-1]}

    assert [one.suffix for one in stored.fit(turned, stored.anchor).deviations] == [suffix]
    alone = stored.fit(turned)
    assert alone.deviations or not _holds(alone.sizes, stored.sizes)


@given(modules(), st.data())
def test_a_cut_or_longer_tensor_does_not_fit(stored: Stored, data: st.DataObject) -> None:
    """One element more or less on any axis, or an axis more: the tensor is named, and its right shape."""
    shaped = [suffix for suffix, own in stored.shapes.items() if own]
    assume(shaped)
    suffix = data.draw(st.sampled_from(shaped))
    own = stored.shapes[suffix]
    at = data.draw(st.integers(0, len(own) - 1))
    by = data.draw(st.sampled_from([-1, 1]))
    wrong = data.draw(
        st.sampled_from([(*own[:at], own[at] + by, *own[at + 1 :]), (1, *own), (*own, 1), own[:-1]])
    )

    found = stored.fit({**stored.shapes, suffix: wrong}, stored.anchor).deviations

    assert [(one.kind, one.suffix, one.shape) for one in found] == [("shape", suffix, own)]


def _holds(found: Sizes, sizes: Mapping[Dim, int]) -> bool:
    return all(found[dim][0] <= size <= found[dim][1] for dim, size in sizes.items())


@given(modules(), st.data())
def test_a_missing_and_a_forbidden_tensor_are_named(stored: Stored, data: st.DataObject) -> None:
    """Tensors that a row needs and has not, and those that it excludes, whatever else is there."""
    known = layouts(stored.version)
    own = {
        entry.suffix: tensor(known.dtypes(entry, stored.stages)[0], stored.shapes[entry.suffix], entry.suffix)
        for entry in stored.row.entries
    }
    needed = [entry.suffix for entry in stored.row.entries if not entry.optional and entry.beside is None]
    gone = data.draw(st.sets(st.sampled_from(needed)) if needed else st.just(set[str]()))
    more = data.draw(
        st.sets(st.sampled_from(sorted(stored.row.forbidden))) if stored.row.forbidden else st.just(set())
    )
    left = {suffix: one for suffix, one in own.items() if suffix not in gone}
    extra = {suffix: tensor("F32", (), suffix) for suffix in more}

    found = fit([(stored.row, stored.stages)], left | extra, known).deviations

    assert gone <= {one.suffix for one in found if one.kind == "missing"}
    assert {one.suffix for one in found if one.kind == "extra"} == more


@given(
    st.builds(
        Term,
        st.sampled_from(["out", "in"]),
        st.integers(1, 4),
        st.integers(1, 64),
        st.sampled_from([*ROUNDED]),
    ),
    st.integers(1, 1 << 20),
)
def test_an_axis_and_its_sizes_are_inverse(term: Term, stored: int) -> None:
    """All sizes found for an axis have that axis; the next smaller and greater ones have not."""
    found = term.sizes(stored, {})
    if found is None:
        assert not any(
            axis(term, {term.of: size}, {}) == stored and _is_whole(term, size)
            for size in range(stored * 64 // term.times + 2)[-200:]
        )
        return
    low, high = found

    for size in {low, (low + high) // 2, high}:
        assert term.elements((size, size), {}) == stored == axis(term, {term.of: size}, {})
        assert _is_whole(term, size)
    for size in (low - 1, high + 1):
        assert size < 0 or axis(term, {term.of: size}, {}) != stored or not _is_whole(term, size)


def _is_whole(term: Term, size: int) -> bool:
    assert isinstance(term.over, int)
    return term.round != "exact" or size * term.times % term.over == 0


def boxes_meet(one: Box, other: Box) -> bool:
    """Whether some spec is taken by both: stage by stage and field by field a value that both allow."""
    return len(one) == len(other) and all(
        any(type(a) is type(b) and a == b for a, b in product(first[field], second[field]))
        for first, second in zip(one, other, strict=True)
        for field in first.keys() & second.keys()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_no_spec_has_two_rows(version: str) -> None:
    """A row takes the specs of a box, a set of values for each field: no two boxes of one situation meet.

    A field that a row does not name takes every value; so it is enough to compare the fields that both name.
    """
    rows = layouts(version).rows
    situations = {
        Conditions(*chosen)
        for row in rows
        for chosen in product(row.writers, row.weight_formats, row.modes, row.roles)
    }

    both = [
        (where, one.id, other.id)
        for where in situations
        for one, other in combinations([row for row in rows if where.allow(row)], 2)
        if one.part == other.part and boxes_meet(one.stages, other.stages)
    ]

    assert both == []


@given(st.sampled_from([(v, row) for v in VERSIONS for row in layouts(v).rows]), st.data())
def test_a_row_is_found_for_each_spec_of_its_box(chosen: tuple[str, Row], data: st.DataObject) -> None:
    """`Layouts.row` gives the row itself for each spec that it is for."""
    version, row = chosen
    stages = tuple(
        {field: data.draw(st.sampled_from(values)) for field, values in stage.items()} for stage in row.stages
    )
    where = Conditions(
        *(data.draw(st.sampled_from(of)) for of in (row.writers, row.weight_formats, row.modes, row.roles))
    )

    assert layouts(version).row(row.part, stages, where) is row
