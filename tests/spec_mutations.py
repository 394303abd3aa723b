"""More rows of the table of fault kinds: specs, layer patterns, KV cache, rotation and sizes of the model.

As in `mutations`, a kind's docstring says what it does, its decorator which codes are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import exports
from config_mutations import CONTRADICTED, GROUP, KV, LAYERS, held, single, weight
from mutants import Export, Json, Mutant
from mutations import LINEARS, kind, named

GLOBAL = "global_quant_config"
Where = Callable[[Json], Json]


def edited(export: Export, mentions: str | tuple[str, ...], change: Callable[[Json], object]) -> Mutant:
    """The export with a changed block."""
    return Mutant(export.edited(change), mentions)


# --- specs ------------------------------------------------------------------------------------------------


def group_size(name: str, does: str, change: Callable[[int], int]) -> None:
    """Enter the kind of a group size that the weights do not have."""

    def make(export: Export) -> Iterator[Mutant]:
        size = weight(export.block).get("group_size")
        if single(export) and isinstance(size, int) and size > 0:
            yield edited(export, held(export), lambda block: weight(block).update(group_size=change(size)))

    kind(*CONTRADICTED, "QF210", "QF311")(named(make, name, does))


group_size("group_size_odd", "The group size divides no size.", lambda size: size * 2 // 3 + 1)
group_size("group_size_0", "The group size is 0.", lambda _: 0)
group_size("group_size_minus_7", "The group size is negative.", lambda _: -7)
group_size("group_size_whole_row", "The group size is -1, a group for each row.", lambda _: -1)


@kind("QF211", "QF215", "QF216", severity="warning")
def unknown_scale_format(export: Export) -> Iterator[Mutant]:
    """scale_format is one that Quark never had."""
    if export.quark and weight(export.block).get("scale_format"):
        yield edited(export, "scale_format", lambda block: weight(block).update(scale_format="e9m9"))


@kind("QF303", "QF304", "QF311")
def swap_scale_format(export: Export) -> Iterator[Mutant]:
    """scale_format says E8M0 for float scales, or float for E8M0 ones."""
    other = {"e8m0": "float32", "float32": "e8m0", "e4m3": "e8m0", "e5m3": "float32"}
    stored = weight(export.block).get("scale_format")
    if single(export) and stored in other:
        yield edited(export, held(export), lambda block: weight(block).update(scale_format=other[stored]))


@kind("QF211", "QF303")
def swap_scale_type(export: Export) -> Iterator[Mutant]:
    """scale_type pins another dtype than the scales have."""
    other = {"F32": "bfloat16", "BF16": "float16", "F16": "float32"}
    dtypes = {own["weight_scale"][0] for own in export.modules.values() if "weight_scale" in own}
    spec = weight(export.block)
    pinned = spec.get("scale_type") and not spec.get("scale_format")
    if single(export) and pinned and len(dtypes) == 1 and dtypes < other.keys():
        new = other[dtypes.pop()]
        yield edited(export, held(export), lambda block: weight(block).update(scale_type=new))


@kind(*CONTRADICTED)
def turn_ch_axis(export: Export) -> Iterator[Mutant]:
    """ch_axis says scales per input channel where they are per output channel."""
    spec = weight(export.block)
    uneven = any(
        own["weight"][1][0] != own["weight"][1][-1]
        for own in export.modules.values()
        if "weight_scale" in own
    )
    if single(export) and spec.get("qscheme") == "per_channel" and spec.get("ch_axis") == 0 and uneven:
        yield edited(export, held(export), lambda block: weight(block).update(ch_axis=1))


@kind("QF215", "QF311")
def make_weight_dynamic(export: Export) -> Iterator[Mutant]:
    """The weight spec is dynamic, but weights are always quantized beforehand."""
    if single(export) and weight(export.block).get("is_dynamic") is False:
        yield edited(export, held(export), lambda block: weight(block).update(is_dynamic=True))


@kind(*CONTRADICTED, "QF311")
def add_stage(export: Export) -> Iterator[Mutant]:
    """The weight spec has a second stage, an FP8 scale of scales, that is not stored."""
    second: Json = {
        "dtype": "fp8_e4m3",
        "qscheme": "per_tensor",
        "is_dynamic": False,
        "is_scale_quant": True,
        "observer_cls": "PerTensorMinMaxObserver",
        "ch_axis": None,
        "group_size": None,
        "scale_format": None,
        "symmetric": True,
    }
    spec = weight(export.block)
    if single(export) and spec.get("qscheme") == "per_group" and "is_scale_quant" in spec:
        stages = [spec, {**spec, **second}]
        yield edited(export, held(export), lambda block: block[GLOBAL].update(weight=stages))


@kind(*CONTRADICTED, "QF311")
def drop_stage(export: Export) -> Iterator[Mutant]:
    """The weight spec has the first of its two stages only."""
    spec = (export.block.get(GLOBAL) or {}).get("weight")
    if export.quark and export.real and isinstance(spec, list):
        yield edited(export, held(export), lambda block: block[GLOBAL].update(weight=spec[0]))


@kind(*CONTRADICTED, "QF210", "QF311")
def swap_stages(export: Export) -> Iterator[Mutant]:
    """The two stages of the weight spec stand in the wrong order."""
    spec = (export.block.get(GLOBAL) or {}).get("weight")
    if export.quark and export.real and isinstance(spec, list):
        yield edited(export, held(export), lambda block: block[GLOBAL].update(weight=spec[::-1]))


@kind("QF206", severity="info")
def age_version(export: Export) -> Iterator[Mutant]:
    """version is one that did not have the block's keys."""
    if export.quark and export.block.get("version") == "0.13":
        yield edited(export, "version", lambda block: block.update(version="0.9"))


