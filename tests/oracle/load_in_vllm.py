"""Answers requests on stdin: each loads one checkpoint in vLLM, in a forked child; any release of vLLM.

As on a CPU without AMX, whatever the machine: the platform `cpu`, not `cpu:amx`. A request is one line of
JSON: "path", "prompt" (token ids) and "arguments" of LLM. The answer is one line, too: {"ok": true,
"logprobs"} or {"ok": false, "error"}. It needs vLLM alone, so that it runs in an environment of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

torch.cpu._is_amx_tile_supported = lambda: False

import vllm.model_executor.models.llama  # noqa: E402, F401 - the children share it
from forked_server import serve  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.v1.executor.uniproc_executor import UniProcExecutor  # noqa: E402

LOGPROBS = 512


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Load the checkpoint and answer the prompt."""
    llm = LLM(
        model=request["path"],
        distributed_executor_backend=UniProcExecutor,  # by name the CPU platform takes another process
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=2,
        max_logprobs=LOGPROBS,
        disable_log_stats=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=not Path(request["path"], "tokenizer.json").exists(),
        **request.get("arguments", {}),
    )
    sampling = SamplingParams(
        temperature=0, max_tokens=6, ignore_eos=True, detokenize=False, prompt_logprobs=LOGPROBS
    )
    output = llm.generate([{"prompt_token_ids": request["prompt"]}], sampling, use_tqdm=False)[0]
    rows = [{token: one.logprob for token, one in row.items()} for row in output.prompt_logprobs or () if row]
    return {"ok": True, "logprobs": rows}


if __name__ == "__main__":
    serve(answer)
