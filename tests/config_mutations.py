"""The other half of the table of fault kinds: what is wrong in config.json, in the index or in a file.

As in `mutations`, a kind's docstring says what it does, its decorator which codes are right. Faults of files
are planted in the folder, and in a few exports only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mutants import FLOATS, HEAD, SHARDS, Export, Json, Mutant
from mutations import Maker, kind, named

from quark_format.tables import table

LAYERS, KV, GROUP = "layer_quant_config", "kv_cache_quant_config", "kv_cache_group"
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = (FILE, INDEX, "config.json", "copy.safetensors", "*.safetensors", *SHARDS)
"""What a finding on a file names one of."""
CONTRADICTED = (
    *("QF301", "QF302", "QF303", "QF304", "QF305", "QF306", "QF311", "QF313"),
    *("QF211", "QF215", "QF412"),
)
OTHER_DTYPE = {
    "fp8_e4m3": "int8",
    "fp8_e5m2": "int8",
    "int8": "fp8_e4m3",
    "uint8": "fp8_e4m3",
    "int4": "int8",
    "uint4": "uint8",
    "fp4": "int8",
    "fp6_e3m2": "fp8_e4m3",
    "fp6_e2m3": "fp8_e4m3",
}
OTHER_QSCHEME: dict[str, Json] = {
    "per_tensor": {"qscheme": "per_channel", "ch_axis": 0, "observer_cls": "PerChannelMinMaxObserver"},
    "per_channel": {"qscheme": "per_tensor", "ch_axis": None, "observer_cls": "PerTensorMinMaxObserver"},
    "per_group": {"qscheme": "per_tensor", "ch_axis": None, "group_size": None},
}
HEADS = ("num_key_value_heads",)
DAMAGES: set[str] = set()
"""The kinds that damage files."""
SPOILED = ("llama_fp8_kv", "llama_mxfp4", "q0.6.0_llama_int4", "qwen3_moe_int4_g128")


def weight(block: Json) -> Json:
    """The first stage of the global weight spec, empty where there is none."""
    spec = (block.get("global_quant_config") or {}).get("weight") or {}
    first = spec[0] if isinstance(spec, list) else spec
    return first if isinstance(first, dict) else {}


def single(export: Export) -> bool:
    """Whether the global weight spec has one stage, in quark mode and real codes."""
    spec = (export.block.get("global_quant_config") or {}).get("weight")
    return export.quark and export.real and isinstance(spec, dict) and uses_global(export)


def uses_global(export: Export) -> bool:
    """Whether the global config is that of a module that stores codes."""
    return any(
        entry.stores_codes and entry.declared.pointer == "/global_quant_config"
        for entry in export.context.judged
    )


def edit(
    export: Export, change: Callable[[Json], object], mentions: str | tuple[str, ...]
) -> Iterator[Mutant]:
    """One mutant: the block changed."""
    yield Mutant(export.edited(change), mentions)


def held(export: Export, pointer: str = "/global_quant_config") -> tuple[str, ...]:
    """What a finding on a spec names: the spec's place, or a module that it is for."""
    modules = [
        member.name
        for entry in export.context.judged
        if entry.declared.pointer == pointer and entry.quantized
        for member in entry.members
    ]
    return (pointer, *modules)


def popping(where: Callable[[Json], Json], key: str) -> Callable[[Json], object]:
    """The change that drops a key."""
    return lambda block: where(block).pop(key)


def renaming(key: str, new: str) -> Callable[[Json], object]:
    """The change that gives the value of a key to another."""
    return lambda block: block.update({new: block.pop(key)})


# --- keys of the config -----------------------------------------------------------------------------------


@kind("QF212")
def drop_global_config(export: Export) -> Iterator[Mutant]:
    """The block has no global_quant_config."""
    if export.quark:
        yield from edit(export, lambda block: block.pop("global_quant_config"), "global_quant_config")


def without(key: str) -> Maker:
    """The maker of a block that has no `key`."""

    def drop(export: Export) -> Iterator[Mutant]:
        if export.quark:
            yield from edit(export, lambda block: block.pop(key), key)

    return drop


