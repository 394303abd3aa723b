"""Real exports, unchanged: no error, and no warning but those that are listed with what deserves them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import exports
import pytest

from quark_format import validate
from quark_format.validators.findings import Finding

WARNED: dict[tuple[str, str], str] = {
    (
        "llama_mixed_qproj",
        "QF405",
    ): "q_proj has another spec than k_proj and v_proj; vLLM 0.32 refuses the three",
    (
        "dsv2_kv",
        "QF503",
    ): "MLA has no k_proj or v_proj; Quark hangs the scale on kv_b_proj, where vLLM drops it",
    (
        "*_fake",
        "QF231",
    ): "weights are stored as floats, and only weight_format says so, which vLLM does not read",
    (
        "f2f_fp8",
        "QF317",
    ): "static FP8 inputs; the file-to-file writer calibrates nothing and stores no input_scale",
    ("f2f_fp8kv", "QF317"): "the same with KV cache outputs, whose scales it does not store either",
    ("f2f_int8", "QF317"): "static INT8 inputs without input_scale",
    ("f2f_mxfp4fp8", "QF317"): "static FP8 inputs without input_scale",
    ("f2f_llama_nvfp4", "QF317"): "NVFP4 inputs without their global scale",
    ("f2f_amdfp4g", "QF317"): "two-stage FP4 inputs without their global scale",
}
"""By export (a glob) and code: why an export that Quark wrote correctly deserves a warning."""

FAULTY: dict[str, tuple[str, str, str]] = {
    "llama_awqmode_uint4_g128_fp16": (
        *("QF308", "down_proj.qscales"),
        "AWQ mode under transformers 5 renames twice: the tensors are called qscales and qqzeros",
    ),
    "q0.12.post1_llama_awqmode_fp16": (
        *("QF319", 'quant_method "quark"'),
        "the config says awq, the tensors have the names and the packing of quark mode",
    ),
    "fp4_None": (
        *("QF311", "weight fp4 per_group 32"),
        "FP4 without scale_format: Quark exports log2 scales as I16 that its importer does not read back",
    ),
    "fp8_pc_input_static": (
        *("QF215", "input_tensors"),
        "a static input per channel: Quark exports it, and its importer refuses it",
    ),
}
"""Exports that are in truth defective: the code and words that name the defect, and the defect."""

NOTED: dict[str, tuple[str, ...]] = {
    "QF207": ("q0.[678]*",),
    "QF220": ("opt_*",),
    "QF309": ("f2f_*",),
    "QF411": ("*nolmexcl", "embed", "embed4"),
}
"""What else may be said of an export, by code: versions that wrote no version, an entry for the output layer
of a model that ties it, the file-to-file writer's own layouts, and quantized embeddings and output layers."""

NAMES = exports.all_names()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """What the validator finds in each export, written to disk."""
    root = tmp_path_factory.mktemp("exports")
    return {name: list(validate(exports.write(exports.load(name), root / name)).findings) for name in NAMES}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FAULTY])
def test_a_healthy_export_has_no_error(name: str, told: dict[str, list[Finding]]) -> None:
    """No error, no warning that is not listed, no note of a kind that says nothing about this export."""
    for one in told[name]:
        assert one.severity != "error", one.message
        if one.severity == "warning":
            assert any(fnmatchcase(name, glob) and one.code == code for glob, code in WARNED), one.message
        else:
            assert any(fnmatchcase(name, glob) for glob in NOTED.get(one.code, ())), one.message


@pytest.mark.parametrize("name", FAULTY)
def test_a_defective_export_is_named(name: str, told: dict[str, list[Finding]]) -> None:
    """The errors include the one that names the defect."""
    code, words, _ = FAULTY[name]
    errors = [one for one in told[name] if one.severity == "error"]

    assert any(one.code == code and words in f"{one.message} {one.pointer}" for one in errors), [
        one.message for one in errors
    ]


def test_every_listed_warning_and_note_is_given(told: dict[str, list[Finding]]) -> None:
    """What no export gets any more is taken off the lists."""
    given = {(name, one.code) for name, found in told.items() for one in found}
    listed = [*WARNED, *((glob, code) for code, globs in NOTED.items() for glob in globs)]

    for glob, code in listed:
        assert any(fnmatchcase(name, glob) and code == other for name, other in given), (glob, code)


def test_every_version_and_both_writers_are_covered() -> None:
    """Eight format versions and the file-to-file writer; no name stands in both folders."""
    assert len(NAMES) == len(set(NAMES))
    for writer in ("q0.6.0", "q0.7", "q0.8.2", "q0.9", "q0.10", "q0.11", "q0.12.post1", "f2f", "llama"):
        assert any(name.startswith(f"{writer}_") for name in NAMES), writer