@kind("QF205", "QF210", severity="warning")
def retype_version(export: Export) -> Iterator[Mutant]:
    """version is a number."""
    if export.quark and export.block.get("version"):
        yield edited(export, "version", lambda block: block.update(version=0.13))


@kind("QF210", "QF214", "QF216", "QF401", severity="warning")
def null_exclude(export: Export) -> Iterator[Mutant]:
    """exclude is null."""
    if export.quark and export.block["exclude"]:
        yield edited(export, ("exclude", *export.block["exclude"]), lambda block: block.update(exclude=None))


# --- layer and KV configs -----------------------------------------------------------------------------------


def layer_spec(block: Json, key: str, part: str) -> Json:
    """The first spec of `part` in the configs below `key`, empty where there is none."""
    for layer in (block.get(key) or {}).values():
        spec = (layer or {}).get(part)
        if isinstance(spec, dict):
            return spec
    return {}


def in_layers(key: str, part: str, name: str) -> None:
    """Enter the kinds of a spec of a layer config: a key too many, one of another type, a value too many."""
    where = partial(layer_spec, key=key, part=part)
    changes: tuple[tuple[str, str, Any, tuple[str, ...], str], ...] = (
        ("add_key_to", "num_bits", 8, ("QF213",), "warning"),
        ("retype_in", "is_dynamic", "no", ("QF210",), "error"),
        ("unknown_in", "dtype", "fp9", ("QF211",), "error"),
    )
    for verb, field, value, codes, severity in changes:

        def make(export: Export, field: str = field, value: object = value) -> Iterator[Mutant]:
            if export.quark and where(export.block):
                yield edited(export, field, lambda block: where(block).update({field: value}))

        does = f"{field} in a {part} spec of {key} is {value!r}."
        kind(*codes, severity=severity)(named(make, f"{verb}_{name}", does))


in_layers(LAYERS, "weight", "layer_config")
in_layers(KV, "output_tensors", "kv_config")


