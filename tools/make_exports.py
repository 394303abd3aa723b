"""Make real tiny checkpoints with amd-quark 0.13 by the recipes in tests/data/export_recipes.yaml, offline.

    python tools/make_exports.py --list
    python tools/make_exports.py OUT [NAME-GLOB...] [--reference]

Each export is a folder OUT/NAME: a model with random weights, built here, quantized and written by amd-quark
itself, eager or file2file. `--reference` adds OUT/references/NAME.safetensors: logits of the model before its
quantization (float32) and after, computed by amd-quark's fake-quantized modules in the model's dtype and in
float32.

amd-quark has no CPU kernel for two steps: the fake quantization of MXFP4 inputs in 16 bits, for which its own
float32 one is taken, and the dequantization of FP8 blocks that file2file reads, done here in torch. What it
writes is not touched.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import fnmatch
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).resolve().parent.parent / "tests" / "data" / "export_recipes.yaml"

VOCABULARY = 512
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
BOS, EOS, PAD = range(len(SPECIAL))
TOKENS = 32
CALIBRATION_SAMPLES = 8
OUTLIER_EVERY, OUTLIER = 17, 3.0
NORM_SPREAD, BIAS_SPREAD = 0.1, 0.05
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "tie_word_embeddings": False,
    "initializer_range": 0.08,
}
ROLES = {"weight": "weight", "input": "input_tensors", "output": "output_tensors", "bias": "bias"}
UNQUANTIZED_SOURCES = ("embed", "lm_head", "norm", "gate.weight")


@cache
def recipes() -> dict[str, Any]:
    """The recipes as written."""
    loaded: dict[str, Any] = yaml.safe_load(RECIPES.read_text(encoding="utf-8"))
    return loaded


def export_recipes() -> dict[str, dict[str, Any]]:
    """Every export's recipe by name, families written out."""
    exports: dict[str, dict[str, Any]] = dict(recipes()["exports"])
    families = {
        f"{model}_{name}": {"model": model, **recipe}
        for family in recipes()["families"]
        for model in family["models"]
        for name, recipe in family["exports"].items()
    }
    return exports | families


def model_recipe(name: str) -> dict[str, Any]:
    """The recipe of a model, with what it takes over from another."""
    recipe: dict[str, Any] = dict(recipes()["models"][name])
    if "like" not in recipe:
        return recipe
    base = model_recipe(recipe.pop("like"))
    return base | recipe | {"config": base["config"] | recipe.get("config", {})}


