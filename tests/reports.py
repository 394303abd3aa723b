"""Faults of published checkpoints, each planted in a real export: what broke, and the finding that tells it.

`tests/data/reports.tsv` lists the public reports. A fault stands for the reports in `ids`; what their
checkpoints had in common is its docstring.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from mutants import Export, Json

Change = Callable[[Export], Export]

FP8, FP8_KV, FP8_MOE = "llama_fp8_pt_static", "llama_fp8_kv", "qwen3_moe_fp8"
INT4, UINT4, MXFP4, NVFP4 = "llama_int4_g128", "llama_uint4_g128", "llama_mxfp4", "llama_nvfp4"
BLOCK = "f2f_llama_attn_fp8blk_mlp_mxfp4"
LAYER = "model.layers.1"


@dataclass(frozen=True)
class Fault:
    """One fault: what it does to which export, and the finding expected there.

    `mentions` is a text that the finding must hold; `ranks` the tensor-parallel size that is asked for.
    """

    ids: tuple[str, ...]
    does: str
    export: str
    change: Change
    code: str
    mentions: str
    ranks: int = 1


FAULTS: list[Fault] = []


def fault(*ids: str, export: str, code: str, mentions: str, ranks: int = 1) -> Callable[[Change], Change]:
    """Enter a function that plants a fault."""

    def enter(change: Change) -> Change:
        FAULTS.append(Fault(ids, (change.__doc__ or "").strip(), export, change, code, mentions, ranks))
        return change

    return enter


def with_linear(export: Export, module: str, out: int = 256, into: int = 512) -> Export:
    """Add an unquantized linear layer to `export`."""
    return export.changed(f"{module}.weight", "BF16", (out, into))


def excluding(export: Export, *entries: str) -> Export:
    """Add entries to the exclude list of `export`."""
    return export.edited(lambda block: block.update(exclude=[*block["exclude"], *entries]))


def stored_float(export: Export, module: str) -> Export:
    """Store `module` as it was before quantization."""
    out, into = export.sizes[module]
    gone = [f"{module}.{suffix}" for suffix in export.modules[module] if suffix not in ("weight", "bias")]
    return export.without(*gone).changed(f"{module}.weight", "BF16", (out, into))


# --- the config says quantized, the file holds floats -----------------------------------------------------


@fault(
    *("vllm#49141", "vllm#52649", "vllm#43893", "vllm#39475"),
    export=MXFP4,
    code="QF401",
    mentions="mtp.layers.0.mlp.down_proj",
)
def draft_layer_left_float(export: Export) -> Export:
    """A multi-token-prediction layer is stored in BF16, but exclude does not name it."""
    export = with_linear(export, "mtp.layers.0.mlp.down_proj", 256, 512)
    return with_linear(export, "mtp.layers.0.mlp.up_proj", 512, 256)


@fault("vllm#41108", "sglang#7376", "ATOM#755", export=FP8, code="QF401", mentions="model.layers.2.eh_proj")
def layer_behind_the_last_left_float(export: Export) -> Export:
    """The draft layer behind the last one holds a projection in BF16 that falls to the global config."""
    export = export.configured(lambda config: config.update(num_nextn_predict_layers=1))
    return with_linear(export, "model.layers.2.eh_proj", 256, 512)


@fault("vllm#41994", export=FP8_MOE, code="QF401", mentions="mtp.layers.0.mlp.experts.0.up_proj")
def draft_experts_left_float(export: Export) -> Export:
    """The experts of a draft layer are stored in BF16, but exclude does not name them."""
    for number in range(4):
        expert = f"mtp.layers.0.mlp.experts.{number}"
        export = with_linear(export, f"{expert}.gate_proj", 128, 256)
        export = with_linear(export, f"{expert}.up_proj", 128, 256)
        export = with_linear(export, f"{expert}.down_proj", 256, 128)
    return export


@fault("vllm#52501", "transformers#48349", export=FP8, code="QF401", mentions=f"{LAYER}.self_attn.o_proj")
def module_left_float(export: Export) -> Export:
    """A module was skipped by the exporter, and the config does not say so."""
    return stored_float(export, f"{LAYER}.self_attn.o_proj")


@fault("vllm#47241", export=FP8, code="QF301", mentions=f"{LAYER}.mlp.up_proj.weight_scale")
def weight_scale_missing(export: Export) -> Export:
    """A quantized weight has no scale."""
    return export.without(f"{LAYER}.mlp.up_proj.weight_scale")


@fault("sglang#23625", export=FP8, code="QF301", mentions=f"{LAYER}.mlp.up_proj.input_scale")
def input_scale_missing(export: Export) -> Export:
    """A static activation scale is missing."""
    return export.without(f"{LAYER}.mlp.up_proj.input_scale")


@fault("vllm#54444", export=NVFP4, code="QF301", mentions="down_proj.weight_scale_2")
def global_scale_missing(export: Export) -> Export:
    """The scale of the scales is missing."""
    return export.without(f"{LAYER}.mlp.down_proj.weight_scale_2")


@fault("Quark:dsv32-script", export=BLOCK, code="QF301", mentions="weight_scale")
def block_scales_missing(export: Export) -> Export:
    """Block FP8 is declared, but no attention weight has a scale."""
    return export.without(*(n for n in export.tensors if "self_attn" in n and n.endswith("weight_scale")))


# --- the config says excluded, the file holds codes -------------------------------------------------------


@fault(
    *("vllm#44081", "ct#759", "ct#712", "vllm#54556"),
    export=FP8,
    code="QF402",
    mentions=f"{LAYER}.self_attn.k_proj",
)
def excluded_but_quantized(export: Export) -> Export:
    """A module is excluded, but its codes and scale are in the file."""
    return excluding(export, f"{LAYER}.self_attn.k_proj")


@fault("llmc#959", export=FP8, code="QF201", mentions="scale")
def config_missing(export: Export) -> Export:
    """The tensors are quantized, but config.json has no quantization_config."""
    return export.configured(lambda config: config.pop("quantization_config"))


# --- exclude entries and patterns that do not mean what they should ---------------------------------------


@fault(
    *("vllm#54547", "vllm#20046", "llmc#2641", "SlimServe#6", "vllm#9628", "vllm#51910"),
    export="llama_fp8_excl_layer1mlp",
    code="QF221",
    mentions="language_model.model.layers.1.mlp",
)
def exclude_with_another_prefix(export: Export) -> Export:
    """Exclude entries have a prefix that the tensors have not."""

    def prefix(block: Json) -> None:
        block["exclude"] = [
            f"language_model.{name}" if name != "lm_head" else name for name in block["exclude"]
        ]

    return export.edited(prefix)


@fault("HF:amd/kimi-k2.5-eagle3-fp8", "vllm#51265", export=FP8, code="QF221", mentions="`up_proj`")
def exclude_by_last_name(export: Export) -> Export:
    """An exclude entry is the last part of a name, which matches no whole name."""
    return excluding(export, "up_proj")


@fault("sglang#39317", "sglang#9596", export=FP8, code="QF226", mentions="qkv_proj")
def exclude_of_a_fused_name(export: Export) -> Export:
    """An exclude entry names the module that a loader makes of q, k and v."""
    return excluding(export, f"{LAYER}.self_attn.qkv_proj")


@fault("llmc#2163", "llmc#3069", export="llama_mixed_attn_ptpc_mlp_mxfp4", code="QF220", mentions="attention")
def pattern_of_another_naming(export: Export) -> Export:
    """A layer pattern is written for another naming of the same modules."""

    def rename(block: Json) -> None:
        block["layer_quant_config"]["*self_attention*"] = block["layer_quant_config"].pop("*self_attn*")

    return export.edited(rename)


# --- names of other conventions ---------------------------------------------------------------------------


@fault("amd/Quark#44", export=FP8, code="QF308", mentions="weight_quantizer.scale")
def quantizer_names(export: Export) -> Export:
    """Scales have the names of an export that was not finished."""
    return export.renamed(f"{LAYER}.mlp.up_proj.weight_scale", f"{LAYER}.mlp.up_proj.weight_quantizer.scale")


@fault("vllm#54770", "vllm#54900", export=BLOCK, code="QF308", mentions="weight_scale_inv")
def inverse_scale_names(export: Export) -> Export:
    """Block FP8 scales have DeepSeek's name."""
    for name in [n for n in export.tensors if "self_attn" in n and n.endswith("weight_scale")]:
        export = export.renamed(name, f"{name}_inv")
    return export


