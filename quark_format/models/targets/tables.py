# ruff: noqa
"""Generated from schema/targets/target.schema.json by tools/build_target_models.py. Do not edit."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing import Annotated, Literal
from typing_extensions import TypeAliasType


class Predicate1(RootModel[list[str | int | bool | None]]):
    root: Annotated[list[str | int | bool | None], Field(min_length=1, title="Predicate")]
    """
    What one field may be. A list is short for `in`.
    """


class Condition(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    in_: Annotated[list[str | int | bool | None] | None, Field(alias="in", min_length=1)] = None
    """
    One of these values, of the same JSON type.
    """
    not_in: Annotated[list[str | int | bool | None] | None, Field(min_length=1)] = None
    """
    None of these values.
    """
    min: int | None = None
    """
    An integer not below this.
    """
    types: Annotated[
        list[Literal["null", "boolean", "integer", "string", "other"]] | None,
        Field(min_length=1),
    ] = None
    """
    A value of one of these JSON types; an absent field is null.
    """
    max: int | None = None
    """
    An integer not above this.
    """


class Argument(BaseModel):
    """
    Where the value of a constructor argument comes from: a constant, a quantization key, or a field of the config.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    value: str | int | bool | None = None
    key: str | None = None
    """
    The key chosen for this position.
    """
    field: str | None = None
    """
    A field as in a predicate, such as `weight.0.group_size`, or `pack_method`.
    """
    spec: str | None = None
    """
    The whole spec at this position.
    """


class MultipleOf(RootModel[int]):
    root: Annotated[int, Field(ge=1)]


class Requirement(BaseModel):
    """
    A dimension of the module's weight on one partition must be a multiple of a number.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    dimension: Literal["in", "out", "intermediate", "hidden"]
    multiple_of: MultipleOf | str
    source: Annotated[str, Field(min_length=1)]
    when: Literal["always", "sharded", "sharded_or_merged"]
    """
    always; sharded: the dimension is split over partitions; sharded_or_merged: or it joins several modules.
    """


SpecsAdditionalProperty = TypeAliasType("SpecsAdditionalProperty", Annotated[list[str], Field(min_length=1)])


class StageField(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    id: str
    path: Annotated[list[str | int], Field(min_length=1)]
    """
    Keys and positions from the stage to the value.
    """
    length: bool | None = None
    """
    The field is the length of the list at the path.
    """
    words: Annotated[str, Field(min_length=1)]
    distance: Annotated[int, Field(ge=1)]
    """
    How much a difference in this field counts when the nearest row is sought.
    """


class Kind(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    words: Annotated[str, Field(min_length=1)]
    specs: dict[str, list[str]]
    """
    The specs of the positions that a row does not name.
    """
    global_config: bool
    """
    global_quant_config is for modules of this kind too.
    """
    excluded: str | None
    """
    Class that serves an excluded module; null where the target builds the layer's own.
    """
    names: Literal["target", "writer"]
    """
    target: the target looks the module up in the config, under its own names and semantics. writer: it does not, so what the writer did decides, under the checkpoint's names and Quark's semantics.
    """
    children: bool
    """
    The rule `experts_by_children` of names.json is for modules of this kind.
    """
    layer_type: str | None = None
    """
    Key of layer_type_quant_config for modules of this kind; absent: the target does not look there.
    """


class Position(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    key: str | None
    """
    Key of the spec in a layer config; null: the KV cache spec that the target derives.
    """
    words: Annotated[str, Field(min_length=1)]


class Inherited(BaseModel):
    """
    A row of the extended target that is tried first where it applies, and the platforms on which it works.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    row: str
    specs: dict[str, SpecsAdditionalProperty] | None = None
    """
    Only with these specs at these positions.
    """
    writers: Annotated[list[str] | None, Field(min_length=1)] = None
    """
    Only for checkpoints of these writers.
    """
    platforms: list[str]
    with_: Annotated[list[str] | None, Field(alias="with", min_length=1)] = None
    """
    Only on devices with one of these features, as in cpu:amx.
    """
    without: Annotated[list[str] | None, Field(min_length=1)] = None
    """
    Only on devices with none of these features.
    """
    reason: Annotated[str, Field(min_length=1)]
    """
    Why not on other platforms, or not with other specs.
    """
    scheme: str | None = None
    """
    Full path of a class that takes the place of the row's, with the same arguments.
    """