def make_tokenizer(folder: Path) -> None:
    """Write a byte-level tokenizer of VOCABULARY tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL.values(), *letters]
    merges = [(a, b) for a in "etaoinshr" for b in letters][: VOCABULARY - len(tokens)]
    vocabulary = {token: index for index, token in enumerate([*tokens, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)


def make_model(name: str, folder: Path) -> None:
    """Write a model with random weights: norms and biases that matter, and rows of outliers, so that scales
    per tensor, channel and group differ.
    """
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    recipe = model_recipe(name)
    config = getattr(transformers, recipe["class"])(
        **{
            key: value
            for key, value in (COMMON | recipe["config"]).items()
            if value is not None or key not in COMMON
        }
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, recipe["dtype"])).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if parameter.dim() == 1 and parameter_name.endswith("weight"):
                parameter.copy_(1 + NORM_SPREAD * noise)
            elif parameter_name.endswith("bias"):
                parameter.copy_(BIAS_SPREAD * noise)
            elif parameter.dim() > 1 and not any(part in parameter_name for part in UNQUANTIZED_SOURCES):
                parameter[..., ::OUTLIER_EVERY, :] *= OUTLIER
    model.save_pretrained(folder)
    make_tokenizer(folder)
    if "fp8_blocks" in recipe:
        store_fp8_blocks(folder, recipe["fp8_blocks"], getattr(torch, recipe["scale_dtype"]))


def store_fp8_blocks(folder: Path, block: int, scale_dtype: Any) -> None:
    """Turn a model's linear weights into FP8 with one scale (`weight_scale_inv`) per block x block, in place.

    The layout of DeepSeek's checkpoints, which file2file reads. Every size must be a multiple of block.
    """
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if tensor.dim() == 1 or any(part in name for part in UNQUANTIZED_SOURCES):
            tensors[name] = tensor
            continue
        blocks = tensor.float().unflatten(0, (-1, block)).unflatten(2, (-1, block))
        largest = torch.finfo(torch.float8_e4m3fn).max
        scale = (blocks.abs().amax((1, 3)) / largest).to(scale_dtype)
        scaled = (blocks / scale.float()[:, None, :, None]).clamp(-largest, largest)
        tensors[name] = scaled.flatten(2).flatten(0, 1).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scale
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [block, block],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


class OnCpu(str):
    """The CPU under the name of a CUDA device, which file2file asks for before it reads FP8 blocks."""

    def __str__(self) -> str:
        """The name of a CUDA device."""
        return "cuda:0"


def run_on_cpu() -> None:
    """Give amd-quark the two steps it lacks on a CPU."""
    import quark.torch.kernel as quark_kernel  # noqa: PLC0415
    import quark.torch.quantization.file2file_quantization as file2file  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from safetensors import safe_open  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    def fake_quantize(_: Any, values: torch.Tensor, quantizer: Any, _mode: str) -> torch.Tensor:
        return quantizer.fake_quantize(values.float()).to(values.dtype)

    def dequantize_blocks(
        weight: torch.Tensor, scale: torch.Tensor, block_size: int = 128, **_: Any
    ) -> torch.Tensor:
        rows, columns = weight.shape
        spread = scale.float().repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
        return (weight.float() * spread[:rows, :columns]).to(torch.bfloat16)

    quark_kernel.MXFP4DynamicFakeQuantizeFunction.forward = staticmethod(fake_quantize)
    file2file._weight_dequant_fp8 = dequantize_blocks
    file2file.safe_open = lambda path, framework, **_: safe_open(path, framework=framework)
    file2file.load_file = lambda path, **_: load_file(path)


def build_spec(declared: Any) -> Any:
    """amd-quark's spec object for `{class: arguments}`; any other value is itself."""
    from quark.torch.quantization.config import config  # noqa: PLC0415

    if not isinstance(declared, dict):
        return declared
    ((name, arguments),) = declared.items()
    return getattr(config, name)(**{key: build_spec(value) for key, value in arguments.items()})


def layer_config(roles: dict[str, Any]) -> Any:
    """amd-quark's config of a layer from the names of its specs by role."""
    from quark.torch.quantization.config.config import QLayerConfig  # noqa: PLC0415

    specs = recipes()["specs"]
    return QLayerConfig(
        **{
            field: build_spec(specs[roles[role]]).to_quantization_spec()
            for role, field in ROLES.items()
            if role in roles
        }
    )


def quantization_config(recipe: dict[str, Any], model_type: str) -> Any:
    """amd-quark's config for a recipe."""
    from quark.torch import LLMTemplate  # noqa: PLC0415
    from quark.torch.quantization.config.config import QConfig  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    template = LLMTemplate.get(model_type)
    exclude = recipe.get("exclude", list(template.exclude_layers_name))
    if "scheme" not in recipe:
        layers = {name: layer_config(roles) for name, roles in recipe.get("layers", {}).items()}
        return QConfig(global_quant_config=layer_config(recipe), layer_quant_config=layers, exclude=exclude)
    algorithm = recipe.get("algorithm")
    algorithms = {}
    if "rotation" in recipe:
        algorithms[algorithm] = dataclasses.replace(template.algo_config[algorithm], **recipe["rotation"])
    config = template.get_config(
        scheme=recipe["scheme"],
        algorithm=algorithm,
        kv_cache_scheme=recipe.get("kv_cache"),
        attention_scheme=recipe.get("attention"),
        layer_config=recipe.get("layers"),
        exclude_layers=exclude,
        algo_configs=algorithms or None,
    )
    for name, roles in recipe.get("types", {}).items():
        config.layer_type_quant_config[getattr(nn, name)] = layer_config(roles)
    return config


