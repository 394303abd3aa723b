"""One checkpoint in vLLM, in this process: what serves its layers, and a few tokens."""

from __future__ import annotations

import os
from pathlib import Path

for _name, _value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}.items():
    os.environ.setdefault(_name, _value)

from vllm import LLM, SamplingParams  # noqa: E402 - vLLM reads its environment when it is imported

from quark_format.vllm_plugin.served import Served, served  # noqa: E402

PROMPT_TOKENS = 16


class ServeError(RuntimeError):
    """vLLM or the plugin refused a checkpoint; the text is the first error of the chain."""


def serve(
    checkpoint: Path, tokens: int, tensor_parallel: int = 1, kv_cache_dtype: str = "auto"
) -> tuple[list[Served], list[int]]:
    """What serves each layer of `checkpoint`, and `tokens` tokens that it generates for a fixed prompt.

    Raises:
        ServeError: it cannot be served.
    """
    try:
        llm = LLM(
            model=str(checkpoint),
            tensor_parallel_size=tensor_parallel,
            kv_cache_dtype=kv_cache_dtype,
            max_model_len=PROMPT_TOKENS + tokens,
            max_num_seqs=1,
            enforce_eager=True,
            skip_tokenizer_init=not (checkpoint / "tokenizer.json").is_file(),
            disable_log_stats=True,
        )
        layers = llm.apply_model(served)[0]
        prompt = {"prompt_token_ids": list(range(3, 3 + PROMPT_TOKENS))}
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        generated = llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0].token_ids
    except Exception as error:
        raise ServeError(first_error(error)) from error
    return layers, list(generated)


def first_error(error: BaseException) -> str:
    """The error that a chain began with, which is what vLLM's later ones are about."""
    while (
        cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        error = cause
    return f"{type(error).__name__}: {error}"