@fault("vllm#15784", export=FP8_KV, code="QF308", mentions="k_proj.k_scale")
def kv_scale_below_the_projection(export: Export) -> Export:
    """A KV scale is named k_proj.k_scale."""
    name = f"{LAYER}.self_attn.k_proj"
    return export.renamed(f"{name}.output_scale", f"{name}.k_scale")


@fault("ModelOpt#2076", export=FP8, code="QF413", mentions=f"{LAYER}.mlp")
def mangled_name(export: Export) -> Export:
    """The exporter mangled a module's name."""
    return export.renamed(f"{LAYER}.mlp.down_proj", f"{LAYER}.mlp.down_proj_orig")


# --- dtypes and shapes ------------------------------------------------------------------------------------


@fault("vllm#51419", export=MXFP4, code="QF303", mentions="down_proj.weight_scale")
def float_scale_of_mxfp4(export: Export) -> Export:
    """An MXFP4 scale is stored as F32 in place of E8M0 bytes."""
    return export.changed(f"{LAYER}.mlp.down_proj.weight_scale", "F32")


@fault("vllm#48886", "vllm#47115", "vllm#50204", export=BLOCK, code="QF304", mentions="weight_scale")
def channel_scale_for_blocks(export: Export) -> Export:
    """Blocks are declared, but the scale has one number per output channel."""
    name = f"{LAYER}.self_attn.o_proj"
    return export.changed(f"{name}.weight_scale", shape=(export.sizes[name][0],))


