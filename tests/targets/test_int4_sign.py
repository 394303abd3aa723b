"""The deviation `int4_sign`: two of the four kinds of int4 that Quark packs reach vLLM as other weights."""

from __future__ import annotations

import pytest
import torch
from quark.torch.quantization.config.type import QSchemeType
from quark.torch.utils.pack import create_pack_method
from vllm.model_executor.layers.quantization.auto_awq import _REVERSE_AWQ_PACK_ORDER
from vllm.model_executor.layers.quantization.quark.utils import canonicalize_quark_packed_int4

from quark_format.selection import Combination
from quark_format.targets import target

RANGES = {"int4": (-8, 7), "uint4": (0, 15)}
OUT, IN, GROUP = 16, 64, 32


def nibbles(packed: torch.Tensor) -> torch.Tensor:
    """The values of vLLM's canonical packing, [rows, out]."""
    shifts = torch.tensor(_REVERSE_AWQ_PACK_ORDER, dtype=torch.int32) * 4
    return ((packed[..., None] >> shifts) & 0xF).reshape(packed.shape[0], -1)


@pytest.mark.parametrize("dtype", list(RANGES))
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("reorder", [True, False])
def test_sign(dtype: str, symmetric: bool, reorder: bool) -> None:
    low, high = RANGES[dtype]
    draw = torch.Generator().manual_seed(4)
    values = torch.randint(low, high + 1, (OUT, IN), generator=draw, dtype=torch.int32)
    zero = torch.randint(low, high + 1, (OUT, IN // GROUP), generator=draw, dtype=torch.int32)
    if symmetric:
        zero = torch.zeros_like(zero)
    quark = create_pack_method(qscheme=QSchemeType.per_group.value, dtype=dtype)
    unpacked = [
        nibbles(canonicalize_quark_packed_int4(part, pack_reorder=reorder, is_symmetric=symmetric))
        for part in (quark.pack(values, reorder), quark.pack(zero, reorder))
    ]
    offset = 8 if symmetric else unpacked[1].repeat_interleave(GROUP, 0)
    theirs = (unpacked[0] - offset).T
    ours = values - zero.repeat_interleave(GROUP, 1)
    weight = {
        "dtype": dtype, "qscheme": "per_group", "ch_axis": 1, "group_size": GROUP, "symmetric": symmetric,
    }  # fmt: skip
    for kind in ("linear", "experts"):
        found = target("vllm@0.32").kinds[kind].find({"weight": weight}, "reorder")
        assert isinstance(found, Combination) is torch.equal(ours, theirs)
