"""One class of modules against the config: its spec, its layout rows, and how its tensors fit them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quark_format.declarations import PARTS, Declarations, Declared, stages
from quark_format.layouts import DIMS, Claim, Conditions, Fit, Layouts, Row, Sizes, fit
from quark_format.modules import Module, abstract
from quark_format.roles import Role, is_float
from quark_format.tables import table

if TYPE_CHECKING:
    from quark_format.declarations import Stages

_PROJECTION = "projection"


@dataclass(frozen=True, slots=True)
class Judged:
    """Modules that have the same abstract name, tensors and declaration.

    `rows` are the layout rows by part, None where the format has none for the spec; `kv` says that the output
    is a KV cache entry whose scale hangs on the module itself.
    """

    members: tuple[Module, ...]
    role: Role
    declared: Declared
    rows: Mapping[str, Row | None]
    specs: Mapping[str, Stages]
    fit: Fit
    kv: bool

    @property
    def first(self) -> Module:
        """The module that findings name."""
        return self.members[0]

    @property
    def quantized(self) -> bool:
        """Whether the config gives the weight a spec."""
        return bool(self.specs["weight"])

    @property
    def stores_codes(self) -> bool:
        """Whether the stored weight has a dtype that only quantized weights have."""
        weight = self.first.weight
        return weight is not None and not is_float(weight.dtype)

    @property
    def sizes(self) -> Sizes:
        """The logical sizes: those that the layout gives, or a plain matrix's own."""
        weight = self.first.weight
        if weight is None or self.stores_codes or len(weight.shape) != len(DIMS):
            return self.fit.sizes
        return {dim: (size, size) for dim, size in zip(DIMS, weight.shape, strict=True)}

    @property
    def stored_as_declared(self) -> bool:
        """Whether codes are stored where the config gives a spec for them, and floats where it does not."""
        return self.stores_codes == (self.quantized and not self.expects_float)

    @property
    def has_scales(self) -> bool:
        """Whether a scale or zero point of the weight is stored."""
        return bool(self.first.scales)

    @property
    def expects_float(self) -> bool:
        """Whether the layout of the spec stores the weight itself as floats."""
        row = self.rows["weight"]
        entries = row.entries if row else ()
        stored = [entry.dtypes for entry in entries if entry.suffix == "weight"]
        return bool(stored) and not isinstance(stored[0], tuple) and _all_float(stored[0])


def _all_float(dtype_set: str) -> bool:
    return dtype_set == "stored_float"


@dataclass(frozen=True, slots=True)
class Judge:
    """What modules are judged by; `kv_holder` is the module on which KV scales hang."""

    declarations: Declarations
    layouts: Layouts
    conditions: Conditions
    kv_holder: str

    def all(self, found: Mapping[Any, Sequence[Module]]) -> list[Judged]:
        """Judge every class of modules; the sizes that most of a name agree on tell which tensor is wrong."""
        judged = [
            self._one(members, declared)
            for modules in found.values()
            for declared, members in _by_declaration(modules, self.declarations)
        ]
        anchors, exact = _anchors(judged), _anchors(judged, by_weight=True)
        return [_anchored(entry, anchors, exact, self.layouts) for entry in judged]

    def _one(self, members: tuple[Module, ...], declared: Declared) -> Judged:
        module = members[0]
        role = module.role
        specs = {part: declared.stages(part) for part in PARTS}
        kv = is_kv(module.name, declared, self.declarations)
        on_projection = self.kv_holder == _PROJECTION
        if kv:
            specs["output"] = _kv_output(module.name, declared, self.declarations) if on_projection else ()
        where = replace(self.conditions, role=role.layout)
        rows = {part: self.layouts.row(part, spec, where) for part, spec in specs.items()}
        claims: list[Claim] = [(row, specs[part]) for part, row in rows.items() if row is not None]
        outcome = fit(claims, module.tensors, self.layouts) if module.weight is not None else Fit((), {})
        return Judged(members, role, declared, rows, specs, outcome, kv and on_projection)


def _by_declaration(
    modules: Sequence[Module], declarations: Declarations
) -> list[tuple[Declared, tuple[Module, ...]]]:
    groups: dict[tuple[str, bool, bool], tuple[Declared, list[Module]]] = {}
    for module in modules:
        declared = declarations.of(module)
        key = (declared.pointer, declared.excluded, declared.disputed)
        groups.setdefault(key, (declared, []))[1].append(module)
    return [(declared, tuple(members)) for declared, members in groups.values()]


def _kv_output(name: str, declared: Declared, declarations: Declarations) -> Stages:
    """The spec of a KV cache entry, which stays where the module itself is excluded."""
    own = stages(declared.layer.get(PARTS["output"]))
    layer = declarations.kv_layers.find(name)[1] or {}
    return own or stages(layer.get(PARTS["output"]))


def is_kv(name: str, declared: Declared, declarations: Declarations) -> bool:
    """Whether the module's output goes to the KV cache and the config quantizes it there."""
    if declarations.kv_layers.first(name) is not None:
        return True
    names = table("roles.json")["kv_projections"]
    leaf = name.rpartition(".")[2]
    is_projection = leaf in names["mapped"] or leaf in names["fused"]
    return is_projection and bool(stages(declared.layer.get(PARTS["output"])))


_Name = tuple[str, tuple[int, ...] | None]


def _name(entry: Judged, *, by_weight: bool) -> _Name:
    weight = entry.first.weight
    return abstract(entry.first.name), weight.shape if by_weight and weight else None


def _anchors(judged: Sequence[Judged], *, by_weight: bool = False) -> dict[_Name, Sizes]:
    """The sizes that most modules without deviations of each abstract name have.

    With `by_weight` only modules whose stored weights have one shape are held together. Of sizes that as many
    modules have, the greater are taken: those that padding leaves nothing of.
    """
    counts: dict[_Name, Counter[tuple[tuple[int, int], ...]]] = defaultdict(Counter)
    for entry in judged:
        if not entry.fit.deviations and entry.fit.sizes:
            sizes = tuple(entry.fit.sizes[dim] for dim in DIMS)
            counts[_name(entry, by_weight=by_weight)][sizes] += len(entry.members)
    usual = {name: max((times, sizes) for sizes, times in found.items())[1] for name, found in counts.items()}
    return {name: dict(zip(DIMS, sizes, strict=True)) for name, sizes in usual.items()}


def _anchored(
    entry: Judged, anchors: Mapping[_Name, Sizes], exact: Mapping[_Name, Sizes], layouts: Layouts
) -> Judged:
    """`entry` laid out again with the sizes known from elsewhere, where its own shapes disagree with them."""
    misshapen = any(deviation.kind == "shape" for deviation in entry.fit.deviations)
    anchor = (anchors if misshapen else exact).get(_name(entry, by_weight=not misshapen))
    if anchor is None or not (misshapen or _disjoint(anchor, entry.fit.sizes)):
        return entry
    claims: list[Claim] = [(row, entry.specs[part]) for part, row in entry.rows.items() if row is not None]
    return replace(entry, fit=fit(claims, entry.first.tensors, layouts, anchor))


def _disjoint(anchor: Sizes, sizes: Sizes) -> bool:
    return any(
        sizes[dim][0] > anchor[dim][1] or sizes[dim][1] < anchor[dim][0] for dim in sizes if dim in anchor
    )
