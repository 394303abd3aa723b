"""What VS Code's JSON language service shows from our titles and descriptions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quark_format.tables import table
from toolchains import corpus

HERE = Path(__file__).parent
FILE = "v0.13/config.schema.json"
SPECS: dict[str, Any] = table(FILE)["$defs"]["TensorSpec"]["properties"]
BLOCK = '{"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", %s}}}'


@pytest.fixture
def shown(node_modules: Path, tmp_path: Path) -> Any:
    """Asks the service about a place in a text."""

    def ask(text: str, at: str) -> Any:
        job = tmp_path / "job.json"
        place = {"schema": str(corpus.SCHEMA / FILE), "text": text, "offset": text.index(at) + 1}
        job.write_text(json.dumps(place), encoding="utf-8")
        command = ["node", str(HERE / "language_service.mjs"), str(node_modules), str(job)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    return ask


def test_hovering_a_key_shows_its_title_and_description(shown: Any) -> None:
    hover = shown(BLOCK % '"qscheme": "per_group"', '"qscheme"')["hover"]
    plain = hover.replace("\\", "").replace("&nbsp;", " ")
    assert SPECS["qscheme"]["title"] in plain
    assert SPECS["qscheme"]["description"] in plain


def test_keys_of_a_spec_are_completed_with_their_descriptions(shown: Any) -> None:
    completions = dict(shown(BLOCK % '""', '""')["completions"])
    assert set(SPECS) - {"dtype"} <= set(completions)
    assert SPECS["group_size"]["description"] in completions["group_size"]


def test_values_are_completed(shown: Any) -> None:
    completions = dict(shown(BLOCK % '"qscheme": ""', '""')["completions"])
    assert {json.dumps(value) for value in SPECS["qscheme"]["enum"]} <= set(completions)


def test_a_wrong_value_is_underlined(shown: Any) -> None:
    assert shown(BLOCK % '"qscheme": "per_tensr"', '"qscheme"')["diagnostics"]
