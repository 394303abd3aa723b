"""Load time and speed of checkpoints in vLLM, with the plugin and without, in turn. Needs vLLM.

    python benchmarks/serve.py CHECKPOINT... [--rounds N] [--tokens N]

Each figure is of a process of its own; medians of the rounds. Where vLLM alone cannot load a checkpoint, that
is said. The unquantized model is the checkpoint's own architecture in its own dtype, with random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SWITCH = "QUARK_FORMAT_VLLM"
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}


def unquantized(checkpoint: str, folder: str) -> str:
    """A folder with the config of a checkpoint's model alone."""
    config = json.loads(Path(checkpoint, "config.json").read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def measure(checkpoint: str, tokens: int, load_format: str) -> None:
    """Load and generate in this process; print seconds of both as JSON."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415

    start = time.perf_counter()
    llm = LLM(
        model=checkpoint,
        load_format=load_format,
        enforce_eager=True,
        max_model_len=64 + tokens,
        max_num_seqs=4,
        disable_log_stats=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=not Path(checkpoint, "tokenizer.json").exists(),
    )
    load = time.perf_counter() - start
    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": list(range(3, 35))}] * 4
    llm.generate(prompts, sampling, use_tqdm=False)
    start = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    print("MEASURED", json.dumps([load, time.perf_counter() - start]))


def run(checkpoint: str, tokens: int, plugin: str, load_format: str = "auto") -> list[float] | None:
    """Seconds to load and to generate, or None where it does not load."""
    command = [sys.executable, __file__, "--measure", checkpoint, "--tokens", str(tokens)]
    command += ["--load-format", load_format]
    environment = {**os.environ, **ENVIRONMENT, SWITCH: plugin}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("MEASURED")]
    return json.loads(lines[-1].removeprefix("MEASURED")) if lines else None


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoints", nargs="*")
    parser.add_argument("--measure")
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.tokens, options.load_format)
        return
    print(
        "| checkpoint | load, plugin | load, vLLM "
        "| tokens/s, plugin | tokens/s, vLLM | tokens/s, unquantized |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for checkpoint in options.checkpoints:
        with tempfile.TemporaryDirectory() as folder:
            plain = unquantized(checkpoint, folder)
            runs = ((checkpoint, "1", "auto"), (checkpoint, "0", "auto"), (plain, "0", "dummy"))
            figures: list[list[list[float]]] = [[], [], []]
            for _ in range(options.rounds):
                for found, (path, plugin, load_format) in zip(figures, runs, strict=True):
                    measured = run(path, options.tokens, plugin, load_format)
                    if measured is not None:
                        found.append(measured)
        medians = [
            [statistics.median(column) for column in zip(*found, strict=True)] or None for found in figures
        ]
        loads = [f"{one[0]:.1f} s" if one else "does not load" for one in medians[:2]]
        speeds = [f"{4 * options.tokens / one[1]:.0f}" if one else "" for one in medians]
        print(f"| {Path(checkpoint).name} |", " | ".join([*loads, *speeds]), "|", flush=True)


if __name__ == "__main__":
    main()
