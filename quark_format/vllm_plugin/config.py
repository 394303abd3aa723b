"""The quantization config that vLLM asks for every layer: all answers come from the resolver."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.models.utils import WeightsMapper

from quark_format.formats import detect, load_config
from quark_format.plan import described
from quark_format.resolver import Refusal, Resolution, Resolver
from quark_format.targets import target
from quark_format.vllm_plugin.choices import TARGET, load, platform, quant_key
from quark_format.vllm_plugin.layout import Checkpoint, NoLayoutError
from quark_format.vllm_plugin.methods import BUILDERS, Request

KINDS: tuple[tuple[type[torch.nn.Module], str], ...] = (
    (LinearBase, "linear"),
    (RoutedExperts, "experts"),
    (Attention, "attention"),
    (ParallelLMHead, "head"),
    (VocabParallelEmbedding, "embedding"),
)
"""The kind of module that a layer of vLLM is; the first class that it is an instance of counts."""

logger = init_logger(__name__)


class QuarkRefusalError(ValueError):
    """The plugin does not serve a checkpoint; the text names module, spec, nearest row and platform."""


class QuarkFormatConfig(QuarkConfig):
    """A Quark checkpoint's quantization config, answered by the tables of `vllm-plugin`."""

    def __init__(self, block: dict[str, Any]) -> None:
        """Take the block of a config.json; it is read when the model's architecture is known."""
        resolver = Resolver(block, TARGET)
        self.block = resolver.block
        self.checkpoint = Checkpoint(self.block)
        self._resolver: Resolver | None = None
        if resolver.problem is not None:
            raise QuarkRefusalError(resolver.problem)
        export = self.block.get("export") or {}
        super().__init__(
            quant_config=self.block,
            kv_cache_group=export.get("kv_cache_group") or [],
            kv_cache_config=resolver.kv_cache,
            pack_method=self.checkpoint.pack_method or "",
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuarkFormatConfig:
        """Read a block, refusing what the format does not allow.

        Raises:
            ConfigError: it is no valid block of Quark.
            QuarkRefusalError: the plugin does not serve it.
        """
        load_config({"quantization_config": config})
        return cls(config)

    def get_cache_scale_mapper(self) -> WeightsMapper:
        """vLLM's names of the scales of the cache, by those of every format version.

        Without a quantized cache or attention, scales of outputs belong to their layers.
        """
        declared = target(TARGET).header.kv_cache
        attention = declared is not None and self.block.get(declared.attention or "")
        scales = declared.scales if declared is not None and (self.kv_cache_config or attention) else None
        return (
            WeightsMapper(orig_to_new_suffix={one.from_: one.to for one in scales or ()})
            | QuantizationConfig.get_cache_scale_mapper()
        )

    def get_checkpoint_weight_mapper(self) -> WeightsMapper:
        """vLLM's names of modules that its model classes do not know under the checkpoint's."""
        added = self.resolver.architecture.added
        substring = [pair.root for renames in added for pair in renames.substring or ()]
        suffix = [pair.root for renames in added for pair in renames.suffix or ()]
        return (
            WeightsMapper(orig_to_new_substr=dict(substring), orig_to_new_suffix=dict(suffix))
            | QuantizationConfig.get_checkpoint_weight_mapper()
        )

    @classmethod
    def get_min_capability(cls) -> int:
        """Least compute capability, ten times the version: the reference kernels run everywhere."""
        return 0

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        """The dtypes a model may have."""
        return [torch.float16, torch.bfloat16, torch.float32]

    @property
    def resolver(self) -> Resolver:
        """The resolver for the model that is being built."""
        if self._resolver is None:
            architectures = get_current_vllm_config().model_config.architectures
            self._resolver = Resolver(self.block, TARGET, next(iter(architectures), None))
        return self._resolver

    @property
    def rotated(self) -> frozenset[str]:
        """vLLM's names of the modules whose input is rotated at run time."""
        return frozenset(map(self.resolver.architecture.rename, self.checkpoint.rotated))

    def answer(self, layer: torch.nn.Module, prefix: str) -> Resolution | None:
        """What serves `layer`; None for a layer of no kind that is quantized.

        Raises:
            QuarkRefusalError: nothing does.
        """
        kind = next((kind for of, kind in KINDS if isinstance(layer, of)), None)
        if kind is None:
            return None
        answer = self.resolver.resolve(prefix, kind)
        if isinstance(answer, Refusal):
            raise _refusal(prefix, answer, answer.reason)
        return answer

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """The method of vLLM's interface that serves `layer`.

        Raises:
            QuarkRefusalError: nothing does.
        """
        answer = self.answer(layer, prefix)
        if answer is None:
            return None
        if self.kv_cache_config is not None and isinstance(layer, AttentionLayerBase):
            _tell_cache_dtype(self.kv_cache_config["dtype"])
        request = Request(self, layer, prefix, answer, answer.choice.on(platform()))
        try:
            return BUILDERS[answer.kind](request)
        except NoLayoutError as error:
            raise _refusal(prefix, answer, str(error)) from None

    def get_quant_method_target(self, prefix: str, layer_type: type[torch.nn.Module]) -> Any:
        """vLLM's question for keys and class without a layer: the keys where vLLM's own row answers."""
        kind = next((kind for of, kind in KINDS if issubclass(layer_type, of)), None)
        if kind is None:
            return None, None, None
        answer = self.resolver.resolve(prefix, kind)
        if isinstance(answer, Refusal):
            raise _refusal(prefix, answer, answer.reason)
        first = answer.choice.on(platform())[0]
        return *(quant_key(first.keys.get(position)) for position in ("weight", "input")), load(first.scheme)


def _refusal(prefix: str, answer: Resolution | Refusal, reason: str) -> QuarkRefusalError:
    return QuarkRefusalError(f"{prefix} ({described(answer)}) on {platform()}: {reason}")


def _tell_cache_dtype(declared: str) -> None:
    cache = get_current_vllm_config().cache_config
    if cache is not None and cache.cache_dtype == "auto":
        logger.warning_once(
            "The checkpoint declares an %s KV cache with stored scales, but kv_cache_dtype is auto: keys and "
            "values are cached in the model's dtype. Set kv_cache_dtype to fp8 to use the declared cache.",
            declared,
        )


class QuarkFp8Config(Fp8Config):
    """vLLM's own config for FP8 checkpoints, but for those that Quark wrote in its custom mode `fp8`."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizationConfig:
        """Quark's block as the plugin reads it, any other as vLLM does.

        Raises:
            ConfigError, QuarkRefusalError: as for a block of Quark.
        """
        if detect(config).mode is None:
            return Fp8Config.from_config(config)
        return QuarkFormatConfig.from_config(config)
