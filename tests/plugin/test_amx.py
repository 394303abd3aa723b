"""What is served right without AMX is served right with it: vLLM chooses other kernels there.

The loads are made with what the machine has; without AMX they repeat those of the other tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin import quark_linear
from plugin.conftest import Loader
from quark_format.loading import Platform
from quark_format.resolver import Resolution, Resolver

TARGET = "vllm-plugin@0.32"
OF_VLLM = "vllm.model_executor.layers.quantization.quark.schemes"
OURS = "quark_format.vllm_plugin.schemes"
SERVED = {
    "llama_int4_g128": (f"{OF_VLLM}.QuarkW4A16Int4", f"{OURS}.int4.FloatInputInt4"),
    "llama_uint4_g128_fp16": (f"{OF_VLLM}.QuarkW4A16Int4", f"{OURS}.int4.FloatInputInt4"),
    "llama_int8_pt": (f"{OF_VLLM}.QuarkW8A8Int8", f"{OURS}.reference.ReferenceLinear"),
    "llama_int8_pc_dyn": (f"{OF_VLLM}.QuarkW8A8Int8", f"{OF_VLLM}.QuarkW8A8Int8"),
    "f2f_llama_attn_fp8blk_e8m0_mlp_mxfp4": (
        f"{OF_VLLM}.QuarkW8A8Fp8PerBlock",
        f"{OF_VLLM}.QuarkW8A8Fp8PerBlock",
    ),
}
"""Exports by the class that is tried first for their attention, without AMX and with it."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """The plugin in the real vLLM, on the machine as it is."""
    started = Loader(tmp_path_factory.mktemp("machine") / "log", "plugin.load_server")
    yield started
    started.close()


@pytest.mark.parametrize("name", [*SERVED, "mixtral_int4_attnonly"])
def test_layers_are_quarks(exports: Path, machine: Loader, tmp_path: Path, name: str) -> None:
    """With whichever kernels vLLM finds for the processor."""
    folder, probe = exports / name, tmp_path / "outputs"
    reply = machine.load(folder, probe=str(probe))
    assert reply["ok"], reply["error"]
    assert not quark_linear.too_far(folder, probe, reply["layers"])


@pytest.mark.parametrize("name", list(SERVED))
def test_tables_tell_what_serves(exports: Path, name: str) -> None:
    """On every machine."""
    config = json.loads((exports / name / "config.json").read_text(encoding="utf-8"))
    answer = Resolver(config, TARGET).resolve("model.layers.0.self_attn.o_proj", "linear")
    assert isinstance(answer, Resolution)
    tried = [answer.choice.on(Platform.parse(text))[0].scheme for text in ("cpu", "cpu:amx")]
    assert tuple(tried) == SERVED[name]
