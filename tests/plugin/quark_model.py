"""A checkpoint in amd-quark's own importer, and its tensors as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from quark.torch import import_model_from_safetensors
from quark.torch.export.nn.modules.qparamslinear import QParamsLinear
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

NOT_IMPORTED = (
    "f2f_llama_int4_g128",
    "f2f_llama_int4_fp8",
    "llama_amdfp4_global16",
    "llama_embedding_int8",
)
"""amd-quark 0.13 cannot read these back: it wants zero points, e5m3 scales as bytes, or no embedding.

Of llama_amdfp4_global16 nobody can know the values: its scales were cast to bytes by value, which wraps.
"""


def imported(folder: Path) -> dict[str, Any]:
    """amd-quark's quantized linear modules by name, without the quantizers of the KV cache."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model = import_model_from_safetensors(model, str(folder))
    return {name: module for name, module in model.named_modules() if isinstance(module, QParamsLinear)}


def stored(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint by name."""
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
