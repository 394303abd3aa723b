"""`--values`: a value planted into a real export is found, and the export as it is has no finding."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import exports
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from quark_format.checkpoint import read_checkpoint
from quark_format.safe_files import CannotOpenError
from quark_format.safetensors_header import Tensor
from quark_format.tables import table
from quark_format.validators.cli import app
from quark_format.validators.validate import validate
from quark_format.values import Survey, numbers, opened

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama-fp8-kv"
FLOAT32_MIN = float(np.finfo("f4").min)
LAYER = "model.layers.0"


def found(path: Path, values: str) -> list[Any]:
    return [one for one in validate(path, values=values).findings if one.code.startswith("QF7")]


def plain(dtype: str, count: int, scale: bool, zero_point: bool) -> bytes:
    """Bytes of a tensor that no check minds."""
    random = np.random.default_rng(7)
    if zero_point:
        return bytes(exports.nbytes(dtype, [count]))
    if dtype == "BF16":
        values = random.uniform(0.01, 0.02, count).astype("<f4")
        return (values.view("<u4") >> 16).astype("<u2").tobytes()
    if dtype in {"F16", "F32", "F64"}:
        return random.uniform(0.01, 0.02, count).astype(table("values.json")["floats"][dtype]).tobytes()
    codes = random.integers(100, 120, exports.nbytes(dtype, [count]), dtype="u1")
    return codes.tobytes() if scale else (codes - 90).tobytes()


def encoded(tensor: Tensor, value: float) -> bytes:
    """`value` as one number of the tensor's dtype."""
    if tensor.dtype == "BF16":
        return np.array([value], "<f4").tobytes()[2:]
    return np.array([value], table("values.json")["floats"][tensor.dtype]).tobytes()


def filled(name: str, folder: Path) -> Path:
    """Write the real export `name` with data that no check minds; one-number scales are all equal."""
    path = exports.write(exports.load(name), folder)
    for tensor in read_checkpoint(path).tensors.values():
        size = int(np.prod(tensor.shape))
        scale = "scale" in tensor.name
        data = plain(tensor.dtype, size, scale, "zero_point" in tensor.name or "qzeros" in tensor.name)
        plant(path, tensor, data)
    return path