def prompt() -> list[int]:
    """The token ids whose logits are the reference."""
    return [5 + index * 37 % (VOCABULARY - 12) for index in range(TOKENS)]


def logits(model: Any) -> Any:
    """float32 [TOKENS, VOCABULARY] of a model for the prompt."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return model(input_ids=torch.tensor([prompt()])).logits[0].float()


def calibration() -> Any:
    """Batches of random token ids, the same for every export."""
    import torch  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    generator = torch.Generator().manual_seed(1)
    samples = torch.randint(PAD + 1, VOCABULARY, (CALIBRATION_SAMPLES, TOKENS), generator=generator)
    return DataLoader(samples, batch_size=CALIBRATION_SAMPLES // 2)


def export_eager(recipe: dict[str, Any], source: Path, out: Path, reference: Path | None) -> None:
    """Quantize a whole model and write it with export_safetensors."""
    import torch  # noqa: PLC0415
    from quark.torch import ModelQuantizer, export_safetensors  # noqa: PLC0415
    from quark.torch.utils.llm.model_preparation import preprocess_for_quantization  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto", attn_implementation="eager").eval()
    saved = {"prompt": torch.tensor(prompt()), "unquantized_float32": logits(copy.deepcopy(model).float())}
    preprocess_for_quantization(model)
    quantizer = ModelQuantizer(quantization_config(recipe, model.config.model_type))
    model = quantizer.freeze(quantizer.quantize_model(model, calibration()))
    if reference is not None:
        saved |= {"quantized": logits(model), "quantized_float32": logits(copy.deepcopy(model).float())}
        reference.parent.mkdir(parents=True, exist_ok=True)
        save_file(saved, reference)
    with torch.no_grad():
        options = {"weight_format": "real_quantized", "pack_method": "reorder"} | recipe.get("writer", {})
        export_safetensors(model, str(out), **options)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)


def export_file2file(recipe: dict[str, Any], source: Path, out: Path, reference: Path | None) -> None:
    """Quantize file by file, layers excluded from it kept as they are stored. No fake-quantized model, so no
    reference.
    """
    del reference
    from quark.torch import ModelQuantizer  # noqa: PLC0415

    model_type = json.loads((source / "config.json").read_text(encoding="utf-8"))["model_type"]
    kept = "fp8_blocks" in model_recipe(recipe["model"])
    ModelQuantizer(quantization_config(recipe, model_type)).direct_quantize_checkpoint(
        str(source), str(out), kept, device=OnCpu("cpu")
    )


WRITERS: dict[str, Callable[[dict[str, Any], Path, Path, Path | None], None]] = {
    "file2file": export_file2file
}


def make(name: str, out: Path, models: Path, *, reference: bool = False) -> Path:
    """Make one export and return its folder; models are built in `models` once.

    Raises whatever amd-quark raises; a half-written folder does not stay.
    """
    recipe = export_recipes()[name]
    source = models / recipe["model"]
    if not source.exists():
        make_model(recipe["model"], source)
    target = out / name
    shutil.rmtree(target, ignore_errors=True)
    writer = recipe.get("writer")
    export = WRITERS[writer] if isinstance(writer, str) else export_eager
    try:
        export(recipe, source, target, out / "references" / f"{name}.safetensors" if reference else None)
        if not any(target.glob("*.safetensors")):
            raise RuntimeError("amd-quark wrote no safetensors file")
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def main() -> int:
    """Run the command line; 1 if an export failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("globs", nargs="*", default=["*"])
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--reference", action="store_true", help="also save amd-quark's own logits")
    options = parser.parse_args()
    names = [
        name for name in export_recipes() if any(fnmatch.fnmatchcase(name, glob) for glob in options.globs)
    ]
    if options.list or options.out is None:
        print("\n".join(names))
        return 0
    run_on_cpu()
    failed = 0
    with tempfile.TemporaryDirectory() as models:
        for name in names:
            try:
                make(name, options.out, Path(models), reference=options.reference)
                print("made", name, flush=True)
            except Exception as error:
                failed += 1
                traceback.print_exc()
                print("failed", name, type(error).__name__, str(error).strip()[:300], flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
