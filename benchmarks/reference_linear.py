"""Time of the plugin's reference linear layer against the same layer unquantized, by scheme. Needs vLLM.

    python benchmarks/reference_linear.py [NAME...] [--size N] [--rounds N]

Specs are those of real exports in tests/data; tensors have random codes. `dequantized` is the usual way, with
weights dequantized once, at load; `packed` dequantizes them in every pass (QUARK_FORMAT_VLLM_KEEP_PACKED=1).
Figures are the best of rounds taken in turn, as a share of the speed of the unquantized bfloat16 layer.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.layers.linear import UnquantizedLinearMethod

from quark_format.vllm_plugin.layout import Checkpoint
from quark_format.vllm_plugin.schemes.reference import KEEP_PACKED, ReferenceLinear

EXPORTS = Path(__file__).parent.parent / "tests" / "data" / "exports"
NAMES = (
    "llama_fp8_wo",
    "llama_int8_wo_pc",
    "llama_int4_pc",
    "llama_mxfp4_wo",
    "llama_mxfp6_e3m2_wo",
    "llama_fp8_pt_static",
    "llama_fp8_pt_dyn",
    "llama_int8_pt_dyn",
    "llama_int4_wa_64",
    "llama_mxfp4",
    "llama_mxfp6_e3m2",
    "llama_nvfp4",
    "llama_int4_fp8",
)
TOKENS = (1, 128)
TORCH = {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I32": torch.int32,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}


def new_layer(name: str) -> torch.nn.Module:
    """A layer on one rank, with what vLLM's linear layers tell their scheme."""
    layer = torch.nn.Module()
    layer.prefix, layer.tp_rank, layer.tp_size = name, 0, 1
    return layer


def random_tensor(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Random codes, or small scales."""
    of = TORCH[dtype]
    if of.is_floating_point and of.itemsize > 1:
        return torch.full(shape, 0.01, dtype=of)
    return torch.randint(100, 120, (*shape, of.itemsize), dtype=torch.uint8).view(of).reshape(shape)


def build(name: str, size: int, *, packed: bool) -> tuple[torch.nn.Module, ReferenceLinear, float]:
    """The layer, its scheme and the seconds of dequantization."""
    block = json.loads((EXPORTS / f"{name}.json").read_text(encoding="utf-8"))["config"][
        "quantization_config"
    ]
    checkpoint, spec = Checkpoint(block), block["global_quant_config"]
    scheme = ReferenceLinear(checkpoint, [{"weight": spec["weight"], "input": spec["input_tensors"]}])
    layer = new_layer(name)
    scheme.create_weights(layer, [size], size, size, size, torch.bfloat16)
    (part,) = scheme.parts
    for entry in part.entries():
        stored = getattr(layer, entry.suffix)
        (axes,) = stored.axes
        allowed = checkpoint.table.dtypes(
            entry, (spec["weight"] if isinstance(spec["weight"], dict) else spec["weight"][0],)
        )
        stored.load(random_tensor(allowed[0], tuple(axis.whole for axis in axes or ())), None)
    os.environ[KEEP_PACKED] = str(int(packed))
    start = time.perf_counter()
    scheme.process_weights_after_loading(layer)
    return layer, scheme, time.perf_counter() - start


def seconds(run: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    size = options.size
    plain, method = new_layer("plain"), UnquantizedLinearMethod()
    plain.weight = torch.nn.Parameter(torch.randn(size, size).to(torch.bfloat16), requires_grad=False)
    method.process_weights_after_loading(plain)
    print(f"{size} x {size}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    heads = [f"{kind}, {tokens} tokens" for kind in ("dequantized", "packed") for tokens in TOKENS]
    print("| scheme | dequantization, s |", " | ".join(heads), "|")
    print("|---|--:|", " | ".join("--:" for _ in heads), "|")
    for name in options.names:
        cells = []
        load = 0.0
        for packed in (False, True):
            layer, scheme, took = build(name, size, packed=packed)
            load = load or took
            for tokens in TOKENS:
                x = torch.randn(tokens, size).to(torch.bfloat16)
                ours, theirs = [], []
                for _ in range(options.rounds):
                    ours.append(seconds(partial(scheme.apply_weights, layer, x)))
                    theirs.append(seconds(partial(method.apply, plain, x)))
                cells.append(f"{min(theirs) / min(ours):.2f} x")
        print(f"| {name.removeprefix('llama_')} | {load:.3f} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
