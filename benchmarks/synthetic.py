"""Sparse checkpoints of the shape of DeepSeek-R1-MXFP4: right headers, config and index, no data on disk.

The quantization block is that of a real export of a small DeepSeek; sizes and names are the large one's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXPORT = Path(__file__).parent.parent / "tests" / "data" / "exports_more" / "deepseek_v2_mxfp4.json"
FP8_EXPORT = EXPORT.parent.parent / "exports" / "q0.10_llama_fp8.json"
ROWS = 4096
BYTES = {"F8_E4M3": 1, "U8": 1, "BF16": 2, "F32": 4}
GROUP = 32
HIDDEN, DENSE, EXPERT = 7168, 18432, 2048
VOCABULARY, EXPERTS, DENSE_LAYERS = 129280, 256, 3
ATTENTION = {
    "q_a_proj": (1536, HIDDEN),
    "q_b_proj": (24576, 1536),
    "kv_a_proj_with_mqa": (576, HIDDEN),
    "kv_b_proj": (32768, 512),
    "o_proj": (HIDDEN, 16384),
}
NORMS = {
    "input_layernorm": HIDDEN,
    "post_attention_layernorm": HIDDEN,
    "self_attn.q_a_layernorm": 1536,
    "self_attn.kv_a_layernorm": 512,
}
Rows = Iterator[tuple[str, str, tuple[int, ...]]]


def make(folder: Path, moe_layers: int, shards: int) -> int:
    """Write `moe_layers` layers of 256 experts in about `shards` files, return how many tensors they have."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(_tensors(DENSE_LAYERS + moe_layers))
    parts = list(_batched(rows, math.ceil(len(rows) / shards)))
    mapped: dict[str, str] = {}
    total = 0
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        total += _write_shard(folder / file, part)
        mapped |= dict.fromkeys((name for name, _, _ in part), file)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(mapped.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(_config(DENSE_LAYERS + moe_layers), indent=2))
    return len(rows)


def make_filled(folder: Path, megabytes: int) -> int:
    """Write a small FP8 checkpoint of so many MB of random finite codes, return its bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(FP8_EXPORT.read_text(encoding="utf-8"))["config"]
    layers = megabytes // (ROWS * ROWS >> 20)
    names = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(layers)]
    rows: list[tuple[str, str, tuple[int, ...]]] = [(name, "F8_E4M3", (ROWS, ROWS)) for name in names]
    rows += [(f"{name}_scale", "F32", ()) for name in names]
    _write_shard(folder / "model.safetensors", rows)
    piece = hashlib.shake_128(b"codes").digest(1 << 20).translate(bytes(code % 120 for code in range(256)))
    with (folder / "model.safetensors").open("r+b") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        file.seek(begin)
        for _ in range(layers * (ROWS * ROWS >> 20)):
            file.write(piece)
        for _ in range(layers):
            file.write(b"\0\0\x80\x3c")
    (folder / "config.json").write_text(json.dumps(config))
    return (folder / "model.safetensors").stat().st_size


def _batched(rows: list[Any], size: int) -> Iterator[list[Any]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


def _tensors(layers: int) -> Rows:
    yield "model.embed_tokens.weight", "BF16", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name, (out, width) in ATTENTION.items():
            yield f"{prefix}.self_attn.{name}.weight", "BF16", (out, width)
        for name, size in NORMS.items():
            yield f"{prefix}.{name}.weight", "BF16", (size,)
        if layer < DENSE_LAYERS:
            yield from _block(f"{prefix}.mlp", DENSE)
            continue
        yield f"{prefix}.mlp.gate.weight", "BF16", (EXPERTS, HIDDEN)
        yield f"{prefix}.mlp.gate.e_score_correction_bias", "F32", (EXPERTS,)
        yield from _block(f"{prefix}.mlp.shared_experts", EXPERT)
        for expert in range(EXPERTS):
            yield from _block(f"{prefix}.mlp.experts.{expert}", EXPERT)
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield "lm_head.weight", "BF16", (VOCABULARY, HIDDEN)


def _block(prefix: str, middle: int) -> Rows:
    for name, out, width in (
        ("down_proj", HIDDEN, middle),
        ("gate_proj", middle, HIDDEN),
        ("up_proj", middle, HIDDEN),
    ):
        yield f"{prefix}.{name}.weight", "U8", (out, width // 2)
        yield f"{prefix}.{name}.weight_scale", "U8", (out, width // GROUP)


def _write_shard(path: Path, rows: list[tuple[str, str, tuple[int, ...]]]) -> int:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape in rows:
        start, end = end, end + math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    return end


def _config(layers: int) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(EXPORT.read_text(encoding="utf-8"))["config"]
    config |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": HIDDEN,
        "intermediate_size": DENSE,
        "moe_intermediate_size": EXPERT,
        "n_routed_experts": EXPERTS,
        "first_k_dense_replace": DENSE_LAYERS,
        "num_hidden_layers": layers,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "head_dim": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "qk_head_dim": 192,
        "v_head_dim": 128,
        "vocab_size": VOCABULARY,
    }
    attention = [f"model.layers.{layer}.self_attn.{name}" for layer in range(layers) for name in ATTENTION]
    config["quantization_config"]["exclude"] = [*attention, "lm_head"]
    return config
