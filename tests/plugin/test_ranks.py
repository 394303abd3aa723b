"""What every rank loads of a stored tensor is its share of the weight, whatever the layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plugin import shares
from plugin.quark_model import stored
from plugin.shares import Axes
from plugin.test_numbers import parts
from quark_format.layouts import DIMS, Dim
from quark_format.vllm_plugin.stored import StoredShapeError, StoredTensor

NAMES = [
    "llama_fp8_pt_static",
    "llama_fp8_wo_pc",
    "llama_int4_g128",
    "llama_int4_pc",
    "llama_mxfp4_wo",
    "llama_int4_fp8",
]
MODULE = "model.layers.0.mlp.up_proj"
WHOLE: dict[Dim, int] = {"out": 512, "in": 256}


def share(exports: Path, name: str, rank: int, ranks: int, split: Dim) -> torch.Tensor:
    """The weight of one rank, with `split` divided over the ranks."""
    tensors = stored(exports / name)
    part = parts(exports / name, [MODULE])[MODULE]

    def held(suffix: str, expected: Axes) -> torch.Tensor:
        parameter = StoredTensor(suffix, [expected], rank, ranks, torch.device("cpu"))
        parameter.weight_loader(parameter, tensors[f"{MODULE}.{suffix}"])
        found = parameter.parts[0]
        assert found is not None
        return found

    return shares.share(part, WHOLE, ranks, split, held)


@pytest.mark.parametrize("split", DIMS)
@pytest.mark.parametrize("name", NAMES)
def test_shares_make_the_weight(exports: Path, name: str, split: Dim) -> None:
    whole = share(exports, name, 0, 1, split)
    halves = [share(exports, name, rank, 2, split) for rank in range(2)]
    assert torch.equal(torch.cat(halves, DIMS.index(split)), whole)


def test_a_group_stays_on_one_rank(exports: Path) -> None:
    with pytest.raises(StoredShapeError, match="no multiple of 128"):
        share(exports, "llama_int4_g128", 0, 4, "in")
