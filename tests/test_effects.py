"""What findings mean for a load: each condition of `loading.json` at a case that the real vLLM was given.

Outcomes are those of `data/oracle`: what vLLM did, and whether its answers were those of the export.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mutants import Export
from oracle.cases import Case
from oracle.results import FAILS, LOADS, WRONG, read

from quark_format import validate
from quark_format.loading import loading
from quark_format.resolver import Refusal, Resolver
from quark_format.targets import target
from quark_format.validators.report import TargetVerdict

VLLM = "vllm@0.32"
LOADED = {one.case: one for one in read(VLLM)[1]}


def verdict(case: str, folder: Path) -> TargetVerdict:
    """The verdict on a case of the oracle."""
    report = validate(Case.parse(case).sparse(folder / "checkpoint"), target=VLLM, platform="cpu")
    return report.targets[0]


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        # a tensor that is too large along the axis that ranks share is cut, along another one not
        ("llama_ptpc_kv~lengthen-weight", WRONG),
        ("llama_int4_g128~double-columns-of-weight", WRONG),
        ("opt_int8~lengthen-bias", WRONG),
        ("opt_int8~halve-rows-of-weight", FAILS),
        ("llama_int4_g32~narrow-weight", FAILS),
        ("q0.6.0_llama_int4~halve-rows-of-weight-zero-point", FAILS),
        # scales of int4 are filled up, and one row is repeated
        ("llama_uint4_g128~halve-columns-of-weight-scale~1", WRONG),
        ("llama_int4_g128_order~halve-rows-of-weight-scale", WRONG),
        ("opt_int4_wo_128~double-rows-of-weight-scale", FAILS),
        # scales of int8 may be columns, those of fp8 not
        ("llama_int8_pc_dyn_asym~stand-up-weight-zero-point", LOADS),
        ("f2f_llama_ptpc~stand-up-weight-scale~1", FAILS),
        # zero points that no kernel gets
        ("llama_int4_g32~drop-weight-zero-point", LOADS),
        ("llama_int4_g32~lengthen-weight-zero-point~1", LOADS),
        ("llama_uint4_g128~double-columns-of-weight-zero-point", WRONG),
        ("opt_int8~retype-weight-zero-point-to-I64", LOADS),
        # one input scale for joined modules, which the last one fills
        ("llama_int8_kv~retype-input-scale-to-I32", LOADS),
        ("llama_int8_pt~drop-input-scale", WRONG),
        # copies by value
        ("llama_int8_pt~retype-input-scale-to-F64~1", LOADS),
        ("opt_ptpc_fp8~retype-weight-scale-to-I64", WRONG),
        # scales of the KV cache under any name that is mapped
        ("llama_ptpc_kv~rename-kv-scale-below-projection~1", LOADS),
        ("llama_int4_kv~declare-half-of-kv", LOADS),
        ("llama_ptpc_kv~widen-kv-scale~1", FAILS),
        # what the config says and vLLM does not read, or reads otherwise than Quark
        ("llama_uint4_g128~retype-qscheme", LOADS),
        ("q0.6.0_llama_int4~retype-ch-axis", LOADS),
        ("opt_int4_wo_128~retype-exclude", LOADS),
        ("llama_uint4_g128~exclude-layers-by-glob", LOADS),
        ("llama_int4_g128~exclude-fused-name", FAILS),
        ("llama_ptpc_kv~exclude-a-number", FAILS),
        # names for which there is no place
        ("llama_int8_pc_dyn_asym~rename-scale-to-unknown", FAILS),
        ("llama_ptpc_kv_attn~add-scale-to-excluded", FAILS),
        ("llama_int8_pc_static~rename-module", FAILS),
        ("llama_int8_pt_asym_a~drop-module-of-every-layer", WRONG),
        # parameters that nothing fills
        ("llama_fp8_ptpc~drop-head", WRONG),
        ("llama_int8_pc_dyn_asym~more-layers", WRONG),
        ("q0.10_llama_int4~fewer-layers", FAILS),
        ("llama_int8_pc_static~more-vocabulary", FAILS),
        # no config of Quark, or no file that can be read
        ("llama_int8_kv~drop-block", FAILS),
        ("llama_int4_g32~unknown-quant-method", FAILS),
        ("q0.6.0_llama_int4~config-mark", FAILS),
        ("q0.6.0_llama_int4~index-escapes", FAILS),
        ("q0.6.0_llama_int4~index-gone", LOADS),
    ],
)
def test_what_vllm_did(case: str, outcome: str, tmp_path: Path) -> None:
    """The verdict, and the reasons where it is not that the checkpoint loads."""
    loaded = LOADED[case]
    told = verdict(case, tmp_path)

    assert outcome == (FAILS if loaded.did == FAILS else loaded.computes(None))
    assert told.outcome == outcome
    assert bool(told.reasons) == (outcome != LOADS)


def test_reasons_name_what_has_no_place(tmp_path: Path) -> None:
    """The tensor, as vLLM's own message does, or the scale of a module that vLLM builds unquantized."""
    unknown = verdict("llama_int8_pc_dyn_asym~rename-scale-to-unknown", tmp_path / "a")
    fused = verdict("llama_int4_g128~exclude-fused-name", tmp_path / "b")

    assert "no parameter for `model.layers.0.self_attn.q_proj.weight_scales`" in unknown.reasons[0]
    assert "builds the module unquantized, without a parameter for" in fused.reasons[0]