def plant(path: Path, tensor: Tensor, data: bytes, at: int = 0) -> None:
    """Write `data` over the bytes of `tensor` from its byte `at` on."""
    with (path / tensor.file).open("r+b") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        file.seek(begin + tensor.start + at)
        file.write(data)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the real export with an FP8 KV cache, values and all."""
    copy = tmp_path / "example"
    shutil.copytree(EXAMPLE, copy)
    for file in copy.iterdir():
        file.chmod(0o644)
    return copy


@pytest.mark.parametrize("values", ["none", "scales", "all"])
def test_the_real_export_has_no_finding(values: str) -> None:
    assert validate(EXAMPLE, values=values).findings == ()


@pytest.mark.parametrize(
    "name",
    ["llama_nvfp4", "llama_int4_fp8", "llama_int4_g128", "qwen3_moe_mxfp4", "deepseek_v2_int4_fp8"],
)
def test_filled_exports_have_no_finding(name: str, tmp_path: Path) -> None:
    path = filled(name, tmp_path)
    for values in ("scales", "all"):
        assert found(path, values) == []


@pytest.mark.parametrize(
    ("suffix", "planted", "code", "words"),
    [
        ("weight_scale", np.nan, "QF701", "1 of 1 scales that are no finite number (the first is nan)"),
        ("weight_scale", np.inf, "QF701", "the first is inf"),
        ("input_scale", FLOAT32_MIN, "QF702", "scales at -3.38953e+38, the least 32-bit float"),
        ("weight_scale", -0.5, "QF703", "below zero (the first is -0.5)"),
        ("weight_scale", 0.0, "QF704", "1 of 1 scales that are 0"),
        ("input_scale", 0.0, "QF704", "1 of 1 scales that are 0"),
    ],
)
def test_planted_scale(suffix: str, planted: float, code: str, words: str, example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.mlp.down_proj.{suffix}"]
    plant(example, tensor, encoded(tensor, planted))
    (one,) = found(example, "scales")
    assert (one.code, one.tensor, one.count) == (code, tensor.name, 1)
    assert words in one.message
    assert found(example, "none") == []


@pytest.mark.parametrize("planted", [0.0, 1.0])
def test_kv_scale_that_no_calibration_gives(planted: float, example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.self_attn.k_proj.output_scale"]
    plant(example, tensor, encoded(tensor, planted))
    (one,) = found(example, "scales")
    assert (one.code, one.severity, one.tensor) == ("QF708", "warning", tensor.name)
    assert f"is {planted:g}, although the config declares a calibrated KV cache scale" in one.message


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_nan_among_fp8_codes(code: int, example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.mlp.down_proj.weight"]
    plant(example, tensor, bytes([code, code]), at=1234)
    assert found(example, "scales") == []
    (one,) = found(example, "all")
    assert (one.code, one.tensor) == ("QF707", tensor.name)
    assert "2 F8_E4M3 values that are NaN or infinite (the first is value 1234)" in one.message


def test_nan_among_floats(example: Path) -> None:
    tensor = read_checkpoint(example).tensors["lm_head.weight"]
    plant(example, tensor, b"\x80\x7f\x80\xff", at=200)
    (one,) = found(example, "all")
    assert (one.code, one.tensor) == ("QF707", tensor.name)
    assert "2 BF16 values" in one.message
    assert "the first is value 100" in one.message


@pytest.mark.parametrize("code", [0, 0x11])
def test_constant_weight(code: int, example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.mlp.up_proj.weight"]
    plant(example, tensor, bytes([code]) * (tensor.end - tensor.start))
    (one,) = found(example, "all")
    assert (one.code, one.tensor) == ("QF709", tensor.name)


def test_saturated_codes(example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.mlp.up_proj.weight"]
    plant(example, tensor, b"\x7e" * ((tensor.end - tensor.start) // 2))
    (one,) = found(example, "all")
    assert (one.code, one.severity, one.tensor) == ("QF711", "info", tensor.name)
    assert "50% of the codes" in one.message


def test_nan_among_e8m0_scales(tmp_path: Path) -> None:
    path = filled("qwen3_moe_mxfp4", tmp_path)
    tensors = read_checkpoint(path).tensors
    tensor = next(one for name, one in tensors.items() if name.endswith("experts.1.up_proj.weight_scale"))
    plant(path, tensor, b"\xff", at=3)
    (one,) = found(path, "scales")
    assert (one.code, one.tensor) == ("QF701", tensor.name)
    assert "the first is nan" in one.message


@pytest.mark.parametrize(
    ("name", "suffix"), [("llama_nvfp4", "weight_scale_2"), ("llama_int4_fp8", "weight_scale")]
)
def test_global_scales_of_fused_shards(name: str, suffix: str, tmp_path: Path) -> None:
    path = filled(name, tmp_path)
    tensor = read_checkpoint(path).tensors[f"{LAYER}.self_attn.k_proj.{suffix}"]
    plant(path, tensor, plain(tensor.dtype, 2, True, False)[-exports.nbytes(tensor.dtype, [1]) :])
    (one,) = found(path, "scales")
    assert (one.code, one.severity, one.module) == ("QF705", "warning", f"{LAYER}.self_attn")
    assert f"The q_proj, k_proj, v_proj of `{LAYER}.self_attn`" in one.message


def test_zero_point_of_a_symmetric_spec(tmp_path: Path) -> None:
    path = filled("llama_int4_g128", tmp_path)
    tensor = read_checkpoint(path).tensors[f"{LAYER}.self_attn.q_proj.weight_zero_point"]
    plant(path, tensor, b"\x03\x00\x00\x00", at=8)
    (one,) = found(path, "scales")
    assert (one.code, one.tensor) == ("QF706", tensor.name)
    assert "(the first is 3), but its spec is symmetric" in one.message


def test_zero_scale_of_codes_that_are_not_zero(tmp_path: Path) -> None:
    path = filled("llama_nvfp4", tmp_path)
    tensors = read_checkpoint(path).tensors
    scale = tensors[f"{LAYER}.self_attn.q_proj.weight_scale"]
    weight = tensors[f"{LAYER}.self_attn.q_proj.weight"]
    plant(path, scale, b"\x00\x00")
    assert found(path, "scales") == []
    (one,) = found(path, "all")
    assert (one.code, one.tensor) == ("QF704", scale.name)
    assert f"has 2 of {scale.shape[0] * scale.shape[1]:,} scales that are 0" in one.message
    plant(path, weight, bytes(16))
    assert found(path, "all") == []


def test_equal_findings_are_one(example: Path) -> None:
    tensors = read_checkpoint(example).tensors
    scales = [one for name, one in tensors.items() if name.endswith("weight_scale")]
    for tensor in scales:
        plant(example, tensor, encoded(tensor, np.nan))
    (one,) = found(example, "scales")
    assert (one.code, one.count) == ("QF701", len(scales))


def test_a_file_that_shrinks_while_it_is_read(example: Path) -> None:
    tensor = read_checkpoint(example).tensors["lm_head.weight"]
    with opened(example, tensor.file) as data:
        (example / tensor.file).write_bytes(b"\x08" + bytes(15))
        with pytest.raises(CannotOpenError, match="ends before"):
            data.read(tensor)


def test_a_truncated_file_is_one_finding(example: Path) -> None:
    shard = example / "model.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 1000)
    (one,) = found(example, "all")
    assert (one.code, one.file) == ("QF710", shard.name)


def test_one_byte_floats_are_the_libraries() -> None:
    import torch  # noqa: PLC0415

    for dtype, kind in (
        ("F8_E4M3", torch.float8_e4m3fn),
        ("F8_E5M2", torch.float8_e5m2),
        ("F8_E8M0", torch.float8_e8m0fnu),
    ):
        expected = torch.arange(256, dtype=torch.uint8).view(kind).to(torch.float64).numpy()
        ours = numbers(bytes(range(256)), dtype)
        assert ours is not None
        finite = np.isfinite(expected)
        assert np.array_equal(np.isfinite(ours), finite)
        assert np.array_equal(ours[finite], expected[finite])


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F16", "BF16", "F32", "F64"])
def test_unusable_codes_are_those_of_the_dtype(dtype: str) -> None:
    random = np.random.default_rng(3).integers(0, 256, 1 << 16, dtype="u1").tobytes()
    values = numbers(random, dtype)
    assert values is not None
    survey = Survey(dtype)
    survey.add(survey.look(0, memoryview(random)[: 1 << 15]))
    survey.add(survey.look(1, memoryview(random[1 << 15 :])))
    wrong = ~np.isfinite(values)
    assert (survey.unusable, survey.constant) == (int(wrong.sum()), False)
    assert survey.first == (int(wrong.argmax()) if wrong.any() else None)


def test_the_table_follows_its_schema() -> None:
    Draft202012Validator.check_schema(table("values.schema.json"))
    Draft202012Validator(table("values.schema.json")).validate(table("values.json"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--values"], 1),
        (["--values", "scales"], 1),
        (["--values=all"], 1),
        (["--values", "none"], 0),
        ([], 0),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_option(arguments: list[str], code: int, first: bool, example: Path) -> None:
    tensor = read_checkpoint(example).tensors[f"{LAYER}.mlp.down_proj.weight_scale"]
    plant(example, tensor, encoded(tensor, -1.0))
    words = [str(example), *arguments]
    result = CliRunner().invoke(app, words if first else words[1:] + words[:1])
    assert result.exit_code == code
    assert ("QF703" in result.output) == bool(code)


@pytest.mark.parametrize(
    ("dtype", "code"), [("F8_E4M3", b"\xff"), ("F8_E5M2", b"\x7d"), ("BF16", b"\x80\xff")]
)
def test_pieces_are_put_together_in_order(dtype: str, code: bytes, tmp_path: Path) -> None:
    size = table("values.json")["piece_bytes"]
    wide = exports.nbytes(dtype, [1])
    shape = [21 * size // wide // 128 + 1, 128]
    exports.write_shard(tmp_path / "model.safetensors", {"weight": [dtype, shape]})
    tensor = Tensor("weight", dtype, tuple(shape), "model.safetensors", 0, exports.nbytes(dtype, shape))
    places = [20 * size // wide, size // wide - 1, size // wide, 8 * size // wide - 1, 8 * size // wide]
    with (tmp_path / tensor.file).open("r+b") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        for place in places:
            file.seek(begin + place * wide)
            file.write(code)
    survey = Survey(dtype)
    with opened(tmp_path, tensor.file) as data:
        for seen in data.each(tensor, survey.look):
            survey.add(seen)
    assert (survey.unusable, survey.first, survey.constant) == (5, size // wide - 1, False)
