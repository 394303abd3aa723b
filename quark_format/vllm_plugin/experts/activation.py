"""The activation between the projections of an expert."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from vllm.model_executor.layers.activation import get_act_and_mul_fn
from vllm.model_executor.layers.fused_moe.activation import ApplyMoEActivationConfig, apply_moe_activation
from vllm.model_executor.layers.fused_moe.config import FUSED_MOE_UNQUANTIZED_CONFIG, FusedMoEConfig

Activation = Callable[[torch.Tensor], torch.Tensor]
"""From the joined gate and up projections [tokens, 2 * intermediate] to [tokens, intermediate]."""


def activation(moe: FusedMoEConfig) -> Activation:
    """The activation of a model's experts.

    In plain torch where vLLM writes it so: it rounds where transformers rounds, which its kernels do not.
    """
    if moe.swiglu_limit is None:
        try:
            return get_act_and_mul_fn(moe.activation.value).forward_native
        except ValueError:
            pass
    return partial(_by_kernel, moe)


def _by_kernel(moe: FusedMoEConfig, x: torch.Tensor) -> torch.Tensor:
    width = x.shape[-1] // 2 if moe.is_act_and_mul else x.shape[-1]
    config = ApplyMoEActivationConfig.from_configs(moe, FUSED_MOE_UNQUANTIZED_CONFIG)
    return apply_moe_activation(
        moe.activation, x.new_empty(*x.shape[:-1], width), x, activation_config=config
    )
