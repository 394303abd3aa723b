"""What the tables of transformers say of its model classes, against the installed package."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightConverter, rename_source_key
from transformers.models.auto import modeling_auto

from quark_format.targets import target

TRANSFORMERS = target("transformers@5.19")
TYPES: dict[str, set[str]] = {}
"""The types of models that a class serves."""
for mapping in (
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
):
    for model_type, classes in mapping.items():
        for name in [classes] if isinstance(classes, str) else classes:
            TYPES.setdefault(name, set()).add(model_type)
NAMES = [
    "model.layers.0.self_attn.q_proj",
    "model.layers.11.block_sparse_moe.gate",
    "model.layers.11.block_sparse_moe.experts.3.w1",
    "model.layers.0.mlp.experts.0.gate_proj",
    "model.layers.0.attn.wq_a",
    "model.language_model.layers.0.mlp.up_proj",
    "language_model.model.layers.0.self_attn.o_proj",
    "visual.blocks.0.attn.qkv",
    "vision_tower.encoder.layers.1.fc1",
    "multi_modal_projector.linear_1",
    "backbone.layers.1.mixer.in_proj",
    "transformer.layers.0.mlp.down_proj",
    "lm_head",
    "embed_tokens",
]


def renamings(architecture: str, model_type: str) -> list[Any]:
    """The conversions of names that transformers does for a model class."""
    own = get_checkpoint_conversion_mapping(architecture)
    found = get_checkpoint_conversion_mapping(model_type) if own is None else own
    return [one for one in found or () if not isinstance(one, WeightConverter)]


def test_modules_are_renamed_as_their_weights_are() -> None:
    """Some names, of each class that serves one type of model."""
    changed = 0
    for architecture, model_types in TYPES.items():
        if len(model_types) > 1:
            continue
        rules = renamings(architecture, *model_types)
        theirs = [rename_source_key(f"{name}.weight", rules, [])[0] for name in NAMES]
        ours = [f"{TRANSFORMERS.architectures.get(architecture).rename(name)}.weight" for name in NAMES]
        assert ours == theirs, architecture
        changed += ours != [f"{name}.weight" for name in NAMES]
    assert changed > 20


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        ("Qwen3MoeForCausalLM", ("gate_proj", "down_proj", "up_proj")),
        ("MixtralForCausalLM", ("w1", "w2", "w3")),
        ("NemotronHForCausalLM", ("up_proj", "down_proj", None)),
        ("GptOssForCausalLM", (None, None, None)),
        ("LlamaForCausalLM", None),
    ],
)
def test_expert_names(architecture: str, names: tuple[str | None, ...] | None) -> None:
    """As conversion_mapping.py joins them; gpt-oss holds all experts in one parameter."""
    experts = TRANSFORMERS.architectures.get(architecture).experts

    assert (None if experts is None else (experts.gate, experts.down, experts.up)) == names
