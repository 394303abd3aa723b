"""Faults that make the examples of findings: rows of the tests' tables, and a few planted here.

Each makes a checkpoint, in a folder, from a real export. A row of `PLANTED` comes before the rows of
`tests/mutations.py` and `tests/reports.py`, in which the first one with the code is taken.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quark_format.checkpoint import read_checkpoint
from quark_format.tables import table

ROOT = Path(__file__).parents[2]
TESTS = str(ROOT / "tests")
if TESTS not in sys.path:
    sys.path.append(TESTS)

import file_mutations  # noqa: E402, F401 - enters its kinds
import spec_mutations  # noqa: E402, F401 - enters its kinds
from mutants import SHARDS, Export  # noqa: E402
from mutations import KINDS  # noqa: E402
from reports import FAULTS  # noqa: E402

FOLDER = "checkpoint"
EXAMPLE = ROOT / "examples" / "llama-fp8-kv"
BASES = (
    *("llama_fp8_kv", "llama_int4_g128", "mixtral_mxfp4", "llama_mxfp4", "llama_fp8_kv_attn"),
    *("llama_fp8_custommode", "rot_online_r1", "llama_fp8_rotation", "f2f_llama_int4_g128"),
)
"""Exports that a kind of fault is tried at, in this order."""


@dataclass(frozen=True)
class Fault:
    """A fault of the real export `base`.

    `write` puts the faulty checkpoint into a folder. `healthy` and `faulty` are the export before and after,
    None where the difference lies in bytes. `arguments` go to `quark-validate` too.
    """

    does: str
    base: str
    write: Callable[[Path], object]
    healthy: Export | None = None
    faulty: Export | None = None
    arguments: tuple[str, ...] = ()


PLANTED: dict[str, Callable[[], Fault]] = {}


def planted(*codes: str) -> Callable[[Callable[[], Fault]], Callable[[], Fault]]:
    """Enter a function as the maker of the fault for these codes."""

    def enter(make: Callable[[], Fault]) -> Callable[[], Fault]:
        PLANTED.update(dict.fromkeys(codes, make))
        return make

    return enter


def faults(code: str) -> Iterator[Fault]:
    """Faults that should give the finding `code`, the best example first."""
    if code in PLANTED:
        yield PLANTED[code]()
    for fault in FAULTS:
        if fault.code == code:
            ranks = () if fault.ranks == 1 else ("--tensor-parallel", str(fault.ranks))
            yield _changed(fault.does, fault.export, fault.change, *ranks)
    kinds = sorted(
        (kind for kind in KINDS.values() if code in kind.codes), key=lambda kind: kind.codes.index(code)
    )
    for kind in kinds:
        for base in BASES:
            healthy = Export.read(base)
            for mutant in kind.make(healthy):
                yield Fault(
                    kind.does,
                    base,
                    _writer(mutant.export, mutant.spoil),
                    healthy,
                    mutant.export if mutant.spoil is None else None,
                )


def _writer(export: Export, spoil: Callable[[Path], object] | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        export.write(folder)
        if spoil is not None:
            spoil(folder)

    return write


def _changed(does: str, base: str, change: Callable[[Export], Export], *arguments: str) -> Fault:
    healthy = Export.read(base)
    faulty = change(healthy)
    return Fault(does, base, _writer(faulty), healthy, faulty, arguments)


def _as_it_is(does: str, base: str, *arguments: str) -> Fault:
    return _changed(does, base, lambda export: export, *arguments)


def _spoiled(does: str, spoil: Callable[[Path], object], *, shards: bool = False) -> Fault:
    export = Export.read("llama_fp8_kv")
    return Fault(does, export.name, _writer(export.sharded() if shards else export, spoil))


def _values(does: str, suffix: str, raw: bytes, of: str = "scales", at: int = 0) -> Fault:
    """The example's folder with other bytes in the tensor of layer 0 that ends in `suffix`."""

    def write(folder: Path) -> None:
        shutil.copytree(EXAMPLE, folder, copy_function=shutil.copyfile)
        tensor = read_checkpoint(folder).tensors[f"model.layers.0.{suffix}"]
        overwrite(folder / tensor.file, tensor.start + at, raw or bytes([0x11]) * (tensor.end - tensor.start))

    return Fault(does, "examples/llama-fp8-kv", write, arguments=("--values", of))


def overwrite(shard: Path, start: int, raw: bytes) -> None:
    """Write `raw` at the byte `start` of a shard's tensor data."""
    with shard.open("r+b") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        file.seek(begin + start)
        file.write(raw)


# --- files ------------------------------------------------------------------------------------------------


@planted("QF119")
def _pickle() -> Fault:
    return _spoiled(
        "Pickled weights lie beside the safetensors file.",
        lambda folder: (folder / "pytorch_model.bin").write_bytes(b"\x80\x04"),
    )


