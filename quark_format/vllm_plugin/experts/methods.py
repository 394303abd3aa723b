"""The method of routed experts, from what the resolver chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.quark.quark_moe import QuarkMoEMethod

from quark_format.vllm_plugin.choices import load, quant_key

if TYPE_CHECKING:
    from quark_format.vllm_plugin.methods import Request


def experts(request: Request) -> QuantizeMethodBase:
    """The method of routed experts."""
    choice = request.choices[0]
    if request.answer.excluded:
        return UnquantizedFusedMoEMethod(request.layer.moe_config)
    return QuarkMoEMethod.get_moe_method(
        request.config,
        module=request.layer,
        method_cls=load(choice.scheme),
        weight_quant_key=quant_key(choice.keys["weight"]),
        activation_quant_key=quant_key(choice.keys["input"]),
        layer_name=request.prefix,
    )