class CacheScale(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    from_: Annotated[str, Field(alias="from")]
    to: str | None
    reason: Annotated[str | None, Field(min_length=1)] = None


class KvCache(BaseModel):
    """
    Layer configs whose `output_tensors` the target takes for the KV cache and then forgets; absent: they stay what they are.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    groups: list[str]
    """
    Path in the config of the patterns that name the layer configs.
    """
    also_cleared: list[str]
    """
    Keys of layer_quant_config that are cleared too if there are groups.
    """
    specs: Annotated[list[str] | None, Field(min_length=1)] = None
    """
    Keys of the config whose layer configs may quantize the cache, in order; layer_quant_config alone if absent.
    """
    unmatched: Literal["ignored"] | None = None
    """
    Groups that no layer config quantizes: refused, if absent, or taken for no groups.
    """
    attention: str | None = None
    """
    Key of the config that, if it is not null, says that outputs of layers are quantized for the attention: all are cleared.
    """
    scales: list[CacheScale] | None = None
    """
    The target's names of the checkpoint's scales of the cache: new endings by old ones; null: there is no use for it.
    """
    source: Annotated[str, Field(min_length=1)]


class Target(BaseModel):
    """
    One release of one consumer.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    name: str
    version: Annotated[str, Field(pattern="^\\d+(\\.\\d+)*$")]
    """
    The release, as numbers between points.
    """
    extends: str | None = None
    """
    The target, with its version, that this one adds schemes to: it takes over the tables it has none of its own of.
    """
    mixes: list[str] | None = None
    """
    Kinds of modules whose parts, if several modules of the checkpoint are joined, may be quantized differently.
    """
    distribution: str
    """
    The release the tables were made from and are compared with, as the package index names it.
    """
    platforms: list[str]
    reader: str
    """
    The reader of names.json whose semantics the target has.
    """
    names_as_written: Literal[True] | None = None
    """
    The names in the config are taken as they are; otherwise they are renamed as the checkpoint's modules are.
    """
    kv_cache: Annotated[KvCache | None, Field(title="KvCache")] = None
    """
    Layer configs whose `output_tensors` the target takes for the KV cache and then forgets; absent: they stay what they are.
    """
    roles: dict[str, str]
    """
    The kind of module that the target builds for each role of roles.json; other roles are built unquantized and not looked up.
    """
    modes: list[str] | None = None
    """
    Custom modes of modes.json whose blocks the target reads as the quark-mode blocks that they stand for.
    """


class Family(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    source: Annotated[str, Field(min_length=1)]
    """
    The table or function of the target that this is read from.
    """
    platforms: dict[str, list[str]]
    schemes: dict[str, list[list[str | None]]] | None = None
    """
    Where a kernel serves only some quantization keys: for each kernel the pairs (weight key, activation key) it takes.
    """


class Pair(RootModel[list[str]]):
    root: Annotated[list[str], Field(max_length=2, min_length=2)]


class ExpertMapping(BaseModel):
    """
    Last name components of the projections of one expert in a checkpoint.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    gate: str | None
    """
    null, as all three: the target holds all experts in one parameter and takes no projections of single ones.
    """
    down: str | None
    up: str | None
    """
    null: the experts have no gate, and `gate` is their first projection.
    """


class Implementation(BaseModel):
    """
    One model class of the target and the architectures it serves.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    class_: Annotated[str, Field(alias="class")]
    """
    Module and class, separated by a colon.
    """
    architectures: Annotated[list[str], Field(min_length=1)]
    fused: str | None = None
    """
    Name in `fused` of what it joins.
    """
    renames: str | None = None
    """
    Name in `renames` of its rules.
    """
    experts: str | None = None
    """
    Name in `experts` of its mapping.
    """
    unread: list[str] | None = None
    """
    What a reader of the source cannot know because it is computed, in words.
    """
    sometimes_fused: str | None = None
    """
    Name in `fused` of what it joins besides, depending on the model's config.
    """
    inner: Literal[True] | None = None
    """
    It builds another registered model inside, whose fused modules count too; the usual ones stand for them.
    """


class NameDeviation(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    id: Annotated[str, Field(pattern="^[a-z0-9_]+$")]
    target_does: Annotated[str, Field(min_length=1)]
    we_do: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]


class Presets(BaseModel):
    """
    Which row serves each preset scheme of Quark.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    quark: str
    """
    The release of Quark whose presets these are.
    """
    presets: dict[str, dict[str, str | None]]


class Spec(BaseModel):
    """
    One way to quantize one tensor.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    words: Annotated[str, Field(min_length=1)]
    stages: list[dict[str, Predicate1 | Condition]]
    """
    One entry a stage, in order; none where nothing may be quantized.
    """
    key: str | None
    """
    The target's quantization key; null where it has none.
    """
    note: Annotated[str | None, Field(min_length=1)] = None
    """
    What the target does with this spec other than the config says.
    """
    forms: Annotated[list[Literal["null", "object", "list", "other"]] | None, Field(min_length=1)] = None
    """
    The JSON forms that the target reads here; without it any.
    """


class Row(BaseModel):
    """
    Every combination of the listed specs is served by one scheme.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    id: Annotated[str, Field(pattern="^[a-z0-9_.]+$")]
    kind: str
    specs: dict[str, SpecsAdditionalProperty]
    """
    For each position the names of the specs it may have; a position that is not named is as the kind says.
    """
    pack_method: Annotated[Predicate1 | Condition | None, Field(title="Predicate")] = None
    """
    What one field may be. A list is short for `in`.
    """
    scheme: str | None
    """
    Full path of the class that serves the module; null where the module stays unquantized.
    """
    arguments: dict[str, Argument]
    kernels: str | None
    """
    A family of kernels.json.
    """
    requires: list[Requirement]
    capability: int | None
    """
    Least compute capability, ten times the version; null: none is asked for.
    """
    note: Annotated[str | None, Field(min_length=1)] = None
    source: Annotated[str, Field(min_length=1)]


class Schemes(BaseModel):
    """
    Rows from specs to the classes that serve them.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    stage_distance: Annotated[int, Field(ge=1)]
    """
    How much a difference in the number of stages counts.
    """
    fields: list[StageField]
    positions: dict[str, Position]
    kinds: dict[str, Kind]
    specs: dict[str, Spec]
    rows: list[Row]


class Kernels(BaseModel):
    """
    The kernels of each family in the order in which the target tries them.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    families: dict[str, Family]


class Renames(BaseModel):
    """
    Rules that turn a checkpoint's names into the target's, applied in the order regex, substring, prefix, suffix; each rule replaces its first occurrence.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    regex: Annotated[list[Pair] | None, Field(title="Pairs")] = None
    substring: Annotated[list[Pair] | None, Field(title="Pairs")] = None
    prefix: Annotated[list[Pair] | None, Field(title="Pairs")] = None
    suffix: Annotated[list[Pair] | None, Field(title="Pairs")] = None
    weights: Literal[True] | None = None
    """
    The rules are about the names of weights: that of a module is renamed with `.weight` behind it.
    """


class Architectures(BaseModel):
    """
    How the target's model classes join and rename a checkpoint's modules. Equal values are stored once and named.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    default_fused: str
    """
    Name in `fused` for an architecture that is not listed.
    """
    fused: dict[str, dict[str, list[str]]]
    renames: dict[str, Renames]
    experts: dict[str, ExpertMapping]
    implementations: list[Implementation]


class Deviation(BaseModel):
    """
    Where the resolver answers otherwise than the target's own selection, and why.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    id: Annotated[str, Field(pattern="^[a-z0-9_]+$")]
    kinds: Annotated[list[str], Field(min_length=1)]
    when: Annotated[list[dict[str, Predicate1 | Condition]], Field(min_length=1)]
    """
    Any of these: fields such as `weight.0.dtype`, `weight.stages` or `pack_method` and what each is.
    """
    target_does: Literal["selects", "selects_then_refuses", "crashes", "ignores"]
    """
    selects: its selection takes the config. selects_then_refuses: its selection takes the config, and the class it selects raises. crashes: it refuses by an exception that is not meant for the user. ignores: it does not look.
    """
    we_do: Literal["refuse"]
    reason: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]


class Deviations(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    selection: list[Deviation]
    names: list[NameDeviation]


class Renamed(BaseModel):
    """
    Rules for some architectures, applied after those of the extended target.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    architectures: Annotated[list[str], Field(min_length=1)]
    rules: Renames
    reason: str


class Extension(BaseModel):
    """
    Rows of a target that extends another, and which of the other's rows it tries before its own.
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    field_schema: Annotated[str, Field(alias="$schema")]
    inherited: list[Inherited]
    kinds: dict[str, Kind]
    """
    Kinds that differ from the extended target's.
    """
    specs: dict[str, Spec]
    """
    Specs besides those of the extended target, which rows may name too.
    """
    rows: list[Row]
    renamed: list[Renamed] | None = None
    """
    Names of checkpoints that the extended target's model classes do not know.
    """


class Targets(RootModel[Target | Schemes | Extension | Kernels | Architectures | Deviations | Presets]):
    root: Annotated[
        Target | Schemes | Extension | Kernels | Architectures | Deviations | Presets,
        Field(title="Targets"),
    ]
    """
    What one release of one consumer accepts. Every file of a target names the definition it is valid by.
    """