for KEY, DOES in (("export", "no export settings"), ("exclude", "no exclude list")):
    kind("QF212", "QF214", severity="warning")(named(without(KEY), f"drop_{KEY}", f"The block has {DOES}."))


@kind("QF212", "QF214", severity="warning")
def drop_spec_key(export: Export) -> Iterator[Mutant]:
    """A spec lacks a key that every export has."""
    if export.quark:
        for key in ("dtype", "qscheme", "is_dynamic", "ch_axis", "group_size", "symmetric"):
            if key in weight(export.block):
                yield from edit(export, popping(weight, key), key)


@kind("QF213", severity="warning")
def add_unknown_key(export: Export) -> Iterator[Mutant]:
    """The block, its export settings or a spec has a key that no Quark writes."""
    if export.quark:
        yield from edit(export, lambda block: block.update(ignore=[]), "ignore")
        yield from edit(export, lambda block: block["export"].update(kv_scales=1), "kv_scales")
        if weight(export.block):
            yield from edit(export, lambda block: weight(block).update(num_bits=8), "num_bits")


@kind("QF213", severity="warning")
def misspell_key(export: Export) -> Iterator[Mutant]:
    """A key of the block has a typing error."""
    if export.quark:
        for key in ("exclude", LAYERS):
            new = f"{key}s"
            yield from edit(export, renaming(key, new), new)


def retyped(key: str, value: Any, where: Callable[[Json], Json], *codes: str) -> None:
    """Enter the kind of a key with a value of the wrong type."""

    def change(export: Export) -> Iterator[Mutant]:
        if export.quark and key in where(export.block):
            yield from edit(export, lambda block: where(block).update({key: value}), key)

    kind(*codes)(named(change, f"retype_{key}", f"{key} is {json.dumps(value)}."))


def itself(block: Json) -> Json:
    """The block."""
    return block


def settings(block: Json) -> Json:
    """The export settings of a block."""
    found: Json = block.get("export") or {}
    return found


retyped("exclude", "lm_head", itself, "QF210")
retyped("global_quant_config", [], itself, "QF210")
retyped(LAYERS, ["*"], itself, "QF210")
retyped("export", "reorder", itself, "QF210")
retyped("quant_method", ["quark"], itself, "QF202", "QF210", "QF211")
retyped("is_dynamic", "false", weight, "QF210")
retyped("symmetric", "true", weight, "QF210")
retyped("ch_axis", "0", weight, "QF210")
retyped("group_size", "128", weight, "QF210")
retyped("dtype", 8, weight, "QF210", "QF211")
retyped("qscheme", 1, weight, "QF210", "QF211", "QF215")
retyped(GROUP, "*k_proj", settings, "QF210")


def unknown(
    key: str, value: str, where: Callable[[Json], Json], *codes: str, severity: str = "error"
) -> None:
    """Enter the kind of a key with a value that no version knows."""

    def change(export: Export) -> Iterator[Mutant]:
        if export.quark and where(export.block).get(key) is not None:
            yield from edit(export, lambda block: where(block).update({key: value}), value)

    kind(*codes, severity=severity)(named(change, f"unknown_{key}", f"{key} is {value!r}."))


unknown("dtype", "fp9_e4m4", weight, "QF211")
unknown("qscheme", "per_row", weight, "QF211")
unknown("observer_cls", "GuessObserver", weight, "QF211", "QF215", "QF216", severity="warning")
unknown("scale_type", "float12", weight, "QF211", "QF216", severity="warning")
unknown("weight_format", "packed", settings, "QF211", "QF216", severity="warning")
unknown("pack_method", "shuffle", settings, "QF211", "QF216", severity="warning")
unknown("quant_method", "quork", itself, "QF202")
unknown("version", "99.9", itself, "QF205", severity="warning")


# --- specs against tensors ----------------------------------------------------------------------------------


