"""What a rank loads of routed experts: its share of every projection, or its share of the experts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from plugin import shares
from plugin.quark_model import stored
from plugin.shares import Axes
from quark_format.layouts import DIMS, Dim
from quark_format.resolver import Resolution, Resolver
from quark_format.vllm_plugin.experts.stored import ExpertTensor
from quark_format.vllm_plugin.layout import Checkpoint
from quark_format.vllm_plugin.schemes.reference import Part
from quark_format.vllm_plugin.stored import StoredShapeError

BLOCK = "model.layers.0.mlp.experts"
PROJECTIONS = {"w1": "gate_proj", "w3": "up_proj"}
WHOLE: dict[Dim, int] = {"out": 128, "in": 256}
EXPERTS, EXPERT = 4, 1


def gate(exports: Path, name: str, rank: int, ranks: int, split: Dim) -> torch.Tensor:
    """The gate projection of one expert on one rank, with `split` divided over the ranks."""
    folder = exports / name
    tensors = stored(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    answer = Resolver(config, "vllm-plugin@0.32").resolve(BLOCK, "experts")
    assert isinstance(answer, Resolution)
    part = Part.of(Checkpoint(config["quantization_config"]), **answer.choice.arguments)

    def held(suffix: str, expected: Axes) -> torch.Tensor:
        parameter = ExpertTensor(
            suffix, dict.fromkeys(PROJECTIONS, expected), EXPERTS, int, rank, ranks, torch.device("cpu")
        )
        for projection, leaf in PROJECTIONS.items():
            loaded = tensors[f"{BLOCK}.{EXPERT}.{leaf}.{suffix}"]
            assert parameter.weight_loader(
                parameter, loaded, suffix, shard_id=projection, expert_id=EXPERT, return_success=True
            )
        found = parameter.of(EXPERT, "w1")
        assert found is not None
        return found

    return shares.share(part, WHOLE, ranks, split, held)


@pytest.mark.parametrize("split", DIMS)
@pytest.mark.parametrize(
    "name", ["qwen3_moe_fp8", "qwen3_moe_uint4_g128", "qwen3_moe_mxfp4", "qwen3_moe_int4_fp8"]
)
def test_shares_make_the_weight(exports: Path, name: str, split: Dim) -> None:
    whole = gate(exports, name, 0, 1, split)
    halves = [gate(exports, name, rank, 2, split) for rank in range(2)]
    assert torch.equal(torch.cat(halves, DIMS.index(split)), whole)


def test_a_group_stays_on_one_rank(exports: Path) -> None:
    with pytest.raises(StoredShapeError, match="no multiple of 128"):
        gate(exports, "qwen3_moe_uint4_g128", 0, 4, "in")


def test_experts_of_other_ranks_are_left() -> None:
    """With expert parallelism this rank has expert 2 as its first."""
    here = {2: 0}
    device = torch.device("cpu")
    parameter = ExpertTensor("weight", {"w2": ()}, 1, lambda expert: here.get(expert, -1), 0, 1, device)
    loaded = torch.ones(())
    taken = [
        parameter.weight_loader(parameter, loaded * expert, "", "w2", expert, return_success=True)
        for expert in range(EXPERTS)
    ]
    assert taken == [False, False, True, False]
    assert parameter.of(0, "w2") == 2


def test_numbers_written_past_the_loader_count() -> None:
    """vLLM's gpt-oss copies input scales into the parameter itself (model_executor/models/gpt_oss.py)."""
    parameter = ExpertTensor("input_scale", {"w2": ()}, EXPERTS, int, 0, 1, torch.device("cpu"))
    assert parameter.of(1, "w2") is None
    parameter.data[1].copy_(torch.tensor(0.5, dtype=torch.bfloat16))
    assert parameter.of(1, "w2") == 0.5
