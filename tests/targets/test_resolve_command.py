"""The command `quark-format resolve`, and the plan behind it, on real exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quark_format.checkpoint import read_checkpoint
from quark_format.cli import app
from quark_format.plan import NoQuarkConfigError, Plan, plan
from quark_format.tables import table
from quark_format.targets import target

DATA = Path(__file__).parents[1] / "data"


def write(folder: Path, name: str, **changes: Any) -> Path:
    """Write the export's config and headers, with sparse data, as a checkpoint."""
    file = next(DATA.glob(f"exports*/{name}.json"))
    export = json.loads(file.read_text(encoding="utf-8"))
    config = export["config"] | changes
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for shard, content in export["files"].items():
        header: dict[str, Any] = {}
        end = 0
        for tensor, (dtype, shape) in content["tensors"].items():
            size = 1
            for length in shape:
                size *= length
            bits = table("safetensors.json")["dtypes"][dtype]["bits"]
            start, end = end, end + size * bits // 8
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        raw = json.dumps(header).encode()
        with (folder / shard).open("wb") as stream:
            stream.write(len(raw).to_bytes(8, "little") + raw)
            stream.truncate(8 + len(raw) + end)
    return folder


def planned(folder: Path, name: str, **changes: Any) -> Plan:
    return plan(read_checkpoint(write(folder, name, **changes)), target("vllm"))


def rows(made: Plan) -> dict[str, str | None]:
    return {one.name: getattr(getattr(one.answer, "choice", None), "row", "refused") for one in made.planned}


def test_fused_modules_and_experts_are_joined(tmp_path: Path) -> None:
    made = planned(tmp_path, "f2f_qwen3moe_attn_fp8blk_moe_mxfp4")
    assert rows(made) == {
        "model.layers.N.self_attn.qkv_proj": "linear.fp8_block",
        "model.layers.N.self_attn.o_proj": "linear.fp8_block",
        "model.layers.N.mlp.experts": "experts.mxfp4_mxfp4",
        "lm_head": None,
        "model.embed_tokens": "embedding.plain",
    }
    experts = next(one for one in made.planned if one.kind == "experts")
    assert experts.modules == 2
    assert experts.parts == 2 * 4 * 3
    assert experts.layout == "weight/fp4-e8m0"


def test_every_byte_is_counted_once(tmp_path: Path) -> None:
    folder = write(tmp_path, "f2f_qwen3moe_attn_fp8blk_moe_mxfp4")
    checkpoint = read_checkpoint(folder)
    made = plan(checkpoint, target("vllm"))
    stored = sum(tensor.end - tensor.start for tensor in checkpoint.tensors.values())
    assert sum(one.bytes for one in made.planned) + made.unlooked_bytes == stored


def test_parts_join_only_where_all_are_there(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite has q_proj and no q_a_proj, so nothing becomes fused_qkv_a_proj or qkv_proj."""
    names = set(rows(planned(tmp_path, "deepseek_v2_mxfp4")))
    assert "model.layers.N.self_attn.kv_a_proj_with_mqa" in names
    assert "model.layers.N.self_attn.q_proj" in names
    assert not any("fused_qkv" in name or "qkv_proj" in name for name in names)


def test_kv_cache_is_a_row(tmp_path: Path) -> None:
    assert rows(planned(tmp_path, "llama_fp8_kv"))["KV cache"] == "attention.fp8"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["resolve", *arguments], env={"COLUMNS": "300"})


def test_json(tmp_path: Path) -> None:
    done = run(str(write(tmp_path, "llama_fp8_kv")), "--format", "json", "--platform", "cpu")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["target"], answer["architecture"]) == ("vllm@0.32", "LlamaForCausalLM")
    down = next(one for one in answer["modules"] if one["module"] == "model.layers.N.mlp.down_proj")
    assert down["row"] == "linear.fp8"
    assert down["modules"] == 2
    assert down["kernels"] == {"cpu": [*target("vllm").kernels.families["fp8"].platforms["cpu"]]}
    assert down["arguments"]["weight_quant_key"] == "kFp8StaticTensorSym"


def test_text_tells_why_modules_are_refused(tmp_path: Path) -> None:
    done = run(str(write(tmp_path, "int2_g128")))
    assert done.exit_code == 1
    assert "refused" in done.stdout
    assert "weight[0] dtype is `int2` (wanted: `int4`)" in done.stdout


def test_config_that_the_target_refuses_as_a_whole(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama_fp8_kv")
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]["export"]
    (folder / "config.json").write_text(json.dumps(config))
    done = run(str(folder))
    assert done.exit_code == 1
    assert "'export' is a required property" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{folder}", "--target", "sglang"], "no target 'sglang' is declared"),
        (["{folder}", "--platform", "tpu"], "vllm@0.32 has cpu, cuda, rocm, xpu"),
        (["{folder}/absent"], "no config"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], told: str) -> None:
    folder = write(tmp_path, "llama_fp8_kv")
    done = run(*(argument.format(folder=folder) for argument in arguments))
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_checkpoint_of_no_quark(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama_fp8_kv", quantization_config=None)
    with pytest.raises(NoQuarkConfigError, match="no quantization_config"):
        plan(read_checkpoint(folder), target("vllm"))