@planted("QF122")
def _subfolder() -> Fault:
    def spoil(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / SHARDS[1]).rename(folder / "sub" / SHARDS[1])
        index = folder / table("safetensors.json")["files"]["index"]
        index.write_text(index.read_text(encoding="utf-8").replace(SHARDS[1], f"sub/{SHARDS[1]}"), "utf-8")

    return _spoiled("The index names a shard in a subfolder.", spoil, shards=True)


@planted("QF123")
def _folder_for_shard() -> Fault:
    def spoil(folder: Path) -> None:
        (folder / SHARDS[1]).unlink()
        (folder / SHARDS[1]).mkdir()

    return _spoiled("A shard is a folder.", spoil, shards=True)


@planted("QF203")
def _gptq() -> Fault:
    return _changed(
        "quant_method is gptq.",
        "llama_int4_g128",
        lambda export: export.edited(lambda block: block.update(quant_method="gptq")),
    )


@planted("QF208")
def _second_config() -> Fault:
    other = next(iter(table("catalog.json")["side_configs"]))["file"]
    return _spoiled(f"`{other}` lies in the folder too.", lambda folder: (folder / other).write_text("{}"))


# --- exports as they are ----------------------------------------------------------------------------------


@planted("QF207")
def _no_version() -> Fault:
    return _as_it_is("An export of Quark 0.6, which wrote no version.", "q0.6.0_llama_fp8")


@planted("QF231")
def _fake() -> Fault:
    return _as_it_is("An export with fake quantization.", "fp8_fake")


@planted("QF309")
def _file2file() -> Fault:
    return _as_it_is("An export by the file-to-file writer.", "f2f_llama_int4_g128")


@planted("QF317")
def _unwritten() -> Fault:
    return _as_it_is("An export by the file-to-file writer, with a static input spec.", "f2f_fp8")


@planted("QF503")
def _fused_kv() -> Fault:
    return _as_it_is("An export of DeepSeek-V2 with an FP8 KV cache.", "dsv2_kv")


# --- tensors and configs ----------------------------------------------------------------------------------


@planted("QF224")
def _character_class() -> Fault:
    def change(block: dict[str, Any]) -> None:
        block["exclude"] = [*block["exclude"], "*.layers.1.mlp.*"]

    return _changed(
        "exclude has a pattern that Quark reads with fnmatch, and vLLM as a name.",
        "llama_fp8_pt_static",
        lambda export: export.edited(change),
    )


@planted("QF312")
def _foreign() -> Fault:
    return _changed(
        "A weight has GPTQ's table of column groups.",
        "llama_int4_g128",
        lambda export: export.changed("model.layers.0.mlp.up_proj.g_idx", "I32", (256,)),
    )


@planted("QF315")
def _undeclared_rotation() -> Fault:
    return _changed(
        "The matrices of an online rotation are stored, but algo_config is null.",
        "rot_online_r1",
        lambda export: export.edited(lambda block: block.update(algo_config=None)),
    )


@planted("QF320")
def _one_layer_otherwise() -> Fault:
    name = "model.layers.{}.input_layernorm.weight"

    def change(export: Export) -> Export:
        layers = [name.format(number) for number in range(4)]
        more = {f"{one}": export.tensors[layers[0]] for one in layers}
        wider = export.having({**export.tensors, **more})
        return wider.changed(layers[3], "F32").configured(lambda config: config.update(num_hidden_layers=4))

    return _changed("The norm of one layer is stored as F32.", "llama_fp8_pt_static", change)


@planted("QF505")
def _half_of_kv() -> Fault:
    def change(export: Export) -> Export:
        scales = {
            f"model.layers.{layer}.self_attn.{suffix}": ("F32", ())
            for layer in range(2)
            for suffix in ("k_scale",)
        }
        return export.having({**export.tensors, **scales}).edited(
            lambda block: block.update(kv_cache_scheme="static")
        )

    return _changed("The keys of the KV cache have a scale, the values none.", "llama_fp8_custommode", change)


@planted("QF507")
def _unused_group() -> Fault:
    return _changed(
        "kv_cache_group names modules, but no output is quantized.",
        "llama_fp8_pt_static",
        lambda export: export.edited(
            lambda block: block["export"].update(kv_cache_group=["*k_proj", "*v_proj"])
        ),
    )


# --- targets ----------------------------------------------------------------------------------------------

VLLM = ("--target", "vllm@0.32")


@planted("QF602")
def _no_scheme() -> Fault:
    return _as_it_is("An export of 8-bit weights with unquantized inputs.", "llama_int8_wo_pt", *VLLM)


