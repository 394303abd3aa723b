"""From the texts of a resolved choice to vLLM's classes and objects."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from vllm.platforms import current_platform

from quark_format.loading import Platform
from quark_format.resolver import Choice
from quark_format.targets import target

TARGET = "vllm-plugin@0.32"
_KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"


_FEATURES: dict[str, dict[str, Callable[[], bool]]] = {"cpu": {"amx": torch.cpu._is_amx_tile_supported}}
"""By platform the features that tables name, and whether vLLM finds them."""


def platform() -> Platform:
    """The platform that vLLM runs on, as the tables call it, with its features."""
    declared = target(TARGET).header.platforms
    name = next((name for name in declared if getattr(current_platform, f"is_{name}")()), declared[0])
    there = (feature for feature, found in _FEATURES.get(name, {}).items() if found())
    return Platform(name, None, frozenset(there))


def load(path: str | None) -> Any:
    """The class of a row, by its full path.

    Raises:
        LookupError: the row has none.
    """
    if path is None:
        raise LookupError("the row names no class")
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def quant_key(name: str | None) -> Any:
    """vLLM's quantization key of this name; None for None."""
    return None if name is None else getattr(import_module(_KEYS), name)


def arguments(choice: Choice) -> dict[str, Any]:
    """The constructor arguments of a choice, its keys as vLLM's objects."""
    return {
        name: quant_key(value) if name in choice.keyed else value for name, value in choice.arguments.items()
    }
