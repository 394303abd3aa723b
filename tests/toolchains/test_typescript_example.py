"""`examples/typescript`: a layout table judges the tensors of a real module, right and wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exports
import pytest

from toolchains import corpus

SOURCE = Path(__file__).parents[2] / "examples" / "typescript" / "judge.ts"
MODULE = "model.layers.0.mlp.gate_proj"
NODE_TYPES = """\
declare module "node:fs" { export function readFileSync(path: string, encoding: string): string; }
declare const process: { argv: string[] };
"""
Stored = dict[str, tuple[str, list[int]]]


@pytest.fixture(scope="module")
def program(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example; the few types of Node that it uses are declared beside it."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "node.d.ts").write_text(NODE_TYPES, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "judge.ts").write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    tsc = [str(node_modules / "node_modules" / ".bin" / "tsc"), "--strict", "--target", "es2022"]
    options = ["--module", "nodenext", "node.d.ts", "judge.ts"]
    done = subprocess.run([*tsc, *options], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return folder / "judge.js"


def judged(program: Path, name: str, change: Callable[[Stored], object] = lambda _: None) -> Any:
    """What the example says of a module of the export `name` after a change."""
    export = exports.load(name)
    config = export["config"]
    own: Stored = {
        tensor.removeprefix(f"{MODULE}."): (dtype, shape)
        for content in export["files"].values()
        for tensor, (dtype, shape) in content["tensors"].items()
        if tensor.startswith(f"{MODULE}.")
    }
    change(own)
    case = {
        "table": str(corpus.SCHEMA / "v0.13" / "tensors.json"),
        "spec": config["quantization_config"]["global_quant_config"]["weight"],
        "sizes": {"out": config["intermediate_size"], "in": config["hidden_size"]},
        "tensors": own,
    }
    path = program.with_name("case.json")
    path.write_text(json.dumps(case), encoding="utf-8")
    command = ["node", str(program), str(path)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("name", ["llama_fp8_kv", "llama_int4_g128", "llama_mxfp4", "llama_fp8_ptpc"])
def test_a_real_module_is_right(name: str, program: Path) -> None:
    assert judged(program, name)["problems"] == []


def test_faults_are_told(program: Path) -> None:
    def missing(own: Stored) -> None:
        del own["weight_scale"]

    def retyped(own: Stored) -> None:
        own["weight"] = ("I8", own["weight"][1])

    def shortened(own: Stored) -> None:
        own["weight"] = (own["weight"][0], [1, *own["weight"][1][1:]])

    assert judged(program, "llama_fp8_kv", missing)["problems"] == ["weight_scale is missing"]
    assert judged(program, "llama_fp8_kv", retyped)["problems"] == ["weight is I8, not F8_E4M3"]
    [told] = judged(program, "llama_fp8_kv", shortened)["problems"]
    assert told.startswith("weight is 1 \N{MULTIPLICATION SIGN} ")
