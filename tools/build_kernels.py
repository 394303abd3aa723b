"""Read the kernels of each family from the installed vLLM into a target's kernels.json.

`--check` writes nothing and exits 1 when the file on disk differs from what vLLM has.

A linear family is a list in `vllm.model_executor.kernels.linear`. An experts family is what its oracle tries:
its priority list under each platform, without the classes that ask for another platform, with the pairs of
quantization keys that a class takes on a device that has everything.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compact_json import compact

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "schema" / "targets" / "vllm-0.32"
PLATFORMS = ("cpu", "cuda", "rocm", "xpu")
ORACLES = "vllm.model_executor.layers.fused_moe.oracle"

NEWEST = 99  # any chip generation that a check compares with is older

LINEAR = {
    "fp8": "_POSSIBLE_FP8_KERNELS",
    "fp8_block": "_POSSIBLE_FP8_BLOCK_KERNELS",
    "int8": "_POSSIBLE_INT8_KERNELS",
    "mixed_precision": "_POSSIBLE_KERNELS",
    "mxfp4": "_POSSIBLE_MXFP4_KERNELS",
    "mxfp6": "_POSSIBLE_MXFP6_KERNELS",
    "mxfp8": "_POSSIBLE_MXFP8_KERNELS",
    "nvfp4": "_POSSIBLE_NVFP4_KERNELS",
}
# What a device check names, and the platforms that it can hold on.
ASKS = {
    r"\.is_cpu\(|zentorch": {"cpu"},
    r"\.is_cuda\(|deep_gemm_supported|cutlass_group_gemm_supported|_moe_ep|supports_current_device\(\)$": {
        "cuda"
    },
    r"\.is_rocm\(|rocm_aiter_ops|rdna3|on_gfx": {"rocm"},
    r"\.is_xpu\(": {"xpu"},
    r"\.is_cuda_alike\(|_triton_kernel_moe_supports": {"cuda", "rocm"},
}


class Device:
    """A platform that has everything; a check for another platform fails."""

    def __init__(self, platform: str) -> None:
        """Stand in for `platform`."""
        self.platform = platform

    def __getattr__(self, name: str) -> Callable[..., bool]:
        """What vLLM's platform answers to the question `name`, true for this platform alone."""
        own = {f"is_{self.platform}"} | ({"is_cuda_alike"} if self.platform in {"cuda", "rocm"} else set())
        other = {f"is_{one}" for one in PLATFORMS} | {"is_cuda_alike"}
        plain = {"is_device_capability", "is_device_capability_family"}
        return lambda *_, **__: name in own or (name not in other and name not in plain)


@contextmanager
def device(function: Callable[..., Any], platform: str) -> Iterator[None]:
    """Let `function` see `platform` as the current one."""
    names = inspect.unwrap(function).__globals__
    saved = names.get("current_platform")
    names["current_platform"] = Device(platform)
    chips = types.ModuleType("vllm.platforms.rocm")
    chips.__getattr__ = lambda _: lambda *_: NEWEST  # type: ignore[method-assign]
    known = sys.modules.get(chips.__name__)
    sys.modules[chips.__name__] = chips
    try:
        yield
    finally:
        names["current_platform"] = saved
        sys.modules.pop(chips.__name__)
        if known is not None:
            sys.modules[chips.__name__] = known


def platforms(kernel: Any) -> set[str]:
    """The platforms on which an experts class can be at all."""
    if hasattr(kernel, "get_clses"):
        return set.intersection(*(platforms(part) for part in kernel.get_clses()))
    source = inspect.getsource(kernel._supports_current_device).strip()
    asked = [found for pattern, found in ASKS.items() if re.search(pattern, source)]
    return set.union(*asked) if asked else set(PLATFORMS)


def linear() -> dict[str, Any]:
    """The families of the linear schemes."""
    module = importlib.import_module("vllm.model_executor.kernels.linear")
    return {
        family: {
            "source": f"vllm.model_executor.kernels.linear:{table}",
            "platforms": {
                platform.name.lower(): [kernel.__name__ for kernel in kernels]
                for platform, kernels in sorted(getattr(module, table).items(), key=lambda item: item[0].name)
                if platform.name.lower() in PLATFORMS
            },
        }
        for family, table in LINEAR.items()
    }


def pairs(family: str) -> list[list[str | None]]:
    """The (weight key, activation key) pairs with which the rows of `family` ask its oracle."""
    schemes = json.loads((TARGET / "schemes.json").read_text(encoding="utf-8"))
    keys = {name: spec["key"] for name, spec in schemes["specs"].items()}
    found: list[list[str | None]] = []
    for row in schemes["rows"]:
        if row["kernels"] == family:
            both = [[keys[w], keys[a]] for w in row["specs"]["weight"] for a in row["specs"]["input"]]
            found += [pair for at, pair in enumerate(both) if pair not in [*found, *both[:at]]]
    return found


def serves(kernel: Any, pair: list[str | None], platform: str) -> bool:
    """Whether an experts class takes the keys `pair` on `platform`."""
    if hasattr(kernel, "get_clses"):
        return all(serves(part, pair, platform) for part in kernel.get_clses())
    scheme = kernel._supports_quant_scheme
    with device(getattr(scheme, "__func__", scheme), platform):
        return bool(scheme(asked(pair[0]), asked(pair[1])))


