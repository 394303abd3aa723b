"""Layer configs around every boundary of a scheme table, for comparison with a target's own selection.

A layer config is a tuple of positions in value pools, so that two of them are equal only if the configs
are. Starting from one config for each combination of the table, and from every weight with every input, one
and two slots at a time take every value of their pool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any

from quark_format.selection import Combination, KindIndex, accepts, condition, read
from quark_format.targets import Target

ABSENT: Any = object()

FIELDS: dict[str, list[Any]] = {
    "dtype": [
        "fp8_e4m3",
        "int8",
        "int4",
        "uint4",
        "fp4",
        "fp6_e3m2",
        "fp6_e2m3",
        "fp8_e5m2",
        "uint8",
        "int3",
        "bfloat16",
        "mx",
        None,
        ABSENT,
        8,
    ],
    "qscheme": ["per_tensor", "per_channel", "per_group", "per_block", None, ABSENT],
    "is_dynamic": [False, True, None, ABSENT, 0, 1, "false"],
    "symmetric": [True, False, None, ABSENT, 1],
    "ch_axis": [None, 0, 1, -1, -2, 2],
    "group_size": [None, 32, 16, 128, 31, 1, 0, -1, ABSENT, True, 32.0],
    "block_size": [
        None,
        [128, 128],
        [32, 32],
        [1, 32],
        [128, 32],
        [0, 32],
        [32, 128],
        [128, 64],
        [128],
        [128, 128, 1],
        [True, 32],
        [],
    ],
    "scale_format": [None, "e8m0", "e4m3"],
    "scale_type": [None, "float8_e8m0fnu", "float"],
}
SHAPES = ["single", "null", "list of one", "list of two", "list of three", "empty list", "text"]
EXTRA: dict[str, list[Any]] = {
    "output": [None, [], {}, {"dtype": "fp8_e4m3"}, ABSENT],
    "bias": [None, {}, {"dtype": "int8"}, ABSENT],
    "pack_method": ["reorder", "order", None, "other"],
}

Slot = tuple[str, ...]
Config = tuple[int, ...]

STAGE_SLOTS: list[Slot] = [
    (position, at, field) for position in ("weight", "input") for at in ("0", "1") for field in FIELDS
]
SLOTS: list[Slot] = [("weight", "shape"), ("input", "shape"), *((name,) for name in EXTRA), *STAGE_SLOTS]
POOLS: list[list[Any]] = [SHAPES, SHAPES, *EXTRA.values(), *(FIELDS[slot[2]] for slot in STAGE_SLOTS)]
PLACES = {slot: place for place, slot in enumerate(SLOTS)}
WIDTH = len(FIELDS)


@cache
def _stage(picks: tuple[int, ...]) -> dict[str, Any]:
    pairs = ((name, pool[pick]) for (name, pool), pick in zip(FIELDS.items(), picks, strict=True))
    return {name: value for name, value in pairs if value is not ABSENT}


@cache
def _spec(shape: int, first: tuple[int, ...], second: tuple[int, ...]) -> Any:
    one = _stage(first)
    return {
        "single": one,
        "null": None,
        "list of one": [one],
        "list of two": [one, _stage(second)],
        "list of three": [one, _stage(second), one],
        "empty list": [],
        "text": "fp8",
    }[SHAPES[shape]]


_W0 = len(SLOTS) - len(STAGE_SLOTS)
_STAGES = [slice(_W0 + at * WIDTH, _W0 + (at + 1) * WIDTH) for at in range(4)]


def layer_config(config: Config) -> tuple[dict[str, Any], Any]:
    """The layer config, and the pack method, that the positions stand for."""
    w0, w1, i0, i1 = (config[part] for part in _STAGES)
    layer = {"weight": _spec(config[0], w0, w1), "input_tensors": _spec(config[1], i0, i1)}
    output, bias = EXTRA["output"][config[2]], EXTRA["bias"][config[3]]
    if output is not ABSENT:
        layer["output_tensors"] = output
    if bias is not ABSENT:
        layer["bias"] = bias
    return layer, EXTRA["pack_method"][config[4]]


def normal(config: Config) -> Config:
    """The same config with the first value in every slot that its shapes leave out."""
    picks = list(config)
    for position, first in (("weight", 0), ("input", 2)):
        shape = SHAPES[config[PLACES[position, "shape"]]]
        kept = {"single": 1, "list of one": 1, "list of two": 2, "list of three": 2}.get(shape, 0)
        for at in range(kept, 2):
            picks[_STAGES[first + at]] = [0] * WIDTH
    return tuple(picks)


def _place(table: Target, name: str, slots: Mapping[Slot, int], position: str) -> dict[Slot, int]:
    declared = table.schemes.specs[name].stages
    shape = {0: "null", 1: "single", 2: "list of two"}[len(declared)]
    picked = {**slots, (position, "shape"): SHAPES.index(shape)}
    for at, stage in enumerate(declared):
        for field in table.schemes.fields:
            if field.id not in stage:
                continue
            name = str(field.path[0])
            others = [one for one in table.schemes.fields if one.path[0] == name and one.id in stage]
            pool = FIELDS[name]
            picked[position, str(at), name] = next(
                pick
                for pick, value in enumerate(pool)
                if value is not ABSENT
                and all(accepts(condition(stage[one.id]), read({name: value}, one)) for one in others)
            )
    return picked


def base(table: Target, combination: Combination) -> Config:
    """A config that the combination accepts."""
    slots: dict[Slot, int] = {}
    for position in ("weight", "input"):
        slots = _place(table, combination.specs[position], slots, position)
    return tuple(slots.get(slot, 0) for slot in SLOTS)


def bases(table: Target, index: KindIndex) -> list[Config]:
    """One config for each combination of the index, and each of their weights with each other's inputs."""
    accepted = list(dict.fromkeys(normal(base(table, one)) for one in index.combinations))
    weights = {(config[0], config[_STAGES[0]], config[_STAGES[1]]): config for config in accepted}
    inputs = {(config[1], config[_STAGES[2]], config[_STAGES[3]]): config for config in accepted}
    crossed = []
    for weight in weights.values():
        for source in inputs.values():
            picks = list(weight)
            picks[1] = source[1]
            for part in _STAGES[2:]:
                picks[part] = source[part]
            crossed.append(tuple(picks))
    return list(dict.fromkeys([*accepted, *crossed]))