def layer_patterns(export: Export) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The first pattern that gives modules a weight spec other than the global one, and what it is for."""
    usual = (export.block.get(GLOBAL) or {}).get("weight")
    for key, layer in (export.block.get(LAYERS) or {}).items():
        pointer, *modules = held(export, f"/{LAYERS}/{key}")
        if export.quark and export.real and modules and layer["weight"] and layer["weight"] != usual:
            yield key, (pointer, *modules)
            return


@kind(*CONTRADICTED, "QF311", "QF401", "QF402", "QF404", "QF405")
def widen_layer_pattern(export: Export) -> Iterator[Mutant]:
    """A layer pattern takes every module."""
    for key, _ in layer_patterns(export):
        yield edited(export, held(export), partial(_rename_pattern, old=key, new="*"))


@kind(*CONTRADICTED, "QF311", "QF401", "QF404", "QF405")
def drop_layer_pattern(export: Export) -> Iterator[Mutant]:
    """A layer config is for no module, though some are stored by it."""
    for key, places in layer_patterns(export):
        yield edited(export, places, partial(_rename_pattern, old=key, new="nothing"))


@kind("QF220", "QF221", severity="info")
def layer_pattern_as_regex(export: Export) -> Iterator[Mutant]:
    """A layer pattern is a regular expression, which only exclude may have."""
    if export.quark:
        usual = export.block[GLOBAL]
        yield edited(export, LAYERS, lambda block: block[LAYERS].update({"re:.*mlp.*": usual}))


def _rename_pattern(block: Json, old: str, new: str) -> None:
    """Give a layer config another pattern."""
    block[LAYERS] = {new if key == old else key: layer for key, layer in block[LAYERS].items()}


def kv_scales(export: Export, leaf: str) -> tuple[str, ...]:
    """The stored KV scales of one projection."""
    return tuple(name for name in export.tensors if name.endswith(f".{leaf}.output_scale"))


@kind("QF504", "QF507")
def drop_kv_group(export: Export) -> Iterator[Mutant]:
    """kv_cache_group is empty, though kv_cache_quant_config and the scales are there."""
    if export.quark and export.block.get(KV) and export.block["export"][GROUP]:
        yield edited(export, (KV, GROUP), lambda block: block["export"].update({GROUP: []}))


@kind("QF302", "QF502", "QF504", "QF505", severity="warning")
def declare_half_of_kv(export: Export) -> Iterator[Mutant]:
    """Only the keys of the KV cache are declared, the scales of the values are stored all the same."""
    if export.quark and (scales := kv_scales(export, "v_proj")) and "*v_proj" in (export.block.get(KV) or {}):

        def drop(block: Json) -> None:
            block[KV].pop("*v_proj")
            block[LAYERS].pop("*v_proj", None)
            block["export"][GROUP].remove("*v_proj")

        yield edited(export, (KV, GROUP, *scales), drop)


@kind("QF509", "QF303", severity="warning")
def odd_kv_dtype(export: Export) -> Iterator[Mutant]:
    """The KV cache is declared as 4-bit integers."""
    if export.quark and export.block.get(KV):

        def change(block: Json) -> None:
            for key in (KV, LAYERS):
                for layer in block[key].values():
                    if layer and layer.get("output_tensors"):
                        layer["output_tensors"]["dtype"] = "int4"

        yield edited(export, (KV, *kv_scales(export, "k_proj")), change)


# --- rotation -----------------------------------------------------------------------------------------------


@cache
def rotation() -> Json:
    """The algorithm of a real export with an online rotation."""
    found: Json = exports.load("rot_online_r1")["config"]["quantization_config"]["algo_config"][0]
    return found


@kind("QF314")
def declare_rotation(export: Export) -> Iterator[Mutant]:
    """An online rotation is declared, but no matrix is stored."""
    layers = [
        name
        for name in export.codes
        if name.rpartition(".")[2] in LINEARS and "input_rotation" not in export.modules[name]
    ]
    if (
        export.quark
        and not export.block.get("algo_config")
        and layers
        and export.block.get("version") == "0.13"
    ):
        online = {**rotation()["online_config"], "online_rotation_layers": layers}
        algorithm = {**rotation(), "online_config": online}
        yield edited(export, tuple(layers), lambda block: block.update(algo_config=[algorithm]))


@kind("QF315", severity="warning")
def undeclare_rotation(export: Export) -> Iterator[Mutant]:
    """The matrices of an online rotation are stored, but nothing declares them."""
    if export.quark and any(name.endswith(".input_rotation") for name in export.tensors):
        yield edited(export, "input_rotation", lambda block: block.update(algo_config=None))


# --- sizes of the model -----------------------------------------------------------------------------------


def sized(key: str, codes: tuple[str, ...], change: Callable[[int], int], does: str) -> None:
    """Enter the kind of a size in config.json that the tensors contradict."""

    def make(export: Export) -> Iterator[Mutant]:
        value = export.config.get(key)
        if isinstance(value, int) and matters(export, key):
            changed = export.configured(lambda config: config.update({key: change(value)}))
            yield Mutant(changed, key)

    kind(*codes)(named(make, f"{change.__name__}_{key}", does))


def matters(export: Export, key: str) -> bool:
    """Whether any tensor has a size that `key` gives."""
    dense = any(name.endswith(("mlp.gate_proj", "fc1")) for name in export.modules)
    latent = "kv_lora_rank" in export.config
    known: dict[str, bool] = {
        "intermediate_size": dense or export.config.get("model_type") == "mixtral",
        "head_dim": not latent,
        "num_attention_heads": "head_dim" in export.config and not latent,
    }
    return known.get(key, True)


def twice(size: int) -> int:
    """Twice the size."""
    return size * 2


def one_more(size: int) -> int:
    """One more than the size."""
    return size + 1


def one_less(size: int) -> int:
    """One less than the size."""
    return size - 1


sized("intermediate_size", ("QF416",), twice, "The MLP is twice as wide.")
sized("moe_intermediate_size", ("QF416",), twice, "The experts are twice as wide.")
sized("shared_expert_intermediate_size", ("QF416",), twice, "The shared expert is twice as wide.")
sized("head_dim", ("QF416",), twice, "The heads are twice as wide.")
sized("num_attention_heads", ("QF416",), twice, "There are twice the heads.")
sized("kv_lora_rank", ("QF416",), twice, "The latent of keys and values is twice as wide.")
for _key in ("num_experts", "n_routed_experts"):
    sized(_key, ("QF407", "QF416"), one_more, "There is one expert more.")
    sized(_key, ("QF416", "QF418"), one_less, "There is one expert less.")


@kind("QF303", "QF401", "QF402", "QF403", "QF404", "QF405", "QF406", "QF301")
def quantize_one_expert_otherwise(export: Export) -> Iterator[Mutant]:
    """A layer config gives one expert another spec than it is stored by."""
    experts = [name for name in export.codes if ".experts.1." in name]
    if single(export) and experts and weight(export.block)["dtype"] != "int8":
        spec = {**weight(export.block), "dtype": "int8", "qscheme": "per_tensor", "ch_axis": None}
        plain = {**spec, "group_size": None, "scale_format": None, "observer_cls": "PerTensorMinMaxObserver"}
        asked = {"symmetric": True, "round_method": "half_even", "scale_type": "float"}
        layer = {**export.block[GLOBAL], "weight": {**plain, **asked}}
        yield edited(
            export, tuple(experts), lambda block: block.update({LAYERS: {experts[0]: layer, **block[LAYERS]}})
        )
