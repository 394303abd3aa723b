"""Writes what vLLM 0.22 selects for layer configs, for tests where that release is not installed.

    PYTHONPATH=tests/targets INTERPRETER -m record_selection > tests/data/selection/vllm@0.22.tsv

INTERPRETER is that of an environment with vLLM 0.22 and quark-format. A line holds the kind of module, the
layer config as JSON without its null fields, and the scheme class or the exception.
"""

from __future__ import annotations

import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from layer_configs import layer_config, sample
from vllm.model_executor.layers.quantization.quark import quark, quark_moe
from vllm.model_executor.layers.quantization.quark.schemes import quark_w8a8_fp8

from quark_format.targets import target

TARGET = "vllm@0.22"
SAMPLED, EACH, SEED = 20_000, 40, 22
NEWEST = SimpleNamespace(to_int=lambda: 100)
DEVICE = SimpleNamespace(get_device_capability=lambda: NEWEST)


def linear(layer: dict[str, Any]) -> str:
    """The scheme of a linear layer, on a device that has everything."""
    dtype = SimpleNamespace(model_config=SimpleNamespace(dtype=None))
    with (
        mock.patch.object(quark, "current_platform", DEVICE),
        mock.patch.object(quark, "QuarkNVFP4", type("QuarkNVFP4", (), {})),
        mock.patch.object(quark_w8a8_fp8, "get_current_vllm_config", return_value=dtype),
    ):
        return type(quark.QuarkConfig({})._get_scheme_from_config(layer)).__name__


def experts(layer: dict[str, Any]) -> str:
    """The method of routed experts, which is not built."""
    config = quark.QuarkConfig({})
    config._find_matched_config = lambda *_: layer
    classes = [name for name in vars(quark_moe) if name.startswith("Quark") and name != "QuarkMoEMethod"]
    stand_ins = {name: mock.Mock(return_value=name) for name in classes}
    with mock.patch.multiple(quark_moe, **stand_ins):
        module = SimpleNamespace(moe_config=None)
        return str(quark_moe.QuarkMoEMethod.get_moe_method(config, module, "experts"))


def outcome(select: Callable[[dict[str, Any]], str], layer: dict[str, Any]) -> str:
    """The class, or the exception."""
    try:
        return select(layer)
    except Exception as error:
        return type(error).__name__


def main() -> None:
    """Write a few layer configs of each outcome."""
    logging.disable(logging.CRITICAL)
    for kind, select in (("linear", linear), ("experts", experts)):
        table = target(TARGET)
        layers = [layer_config(one)[0] for one in sample(table, table.kinds[kind], SAMPLED, SEED)]
        random.Random(SEED).shuffle(layers)  # noqa: S311 - chooses what is written
        taken: Counter[str] = Counter()
        for layer in layers:
            found = outcome(select, layer)
            taken[found] += 1
            if taken[found] <= EACH:
                sys.stdout.write(f"{kind}\t{json.dumps(plain(layer))}\t{found}\n")


def plain(value: Any) -> Any:
    """The value without null fields."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if one is not None}
    return [plain(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
