"""Public reports of checkpoints that failed or answered nonsense: their faults are told before any load."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from mutants import Export
from reports import FAULTS, FP8_KV, Fault

from quark_format import validate

HERE = Path(__file__).parent
REPORTS = HERE / "data" / "reports.tsv"
NAME, PLACE, NEEDS = "id", "where the fault lies", "checkable before load from"


def listed() -> dict[str, dict[str, str]]:
    """The public reports by id."""
    with REPORTS.open(encoding="utf-8", newline="") as file:
        return {row[NAME]: row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.change.__name__)
def test_a_reported_fault_is_told(fault: Fault, tmp_path: Path) -> None:
    """The finding has the code for the fault, names what is at fault, and says what to do."""
    folder = fault.change(Export.read(fault.export)).write(tmp_path / "checkpoint")

    report = validate(folder, tensor_parallel_size=fault.ranks)

    told = [finding for finding in report.findings if finding.code == fault.code]
    assert told, [(finding.code, finding.message) for finding in report.findings]
    assert any(fault.mentions in f"{one.message} {one.tensor} {one.module} {one.pointer}" for one in told)
    assert all(one.fix for one in told)


def test_every_fault_of_config_or_tensors_is_planted() -> None:
    """Each report whose fault lies in config or tensors and shows in the headers has its fault above."""
    shown = {
        name
        for name, row in listed().items()
        if row[NEEDS].startswith("header") and re.match(r"config|tensors|names|exporter", row[PLACE])
    }
    planted = {name for fault in FAULTS for name in fault.ids}

    assert planted <= listed().keys()
    assert shown - planted == {"sglang#32904", "vllm#47473"}  # healthy files: see the next test


def test_a_shard_that_the_model_does_not_have_is_no_fault(tmp_path: Path) -> None:
    """Layers that share K and V (sglang#32904, vllm#47473) have no v_proj, and the config says so."""
    export = Export.read("llama_fp8_pt_static")
    gone = [name for name in export.tensors if ".v_proj." in name]
    shared = export.without(*gone).configured(lambda config: config.update(attention_k_eq_v=True))

    report = validate(shared.write(tmp_path / "checkpoint"))

    assert [finding.message for finding in report.findings] == []


def test_the_readme_counts_the_reports() -> None:
    """The README's figures are those of the list."""
    rows = listed()
    shown = sum(row[NEEDS].startswith("header") for row in rows.values())
    planted = {name for fault in FAULTS for name in fault.ids}
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8").replace("\n", " ")

    assert f"Of {len(rows)} public reports" in readme
    assert f"{shown} can be told from config and headers" in readme
    assert f"the faults of {len(planted)} are planted" in readme
    assert set(re.findall(r"(?:vllm|sglang)#\d+", readme)) <= planted


def test_the_listing_that_the_format_began_with(tmp_path: Path) -> None:
    """q, k, v and o with FP8 codes and F16 scales, k and v with an output scale each: nothing to say."""
    export = Export.read(FP8_KV)
    block = "model.layers.1.self_attn"
    for name, (dtype, _) in list(export.tensors.items()):
        if dtype == "BF16":
            export = export.changed(name, "F16")
    listing = {name: dtype for name, (dtype, _) in export.tensors.items() if name.startswith(f"{block}.")}

    report = validate(export.configured(lambda c: c.update(dtype="float16")).write(tmp_path / "checkpoint"))

    assert [finding.message for finding in report.findings] == []
    assert listing == {
        **{f"{block}.{one}_proj.weight": "F8_E4M3" for one in "qkvo"},
        **{f"{block}.{one}_proj.weight_scale": "F16" for one in "qkvo"},
        **{f"{block}.{one}_proj.input_scale": "F16" for one in "qkvo"},
        **{f"{block}.{one}_proj.output_scale": "F16" for one in "kv"},
    }
