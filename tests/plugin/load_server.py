"""Loads checkpoints in the real vLLM, one forked child for each, after one import.

A request is one line of JSON: "path", "prompt" (token ids), and if wanted "arguments" of LLM, "logprobs" and
"probe", a file to save the outputs of all linear layers and routed experts to. The answer is one line, too:
{"ok": true, "layers", "cache", "config", "tokens", "logprobs"}, "config" being the class of the quantization
config, or {"ok": false, "error"}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import vllm.model_executor.models.llama  # noqa: F401 - the children share it
from forked_server import serve
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.model_executor.layers.fused_moe import RoutedExperts

from plugin import experts_probe
from quark_format.vllm_plugin.served import served

ROWS = 16
LOGPROBS = 512


def inputs(features: int, dtype: torch.dtype) -> torch.Tensor:
    """Seeded [ROWS, features]; layers of the same width get the same."""
    generator = torch.Generator().manual_seed(features)
    return torch.randn(ROWS, features, generator=generator).to(dtype) * 2


def describe(model: torch.nn.Module) -> dict[str, Any]:
    """What serves the layers, and dtype and scales of the cache."""
    cache = [
        (module.kv_cache_dtype, module._k_scale_float, module._v_scale_float)
        for module in model.modules()
        if hasattr(module, "_k_scale_float")
    ]
    return {"layers": [vars(one) for one in served(model)], "cache": cache}


class Probe:
    """Saves the outputs of the linear layers and the routed experts of a model."""

    def __init__(self, file: str, dtype: torch.dtype) -> None:
        """Save to `file`; `dtype` is the model's."""
        self.file, self.dtype = file, dtype

    def __call__(self, model: torch.nn.Module) -> None:
        """Run every linear layer that has a scheme, and all experts."""
        outputs = {}
        for name, module in model.named_modules():
            if getattr(module, "scheme", None) is not None:
                features = getattr(module, "input_size_per_partition", None) or module.embedding_dim
                with torch.no_grad():
                    output = module.quant_method.apply(module, inputs(features, self.dtype), None)
                outputs[name] = output.contiguous()
            elif isinstance(module, RoutedExperts):
                outputs[name] = experts_probe.outputs(module, inputs(module.hidden_size, self.dtype))
        save_file(outputs, self.file)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Load and generate."""
    options = {
        "model": request["path"],
        "enforce_eager": True,
        "max_model_len": 64,
        "max_num_seqs": 2,
        "max_logprobs": LOGPROBS,
        "disable_log_stats": True,
        "enable_prefix_caching": False,
        "skip_tokenizer_init": not Path(request["path"], "tokenizer.json").exists(),
    }
    llm = LLM(**{**options, **request.get("arguments", {})})
    config = llm.llm_engine.vllm_config
    found = llm.apply_model(describe)[0]
    if request.get("probe"):
        llm.apply_model(Probe(request["probe"], config.model_config.dtype))
    wanted = LOGPROBS if request.get("logprobs") else None
    sampling = SamplingParams(
        temperature=0, max_tokens=6, ignore_eos=True, detokenize=False, prompt_logprobs=wanted
    )
    output = llm.generate([{"prompt_token_ids": request["prompt"]}], sampling, use_tqdm=False)[0]
    logprobs = [
        {token: one.logprob for token, one in row.items()} for row in output.prompt_logprobs or () if row
    ]
    return {
        "ok": True,
        **found,
        "config": type(config.quant_config).__qualname__,
        "tokens": list(output.outputs[0].token_ids),
        "logprobs": logprobs,
    }


def main() -> None:
    """Serve requests from standard input until it ends."""
    serve(answer)


if __name__ == "__main__":
    main()
