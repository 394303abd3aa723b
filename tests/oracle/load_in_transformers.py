"""Answers requests on stdin: each loads one checkpoint in transformers, in a forked child.

A request is one line of JSON: "path" and "prompt" (token ids). The answer is one line, too: {"ok": true,
"logprobs", "missing", "unexpected"} or {"ok": false, "error"}. `missing` are the parameters that no tensor
fills, `unexpected` the tensors that no parameter takes.
"""

from __future__ import annotations

from typing import Any

import quark.torch  # noqa: F401 - imported once for all children
import torch
from forked_server import serve
from transformers import AutoModelForCausalLM


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Load the checkpoint and answer the prompt."""
    model, told = AutoModelForCausalLM.from_pretrained(request["path"], output_loading_info=True)
    with torch.no_grad():
        logits = model(torch.tensor([request["prompt"]])).logits[0].float()
    rows = logits.log_softmax(-1)[:-1].tolist()
    return {
        "ok": True,
        "missing": sorted(told["missing_keys"]),
        "unexpected": sorted(told["unexpected_keys"]),
        "logprobs": [{str(token): value for token, value in enumerate(row)} for row in rows],
    }


if __name__ == "__main__":
    serve(answer)
