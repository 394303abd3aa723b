"""Read the kernels of each family from the installed vLLM into a target's kernels.json.

It is the target's whose release is installed; others are made in an environment that has theirs. `--check`
writes nothing and exits 1 when the file on disk differs from what vLLM has.

The `source` of a family in the file says where it is read: a list in `vllm.model_executor.kernels.linear`, or
what an oracle of experts tries: its priority list under each platform, without the classes that ask for
another platform, with the pairs of quantization keys that a class takes on a device that has everything.
Families of another source are left as they are.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compact_json import compact
from target_folders import made_here, read

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = ("cpu", "cuda", "rocm", "xpu")
LINEAR = "vllm.model_executor.kernels.linear"
ORACLES = "vllm.model_executor.layers.fused_moe.oracle"

NEWEST = 99  # any chip generation that a check compares with is older
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


def linear(source: str) -> dict[str, Any]:
    """The family of a list of the linear kernels."""
    home, _, listed = source.partition(":")
    kernels = getattr(importlib.import_module(home), listed)
    return {
        "source": source,
        "platforms": {
            platform.name.lower(): [kernel.__name__ for kernel in ordered]
            for platform, ordered in sorted(kernels.items(), key=lambda item: item[0].name)
            if platform.name.lower() in PLATFORMS
        },
    }


def pairs(folder: Path, family: str) -> list[list[str | None]]:
    """The (weight key, activation key) pairs with which the rows of `family` ask its oracle."""
    schemes = read(folder, "schemes")
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


def experts(source: str, wanted: list[list[str | None]]) -> dict[str, Any]:
    """The family of an oracle: the classes of its backends in order, by platform."""
    module = importlib.import_module(source)
    oracle = source.rpartition(".")[2]
    with_pairs = oracle not in WITHOUT_PAIRS
    listed: dict[str, list[str]] = {}
    taken: dict[str, list[list[str | None]]] = {}
    for platform in PLATFORMS:
        with device(module.backend_to_kernel_cls, platform):
            backends = BACKENDS[oracle](module, wanted)
            kernels = [kernel for one in backends for kernel in module.backend_to_kernel_cls(one)]
        names = listed.setdefault(platform, [])
        for kernel in dict.fromkeys(kernels):
            if platform not in platforms(kernel):
                continue
            served = [pair for pair in wanted if with_pairs and serves(kernel, pair, platform)]
            if served or not with_pairs:
                names.append(kernel.__name__)
                known = taken.setdefault(kernel.__name__, [])
                known += [pair for pair in served if pair not in known]
    return {"source": source, "platforms": listed, **({"schemes": taken} if with_pairs else {})}


def mxfp4(module: Any, wanted: list[list[str | None]]) -> list[Any]:
    """The backends that select_mxfp4_moe_backend tries for the family's one activation key, in order.

    Last come those that it names in its source for a platform.
    """
    ((_, key),) = wanted
    listed = module._filter_by_activation(module._get_priority_backends_for_gpt_oss(), asked(key))
    source = inspect.getsource(module.select_mxfp4_moe_backend)
    last = re.findall(r"^ +backend = Mxfp4MoeBackend\.(\w+)", source, re.MULTILINE)
    return [*listed, *(module.Mxfp4MoeBackend[name] for name in last)]


def nvfp4(module: Any, _wanted: list[list[str | None]]) -> list[Any]:
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


BACKENDS: dict[str, Callable[[Any, list[list[str | None]]], list[Any]]] = {
    "fp8": lambda module, _: module._get_priority_backends(_Config, None, None),
    "int8": lambda module, _: module._get_priority_backends(_Config),
    "int_wna16": lambda module, _: module._get_priority_backends(),
    "mxfp4": mxfp4,
    "nvfp4": nvfp4,
}
WITHOUT_PAIRS = {"mxfp4"}


def kernels(folder: Path) -> dict[str, Any]:
    """The whole table of the target in `folder`, whose release is installed."""
    declared = read(folder, "kernels")
    families = {name: family(folder, name, one) for name, one in declared["families"].items()}
    return {**declared, "families": families}


def family(folder: Path, name: str, declared: dict[str, Any]) -> dict[str, Any]:
    """A family as the installed release has it."""
    source = declared["source"]
    if source.startswith(f"{LINEAR}:"):
        return linear(source)
    if source.startswith(f"{ORACLES}."):
        return experts(source, pairs(folder, name))
    return declared


def main() -> int:
    """Write kernels.json, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    stale = 0
    for folder in made_here("vllm"):
        file = folder / "kernels.json"
        text = compact(kernels(folder))
        if file.read_text(encoding="utf-8") != text:
            stale += 1
            sys.stdout.write(f"{file.relative_to(ROOT)} {'differs' if check else 'written'}\n")
            if not check:
                file.write_text(text, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
