"""The method of routed experts, from what the resolver chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.quantization.quark.quark_moe import QuarkMoEMethod

from quark_format.resolver import Choice
from quark_format.vllm_plugin.choices import arguments, load, quant_key

if TYPE_CHECKING:
    from quark_format.vllm_plugin.methods import Request

logger = init_logger(__name__)


def experts(request: Request) -> FusedMoEMethodBase:
    """The method of the first choice that the platform can run, the plugin's own if vLLM has no kernel.

    Raises:
        NoLayoutError: the format has no layout for the experts' specs.
    """
    own = request.answer.choice
    if own.family is None:
        return load(own.scheme)(request.layer.moe_config)
    rotated = request.config.rotated
    parts = [
        {**arguments(part.choice), "rotated": part.module in rotated}
        for part in request.answer.parts or (request.answer,)
    ]
    for choice in request.choices:
        if choice is own or any(part["rotated"] for part in parts):
            continue
        try:
            method = _of_vllm(request, choice)
        except (ValueError, NotImplementedError) as refused:
            logger.info_once("%s: %s; %s serves it", choice.row, refused, own.row)
        else:
            method.choice = choice
            return method
    method = load(own.scheme)(request.layer.moe_config, request.config.checkpoint, parts)
    method.choice = own
    return method


def _of_vllm(request: Request, choice: Choice) -> FusedMoEMethodBase:
    return QuarkMoEMethod.get_moe_method(
        request.config,
        module=request.layer,
        method_cls=load(choice.scheme),
        weight_quant_key=quant_key(choice.keys["weight"]),
        activation_quant_key=quant_key(choice.keys["input"]),
        layer_name=request.prefix,
    )
