"""Which layer config a module has, and whether it is excluded, is what vLLM's own functions say."""

from __future__ import annotations

import fnmatch
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from vllm.model_executor.layers.quantization.quark import quark
from vllm.model_executor.layers.quantization.quark.utils import should_ignore_layer

from quark_format.names import Exclusion, LayerConfigs, Matcher, ShardConflictError, identity, reader
from quark_format.regular import Expression, PatternError

VLLM = reader("vllm", "0.32")
FUSED: dict[str, list[str]] = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
    "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"],
    "in_proj_qkv": ["in_proj_q", "in_proj_kv"],
    "qkv": ["qkv"],
    "query_key_value": ["query_key_value"],
}
LEAVES = [
    "self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj", "mlp.gate", "mlp.experts",
    "mlp.experts.3.gate_proj", "mlp.shared_expert.gate_up_proj", "linear_attn.in_proj_qkvz",
    "linear_attn.in_proj_qkv", "attn.qkv", "self_attention.query_key_value",
    "self_attn.q_proj", "mlp.up_proj", "qkv_proj.qkv_proj",
]  # fmt: skip
MODULES = [f"model.layers.{layer}.{leaf}" for layer in (0, 1, 10) for leaf in LEAVES] + [
    "lm_head", "model.embed_tokens", "visual.blocks.0.attn.qkv", "model", "q_proj", "",
]  # fmt: skip
CHECKPOINT = [
    f"model.layers.{layer}.{leaf}"
    for layer in (0, 1, 10)
    for leaf in (
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
        "mlp.up_proj", "mlp.down_proj", "mlp.gate", "mlp.experts", "mlp.experts.0.up_proj",
        "mlp.experts.3.gate_proj", "linear_attn.in_proj_q", "linear_attn.in_proj_kv", "linear_attn.in_proj_z",
        "linear_attn.in_proj_qkv", "attn.qkv", "mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
    )
]  # fmt: skip
GLOBS = [
    "*", "*q_proj", "*.k_proj", "*gate*", "model.layers.1.*", "*experts*", "*.mlp.*.gate_proj", "*[qk]_proj",
    "*layers.?.mlp.down_proj", "model.layers.*", "*in_proj_*", "*.qkv", "*_proj", "lm_hea?", "[lm]*",
]  # fmt: skip
REGEXES = [
    "re:.*qkv_proj", "re:.*[qkv]_proj$", "re:model\\.layers\\.(0|1)\\..*", "re:.*mlp\\.gate$", "re:lm_head",
    "re:.*experts.*", "re:^visual", "re:.*\\.layers\\.\\d+\\.mlp", "re:(?!.*mlp).*o_proj", "re:",
    "re:.*(gate|up)_proj",
]  # fmt: skip
CONFIGS: list[Any] = [
    {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": None},
    {"weight": {"dtype": "int4", "group_size": 32}, "input_tensors": None},
    {"weight": {"dtype": "int4", "group_size": 128}, "input_tensors": None},
    {"weight": {"dtype": "int4", "group_size": True}, "input_tensors": None},
    {"weight": [{"dtype": "fp4"}, {"dtype": "fp8_e4m3"}], "input_tensors": None},
]
Answer = tuple[Literal["ignored", "kept", "config", "conflict", "other"], Any]


def excludes(draw: random.Random) -> list[str]:
    pools = [CHECKPOINT, MODULES, GLOBS, REGEXES]
    return [draw.choice(draw.choice(pools)) for _ in range(draw.randrange(12))]


def layers(draw: random.Random) -> dict[str, Any]:
    pools = [CHECKPOINT, MODULES, GLOBS, GLOBS]
    keys = [draw.choice(draw.choice(pools)) for _ in range(draw.randrange(8))]
    few = draw.sample(CONFIGS, draw.choice((1, 2, 5)))
    return {key: draw.choice([*few, *few, None]) for key in keys}


def theirs_excludes(name: str, exclude: list[str], experts: bool) -> Answer:
    try:
        found = should_ignore_layer(name, exclude, FUSED, check_children=experts)
    except ValueError:
        return "conflict", None
    return ("ignored" if found else "kept"), None


def ours_excludes(exclusion: Exclusion, name: str, experts: bool) -> Answer:
    try:
        return ("ignored" if exclusion.excludes(name, experts=experts) else "kept"), None
    except ShardConflictError:
        return "conflict", None


def test_should_ignore_layer() -> None:
    draw = random.Random(32)  # noqa: S311 - a reproducible sample
    answers: Counter[str] = Counter()
    for _ in range(1_500):
        exclude = excludes(draw)
        exclusion = Exclusion(exclude, VLLM, FUSED)
        assert not exclusion.problems
        for name in MODULES:
            for experts in (False, True):
                theirs = theirs_excludes(name, exclude, experts)
                assert ours_excludes(exclusion, name, experts) == theirs, (name, exclude, experts)
                answers[theirs[0]] += 1
    assert set(answers) == {"ignored", "kept", "conflict"}
    assert min(answers.values()) > 1_000


def config(layer_configs: dict[str, Any]) -> Any:
    built = quark.QuarkConfig(
        {
            "layer_quant_config": layer_configs,
            "layer_type_quant_config": {},
            "global_quant_config": CONFIGS[0],
        }
    )
    built.packed_modules_mapping = FUSED
    return built


def theirs_config(ask: Any, *arguments: Any) -> Answer:
    try:
        return "config", ask(*arguments)
    except ValueError:
        return "conflict", None
    except IndexError:
        return "other", None


def cases() -> Iterator[tuple[dict[str, Any], LayerConfigs, Any]]:
    draw = random.Random(33)  # noqa: S311 - a reproducible sample
    for _ in range(2_000):
        layer_configs = layers(draw)
        yield layer_configs, LayerConfigs(layer_configs, CONFIGS[0], VLLM, FUSED), config(layer_configs)


def test_find_matched_config() -> None:
    answers: Counter[str] = Counter()
    for layer_configs, ours, theirs in cases():
        for name in MODULES:
            wanted = theirs_config(theirs._find_matched_config, name, torch.nn.Linear)
            try:
                found: Answer = ("config", ours.find(name)[1])
            except ShardConflictError:
                found = ("conflict", None)
            assert found[0] == wanted[0], (name, layer_configs)
            assert identity(found[1]) == identity(wanted[1]), (name, layer_configs)
            answers[wanted[0]] += 1
    assert answers["conflict"] > 400
    assert answers["config"] > 10_000


def test_get_layer_quant_config_from_name() -> None:
    answers: Counter[str] = Counter()
    for layer_configs, ours, theirs in cases():
        for name in MODULES:
            wanted = theirs_config(theirs.get_layer_quant_config_from_name, name)
            try:
                key = ours.first(name)
                found: Answer = ("config", None if key is None else layer_configs[key])
            except ShardConflictError:
                found = ("conflict", None)
            assert found[0] == wanted[0], (name, layer_configs)
            assert identity(found[1]) == identity(wanted[1]), (name, layer_configs)
            answers[wanted[0]] += 1
    assert answers["conflict"] > 400


def test_lists_of_other_lengths_deviate() -> None:
    """The declared deviation: vLLM serves a fused module by one part's config, or fails by accident."""
    one = {"weight": [{"dtype": "fp4"}]}
    two = {"weight": [{"dtype": "fp4"}, {"dtype": "fp8_e4m3"}]}
    for shorter_first in (True, False):
        first, last = (two, one) if shorter_first else (one, two)
        keys = {"*q_proj": first, "*k_proj": last, "*v_proj": last}
        answer = theirs_config(config(keys)._find_matched_config, "a.qkv_proj", torch.nn.Linear)
        assert answer == (("config", first) if shorter_first else ("other", None))
        with pytest.raises(ShardConflictError):
            LayerConfigs(keys, CONFIGS[0], VLLM, FUSED).find("a.qkv_proj")


def reference_quark(layer_configs: dict[str, Any], name: str, exact: bool) -> str | None:
    """amd-quark 0.13 quark/torch/quantization/model_transformation.py:318-329, 0.9 :79-83."""
    if exact and layer_configs.get(name) is not None and not any(char in name for char in "*?["):
        return name
    return next((pattern for pattern in layer_configs if fnmatch.fnmatch(name, pattern)), None)


@pytest.mark.parametrize(
    ("version", "exact"), [("0.6", False), ("0.11.2", False), ("0.12.post1", True), ("0.13", True)]
)
def test_quark_layer_configs(version: str, exact: bool) -> None:
    draw = random.Random(34)  # noqa: S311 - a reproducible sample
    for _ in range(500):
        keys = dict.fromkeys(layers(draw), CONFIGS[0])
        matcher = Matcher(keys, reader("quark", version).layers)
        for name in [*CHECKPOINT, "weird[0]", "a*b"]:
            assert matcher.first(name) == reference_quark(keys, name, exact), (name, keys)


def test_quark_exclude_takes_globs_and_no_regex() -> None:
    draw = random.Random(35)  # noqa: S311 - a reproducible sample
    for _ in range(500):
        exclude = excludes(draw)
        exclusion = Exclusion(exclude, reader("quark", "0.13"), FUSED)
        for name in CHECKPOINT:
            wanted = any(fnmatch.fnmatch(name, pattern) for pattern in exclude)
            assert exclusion.excludes(name) is wanted, (name, exclude)


ATOMS = [
    "a",
    "b",
    ".",
    "\\d",
    "[ab]",
    "[^a]",
    "(a|b)",
    "(ab|a)",
    "1",
    "\n",
    "$",
    "^",
    "(?:a|)",
    "\\w",
    "\\Z",
    "[a-c1]",
]
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?", "{2,}"]


def test_expressions_match_as_re_does() -> None:
    draw = random.Random(36)  # noqa: S311 - a reproducible sample
    compared = 0
    for _ in range(4_000):
        pattern = "".join(draw.choice(ATOMS) + draw.choice(REPEATS) for _ in range(draw.randint(1, 5)))
        try:
            theirs = re.compile(pattern)
        except re.error:
            with pytest.raises(PatternError, match="cannot compile"):
                Expression(pattern)
            continue
        ours = Expression(pattern)
        for _ in range(6):
            name = "".join(draw.choice("ab1.\nx") for _ in range(draw.randint(0, 7)))
            assert ours.match(name) is (theirs.match(name) is not None), (pattern, name)
            compared += 1
    assert compared > 15_000


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(a)\\1", "back-reference"),
        ("\\bfoo", "word boundary"),
        ("x(?<=a)b", "look-around"),
        ("(?i)a", "inline flags"),
        ("((a{100}){100}){100}", "states"),
        ("(" * 240 + ")" * 240, "nested too deeply"),
        ("a" * 501, "longer than 500"),
        ("(?>a)b", "atomic group"),
        ("(", "cannot compile"),
    ],
)
def test_expressions_that_are_not_evaluated(pattern: str, told: str) -> None:
    with pytest.raises(PatternError, match=told):
        Expression(pattern)
    exclusion = Exclusion([f"re:{pattern}", "lm_head"], VLLM)
    assert list(exclusion.problems) == [f"re:{pattern}"]
    assert exclusion.excludes("lm_head")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){12}", "a*a*a*a*a*a*b", "(a|aa)+$"])
def test_catastrophic_expressions_end(pattern: str) -> None:
    """Backtracking would need more steps than there are atoms on earth; this takes milliseconds."""
    assert Expression(pattern).match("a" * 900 + "!") is (pattern == "(.*a){12}")
