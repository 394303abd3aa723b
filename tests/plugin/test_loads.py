"""Every kind of dense export loads in the real vLLM through the plugin and computes what amd-quark does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from plugin import quark_linear
from plugin.conftest import Loader, kernels
from plugin.quark_model import NOT_IMPORTED
from plugin.reference_logits import divergence, weight_only
from plugin.served_exports import DENSE, REFUSED

KV = {"llama_fp8_kv": "auto", "llama_fp8_kv_custommode": "fp8"}
FLOOR = 1.5
"""How far logits may be from amd-quark's in float32, as a share of what the model's dtype makes of them."""


@pytest.mark.parametrize("name", list(DENSE))
def test_export_is_served(exports: Path, loader: Loader, tmp_path: Path, name: str) -> None:
    """By the scheme it should be; every layer's output is amd-quark's but for the order of its sums."""
    folder, probe = exports / name, tmp_path / "outputs"
    logits = weight_only(folder) and name not in NOT_IMPORTED
    reply = loader.load(folder, probe=str(probe), logprobs=logits)
    assert reply["ok"], reply["error"]
    assert len(reply["tokens"]) == 6
    schemes = {one["scheme"] for one in reply["layers"] if one["row"] != "unquantized"}
    assert DENSE[name] in schemes
    if logits:
        own, floor = divergence(exports / "references" / f"{name}.safetensors", reply["logprobs"])
        assert own <= FLOOR * floor
    if name not in NOT_IMPORTED:
        assert not quark_linear.too_far(folder, probe, reply["layers"])


@pytest.mark.parametrize("name", ["llama_fp8_ptpc", "llama_int8_pc_dyn", "llama_int4_g128"])
def test_what_vllm_serves_is_vllms(exports: Path, loader: Loader, stock: Loader, name: str) -> None:
    """The same schemes, kernels and tokens as without the plugin."""
    ours, theirs = (one.load(exports / name) for one in (loader, stock))
    assert (ours["config"], theirs["config"]) == ("QuarkFormatConfig", "QuarkConfig")
    assert ours["tokens"] == theirs["tokens"]
    assert kernels(ours) == kernels(theirs)


def without_weights(folder: Path, config: dict[str, Any]) -> Path:
    """A checkpoint of which the weights cannot be read: a file that ends within its header."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes((1 << 20).to_bytes(8, "little") + b"{")
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_read_is_refused(exports: Path, loader: Loader, tmp_path: Path, name: str) -> None:
    """Before weights are read, with module, spec and platform."""
    reply = loader.load(without_weights(tmp_path, config_of(exports / name)))
    assert not reply["ok"]
    assert REFUSED[name] in reply["error"]
    assert "model.layers.0.self_attn.qkv_proj (weight uint4 per_group 128) on cpu" in reply["error"]


def test_what_no_row_takes_is_refused(exports: Path, loader: Loader, tmp_path: Path) -> None:
    """Before weights are read, with module, spec, platform, nearest row and what differs."""
    config = config_of(exports / "llama_fp8_pt_static")
    layer = config["quantization_config"]["global_quant_config"]
    layer["bias"] = layer["weight"]
    reply = loader.load(without_weights(tmp_path, config))
    assert not reply["ok"]
    spec = "weight fp8_e4m3 per_tensor, input fp8_e4m3 per_tensor, bias fp8_e4m3 per_tensor"
    assert f"model.layers.0.self_attn.qkv_proj ({spec}) on cpu" in reply["error"]
    wish = "the nearest row `linear.reference` differs: number of bias stages is `1` (wanted: `0`)"
    assert wish in reply["error"]
    config["quantization_config"] = config_of(exports / "llama_fp8_pt_static")["quantization_config"]
    assert "header" in loader.load(without_weights(tmp_path, config))["error"].lower()


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
