"""Patterns of a config against the modules of the file: what each reader makes of them, how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mutants import Export

from quark_format import validate
from quark_format.validators.findings import Finding

MIXED = "llama_mixed_attn_ptpc_mlp_mxfp4"
MLP = "model.layers.0.mlp"


def told(export: Export, folder: Path, code: str) -> list[Finding]:
    """The findings of `code` for `export`."""
    return [one for one in validate(export.write(folder / "checkpoint")).findings if one.code == code]


def layers(change: dict[str, Any] | None = None, *, keep: bool = True) -> Export:
    """The mixed export with other layer configs: None as a value stands for the config of attention."""
    export = Export.read(MIXED)
    attention = export.block["layer_quant_config"]["*self_attn*"]
    new = {key: attention if value is None else value for key, value in (change or {}).items()}
    own = export.block["layer_quant_config"] if keep else {}
    return export.edited(lambda block: block.update(layer_quant_config={**own, **new}))


def test_the_export_itself_means_one_thing(tmp_path: Path) -> None:
    """A glob on attention is the same to Quark and to vLLM."""
    assert told(layers(), tmp_path, "QF224") == []


def test_an_exact_key_behind_a_glob(tmp_path: Path) -> None:
    """Quark takes an exact name first (0.12 and later), vLLM the first key in file order."""
    exact = "model.layers.0.self_attn.q_proj"
    export = Export.read(MIXED)
    (one,) = told(layers({exact: export.block["global_quant_config"]}), tmp_path, "QF224")

    assert one.module == exact
    assert "`*self_attn*` in /quantization_config/layer_quant_config means nothing" in one.message
    assert f"fp8_e4m3 per_channel for `{exact}` to vLLM" in one.message


def test_a_key_that_begins_like_a_module(tmp_path: Path) -> None:
    """vLLM takes a key without `*` for every module whose name is a part of it."""
    (one,) = told(layers({f"{MLP}.up_proj_scaled": None}), tmp_path, "QF224")

    assert (one.module, one.count) == (f"{MLP}.up_proj", 1)
    assert "(/global_quant_config decides) to Quark" in one.message


def test_a_glob_that_only_quark_knows(tmp_path: Path) -> None:
    """`[01]` without `*` is a glob to Quark and a name to vLLM."""
    (one,) = told(layers({"model.layers.[0]?mlp.up_proj": None}), tmp_path, "QF224")

    assert one.module == f"{MLP}.up_proj"
    assert one.message.count("a name that no module has") == 1
    assert "for `model.layers.0.mlp.up_proj` to Quark and a name that no module has to vLLM" in one.message


@pytest.mark.parametrize(
    ("entry", "code", "candidate"),
    [
        ("language_model.model.layers.0.mlp.up_proj", "QF221", "model.layers.0.mlp.up_proj"),
        ("up_proj", "QF221", "up_proj"),
        ("model.layers.0.mlp.gate_up_proj", "QF226", "model.layers.0.mlp.gate_proj"),
        ("re:(", "QF227", "re:("),
        ("vision_tower.*", "QF220", "vision_tower.*"),
        ("lm_head", "QF222", "lm_head"),
    ],
)
def test_an_exclude_entry_that_does_not_do_what_it_says(
    entry: str, code: str, candidate: str, tmp_path: Path
) -> None:
    """Misses by prefix or by last name, fused names, broken expressions, dead and doubled entries."""
    export = Export.read(MIXED)
    found = told(
        export.edited(lambda block: block.update(exclude=[*block["exclude"], entry])), tmp_path, code
    )

    assert len(found) == 1
    assert candidate in found[0].message
