"""Every kind of dense export loads in the real vLLM through the plugin and computes what amd-quark does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plugin.conftest import Loader
from plugin.load_server import inputs
from plugin.quark_model import NOT_IMPORTED, imported
from plugin.served_exports import DENSE, OURS, REFUSED

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
KV = {"llama_fp8_kv": "auto", "llama_fp8_kv_custommode": "fp8"}
WEIGHT_ONLY = {
    "llama_int4_pc",
    "llama_int8_wo_g64",
    "llama_mxfp4_wo",
    "llama_uint4_g128_sym",
    "llama_fp8_wo_pc",
}


TOLERANCE = {True: 4e-3, False: 3e-2}
"""Of a layer's output by whether it is ours: vLLM's kernels calculate scales of inputs in float32."""


def members(name: str) -> list[str]:
    parent, _, leaf = name.rpartition(".")
    return [f"{parent}.{one}".lstrip(".") for one in FUSED.get(leaf, (leaf,))]


@pytest.mark.parametrize("name", list(DENSE))
def test_export_is_served(exports: Path, loader: Loader, tmp_path: Path, name: str) -> None:
    """By the scheme it should be; every layer's output is amd-quark's but for the order of its sums."""
    probe = tmp_path / "outputs"
    reply = loader.load(exports / name, probe=str(probe), logprobs=name in WEIGHT_ONLY)
    assert reply["ok"], reply["error"]
    assert len(reply["tokens"]) == 6
    schemes = {one["scheme"] for one in reply["layers"] if one["row"] != "unquantized"}
    assert DENSE[name] in schemes
    if name in WEIGHT_ONLY:
        assert divergence(exports, name, reply["logprobs"]) <= 1.5
    if name in NOT_IMPORTED:
        return
    modules = imported(exports / name)
    for layer, output in load_file(probe).items():
        parts = [modules[part] for part in members(layer)]
        x = inputs(layer, parts[0].in_features)
        for part in parts:
            part.bias = None
            if name in KV:
                part.output_quantizer = None
        theirs = torch.cat([part(x[None])[0] for part in parts], -1)
        error = (output[:, : theirs.shape[-1]].float() - theirs.float()).norm() / theirs.float().norm()
        assert error <= TOLERANCE[DENSE[name] == OURS], layer


def divergence(exports: Path, name: str, logprobs: list[dict[str, float]]) -> float:
    """KL of vLLM's logits from amd-quark's float32 ones, over that of amd-quark's own bfloat16 ones."""
    reference = load_file(exports / "references" / f"{name}.safetensors")
    exact, rounded = (
        torch.log_softmax(reference[key], -1)[: len(logprobs)] for key in ("quantized_float32", "quantized")
    )
    ours = torch.tensor([[row[str(token)] for token in range(exact.shape[-1])] for row in logprobs])
    kl = [(exact.exp() * (exact - other)).sum(-1).mean() for other in (ours, rounded)]
    return float(kl[0] / kl[1])


@pytest.mark.parametrize("name", ["llama_fp8_ptpc", "llama_int8_pc_dyn", "llama_int4_g128"])
def test_what_vllm_serves_is_vllms(exports: Path, loader: Loader, stock: Loader, name: str) -> None:
    """The same schemes, kernels and tokens as without the plugin."""
    ours, theirs = (one.load(exports / name) for one in (loader, stock))
    assert ours["tokens"] == theirs["tokens"]
    served = [
        {(one["name"], one["scheme"], one["kernel"]) for one in reply["layers"]} for reply in (ours, theirs)
    ]
    assert served[0] == served[1]


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_read_is_refused(exports: Path, loader: Loader, name: str) -> None:
    """Before weights are read, with module and platform."""
    reply = loader.load(exports / name)
    assert not reply["ok"]
    assert REFUSED[name] in reply["error"]
    assert "model.layers.0.self_attn.qkv_proj on cpu" in reply["error"]


@pytest.mark.parametrize("name", list(KV))
def test_scales_of_the_cache(exports: Path, loader: Loader, name: str) -> None:
    """Every mode's names of them arrive; with kv_cache_dtype auto that is said."""
    dtype = KV[name]
    reply = loader.load(exports / name, arguments={"kv_cache_dtype": dtype})
    assert reply["ok"], reply["error"]
    tensors = load_file(exports / name / "model.safetensors")
    scales = sorted(
        float(one) for key, one in tensors.items() if key.endswith(("k_proj.output_scale", "k_scale"))
    )
    if dtype == "auto":
        assert "declares an fp8_e4m3 KV cache" in loader.log.read_text(encoding="utf-8")
    else:
        assert sorted(scale for _, scale, _ in reply["cache"]) == pytest.approx(scales)
