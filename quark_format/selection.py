"""From quantization specs to the row of a target's scheme table, by look-up.

Every field of a spec is reduced to the set of the combinations of specs that accept its value, one bit each,
and the sets are intersected: the work is the number of fields, whatever the number of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from quark_format.models.targets.tables import Condition, Row, Schemes, StageField

PACK_METHOD = "pack_method"
_JSON_TYPES = {type(None): "null", bool: "boolean", int: "integer", str: "string"}
_OTHER = "other"
_FORMS = {type(None): "null", dict: "object", list: "list"}

Subject = Mapping[str, Any]


def json_type(value: Any) -> str:
    """The name of the JSON type of `value`; `other` for fractions, lists and objects."""
    return _JSON_TYPES.get(type(value), _OTHER)


def stages(spec: Any) -> Sequence[Any]:
    """The stages of the spec of one tensor: none for null, one for an object, the items of a list."""
    if spec is None:
        return ()
    return spec if isinstance(spec, list) else (spec,)


def form(spec: Any) -> str:
    """The JSON form of the spec of one tensor: null, object, list or other."""
    return _FORMS.get(type(spec), _OTHER)


def read(stage: Any, field: StageField) -> Any:
    """The value of `field` in one stage; None where it is absent."""
    value = stage
    for step in field.path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    if field.length:
        return len(value) if isinstance(value, list) else None
    return value


def condition(predicate: Any) -> Condition:
    """The condition that a predicate of a table stands for."""
    return predicate if isinstance(predicate, Condition) else Condition(**{"in": predicate.root})


def accepts(wanted: Condition, value: Any) -> bool:
    """Whether `value` satisfies every part of the condition; values of another JSON type are never equal."""
    key = (type(value), value)
    return (
        (wanted.in_ is None or key in [(type(one), one) for one in wanted.in_])
        and (wanted.not_in is None or key not in [(type(one), one) for one in wanted.not_in])
        and (wanted.min is None or (type(value) is int and value >= wanted.min))
        and (wanted.max is None or (type(value) is int and value <= wanted.max))
        and (wanted.types is None or json_type(value) in wanted.types)
    )


class ValueClass(NamedTuple):
    """Values of one field that no predicate tells apart: one of them, and the combinations that accept it."""

    value: Any
    accepted: int


class Column:
    """One field over all combinations of one kind; without a condition on it a combination takes anything."""

    def __init__(
        self, words: str, distance: int, conditions: Mapping[int, Condition], everything: int
    ) -> None:
        """Index `conditions`, by the bit of their combination, among the combinations `everything`."""
        self.words = words
        self.distance = distance
        self._conditions = conditions
        self._free = everything & ~sum(1 << bit for bit in conditions)
        self._groups = _alike(conditions)
        named = [one for wanted, _ in self._groups for one in (*(wanted.in_ or ()), *(wanted.not_in or ()))]
        distinct = {(type(one), one): one for one in (*named, True, False)}
        self._known = {key: self._accepted(one) for key, one in distinct.items()}
        self._edges = sorted(
            {wanted.min for wanted in conditions.values() if wanted.min is not None}
            | {wanted.max + 1 for wanted in conditions.values() if wanted.max is not None}
        )
        taken = {one for one in named if type(one) is int}
        self._integers = [self._class(_fresh(edge, taken, up=True)) for edge in self._edges]
        self._integers.insert(
            0, self._class(_fresh(self._edges[0] - 1 if self._edges else 0, taken, up=False))
        )
        unnamed = {json_type(None): None, json_type(""): "\0", _OTHER: ()}
        self._rest = {name: self._class(value) for name, value in unnamed.items()}

    def _class(self, value: Any) -> ValueClass:
        return ValueClass(value, self._accepted(value))

    def _accepted(self, value: Any) -> int:
        return self._free | sum(bits for wanted, bits in self._groups if accepts(wanted, value))

    def accepted(self, value: Any) -> int:
        """The combinations that accept `value`, one bit each."""
        kind = type(value)
        try:
            known = self._known.get((kind, value))
        except TypeError:
            known = None
        if known is not None:
            return known
        if kind is int:
            return self._integers[bisect_right(self._edges, value)].accepted
        return self._rest.get(json_type(value), self._rest[_OTHER]).accepted

    def wanted(self, bit: int) -> Condition | None:
        """The condition of one combination, or None."""
        return self._conditions.get(bit)

    def classes(self) -> Iterator[ValueClass]:
        """The equivalence classes of the field's values; every JSON value is in exactly one."""
        yield from (ValueClass(value, accepted) for (_, value), accepted in self._known.items())
        yield from self._integers
        yield from (rest for rest in self._rest.values() if (type(rest.value), rest.value) not in self._known)