def asked(key: str | None) -> Any:
    """The quantization key object that the oracle is asked with.

    QuarkW8A8Int8MoEMethod first turns asymmetric int8 input keys into symmetric ones
    (quark_moe.py:1021-1026).
    """
    module = importlib.import_module("vllm.model_executor.layers.quantization.utils.quant_utils")
    if key is None:
        return None
    return getattr(module, re.sub(r"^(kInt8\w+)Asym$", r"\1Sym", key))


def experts(
    family: str, oracle: str, backends: Callable[[Any], list[Any]], with_pairs: bool = True
) -> dict[str, Any]:
    """One experts family: the classes of the oracle's backends in order, by platform."""
    module = importlib.import_module(f"{ORACLES}.{oracle}")
    listed: dict[str, list[str]] = {}
    taken: dict[str, list[list[str | None]]] = {}
    wanted = pairs(family) if with_pairs else []
    for platform in PLATFORMS:
        with device(module.backend_to_kernel_cls, platform):
            kernels = [kernel for one in backends(module) for kernel in module.backend_to_kernel_cls(one)]
        names = listed.setdefault(platform, [])
        for kernel in dict.fromkeys(kernels):
            if platform not in platforms(kernel):
                continue
            served = [pair for pair in wanted if serves(kernel, pair, platform)]
            if served or not with_pairs:
                names.append(kernel.__name__)
                known = taken.setdefault(kernel.__name__, [])
                known += [pair for pair in served if pair not in known]
    source = f"{ORACLES}.{oracle}"
    return {"source": source, "platforms": listed, **({"schemes": taken} if with_pairs else {})}


def mxfp4(key: str | None) -> Callable[[Any], list[Any]]:
    """The backends that select_mxfp4_moe_backend tries for an activation key, in order."""
    return lambda module: module._filter_by_activation(
        module._get_priority_backends_for_gpt_oss(), asked(key)
    )


def nvfp4(module: Any) -> list[Any]:
    """The backends that select_nvfp4_moe_backend tries, from its source since it keeps them to itself."""
    source = inspect.getsource(module.select_nvfp4_moe_backend)
    listed = source[source.index("AVAILABLE_BACKENDS = [") :].split("]", 1)[0]
    return [module.NvFp4MoeBackend[name] for name in re.findall(r"NvFp4MoeBackend\.(\w+)", listed)]


class _Config:
    """A MoE config without special parallelism."""

    class moe_parallel_config:  # noqa: N801 - stands for an attribute
        """No expert parallelism."""

        ep_size = 1
        use_deepep_v2_kernels = False


def kernels() -> dict[str, Any]:
    """The whole table."""
    quark = "vllm.model_executor.layers.quantization.quark"
    emulation = ["OCP_MXQuantizationEmulationTritonExperts"]
    everywhere = {"cuda": emulation, "rocm": emulation, "xpu": emulation}
    own = f"{quark}.schemes.quark_w4a8_mxfp4_fp8:QuarkW4A8_MXFP4_FP8"
    emulated = ["QuarkW4A8_MXFP4_FP8._apply_emulation"]
    families = {
        **linear(),
        "mxfp4_fp8": {
            "source": own,
            "platforms": {
                **dict.fromkeys(("cpu", "cuda", "xpu"), emulated),
                "rocm": ["QuarkW4A8_MXFP4_FP8._apply_aiter_kernel", *emulated],
            },
        },
        "kv_cache": {
            "source": f"{quark}.quark:QuarkKVCacheMethod",
            "platforms": {platform: ["QuarkKVCacheMethod"] for platform in PLATFORMS},
        },
        "moe_fp8": experts("moe_fp8", "fp8", lambda m: m._get_priority_backends(_Config, None, None)),
        "moe_int8": experts("moe_int8", "int8", lambda m: m._get_priority_backends(_Config)),
        "moe_int8_static": {
            "source": "vllm.model_executor.layers.fused_moe:fused_experts",
            "platforms": {platform: ["fused_experts"] for platform in ("cuda", "rocm", "xpu")},
        },
        "moe_int4": experts("moe_int4", "int_wna16", lambda m: m._get_priority_backends()),
        "moe_mxfp4": experts("moe_mxfp4", "mxfp4", mxfp4(None), with_pairs=False),
        "moe_mxfp4_fp8": experts("moe_mxfp4_fp8", "mxfp4", mxfp4("kFp8StaticTensorSym"), with_pairs=False),
        "moe_mxfp4_mxfp4": experts("moe_mxfp4_mxfp4", "mxfp4", mxfp4("kMxfp4Dynamic"), with_pairs=False),
        "moe_ocp_mx": {"source": f"{quark}.quark_moe:QuarkOCP_MX_MoEMethod", "platforms": everywhere},
        "moe_int4_fp8": {
            "source": f"{quark}.quark_moe:QuarkW4A8Fp8MoEMethod",
            "platforms": {"rocm": ["rocm_aiter_fused_experts"]},
        },
        "moe_nvfp4": experts("moe_nvfp4", "nvfp4", nvfp4),
    }
    return {"$schema": "../target.schema.json#/$defs/kernels", "families": families}


def main() -> int:
    """Write kernels.json, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    file = TARGET / "kernels.json"
    text = compact(kernels())
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return 0
    sys.stdout.write(f"{file.relative_to(ROOT)} {'differs' if check else 'written'}\n")
    if not check:
        file.write_text(text, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    raise SystemExit(main())
