"""Resolve every module of a large config, against vLLM's own selection, in one run.

    python benchmarks/resolve.py [--layers 62] [--repeat 3]

The config has 2,500 `exclude` entries and 200 layer patterns. For each module vLLM answers with
`get_quant_method_target`, which is its selection without a layer, and we with `Resolver.resolve`. The answers
are compared first. Ours is timed with and without the building of the index; vLLM's config object is made
before.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from quark_format.resolver import Refusal, Resolver
from quark_format.targets import target

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
EXCLUDED = 2_500
PATTERNS = 200
EXPERTS = 384
LEAST = 20

FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": True}
FP8_INPUT = {**FP8, "is_dynamic": True}
MX = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, "scale_format": "e8m0"}
MX_WEIGHT = {**MX, "is_dynamic": False}
MX_INPUT = {**MX, "is_dynamic": True}


def layer(weight: Any, activation: Any) -> dict[str, Any]:
    """One layer config."""
    return {"weight": weight, "input_tensors": activation, "output_tensors": None, "bias": None}


def config(layers: int) -> dict[str, Any]:
    """A config like that of a large mixture of experts: exact exclude entries, and patterns of both kinds."""
    exclude = ["lm_head"]
    exclude += [
        f"model.layers.{at}.self_attn.{name}" for at in range(3) for name in ("q_proj", "k_proj", "v_proj")
    ]
    exclude += [f"model.layers.{at}.mlp.gate" for at in range(layers)]
    at = 0
    while len(exclude) < EXCLUDED:
        exclude.append(f"vision_tower.encoder.blocks.{at // 6}.wo.{at % 6}")
        at += 1
    own = layer(FP8, FP8_INPUT)
    patterns = {f"*vision.{at}.*": own for at in range(PATTERNS // 2)}
    patterns |= {f"draft.layers.{at}.mlp.down_proj": own for at in range(PATTERNS // 4)}
    patterns |= {f"*layers.{at}.self_attn.o_proj": own for at in range(PATTERNS - len(patterns))}
    return {
        "quant_method": "quark",
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "exclude": exclude,
        "layer_type_quant_config": {},
        "layer_quant_config": patterns,
        "global_quant_config": layer(MX_WEIGHT, MX_INPUT),
    }


def modules(layers: int) -> list[tuple[str, str]]:
    """The modules that vLLM builds, with their kinds."""
    found = []
    for at in range(layers):
        prefix = f"model.layers.{at}"
        linear = ["self_attn.qkv_proj", "self_attn.o_proj", "mlp.shared_experts.gate_up_proj"]
        found += [
            (f"{prefix}.{name}", "linear") for name in [*linear, "mlp.shared_experts.down_proj", "mlp.gate"]
        ]
        found.append((f"{prefix}.mlp.experts", "experts"))
    return found


def best(repeat: int, run: Callable[[], Any]) -> float:
    """The least seconds of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    """Print the table; exit 1 where the answers differ or the factor is below its least."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=62)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.model_executor.layers.fused_moe import RoutedExperts, UnquantizedFusedMoEMethod  # noqa: PLC0415
    from vllm.model_executor.layers.linear import ColumnParallelLinear, UnquantizedLinearMethod  # noqa: PLC0415
    from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig  # noqa: PLC0415

    block, names = config(options.layers), modules(options.layers)
    theirs = QuarkConfig.from_config(block)
    theirs.packed_modules_mapping = FUSED
    types = {"linear": ColumnParallelLinear, "experts": RoutedExperts}
    table = target("vllm")
    table.kinds, table.kernels, table.architectures  # noqa: B018 - read the tables before the time

    def ours() -> list[bool]:
        resolver = Resolver(block, table)
        return [
            not isinstance(found := resolver.resolve(name, kind), Refusal) and not found.excluded
            for name, kind in names
        ]

    def vllm() -> list[bool]:
        plain = (UnquantizedLinearMethod, UnquantizedFusedMoEMethod)
        return [theirs.get_quant_method_target(name, types[kind])[2] not in plain for name, kind in names]

    if ours() != vllm():
        print("the answers differ")
        return 1
    resolver = Resolver(block, table)
    resolver.resolve(*names[0])
    rows = {
        "vLLM, get_quant_method_target": best(options.repeat, vllm),
        "quark_format, index and all modules": best(options.repeat, ours),
        "quark_format, index built": best(options.repeat, lambda: [resolver.resolve(*one) for one in names]),
    }
    slowest = rows["vLLM, get_quant_method_target"]
    print(f"{len(names)} modules, {len(block['exclude'])} exclude entries, {PATTERNS} layer patterns")
    print(f"{'':40}{'µs a module':>14}{'factor':>10}")
    for name, seconds in rows.items():
        print(f"{name:40}{seconds / len(names) * 1e6:>14.1f}{slowest / seconds:>10.1f}")
    return int(slowest / rows["quark_format, index built"] < LEAST)


if __name__ == "__main__":
    raise SystemExit(main())