@fault("Hyperloom#682", export="llama_fp8_ptpc", code="QF304", mentions="weight_scale")
def column_of_channel_scales(export: Export) -> Export:
    """A scale per channel is stored [N, 1], which Quark stores [N]."""
    name = f"{LAYER}.mlp.up_proj"
    return export.changed(f"{name}.weight_scale", shape=(export.sizes[name][0], 1))


@fault("vllm#6738", export=FP8_KV, code="QF506", mentions="k_proj.output_scale")
def kv_scale_per_channel(export: Export) -> Export:
    """A KV scale has one number per channel."""
    return export.changed(f"{LAYER}.self_attn.k_proj.output_scale", shape=(128,))


@fault("vllm#33200", export=UINT4, code="QF304", mentions="weight_zero_point")
def unpacked_zero_points(export: Export) -> Export:
    """Zero points are stored one to a number."""
    name = f"{LAYER}.mlp.up_proj.weight_zero_point"
    groups, packed = export.tensors[name][1]
    return export.changed(name, shape=(groups, packed * 8))


@fault("ROCm/vllm#696", export=INT4, code="QF304", mentions=f"{LAYER}.mlp.down_proj")
def other_bits_in_one_layer(export: Export) -> Export:
    """One layer is packed at 8 bits, but the config says 4."""
    name = f"{LAYER}.mlp.down_proj.weight"
    rows, packed = export.tensors[name][1]
    return export.changed(name, shape=(rows, packed * 2))


@fault("autoround-gemma4", export=INT4, code="QF304", mentions="[480, 32]")
def group_that_does_not_divide(export: Export) -> Export:
    """The group size does not divide the input channels: 480 of them in groups of 128."""
    name = f"{LAYER}.mlp.down_proj"
    for suffix, shape in (("weight", (480, 32)), ("weight_scale", (4, 256)), ("weight_zero_point", (4, 32))):
        export = export.changed(f"{name}.{suffix}", shape=shape)
    return export


