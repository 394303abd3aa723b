"""`quark-format serve-check`: a checkpoint in vLLM through the plugin, before it is deployed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from quark_format.vllm_plugin.served import Served


def serve_check(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="A checkpoint's folder.", exists=True, file_okay=False),
    ],
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="How many tokens to generate.")] = 8,
    tensor_parallel: Annotated[int, typer.Option(min=1, metavar="N", help="Over how many ranks.")] = 1,
    kv_cache_dtype: Annotated[str, typer.Option(metavar="DTYPE", help="As in vLLM.")] = "auto",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document.")] = False,
) -> None:
    """Load a checkpoint in vLLM through the plugin, show what serves each layer, and generate a few tokens.

    Exit code 0: it was served; 1: vLLM or the plugin refused it; 2: vLLM is not installed.
    """
    try:
        from quark_format.vllm_plugin.serve import ServeError, serve  # noqa: PLC0415 - vLLM is slow to import
    except ImportError as error:
        typer.echo(f"vLLM is needed: pip install quark-format[vllm] ({error})", err=True)
        raise typer.Exit(2) from error
    try:
        layers, generated = serve(checkpoint, tokens, tensor_parallel, kv_cache_dtype)
    except ServeError as error:
        typer.echo(f"{checkpoint}: {error}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps({"layers": [asdict(one) for one in layers], "tokens": generated}, indent=2))
    else:
        _show(layers, generated)


def _show(layers: list[Served], generated: list[int]) -> None:
    grid = Table(show_edge=False, pad_edge=False)
    for heading in ("module", "count", "row", "scheme", "kernel", "whose"):
        grid.add_column(heading, justify="right" if heading == "count" else "left", overflow="fold")
    for one in layers:
        grid.add_row(one.name, f"{one.layers:,}", one.row, one.scheme, one.kernel, one.package)
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(grid, markup=False)
    console.print(f"generated {generated}", markup=False, highlight=False)