def test_unquantized_checkpoints_have_no_verdict(tmp_path: Path) -> None:
    """Without a config and without scales nothing tells that a load fails."""
    export = Export.read("llama_int8_pt")
    plain = {name: ("BF16", shape) for name, (_, shape) in export.tensors.items() if name.endswith("weight")}
    bare = export.configured(lambda config: config.pop("quantization_config"))
    gone = [name for name in export.tensors if name not in plain]
    for name, (dtype, shape) in plain.items():
        bare = bare.changed(name, dtype, shape)
    report = validate(bare.without(*gone).write(tmp_path / "checkpoint"), target=VLLM, platform="cpu")

    assert [one.code for one in report.findings] == ["QF201"]
    assert report.targets == ()


def test_a_block_of_quark_behind_another_is_judged(tmp_path: Path) -> None:
    """As the other checks do."""

    def nest(config: dict[str, Any]) -> None:
        config["text_config"] = {"quantization_config": config["quantization_config"]}
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4}

    export = Export.read("llama_int8_wo_pt").configured(nest)
    report = validate(export.write(tmp_path / "checkpoint"), target=VLLM, platform="cpu")

    assert report.mode == "quark"
    assert report.targets[0].outcome == FAILS
    assert "no scheme" in report.targets[0].reasons[0]


@pytest.mark.parametrize(
    ("change", "unread"),
    [({"qscheme": "per_channel"}, True), ({"ch_axis": 0}, True), ({"group_size": None}, False)],
)
def test_fields_that_no_scheme_reads(change: dict[str, object], unread: bool) -> None:
    """As `_is_w4a16_int4` and `parse_w4a16_int4_weight_config` read them."""
    block = Export.read("llama_int4_g128").block
    block["global_quant_config"]["weight"].update(change)
    rows = loading(target(VLLM))
    refused = Resolver(block, VLLM, "LlamaForCausalLM").resolve("model.layers.0.mlp.down_proj", "linear")

    assert isinstance(refused, Refusal)
    assert rows is not None
    assert rows.unread(refused) == unread


def test_a_split_over_ranks_that_does_not_work_fails(tmp_path: Path) -> None:
    """Experts split over the ranks do not keep their groups whole; experts on one rank each do."""
    path = Export.read("qwen3_moe_int4_g128").write(tmp_path / "checkpoint")
    outcomes = [
        validate(
            path, target=VLLM, platform="cuda:90", tensor_parallel_size=2, expert_parallel=whole
        ).targets[0]
        for whole in (False, True)
    ]

    assert [one.outcome for one in outcomes] == [FAILS, LOADS]
