"""Splitting over ranks: each size as vLLM 0.32 splits it, checked on real exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from mutants import Export

from quark_format import validate
from quark_format.tables import table
from quark_format.validators import parallel

HEADS, KV_HEADS = "num_attention_heads", "num_key_value_heads"
EMBEDDINGS = ("lm_head", "embed_tokens")
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def refused(export: Export, ranks: int, *, expert_parallel: bool = False) -> tuple[set[str], set[str]]:
    """What the ranks cannot share, by key of config.json or the module's last name, and the advice."""
    context = replace(export.context, tensor_parallel_size=ranks, expert_parallel=expert_parallel)
    found = list(parallel.check(context))
    places = {(one.module or (one.pointer or "")[1:]).rpartition(".")[2] for one in found}
    return places, {one.fix for one in found}


@pytest.mark.parametrize(
    ("name", "ranks", "what", "working"),
    [
        ("llama_int8_pt", 2, set(), ""),
        ("llama_int8_pt", 4, set(), ""),
        ("llama_int8_pt", 3, {HEADS, KV_HEADS, *EMBEDDINGS, *PROJECTIONS}, "1, 2 or 4"),
        ("llama_int8_pt", 8, {HEADS}, "1, 2 or 4"),
        ("llama_int4_g128", 4, {"o_proj"}, "1 or 2"),
        ("qwen3_moe_int4_g128", 2, {"down_proj"}, "1"),
        ("opt_int8", 4, set(), ""),
    ],
)
def test_sizes_that_ranks_share(name: str, ranks: int, what: set[str], working: str) -> None:
    """Heads, KV heads beyond which ranks hold copies, vocabulary, split dimensions and groups."""
    advice = {f"Use a tensor-parallel size of {working}."} if what else set()

    assert refused(Export.read(name), ranks) == (what, advice)


def test_experts_stay_whole_with_expert_parallelism() -> None:
    """Then their sizes do not count, those of attention do."""
    export = Export.read("qwen3_moe_int4_g128")

    assert refused(export, 2, expert_parallel=True)[0] == set()
    assert refused(export, 4, expert_parallel=True) == ({"o_proj"}, {"Use a tensor-parallel size of 1 or 2."})


def test_a_vocabulary_is_padded() -> None:
    """500 tokens are padded to 512, which eight ranks share and three do not."""
    export = Export.read("llama_int8_pt").changed("lm_head.weight", shape=(500, 256))

    assert refused(export, 8)[0] == {HEADS}
    assert "lm_head" in refused(export, 3)[0]


def test_a_scheme_asks_for_sizes(tmp_path: Path) -> None:
    """Merged projections in FP8 blocks must be whole blocks but for the last (fp8_utils.py:1325-1344)."""
    export = Export.read("f2f_llama_allbut_down_fp8blk")
    gate, up = (f"model.layers.0.mlp.{leaf}_proj" for leaf in ("gate", "up"))
    told = [
        one.message
        for at, uneven in enumerate((gate, up))
        for one in validate(
            export.changed(f"{uneven}.weight", shape=(448, 256)).write(tmp_path / str(at)),
            target="vllm@0.32",
            platform="cuda:90",
        ).findings
        if one.code == "QF602"
    ]

    assert len(told) == 1
    assert f"out = 448 of `{gate}` is no multiple of 128" in told[0]


def test_a_verdict_knows_the_ranks(tmp_path: Path) -> None:
    """What cannot be split does not load."""
    folder = Export.read("llama_int8_pt").write(tmp_path / "checkpoint")
    two, three = (
        validate(folder, target="vllm@0.32", platform="cpu", tensor_parallel_size=ranks) for ranks in (2, 3)
    )

    assert [one.targets[0].outcome for one in (two, three)] == ["loads", "fails"]


def test_the_table_follows_its_schema() -> None:
    """And names dimensions that layouts have."""
    assert not list(Draft202012Validator(table("roles.schema.json")).iter_errors(table("roles.json")))