@planted("QF603")
def _no_kernel() -> Fault:
    return _as_it_is("An FP8 export, for a CPU.", "llama_fp8_pt_static", *VLLM, "--platform", "cpu")


@planted("QF604")
def _other_writer() -> Fault:
    return _as_it_is("An export by the file-to-file writer.", "f2f_llama_int4_g128", *VLLM)


@planted("QF605")
def _symmetric_unsigned() -> Fault:
    return _as_it_is("An export of symmetric unsigned codes.", "llama_uint4_g128_sym", *VLLM)


@planted("QF606")
def _no_export_settings() -> Fault:
    return _changed(
        "The config has no export settings.",
        "llama_fp8_pt_static",
        lambda export: export.edited(lambda block: block.pop("export")),
        *VLLM,
    )


@planted("QF607")
def _unknown_architecture() -> Fault:
    return _changed(
        "The model is of a class that the target does not have.",
        "llama_fp8_pt_static",
        lambda export: export.configured(lambda config: config.update(architectures=["NewForCausalLM"])),
        *VLLM,
    )


# --- values -----------------------------------------------------------------------------------------------

NAN, LEAST, NEGATIVE, ZERO, ONE = b"\xc0\x7f", b"\x7f\xff", b"\x00\xbf", b"\x00\x00", b"\x80\x3f"
"""Numbers as BF16."""


@planted("QF701")
def _nan_scale() -> Fault:
    return _values("A scale is NaN.", "mlp.down_proj.weight_scale", NAN)


@planted("QF702")
def _unwritten_scale() -> Fault:
    return _values("A scale still has the value that vLLM fills it with.", "mlp.down_proj.input_scale", LEAST)


@planted("QF703")
def _negative_scale() -> Fault:
    return _values("A scale is -0.5.", "mlp.down_proj.weight_scale", NEGATIVE)


@planted("QF704")
def _zero_scale() -> Fault:
    return _values("A scale is zero.", "mlp.down_proj.weight_scale", ZERO)


@planted("QF707")
def _nan_code() -> Fault:
    return _values("Two codes are NaN.", "mlp.down_proj.weight", b"\x7f\x7f", "all", 1234)


@planted("QF708")
def _kv_scale_one() -> Fault:
    return _values("A scale of the KV cache is exactly 1.", "self_attn.k_proj.output_scale", ONE)


@planted("QF709")
def _constant() -> Fault:
    return _values("All codes of a weight are equal.", "mlp.up_proj.weight", b"", "all")


@planted("QF711")
def _saturated() -> Fault:
    return _values(
        "A sixteenth of the codes are the greatest there is.", "mlp.up_proj.weight", b"\x7e" * 2048, "all"
    )


def _filled(base: str, suffix: str, raw: bytes, does: str) -> Fault:
    """An export with every scale at 1.0, but for the tensor of layer 1 that ends in `suffix`."""
    export = Export.read(base)

    def write(folder: Path) -> None:
        export.write(folder)
        tensors = read_checkpoint(folder).tensors
        ones = {"BF16": ONE, "F32": b"\x00\x00\x80\x3f", "F8_E4M3": b"\x38"}
        for tensor in tensors.values():
            size = tensor.end - tensor.start
            one = ones.get(tensor.dtype, b"\x00")
            if tensor.name.endswith(("weight_scale", "weight_scale_2", "input_scale", "input_scale_2")):
                overwrite(folder / tensor.file, tensor.start, one * (size // len(one)))
        place = tensors[f"model.layers.1.{suffix}"]
        overwrite(folder / place.file, place.start, raw)

    return Fault(does, base, write, arguments=("--values",))


@planted("QF705")
def _global_scales() -> Fault:
    return _filled(
        "llama_nvfp4",
        "self_attn.k_proj.weight_scale_2",
        b"\x00\x00\x00\x40",
        "k_proj has another global scale than q_proj and v_proj.",
    )


@planted("QF706")
def _zero_point() -> Fault:
    return _filled(
        "llama_int4_g128",
        "self_attn.q_proj.weight_zero_point",
        b"\x03\x00\x00\x00",
        "A zero point of a symmetric spec is 3.",
    )


@planted("QF710")
def _truncated() -> Fault:
    def spoil(folder: Path) -> None:
        shard = folder / "model.safetensors"
        with shard.open("r+b") as file:
            file.truncate(shard.stat().st_size - 1000)

    return replace(_spoiled("The file is cut off.", spoil), arguments=("--values", "all"))


def rendered(export: Export) -> list[str]:
    """An export as lines: the config, then a line for each tensor."""
    config = json.dumps(export.config, indent=2).splitlines()
    return [*config, *(f"{name}  {dtype} {list(shape)}" for name, (dtype, shape) in export.tensors.items())]
