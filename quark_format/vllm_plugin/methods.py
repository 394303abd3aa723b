"""The methods of vLLM's interface, by kind of module, from what the resolver chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import register_weight_loader_v2_supported_method
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.quark.quark import QuarkLinearMethod
from vllm.model_executor.layers.quantization.quark.schemes import QuarkScheme

from quark_format.resolver import Choice, Resolution
from quark_format.vllm_plugin.choices import arguments, load
from quark_format.vllm_plugin.experts.methods import experts

if TYPE_CHECKING:
    from quark_format.vllm_plugin.config import QuarkFormatConfig

logger = init_logger(__name__)


@dataclass(frozen=True)
class Request:
    """One layer to serve: what the resolver answered, and its choices on this platform, in order."""

    config: QuarkFormatConfig
    layer: torch.nn.Module
    prefix: str
    answer: Resolution
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Candidate:
    """A scheme that may serve a layer, and how it is made."""

    choice: Choice
    make: Callable[[], QuarkScheme]


@register_weight_loader_v2_supported_method
class SchemeMethod(QuarkLinearMethod):
    """Serves a linear layer, or an output head, with the first candidate that the platform can run."""

    def __init__(self, config: QuarkFormatConfig, candidates: Sequence[Candidate]) -> None:
        """Keep the candidates until the sizes of the layer are known."""
        super().__init__(config)
        self.candidates = candidates
        self.choice: Choice | None = None

    def create_weights(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        """Register the parameters of the first candidate that takes the layer.

        Raises:
            ValueError, NotImplementedError: what the last candidate says, if none does.
        """
        *preferred, last = self.candidates
        for candidate in preferred:
            before = set(layer._parameters)
            try:
                self._create(layer, candidate, *args, **kwargs)
            except (ValueError, NotImplementedError) as refused:
                logger.info_once("%s: %s; %s serves it", candidate.choice.row, refused, last.choice.row)
                for name in set(layer._parameters) - before:
                    delattr(layer, name)
            else:
                return
        self._create(layer, last, *args, **kwargs)

    def _create(self, layer: torch.nn.Module, candidate: Candidate, *args: Any, **kwargs: Any) -> None:
        layer.scheme = candidate.make()
        super().create_weights(layer, *args, **kwargs)
        self.choice = candidate.choice


def linear(request: Request) -> QuantizeMethodBase:
    """The method of a linear layer or output head; where inputs are rotated ours is the only candidate."""
    own = request.answer.choice
    if own.family is None:
        return load(own.scheme)()
    rotated = request.config.rotated
    parts = [
        {**arguments(part.choice), "rotated": part.module in rotated}
        for part in request.answer.parts or (request.answer,)
    ]
    candidates = [
        Candidate(choice, partial(load(choice.scheme), **arguments(choice)))
        for choice in request.choices
        if choice is not own and not any(part["rotated"] for part in parts)
    ]
    scheme = load(own.scheme)(request.config.checkpoint, parts)
    candidates.append(Candidate(own, lambda: scheme))
    return SchemeMethod(request.config, candidates)


def embedding(request: Request) -> QuantizeMethodBase:
    """The method of an embedding."""
    own = request.answer.choice
    if own.family is None:
        return load(own.scheme)()
    method = load(own.scheme)(request.config.checkpoint, [arguments(own)])
    method.choice = own
    return method


def attention(request: Request) -> QuantizeMethodBase:
    """The method of an attention layer, which loads the scales of its cache."""
    return load(request.answer.choice.scheme)(request.config)


BUILDERS: dict[str, Callable[[Request], QuantizeMethodBase]] = {
    "linear": linear,
    "head": linear,
    "embedding": embedding,
    "attention": attention,
    "experts": experts,
}
