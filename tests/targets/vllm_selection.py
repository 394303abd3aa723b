"""vLLM's own selection, called without a model, a device or weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import vllm.model_executor.layers.quantization.utils.quant_utils as keys
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.quantization.quark import quark, quark_moe

LAYER = "model.layers.0.layer"
# Exceptions that vLLM raises on purpose, with a message for the user; any other is a crash.
REASONED = (ValueError, NotImplementedError, RuntimeError)


class Selected(NamedTuple):
    """The class and the keys that vLLM takes."""

    scheme: type
    weight_key: Any
    activation_key: Any


class Raised(NamedTuple):
    """vLLM refuses: with a reason, or by a crash."""

    error: type[Exception]

    @property
    def crashed(self) -> bool:
        """Whether the exception is not one that vLLM raises for the user."""
        return not issubclass(self.error, REASONED) or issubclass(self.error, RecursionError)


Outcome = Selected | Raised


def class_of(path: str) -> type:
    """The class of a full path."""
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def key_of(name: str | None) -> Any:
    """vLLM's quantization key of that name."""
    return None if name is None else getattr(keys, name)


@cache
def _config(pack_method: Any) -> Any:
    return quark.QuarkConfig({}, pack_method=pack_method)


def linear(layer: dict[str, Any], pack_method: Any) -> Outcome:
    """QuarkConfig._get_scheme_cls_from_config."""
    try:
        weight, activation, scheme = _config(pack_method)._get_scheme_cls_from_config(layer)
    except Exception as error:
        return Raised(type(error))
    return Selected(scheme, weight, activation)


def experts(layer: dict[str, Any], pack_method: Any) -> Outcome:
    """QuarkMoEMethod.get_moe_method_target, on a config that has `layer` for the module."""
    config = _config(pack_method)
    config._find_matched_config = lambda _name, _type: layer
    try:
        target = quark_moe.QuarkMoEMethod.get_moe_method_target(config, RoutedExperts, LAYER)
    except Exception as error:
        return Raised(type(error))
    weight, activation, scheme = target
    assert scheme is not None
    return Selected(scheme, weight, activation)


SELECT: dict[str, Callable[[dict[str, Any], Any], Outcome]] = {"linear": linear, "experts": experts}


def _stubs(stack: ExitStack) -> None:
    """A device that has every kernel."""
    config = mock.MagicMock()
    for module in ("quark.schemes.quark_w8a8_fp8", "quark.quark_moe"):
        path = f"vllm.model_executor.layers.quantization.{module}.get_current_vllm_config"
        stack.enter_context(mock.patch(path, return_value=config))
    for name in ("fp8", "int8", "wna16", "nvfp4"):
        path = f"{quark_moe.__name__}.select_{name}_moe_backend"
        stack.enter_context(mock.patch(path, return_value=(mock.MagicMock(), mock.MagicMock())))
    chosen = (quark_moe.Mxfp4MoeBackend.EMULATION, mock.MagicMock())
    stack.enter_context(mock.patch(f"{quark_moe.__name__}.select_mxfp4_moe_backend", return_value=chosen))
    stack.enter_context(
        mock.patch.object(quark_moe.rocm_aiter_ops, "is_fused_moe_enabled", return_value=True)
    )
    nvfp4 = "vllm.model_executor.layers.quantization.quark.schemes.quark_nvfp4.init_nvfp4_linear_kernel"
    stack.enter_context(mock.patch(nvfp4))


def constructs(selected: Selected, layer: dict[str, Any], pack_method: Any) -> bool:
    """Whether the class that vLLM has selected accepts what it was selected for.

    The constructor runs as vLLM calls it; experts of OCP MX also make their kernel config, which some of them
    cannot (quark_moe.py:1906-1911).
    """
    config = quark.QuarkConfig({}, pack_method=pack_method)
    config._find_matched_config = lambda _name, _type: layer
    weight = config._unwrap_single_quant_config(layer.get("weight"))
    with ExitStack() as stack:
        _stubs(stack)
        try:
            if issubclass(selected.scheme, quark_moe.QuarkMoEMethod):
                method = quark_moe.QuarkMoEMethod.get_moe_method(
                    config,
                    mock.MagicMock(),
                    selected.scheme,
                    selected.weight_key,
                    selected.activation_key,
                    LAYER,
                )
                if isinstance(method, quark_moe.QuarkOCP_MX_MoEMethod):
                    method.get_fused_moe_quant_config(mock.MagicMock())
            else:
                stack.enter_context(mock.patch.object(config, "_check_scheme_supported"))
                config.init_scheme(
                    selected.scheme, selected.weight_key, selected.activation_key, weight_config=weight
                )
        except (*REASONED, AssertionError):
            return False
    return True