@fault("vllm#11671", export=INT4, code="QF310", mentions="remainder dropped")
def head_that_does_not_pack(export: Export) -> Export:
    """A classification head has fewer output channels than a packed word holds, so they were dropped."""
    return (
        export.changed("score.weight", "I32", (256, 0))
        .changed("score.weight_scale", "BF16", (2, 2))
        .changed("score.weight_zero_point", "I32", (2, 0))
    )


# --- more than one rank -----------------------------------------------------------------------------------


@fault(
    *("vllm#1816", "QwenVL#831", "vllm#5675", "vllm#21695", "vllm#2419", "llmc#54"),
    export=INT4,
    code="QF601",
    mentions="down_proj",
    ranks=8,
)
def groups_over_ranks(export: Export) -> Export:
    """The groups of a row-parallel weight do not divide over the ranks."""
    return export


@fault(
    *("vllm#54178", "vllm#52997", "vllm#45784"),
    export=BLOCK,
    code="QF601",
    mentions="self_attn",
    ranks=4,
)
def blocks_over_ranks(export: Export) -> Export:
    """The blocks of a column-parallel weight do not divide over the ranks."""
    return export


# --- modules beside each other ----------------------------------------------------------------------------


@fault("vllm#41892", "vllm#31623", export=FP8, code="QF405", mentions="q_proj")
def one_shard_excluded(export: Export) -> Export:
    """Only one of q, k and v is excluded."""
    return excluding(stored_float(export, f"{LAYER}.self_attn.v_proj"), f"{LAYER}.self_attn.v_proj")


@fault("sglang#21529", export="deepseek_v2_mxfp4", code="QF408", mentions="shared_expert")
def shared_expert_differs(export: Export) -> Export:
    """The shared expert is left alone, the routed ones are quantized."""
    shared = [name for name in export.modules if "shared_experts" in name]
    for name in shared:
        export = stored_float(export, name)
    return excluding(export, *shared)


@fault("sglang#2935", "vllm#6758", "vllm#45543", export=FP8, code="QF409", mentions="lm_head")
def tied_head_stored(export: Export) -> Export:
    """tie_word_embeddings is true, but the file holds an output layer as well."""
    return export.configured(lambda config: config.update(tie_word_embeddings=True))


@fault(
    *("vllm#40999", "llmc#1820", "vllm#52543", "vllm#53896c"),
    export="llama_fp8_nolmexcl",
    code="QF411",
    mentions="lm_head",
)
def head_quantized(export: Export) -> Export:
    """The output layer is quantized."""
    return export


# --- KV cache ---------------------------------------------------------------------------------------------


@fault("llmc#967", "vllm#54623", export=FP8_KV, code="QF502", mentions="output_scale")
def kv_scales_undeclared(export: Export) -> Export:
    """KV scales are in the file, but the config declares no quantized KV cache."""

    def drop(block: Json) -> None:
        block["export"]["kv_cache_group"] = []
        block["kv_cache_quant_config"] = {}
        for key in ("*k_proj", "*v_proj"):
            block["layer_quant_config"].pop(key, None)

    return export.edited(drop)


# --- configs ----------------------------------------------------------------------------------------------


@fault("sglang#7593", export=FP8, code="QF204", mentions="text_config")
def two_configs(export: Export) -> Export:
    """A second block describes the quantization differently."""
    other = copy.deepcopy(export.block) | {"exclude": []}
    return export.configured(lambda config: config.update(text_config={"quantization_config": other}))


@fault("quark-no-export", export=FP8, code="QF214", mentions="export")
def export_settings_missing(export: Export) -> Export:
    """The block has no export settings, which loaders read first."""
    return export.edited(lambda block: block.pop("export"))
