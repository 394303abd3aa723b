"""The declared tables are what the installed amd-quark and vLLM have, and a difference is told."""

from __future__ import annotations

import copy
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quark_format.tables import table
from quark_format.targets import target

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def drift(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("check_drift")


def test_nothing_has_drifted() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOLS / "check_drift.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as declared") == 9


def test_new_and_gone_names_are_told(drift: Any) -> None:
    assert list(drift.differences("dtype", ["fp4", "mx"], ["fp4", "fp3"])) == [
        "dtype: `fp3` is new",
        "dtype: `mx` is gone",
    ]


def test_missing_row_is_told(drift: Any) -> None:
    vllm = target("vllm@0.32")
    changed = copy.copy(vllm)
    rows = [row for row in vllm.schemes.rows if row.id != "linear.nvfp4"]
    changed.__dict__["schemes"] = vllm.schemes.model_copy(update={"rows": rows})
    home = "vllm.model_executor.layers.quantization.quark.schemes"
    assert list(drift.target_schemes(changed)) == [f"scheme class: `{home}.QuarkNVFP4` is new"]


def test_changed_tables_are_told(drift: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy.deepcopy(table("targets/vllm-0.32/architectures.json"))
    changed["implementations"] = [
        one for one in changed["implementations"] if "MixtralForCausalLM" not in one["architectures"]
    ]
    changed["fused"]["usual"]["qkv_proj"] = ["q_proj"]
    monkeypatch.setattr(drift, "table", lambda _: changed)
    found = list(drift.target_architectures(target("vllm@0.32")))
    assert "architecture: `MixtralForCausalLM` is new" in found
    assert "architecture `Qwen3ForCausalLM` joins or renames modules otherwise" in found