@kind(*CONTRADICTED)
def swap_dtype(export: Export) -> Iterator[Mutant]:
    """The global weight spec has another dtype than the codes."""
    if single(export) and (new := OTHER_DTYPE.get(str(weight(export.block).get("dtype")))):
        yield from edit(export, lambda block: weight(block).update(dtype=new), held(export))


@kind(*CONTRADICTED)
def swap_qscheme(export: Export) -> Iterator[Mutant]:
    """The global weight spec has another qscheme than the scales."""
    if single(export) and (new := OTHER_QSCHEME.get(str(weight(export.block).get("qscheme")))):
        yield from edit(export, lambda block: weight(block).update(new), held(export))


@kind(*CONTRADICTED)
def halve_group_size(export: Export) -> Iterator[Mutant]:
    """The global weight spec has half the group size."""
    if single(export) and isinstance(size := weight(export.block).get("group_size"), int) and size > 1:
        yield from edit(export, lambda block: weight(block).update(group_size=size // 2), held(export))


@kind(*CONTRADICTED)
def double_group_size(export: Export) -> Iterator[Mutant]:
    """The global weight spec has twice the group size."""
    if single(export) and isinstance(size := weight(export.block).get("group_size"), int) and size > 1:
        yield from edit(export, lambda block: weight(block).update(group_size=size * 2), held(export))


def inputs(block: Json) -> Json:
    """The global input spec if it has one stage, else empty."""
    spec = (block.get("global_quant_config") or {}).get("input_tensors")
    return spec if isinstance(spec, dict) else {}


def eager(export: Export) -> bool:
    """Whether Quark's exporter made the export, which stores every static scale."""
    return single(export) and not export.name.startswith("f2f_")


@kind("QF301")
def declare_input_static(export: Export) -> Iterator[Mutant]:
    """A dynamic input spec is declared static, but there are no input scales."""
    spec = inputs(export.block)
    if eager(export) and spec.get("is_dynamic") is True and spec.get("qscheme") == "per_tensor":
        yield from edit(export, lambda block: inputs(block).update(is_dynamic=False), "input_scale")


@kind("QF302")
def declare_input_dynamic(export: Export) -> Iterator[Mutant]:
    """A static input spec is declared dynamic, but the input scales are there."""
    if eager(export) and inputs(export.block).get("is_dynamic") is False:
        yield from edit(export, lambda block: inputs(block).update(is_dynamic=True), "input_scale")


@kind("QF302")
def drop_input_spec(export: Export) -> Iterator[Mutant]:
    """The input spec is gone, but the input scales are there."""
    if eager(export) and inputs(export.block).get("is_dynamic") is False:
        change = lambda block: block["global_quant_config"].update(input_tensors=None)  # noqa: E731
        yield from edit(export, change, "input_scale")


@kind("QF301")
def add_input_spec(export: Export) -> Iterator[Mutant]:
    """A weight-only export declares static FP8 activations."""
    block = export.block
    if eager(export) and block["global_quant_config"]["input_tensors"] is None and weight(block):
        plain = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": True}
        other = {"ch_axis": None, "group_size": None, "observer_cls": "PerTensorMinMaxObserver"}
        spec = {**weight(block), **plain, **other}
        change = lambda block: block["global_quant_config"].update(input_tensors=spec)  # noqa: E731
        yield from edit(export, change, "input_scale")


@kind("QF303", "QF302", "QF311", "QF401", "QF403")
def declare_fake(export: Export) -> Iterator[Mutant]:
    """weight_format says that floats are stored, but codes are."""
    if single(export) and any(export.modules[name]["weight"][0] not in FLOATS for name in export.codes):
        yield from edit(
            export, lambda block: block["export"].update(weight_format="fake_quantized"), held(export)
        )


@kind("QF230")
def drop_pack_method(export: Export) -> Iterator[Mutant]:
    """Packed weights are stored, but pack_method is null."""
    if single(export) and weight(export.block).get("dtype") in table("packing.json")["dtypes"]:
        yield from edit(export, lambda block: block["export"].update(pack_method=None), "pack_method")


# --- exclude ------------------------------------------------------------------------------------------------


def head_left_alone(export: Export) -> bool:
    """Whether the output layer is there, excluded by its name, and would be quantized otherwise."""
    kinds = export.block.get("global_quant_config") or {}
    named = export.quark and HEAD in export.modules and HEAD in export.block["exclude"]
    return named and bool(kinds["weight"]) and bool(export.codes)


@kind("QF401")
def empty_exclude(export: Export) -> Iterator[Mutant]:
    """The exclude list is empty, but the output layer is stored as it was."""
    if head_left_alone(export) and export.real:
        yield from edit(export, lambda block: block.update(exclude=[]), HEAD)


@kind("QF401")
def misspell_exclude(export: Export) -> Iterator[Mutant]:
    """The entry for the output layer has a typing error."""
    if head_left_alone(export) and export.real:
        change = lambda block: block.update(  # noqa: E731
            exclude=[entry if entry != HEAD else "lm_heads" for entry in block["exclude"]]
        )
        yield from edit(export, change, HEAD)


def entry(name: str, does: str, make: Callable[[Export], str | None], *codes: str, severity: str) -> None:
    """Enter the kind of one more exclude entry."""

    def change(export: Export) -> Iterator[Mutant]:
        new = make(export) if export.quark and export.real else None
        if new is not None:
            mentions = "/exclude" if "*" in new or severity == "info" else new
            yield from edit(export, lambda block: block["exclude"].append(new), mentions)

    kind(*codes, severity=severity)(named(change, name, does))


def quantized(export: Export) -> str | None:
    """The first module that stores codes."""
    return next(iter(export.codes), None)


entry("exclude_quantized", "An entry names a quantized module.", quantized, "QF402", severity="error")
entry(
    "exclude_everything",
    "An entry takes every module.",
    lambda export: "*" if export.codes else None,
    "QF402",
    "QF223",
    severity="error",
)
entry(
    "exclude_layers_by_glob",
    "A glob takes quantized modules.",
    lambda export: "*.layers.1.*" if any(".layers.1." in name for name in export.codes) else None,
    "QF402",
    "QF223",
    severity="error",
)
entry("exclude_by_regex", "An entry is no regular expression.", lambda _: "re:*(", "QF227", severity="error")
entry(
    "exclude_twice",
    "An entry stands twice.",
    lambda export: next(iter(export.block["exclude"]), None),
    "QF222",
    severity="info",
)
entry("exclude_nothing", "An entry matches nothing.", lambda _: "vision_tower", "QF220", severity="info")
entry(
    "exclude_by_last_name",
    "An entry is the last name of modules.",
    lambda export: name.rpartition(".")[2] if "." in (name := quantized(export) or "") else None,
    "QF221",
    severity="warning",
)
entry(
    "exclude_with_prefix",
    "An entry has a prefix that the modules have not.",
    lambda export: f"language_model.{name}" if "." in (name := quantized(export) or "") else None,
    "QF221",
    severity="warning",
)
entry(
    "exclude_fused_name",
    "An entry names a fused module.",
    lambda export: "model.layers.0.self_attn.qkv_proj" if fusable(export) else None,
    "QF226",
    severity="warning",
)


def fusable(export: Export) -> bool:
    """Whether the first layer has q, k and v."""
    return all(f"model.layers.0.self_attn.{one}_proj" in export.modules for one in "qkv")


@kind("QF210")
def exclude_a_number(export: Export) -> Iterator[Mutant]:
    """An exclude entry is a number."""
    if export.quark:
        yield from edit(export, lambda block: block["exclude"].append(5), "exclude")


# --- layer configs ------------------------------------------------------------------------------------------


@kind(*CONTRADICTED, "QF401", "QF402", "QF404")
def override_every_layer(export: Export) -> Iterator[Mutant]:
    """A pattern in front of all takes every module, with a spec that the tensors do not have."""
    if single(export) and weight(export.block).get("dtype") in OTHER_DTYPE:
        other = copy.deepcopy(export.block["global_quant_config"])
        other["weight"]["dtype"] = OTHER_DTYPE[other["weight"]["dtype"]]
        yield from edit(
            export,
            lambda block: block.update({LAYERS: {"*": other, **block[LAYERS]}}),
            (LAYERS, *export.codes),
        )


@kind("QF220", "QF221", severity="info")
def dead_layer_pattern(export: Export) -> Iterator[Mutant]:
    """A layer pattern matches nothing."""
    if export.quark:
        config = export.block["global_quant_config"]
        yield from edit(export, lambda block: block[LAYERS].update({"*.visual.*": config}), LAYERS)


@kind("QF225", "QF224", *CONTRADICTED, severity="warning")
def shadow_layer_pattern(export: Export) -> Iterator[Mutant]:
    """A pattern that takes everything stands in front of one with another config."""
    block = export.block
    own = {key: layer for key, layer in (block.get(LAYERS) or {}).items() if layer and layer.get("weight")}
    config = block.get("global_quant_config")
    if export.quark and config and config["weight"] and any(layer != config for layer in own.values()):
        yield from edit(
            export, lambda block: block.update({LAYERS: {"*": config, **block[LAYERS]}}), (LAYERS, *own)
        )


@kind(*CONTRADICTED, "QF401", "QF404", "QF220", severity="info")
def misspell_layer_pattern(export: Export) -> Iterator[Mutant]:
    """A layer pattern has a typing error."""
    for key in list(export.block.get(LAYERS) or {})[:1]:
        layer = export.block[LAYERS][key]
        if export.quark and layer and layer.get("weight") and "*" in key:
            new = key.replace("*", "*x", 1)
            change = lambda block, key=key, new=new: block.update(  # noqa: E731
                {LAYERS: {new if one == key else one: value for one, value in block[LAYERS].items()}}
            )
            yield from edit(export, change, (new, *held(export, f"/{LAYERS}/{key}")))


# --- KV cache -----------------------------------------------------------------------------------------------


@kind("QF502", severity="warning")
def undeclare_kv(export: Export) -> Iterator[Mutant]:
    """KV scales are stored, but nothing declares them."""
    stored = [name for name in export.tensors if name.endswith(("k_proj.output_scale", "k_scale"))]
    if export.quark and stored and export.block["export"].get(GROUP):

        def drop(block: Json) -> None:
            block["export"][GROUP] = []
            if KV in block:
                block[KV] = {}
            block[LAYERS] = {
                key: {**layer, "output_tensors": None} if layer else layer
                for key, layer in block[LAYERS].items()
            }

        yield from edit(export, drop, tuple(stored))


@kind("QF501", "QF504")
def declare_kv(export: Export) -> Iterator[Mutant]:
    """A quantized KV cache is declared, but there are no scales."""
    block = export.block
    plain = eager(export) and not any(name.endswith("output_scale") for name in export.tensors)
    if plain and block.get(KV) == {} and not block["export"][GROUP] and fusable(export):
        output = {
            **weight(block),
            "dtype": "fp8_e4m3",
            "qscheme": "per_tensor",
            "ch_axis": None,
            "group_size": None,
            "is_dynamic": False,
            "symmetric": True,
            "observer_cls": "PerTensorMinMaxObserver",
        }
        config = {**block["global_quant_config"], "output_tensors": output}

        def declare(block: Json) -> None:
            block[KV] = {"*k_proj": config, "*v_proj": config}
            block["export"][GROUP] = ["*k_proj", "*v_proj"]

        yield from edit(export, declare, (KV, "k_proj", "v_proj"))


@kind("QF504", "QF507", "QF502", "QF220", severity="info")
def misname_kv_group(export: Export) -> Iterator[Mutant]:
    """kv_cache_group names modules that the model has not."""
    if export.quark and export.block["export"].get(GROUP):
        yield from edit(export, lambda block: block["export"].update({GROUP: ["*key", "*value"]}), GROUP)


# --- the model's config -------------------------------------------------------------------------------------


def model(name: str, does: str, key: str, change: Callable[[int], int], *codes: str) -> None:
    """Enter the kind of a number of config.json that the tensors contradict."""

    def make(export: Export) -> Iterator[Mutant]:
        value = export.config.get(key)
        if isinstance(value, int) and not (key in HEADS and "kv_lora_rank" in export.config):
            yield Mutant(export.configured(lambda config: config.update({key: change(value)})), key)

    kind(*codes)(named(make, name, does))


model("more_layers", "The config has one layer more.", "num_hidden_layers", lambda n: n + 1, "QF415")
model("fewer_layers", "The config has one layer less.", "num_hidden_layers", lambda n: n - 1, "QF417")
model("more_vocabulary", "The vocabulary is thrice as large.", "vocab_size", lambda n: n * 3, "QF416")
model("wider", "The hidden size is twice as large.", "hidden_size", lambda n: n * 2, "QF416")
model("more_kv_heads", "There are twice the KV heads.", "num_key_value_heads", lambda n: n * 2, "QF416")
model("more_experts", "There is one expert more.", "num_local_experts", lambda n: n + 1, "QF407", "QF416")
model("fewer_experts", "There is one expert less.", "num_local_experts", lambda n: n - 1, "QF418", "QF416")


@kind("QF409", severity="warning")
def tie_stored_head(export: Export) -> Iterator[Mutant]:
    """tie_word_embeddings is true, but the output layer is stored."""
    if HEAD in export.modules:
        yield Mutant(export.configured(lambda config: config.update(tie_word_embeddings=True)), HEAD)


@kind("QF410")
def untie_without_head(export: Export) -> Iterator[Mutant]:
    """tie_word_embeddings is false, but there is no output layer."""
    if HEAD not in export.modules:
        yield Mutant(export.configured(lambda config: config.update(tie_word_embeddings=False)), HEAD)


@kind("QF204")
def second_block(export: Export) -> Iterator[Mutant]:
    """A second block says something else."""
    other = copy.deepcopy(export.block) | {"exclude": ["*"], "ignored_layers": ["*"]}
    yield Mutant(
        export.configured(lambda config: config.update(text_config={"quantization_config": other})),
        "text_config",
    )


@kind("QF201")
def drop_block(export: Export) -> Iterator[Mutant]:
    """config.json has no quantization_config, but scales are stored."""
    if any(name.endswith("weight_scale") for name in export.tensors):
        yield Mutant(export.configured(lambda config: config.pop("quantization_config")), "scale")


# --- files --------------------------------------------------------------------------------------------------


def spoiled(
    name: str,
    does: str,
    spoil: Callable[[Path], object],
    *codes: str,
    severity: str = "error",
    shards: bool = False,
) -> None:
    """Enter the kind of a damaged file of the folder."""

    def make(export: Export) -> Iterator[Mutant]:
        if export.name in SPOILED:
            yield Mutant(export.sharded() if shards else export, FILES, spoil=spoil)

    DAMAGES.add(name.replace("_", "-"))
    kind(*codes, severity=severity)(named(make, name, does))


def index(change: Callable[[Json], object]) -> Callable[[Path], None]:
    """Change the index of a folder."""

    def spoil(folder: Path) -> None:
        raw = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        change(raw)
        (folder / INDEX).write_text(json.dumps(raw), encoding="utf-8")

    return spoil


def header(change: Callable[[Json], object]) -> Callable[[Path], None]:
    """Change the header of the only file; its data stay."""

    def spoil(folder: Path) -> None:
        whole = (folder / FILE).read_bytes()
        end = 8 + int.from_bytes(whole[:8], "little")
        raw = json.loads(whole[8:end])
        change(raw)
        text = json.dumps(raw).encode()
        text += b" " * (-len(text) % 8)
        (folder / FILE).write_bytes(len(text).to_bytes(8, "little") + text + whole[end:])

    return spoil


def bytes_of(change: Callable[[bytes], bytes], file: str = FILE) -> Callable[[Path], None]:
    """Change the bytes of a file."""

    def spoil(folder: Path) -> None:
        (folder / file).write_bytes(change((folder / file).read_bytes()))

    return spoil


def last(raw: Json) -> Json:
    """The last tensor's entry of a header."""
    found: Json = raw[list(raw)[-1]]
    return found


def twice(whole: bytes) -> bytes:
    """A header whose last key stands twice."""
    end = 8 + int.from_bytes(whole[:8], "little")
    text = whole[8:end].rstrip()
    begin = text.rindex(b'},"') + 2
    text = text[:-1] + b"," + text[begin:]
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + whole[end:]


def shift(raw: Json, by: int) -> None:
    """Move the last tensor's bytes."""
    start, end = last(raw)["data_offsets"]
    last(raw)["data_offsets"] = [start + by, end + by]


spoiled(
    "index_lacks_tensor",
    "The index lacks a tensor.",
    index(lambda raw: raw["weight_map"].popitem()),
    "QF110",
    shards=True,
)
spoiled(
    "index_has_more",
    "The index maps a tensor that no file holds.",
    index(lambda raw: raw["weight_map"].update({"model.extra.weight": SHARDS[0]})),
    "QF109",
    shards=True,
)
spoiled(
    "index_maps_elsewhere",
    "The index maps a tensor to the other file.",
    index(lambda raw: raw["weight_map"].update({next(iter(raw["weight_map"])): SHARDS[1]})),
    "QF111",
    shards=True,
)
spoiled(
    "index_total",
    "The index has another total_size.",
    index(lambda raw: raw["metadata"].update(total_size=12345)),
    "QF115",
    severity="warning",
    shards=True,
)
spoiled(
    "index_unknown_file",
    "The index names a file that is not there.",
    index(lambda raw: raw["weight_map"].update({next(iter(raw["weight_map"])): "m.safetensors"})),
    "QF112",
    shards=True,
)
spoiled(
    "index_no_json",
    "The index is cut off.",
    bytes_of(lambda raw: raw[: len(raw) // 2], INDEX),
    "QF108",
    shards=True,
)
spoiled(
    "shard_gone",
    "A shard is not there.",
    lambda folder: (folder / SHARDS[1]).unlink(),
    "QF112",
    shards=True,
)
spoiled(
    "shard_too_many",
    "A copy of a shard lies in the folder under another name.",
    lambda folder: (folder / "copy.safetensors").write_bytes((folder / SHARDS[0]).read_bytes()),
    "QF113",
    severity="warning",
    shards=True,
)
spoiled("file_cut", "The file is cut off in its data.", bytes_of(lambda raw: raw[:-100]), "QF106")
spoiled("file_longer", "Bytes follow the data.", bytes_of(lambda raw: raw + bytes(64)), "QF106")
spoiled("file_empty", "The file is empty.", bytes_of(lambda _: b""), "QF104")
spoiled("header_empty", "The header has length 0.", bytes_of(lambda raw: bytes(8) + raw[8:]), "QF104")
spoiled(
    "header_endless",
    "The header is longer than the file.",
    bytes_of(lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:]),
    "QF104",
)
spoiled("header_no_json", "The header is no JSON.", bytes_of(lambda raw: raw[:8] + b"[" + raw[9:]), "QF104")
spoiled("header_key_twice", "A header names a tensor twice.", bytes_of(twice), "QF116")
spoiled("header_gap", "Bytes between two tensors are nobody's.", header(lambda raw: shift(raw, 2)), "QF105")
spoiled("header_overlap", "Two tensors share bytes.", header(lambda raw: shift(raw, -2)), "QF105", "QF106")
spoiled(
    "header_shape",
    "A tensor's shape is not that of its bytes.",
    header(lambda raw: last(raw).update(shape=[3, 5, 7])),
    "QF105",
)
spoiled(
    "header_dtype",
    "A tensor has a dtype that safetensors does not know.",
    header(lambda raw: last(raw).update(dtype="F12")),
    "QF107",
)
spoiled("config_cut", "config.json is cut off.", bytes_of(lambda raw: raw[:-20], "config.json"), "QF102")
spoiled(
    "config_mark",
    "config.json begins with a byte order mark.",
    bytes_of(lambda raw: b"\xef\xbb\xbf" + raw, "config.json"),
    "QF120",
)
