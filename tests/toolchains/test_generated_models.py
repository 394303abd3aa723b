"""Models that datamodel-codegen makes of the files as they are, in an environment without this project."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import blocks
import exports
import pytest

from quark_format.tables import table
from toolchains import corpus

HERE = Path(__file__).parent
VERSIONS = [entry["version"] for entry in table("catalog.json")["versions"]]
CLASSES = {mode["quant_method"]: mode["definition"] for mode in table("catalog.json")["modes"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_models_take_real_configs_and_refuse_a_wrong_dtype(
    version: str, clean_bin: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made.py"
    options = ["--output-model-type", "pydantic_v2.BaseModel", "--enum-field-as-literal", "all"]
    source = [
        "--input-file-type",
        "jsonschema",
        "--input",
        str(corpus.SCHEMA / f"v{version}/config.schema.json"),
    ]
    codegen = [str(clean_bin / "datamodel-codegen"), *source, *options, "--output", str(made)]
    subprocess.run(codegen, check=True, capture_output=True)
    real = [blocks.exported(name) for name in exports.all_names() if blocks.exporter_version(name) == version]
    wrong = [misspelt(block) for block in real if "global_quant_config" in block]
    documents = [(CLASSES[block["quant_method"]], block) for block in [*real, *wrong]]
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"models": str(made), "documents": documents}), encoding="utf-8")
    command = [str(clean_bin / "python"), str(HERE / "pydantic_verdicts.py"), str(job)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert told == [True] * len(real) + [False] * len(wrong)
    assert wrong


def misspelt(block: dict[str, Any]) -> dict[str, Any]:
    """The block with a dtype that Quark does not know."""
    layer = block["global_quant_config"]
    return {**block, "global_quant_config": {**layer, "weight": {"dtype": "fp8_e4m4"}}}