def mutations(config: Config, together: int) -> Iterator[Config]:
    """`config` with `together` slots at a time taking every other value of their pools."""
    for places in combinations(range(len(SLOTS)), together):
        yield from _vary(config, places)


def _vary(config: Config, places: tuple[int, ...]) -> Iterator[Config]:
    if not places:
        yield config
        return
    place, *rest = places
    for pick in range(len(POOLS[place])):
        if pick != config[place]:
            changed = (*config[:place], pick, *config[place + 1 :])
            yield from _vary(changed, tuple(rest))


def sample(table: Target, index: KindIndex, at_least: int, seed: int) -> Iterator[Config]:
    """At least `at_least` different configs: all changes of one or two slots of accepted ones, then more.

    The first are the accepted configs and every weight with every input. What is missing is filled with two
    and three changed slots of any of those, drawn with `seed`.
    """
    seen: set[Config] = set()
    draw = random.Random(seed)  # noqa: S311 - a reproducible sample

    def new(config: Config) -> Iterator[Config]:
        config = normal(config)
        if config not in seen:
            seen.add(config)
            yield config

    starts = bases(table, index)
    for config in starts:
        for together in (0, 1):
            for changed in mutations(config, together):
                yield from new(changed)
    for combination in index.combinations:
        for changed in mutations(base(table, combination), 2):
            yield from new(changed)
    while len(seen) < at_least:
        picks = list(draw.choice(starts))
        for place in draw.sample(range(len(SLOTS)), draw.choice((2, 3))):
            picks[place] = draw.randrange(len(POOLS[place]))
        yield from new(tuple(picks))
