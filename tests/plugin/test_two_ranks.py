"""Two ranks in the real vLLM compute what one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plugin.conftest import Loader, Reply

CLOSE = {"llama_fp8_pt_static": 1e-2, "llama_int4_pc": 5e-4, "gpt_oss_mxfp4_wo": 5e-4}
"""Divergence (KL) of the answers: sums are in another order, which may flip the rounding of an FP8 input.

Between bfloat16 and float32 of one Quark model it is 3e-4 where only weights are quantized, else up to 0.2.
"""


def logprobs(reply: Reply) -> torch.Tensor:
    """[prompt, vocabulary]."""
    assert reply["ok"], reply["error"]
    return torch.tensor([[row[str(token)] for token in range(len(row))] for row in reply["logprobs"]])


@pytest.mark.parametrize("name", CLOSE)
def test_two_ranks_compute_the_same(exports: Path, loader: Loader, name: str) -> None:
    one, two = (
        logprobs(
            loader.load(exports / name, logprobs=True, arguments={"tensor_parallel_size": ranks, **options})
        )
        for ranks, options in ((1, {}), (2, {"distributed_executor_backend": "mp"}))
    )
    assert float((one.exp() * (one - two)).sum(-1).mean()) < CLOSE[name]
