"""Make `llama-fp8-kv/`: a tiny Llama with random weights, quantized to FP8 with an FP8 KV cache by amd-quark.

The same seed gives the same bytes. Needs the packages of the `test` extra.

    python examples/make_llama_fp8_kv.py [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 0
CONFIG = LlamaConfig(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=128,
    tie_word_embeddings=False,
)


def tiny_model(folder: str) -> LlamaForCausalLM:
    """Return the model in bfloat16, its weights drawn from `SEED`, as read from `folder`.

    Quark reads the source checkpoint again when it exports, so the model must have one.
    """
    torch.manual_seed(SEED)
    LlamaForCausalLM(CONFIG).to(torch.bfloat16).save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder, dtype="auto").eval()


def calibration_data() -> DataLoader[torch.Tensor]:
    """Return 8 sequences of 32 random token ids, from which Quark takes the static input and KV scales."""
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(CONFIG.vocab_size, (8, 32), generator=generator)
    return DataLoader(tokens, batch_size=4)


def main(folder: Path) -> None:
    """Quantize the model and write the checkpoint to `folder`, which is replaced."""
    quantizer = ModelQuantizer(LLMTemplate.get("llama").get_config(scheme="fp8", kv_cache_scheme="fp8"))
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as source, torch.no_grad():
        model = quantizer.freeze(quantizer.quantize_model(tiny_model(source), calibration_data()))
        export_safetensors(model, folder, weight_format="real_quantized", pack_method="reorder")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("llama-fp8-kv"))
