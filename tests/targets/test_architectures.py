"""The architecture table is what vLLM's registry and model classes say."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from vllm.model_executor.models.registry import ModelRegistry

from quark_format.models.targets.tables import Architectures, Implementation
from quark_format.tables import table
from quark_format.targets import target

TABLES = Architectures.model_validate(table("targets/vllm-0.32/architectures.json"))
RULES = {
    "regex": "orig_to_new_regex",
    "substring": "orig_to_new_substr",
    "prefix": "orig_to_new_prefix",
    "suffix": "orig_to_new_suffix",
}
NAMES = [
    "model.layers.0.self_attn.q_proj",
    "model.language_model.layers.11.mlp.gate_proj",
    "language_model.model.layers.3.mlp.experts.7.down_proj",
    "model.visual.blocks.1.attn.qkv",
    "visual.merger.mlp.0",
    "vision_tower.encoder.layers.2.fc1",
    "transformer.h.4.attn.c_attn",
    "layers.5.attention.wo",
    "model.vision_model.encoder.layers.0.self_attn.k_proj",
    "lm_head",
    "thinker.model.layers.0.mlp.up_proj",
    "*.layers.*.mlp.down_proj",
    "re:.*gate$",
]


@pytest.fixture(scope="module")
def classes() -> dict[str, Any]:
    """The model classes that import here, by their path; the others need torchvision and the like."""
    found = {}
    for one in TABLES.implementations:
        module, _, name = one.class_.partition(":")
        try:
            found[one.class_] = getattr(importlib.import_module(module), name)
        except (ImportError, RuntimeError, AttributeError, NotImplementedError):
            continue
    return found


def read(one: Implementation, key: str) -> bool:
    return not any(reason.startswith(f"{key}:") or "platform" in reason for reason in one.unread or ())


def test_registry() -> None:
    """Every architecture of the registry is there, with its class."""
    ours = {name: one.class_ for one in TABLES.implementations for name in one.architectures}
    theirs = {name: f"{model.module_name}:{model.class_name}" for name, model in ModelRegistry.models.items()}
    assert ours == theirs
    assert len(theirs) > 380


def test_fused_modules(classes: dict[str, Any]) -> None:
    compared = 0
    for one in TABLES.implementations:
        if one.class_ in classes and read(one, "fused"):
            theirs = getattr(classes[one.class_], "packed_modules_mapping", None) or {}
            assert (TABLES.fused[one.fused] if one.fused else {}) == theirs, one.class_
            compared += 1
    assert compared > 200


def test_renames(classes: dict[str, Any]) -> None:
    """The rules are equal, in order, and rename real names alike."""
    compared = 0
    index = target("vllm@0.32").architectures
    for one in TABLES.implementations:
        if one.class_ not in classes or not read(one, "renames"):
            continue
        mapper = getattr(classes[one.class_], "hf_to_vllm_mapper", None)
        if isinstance(mapper, property):
            continue
        ours = TABLES.renames[one.renames].model_dump(exclude_none=True) if one.renames else {}
        if mapper is None:
            assert not ours, one.class_
            continue
        kept = mapper.get_rename_mapper()
        theirs = {
            name: [[getattr(old, "pattern", old), new] for old, new in getattr(kept, rule).items()]
            for name, rule in RULES.items()
        }
        assert ours == {name: pairs for name, pairs in theirs.items() if pairs}, one.class_
        architecture = index.get(one.architectures[0])
        assert [architecture.rename(name) for name in NAMES] == kept.apply_list(NAMES), one.class_
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        ("Qwen3MoeForCausalLM", ("gate_proj", "down_proj", "up_proj")),
        ("MixtralForCausalLM", ("w1", "w2", "w3")),
        ("NemotronHForCausalLM", ("up_proj", "down_proj", None)),
        ("DeepseekV3ForCausalLM", ("gate_proj", "down_proj", "up_proj")),
        ("LlamaForCausalLM", None),
    ],
)
def test_expert_names(architecture: str, names: tuple[str | None, ...] | None) -> None:
    """As in the factory calls of models/{qwen3_moe,mixtral,nemotron_h,deepseek_v2}.py."""
    experts = target("vllm@0.32").architectures.get(architecture).experts
    assert (None if experts is None else (experts.gate, experts.down, experts.up)) == names


def test_unknown_architecture_has_the_usual_fused_modules() -> None:
    unknown = target("vllm@0.32").architectures.get("NobodysModel")
    assert not unknown.known
    assert unknown.fused["qkv_proj"] == ["q_proj", "k_proj", "v_proj"]
    assert unknown.rename("model.layers.0.mlp") == "model.layers.0.mlp"
