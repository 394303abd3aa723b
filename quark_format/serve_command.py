"""`quark-format serve-check`: a checkpoint in vLLM through the plugin, before it is deployed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from quark_format.vllm_plugin.served import Served

_PROMPT = 16
"""Tokens of the prompt, small ids that every vocabulary has."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
"""vLLM in this process, which may ask its workers for their layers; set unless the user has set them."""


def serve_check(
    checkpoint: Annotated[Path, typer.Argument(help="A folder.", exists=True, file_okay=False)],
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to generate.")] = 8,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Over how many ranks.")] = 1,
    kv_cache_dtype: Annotated[str, typer.Option(help="As in vLLM.")] = "auto",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document.")] = False,
) -> None:
    """Load a checkpoint in vLLM through the plugin, show what serves each layer, and generate a few tokens.

    Exit code 0: it was served; 1: vLLM or the plugin refused it; 2: vLLM is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM, SamplingParams  # noqa: PLC0415 - an optional dependency, slow to import

        from quark_format.vllm_plugin.served import served  # noqa: PLC0415
    except ImportError as error:
        typer.echo(f"vLLM is needed: pip install quark-format[vllm] ({error})", err=True)
        raise typer.Exit(2) from error
    options: dict[str, Any] = {
        "model": str(checkpoint),
        "tensor_parallel_size": tensor_parallel,
        "kv_cache_dtype": kv_cache_dtype,
        "max_model_len": _PROMPT + tokens,
        "max_num_seqs": 1,
        "enforce_eager": True,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
    }
    try:
        llm = LLM(**options)
        layers = llm.apply_model(served)[0]
        prompt = {"prompt_token_ids": list(range(3, 3 + _PROMPT))}
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        generated = list(llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0].token_ids)
    except Exception as error:
        typer.echo(f"{checkpoint}: {_cause(error)}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps({"layers": [asdict(one) for one in layers], "tokens": generated}, indent=2))
    else:
        _show(layers, generated)


def _cause(error: BaseException) -> str:
    """The first error of a chain: what vLLM's later ones are about."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"{type(error).__name__}: {error}"


def _show(layers: list[Served], generated: list[int]) -> None:
    grid = Table(show_edge=False, pad_edge=False)
    for heading in ("module", "count", "row", "scheme", "kernel", "whose"):
        grid.add_column(heading, justify="right" if heading == "count" else "left", overflow="fold")
    for one in layers:
        grid.add_row(one.name, f"{one.layers:,}", one.row, one.scheme, one.kernel, one.package)
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(grid, markup=False)
    console.print(f"generated {generated}", markup=False, highlight=False)
