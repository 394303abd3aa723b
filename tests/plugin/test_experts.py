"""Routed experts in the real vLLM through the plugin, against a loop over amd-quark's own modules."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plugin.conftest import Loader
from plugin.quark_experts import blocks, deviations, experts_of
from plugin.quark_model import imported, stored
from plugin.served_exports import EXPERTS, OUR_EXPERTS
from quark_format.resolver import Resolution, Resolver
from quark_format.vllm_plugin.layout import WEIGHT, Checkpoint
from quark_format.vllm_plugin.schemes.reference import Part

TARGET = "vllm-plugin@0.32"
QUANTIZED = sorted(name for name, scheme in EXPERTS.items() if scheme == OUR_EXPERTS)

quark_modules = cache(imported)


@pytest.mark.parametrize("name", list(EXPERTS))
def test_experts_are_served(exports: Path, loader: Loader, tmp_path: Path, name: str) -> None:
    """By the method they should be, and generate; their output is that of amd-quark's modules."""
    probe = tmp_path / "outputs"
    reply = loader.load(exports / name, probe=str(probe))
    assert reply["ok"], reply["error"]
    assert len(reply["tokens"]) == 6
    assert EXPERTS[name] in {one["scheme"] for one in reply["layers"]}
    modules: dict[str, Any] = quark_modules(exports / name)
    outputs = load_file(probe)
    assert blocks(outputs)
    for block, error, allowed in deviations(modules, outputs):
        assert error <= allowed, block


@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_are_quarks(exports: Path, name: str) -> None:
    """Bit for bit in float32, by the specs that the resolver finds for the experts' projections."""
    folder = exports / name
    modules = quark_modules(folder)
    tensors = stored(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    resolver, checkpoint = Resolver(config, TARGET), Checkpoint(config["quantization_config"])
    compared = 0
    for block in experts_of(modules):
        answer = resolver.resolve(resolver.architecture.rename(block), "experts")
        assert isinstance(answer, Resolution)
        assert not answer.excluded
        part = Part.of(checkpoint, **answer.choice.arguments)
        for module_name, theirs in modules.items():
            if not module_name.startswith(block):
                continue
            own = {
                entry.suffix: tensors[f"{module_name}.{entry.suffix}"]
                for entry in part.layout.row.entries
                if entry.suffix.startswith(WEIGHT)
            }
            weight = part.layout.dequantize(own, theirs.out_features, theirs.in_features)
            assert torch.equal(weight, theirs._get_qweight(theirs.weight)), module_name
            compared += 1
    assert compared