def _alike(conditions: Mapping[int, Condition]) -> list[tuple[Condition, int]]:
    """Equal conditions once, each with the bits of all combinations that have it."""
    same: dict[int, tuple[Condition, int]] = {}
    for bit, wanted in conditions.items():
        same[id(wanted)] = (wanted, same.get(id(wanted), (wanted, 0))[1] | 1 << bit)
    equal: dict[str, tuple[Condition, int]] = {}
    for wanted, bits in same.values():
        key = repr(wanted)
        equal[key] = (wanted, equal.get(key, (wanted, 0))[1] | bits)
    return list(equal.values())


def _fresh(start: int, taken: set[int], *, up: bool) -> int:
    while start in taken:
        start += 1 if up else -1
    return start


@dataclass(frozen=True, slots=True)
class Combination:
    """One row with one spec for each position, by name."""

    row: Row
    specs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which a spec differs from a combination: its name, what it is, and what was wanted."""

    field: str
    found: Any
    wanted: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """The combination with the least distance from a spec that no combination accepts."""

    combination: Combination
    differences: tuple[Difference, ...]


class KindIndex:
    """The combinations of the rows of one kind of module."""

    def __init__(self, schemes: Schemes, kind: str) -> None:
        """Build the columns from the table.

        Raises:
            KeyError: the table does not declare the kind, or a row names a spec that it does not declare.
        """
        defaults = schemes.kinds[kind].specs
        self.combinations = [
            Combination(row, dict(zip(choices, chosen, strict=True)))
            for row in schemes.rows
            if row.kind == kind
            for choices in [{**defaults, **row.specs}]
            for chosen in product(*choices.values())
        ]
        self._schemes = schemes
        self._everything = (1 << len(self.combinations)) - 1
        self.positions = sorted({position for one in self.combinations for position in one.specs})
        self._conditions = {
            name: [
                {field: condition(wanted) for field, wanted in stage.items()}
                for stage in schemes.specs[name].stages
            ]
            for name in {name for one in self.combinations for name in one.specs.values()}
        }
        self.forms: dict[str, Column] = {}
        self.stage_counts: dict[str, Column] = {}
        self.stage_columns: dict[str, list[list[tuple[StageField, Column]]]] = {}
        for position in self.positions:
            self._index(position)
        packs = {
            bit: condition(one.row.pack_method)
            for bit, one in enumerate(self.combinations)
            if one.row.pack_method is not None
        }
        self.pack_method = Column(PACK_METHOD, 1, packs, self._everything)

    def _index(self, position: str) -> None:
        words = self._schemes.positions[position].words
        wanted = {
            bit: self._conditions[one.specs[position]]
            for bit, one in enumerate(self.combinations)
            if position in one.specs
        }
        forms = {
            name: Condition(**{"in": list(listed)})
            for name in {one.specs[position] for one in self.combinations if position in one.specs}
            if (listed := self._schemes.specs[name].forms)
        }
        formed = {
            bit: forms[name]
            for bit, one in enumerate(self.combinations)
            if (name := one.specs.get(position)) in forms
        }
        if formed:
            self.forms[position] = Column(f"{words} form", 1, formed, self._everything)
        numbers = {number: Condition(**{"in": [number]}) for number in {*map(len, wanted.values())}}
        counts = {bit: numbers[len(declared)] for bit, declared in wanted.items()}
        self.stage_counts[position] = Column(
            f"number of {words} stages", self._schemes.stage_distance, counts, self._everything
        )
        most = max((len(declared) for declared in wanted.values()), default=0)
        self.stage_columns[position] = [
            [
                (field, self._column(position, wanted, at, field, most))
                for field in self._schemes.fields
                if any(at < len(declared) and field.id in declared[at] for declared in wanted.values())
            ]
            for at in range(most)
        ]

    def _column(
        self,
        position: str,
        wanted: Mapping[int, Sequence[Mapping[str, Condition]]],
        at: int,
        field: StageField,
        most: int,
    ) -> Column:
        place = self._schemes.positions[position].words + (f"[{at}]" if most > 1 else "")
        conditions = {
            bit: declared[at][field.id]
            for bit, declared in wanted.items()
            if at < len(declared) and field.id in declared[at]
        }
        return Column(f"{place} {field.words}", field.distance, conditions, self._everything)

    def _values(self, subject: Subject, pack_method: Any) -> Iterator[tuple[Column, Any]]:
        for position in self.positions:
            spec = subject.get(position)
            listed = stages(spec)
            if position in self.forms:
                yield self.forms[position], form(spec)
            yield self.stage_counts[position], len(listed)
            for columns, stage in zip(self.stage_columns[position], listed, strict=False):
                for field, column in columns:
                    yield column, read(stage, field)
        yield self.pack_method, pack_method

    def accepted(self, subject: Subject, pack_method: Any) -> int:
        """The combinations that accept the specs of `subject`, one bit each, at most one."""
        accepted = self._everything
        for column, value in self._values(subject, pack_method):
            accepted &= column.accepted(value)
            if not accepted:
                break
        return accepted

    def find(self, subject: Subject, pack_method: Any) -> Combination | Nearest:
        """The combination that accepts the specs of `subject` by position, or else the nearest one."""
        accepted = self.accepted(subject, pack_method)
        if accepted:
            return self.combinations[accepted.bit_length() - 1]
        return self._nearest(subject, pack_method)

    def _nearest(self, subject: Subject, pack_method: Any) -> Nearest:
        values = list(self._values(subject, pack_method))
        distances = [0] * len(self.combinations)
        for column, value in values:
            accepted = column.accepted(value)
            for bit in range(len(distances)):
                if not accepted >> bit & 1:
                    distances[bit] += column.distance
        best = distances.index(min(distances))
        return Nearest(
            self.combinations[best],
            tuple(
                Difference(column.words, value, in_words(wanted))
                for column, value in values
                if not column.accepted(value) >> best & 1 and (wanted := column.wanted(best)) is not None
            ),
        )


def _told(values: Sequence[Any]) -> str:
    return " or ".join("absent" if value is None else f"`{str(value).lower()}`" for value in values)


def in_words(wanted: Condition) -> str:
    """The condition for a person to read."""
    told = []
    if wanted.in_ is not None:
        told.append(_told(wanted.in_))
    if wanted.min is not None:
        told.append(f"an integer of at least {wanted.min}")
    if wanted.max is not None:
        told.append(f"an integer of at most {wanted.max}")
    if wanted.not_in is not None:
        told.append(f"not {_told(wanted.not_in)}")
    if wanted.types is not None:
        told.append(f"of type {' or '.join(wanted.types)}")
    return ", ".join(told)


class Kinds(Mapping[str, KindIndex]):
    """The indices of all kinds of a table, each built when it is first asked for."""

    def __init__(self, schemes: Schemes) -> None:
        """Hold the table."""
        self._schemes = schemes
        self._built: dict[str, KindIndex] = {}

    def __getitem__(self, kind: str) -> KindIndex:
        """The index of `kind`.

        Raises:
            KeyError: the table does not declare the kind.
        """
        if kind not in self._built:
            self._built[kind] = KindIndex(self._schemes, kind)
        return self._built[kind]

    def __iter__(self) -> Iterator[str]:
        """The names of the kinds."""
        return iter(self._schemes.kinds)

    def __len__(self) -> int:
        """How many kinds there are."""
        return len(self._schemes.kinds)
