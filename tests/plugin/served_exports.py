"""The exports that the plugin's tests load, by what serves them on a CPU: ours or vLLM's own scheme."""

from __future__ import annotations

OURS = "ReferenceLinear"

DENSE = {
    "llama_fp8_pt_static": OURS,
    "llama_fp8_pt_w_pertoken_a": "PerPartFp8",
    "llama_fp8_ptpc": "QuarkW8A8Fp8",
    "llama_fp8_wo_pc": OURS,
    "llama_fp8_e5m2": OURS,
    "llama_fp8_nolmexcl": OURS,
    "llama_fp8_output": OURS,
    "llama_int8_pt": "QuarkW8A8Int8",
    "llama_int8_pt_asym_a": "QuarkW8A8Int8",
    "llama_int8_pc_static": "QuarkW8A8Int8",
    "llama_int8_pc_dyn": "QuarkW8A8Int8",
    "llama_int8_pt_dyn": OURS,
    "llama_int8_wo_g64": OURS,
    "llama_uint8_wo_pc": OURS,
    "llama_int8_wo_input_channel": OURS,
    "llama_int4_g128": "QuarkW4A16Int4",
    "llama_int4_pc": OURS,
    "llama_int4_wo_pt": OURS,
    "llama_int4_wa_64": OURS,
    "llama_uint4_g128_sym": OURS,
    "llama_int2_g128": OURS,
    "llama_mxfp4_wo": OURS,
    "llama_mxfp4_fp8dyn": OURS,
    "llama_mxfp4_a_mxfp8": OURS,
    "llama_mxfp4_mxfp6_e2m3": OURS,
    "llama_mxfp6_e3m2": OURS,
    "llama_nvfp4": OURS,
    "llama_int4_fp8": OURS,
    "llama_int4_g128_fp8": OURS,
    "llama_amdfp4": OURS,
    "llama_amdfp4_global16": OURS,
    "llama_mixed_qproj": OURS,
    "llama_activations": OURS,
    "llama_mxfp4_rotation_r1_online": OURS,
    "llama_embedding_int8": "ReferenceEmbedding",
    "f2f_llama_int4_g128": OURS,
    "f2f_llama_int4_fp8": OURS,
    "f2f_llama_attn_fp8blk_e8m0_mlp_mxfp4": OURS,
    "llama_fp8_static_fp16": OURS,
    "llama_int4_g128_fp16": "QuarkW4A16Int4",
    "llama_uint4_g128_fp16": "QuarkW4A16Int4",
    "llama_fp8_kv": OURS,
    "llama_fp8_kv_custommode": OURS,
}

OUR_EXPERTS = "ReferenceExperts"

EXPERTS = {
    "qwen3_moe_fp8": OUR_EXPERTS,
    "qwen3_moe_int8": OUR_EXPERTS,
    "qwen3_moe_int8_pc_dyn": OUR_EXPERTS,
    "qwen3_moe_int8_wo_pc": OUR_EXPERTS,
    "qwen3_moe_uint4_g128": OUR_EXPERTS,
    "qwen3_moe_int4_fp8": OUR_EXPERTS,
    "qwen3_moe_mxfp4": OUR_EXPERTS,
    "qwen3_moe_mxfp6_e3m2": OUR_EXPERTS,
    "qwen3_moe_nvfp4": OUR_EXPERTS,
    "qwen3_moe_activations": OUR_EXPERTS,
    "qwen3_moe_mixed_wo": OUR_EXPERTS,
    "mixtral_ptpc": OUR_EXPERTS,
    "mixtral_int4_attnonly": "UnquantizedFusedMoEMethod",
    "qwen2_moe_int4_pc": OUR_EXPERTS,
    "deepseek_v2_mxfp4_fp8": OUR_EXPERTS,
    "gpt_oss_mxfp4_wo": OUR_EXPERTS,
    "gpt_oss_fp8": OUR_EXPERTS,
    "f2f_qwen3moe_moe_fp8blk_attn_mxfp4": OUR_EXPERTS,
}
"""Exports with routed experts, by what serves these on a CPU."""

REFUSED = {"f2f_llama_uint4_g128": "asymmetric"}
"""Exports that no reader can read right, and a word of the reason that is told."""
