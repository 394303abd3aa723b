"""`quark-format resolve`: what a target builds from a checkpoint, module class by module class."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from quark_format.checkpoint import read_checkpoint
from quark_format.plan import NoQuarkConfigError, Plan, Planned, plan
from quark_format.plugins import blamed
from quark_format.resolver import Refusal
from quark_format.targets import UnknownTargetError, target

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Format(StrEnum):
    """How the answer is written."""

    text = "text"
    json = "json"


def resolve(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="A checkpoint's folder, or a config.json.", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Option("--target", metavar="NAME[@VERSION]", help="The consumer, at its newest or a version."),
    ] = "vllm",
    platform: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="List the kernels of this platform alone, such as cpu or rocm."),
    ] = None,
    style: Annotated[Format, typer.Option("--format", help="How to write the answer.")] = Format.text,
) -> None:
    """Show for every class of modules its spec, layout, scheme and kernels.

    Exit code 0: the target serves all of them; 1: not all; 2: wrong usage, or no checkpoint of Quark.
    """
    try:
        declared = target(to)
        chosen = None if platform is None else platform.partition(":")[0]
        if chosen is not None and chosen not in declared.header.platforms:
            raise typer.BadParameter(
                f"{declared.name} has {', '.join(declared.header.platforms)}", param_hint="--platform"
            )
        read = read_checkpoint(checkpoint)
        if read.config is None:
            raise NoQuarkConfigError("there is no config that can be read")
        with blamed(declared.entry):
            made = plan(read, declared)
    except (UnknownTargetError, NoQuarkConfigError) as error:
        typer.echo(f"{checkpoint}: {error}", err=True)
        raise typer.Exit(2) from error
    _WRITERS[style](made, chosen)
    raise typer.Exit(1 if made.problem or made.refused else 0)


def size(count: int) -> str:
    """A number of bytes for a person."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - bytes in a KiB
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _kernels(one: Planned, platform: str | None) -> str:
    if isinstance(one.answer, Refusal):
        return ""
    kernels = one.answer.choice.kernels
    if platform is not None:
        return "\n".join(kernels.get(platform, ())) or ("none" if kernels else "")
    return ", ".join(f"{name} {len(listed)}" for name, listed in kernels.items())


def _text(made: Plan, platform: str | None) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    name = made.architecture or "no architecture"
    known = "" if made.known else ", which it does not list"
    console.print(f"{made.target.name}, {name}{known}, format {made.version}", markup=False, highlight=False)
    grid = Table(show_edge=False, pad_edge=False)
    for heading in ("module", "kind", "count", "size", "spec", "layout", "scheme"):
        grid.add_column(heading, justify="right" if heading in {"count", "size"} else "left", overflow="fold")
    grid.add_column("kernels" if platform is None else f"kernels on {platform}", overflow="fold")
    for one in made.planned:
        scheme = "refused" if isinstance(one.answer, Refusal) else one.answer.choice.row or "unquantized"
        cells = (
            one.name,
            one.kind,
            f"{one.modules:,}",
            size(one.bytes),
            one.spec,
            one.layout or "unknown",
            scheme,
        )
        grid.add_row(*cells, _kernels(one, platform))
    if made.planned:
        console.print(grid, markup=False)
    if made.unlooked:
        console.print(f"{made.unlooked:,} other modules, {size(made.unlooked_bytes)}", highlight=False)
    for reason, names in _reasons(made).items():
        console.print(f"{', '.join(names)}: {reason}" if names else reason, markup=False, highlight=False)
    for note in dict.fromkeys(_notes(made)):
        console.print(note, markup=False, highlight=False)


def _reasons(made: Plan) -> dict[str, list[str]]:
    """Why modules are refused, with an example of each class, or why the config as a whole is."""
    if made.problem is not None:
        return {made.problem: []}
    found: dict[str, list[str]] = {}
    for one in made.refused:
        if isinstance(one.answer, Refusal):
            found.setdefault(one.answer.reason, []).append(one.example)
    return found


def _notes(made: Plan) -> list[str]:
    return [
        f"{one.example}: {note}"
        for one in made.planned
        if not isinstance(one.answer, Refusal)
        for note in one.answer.choice.notes
    ]


def _entry(one: Planned, platform: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "module": one.name,
        "example": one.example,
        "kind": one.kind,
        "modules": one.modules,
        "parts": one.parts,
        "bytes": one.bytes,
        "spec": one.spec,
        "layout": one.layout,
        "key": one.answer.key,
    }
    if isinstance(one.answer, Refusal):
        refusal = one.answer
        differences = [
            {"field": at.field, "found": at.found, "wanted": at.wanted} for at in refusal.differences
        ]
        refused = {"cause": refusal.cause, "reason": refusal.reason, "nearest": refusal.nearest}
        return entry | {"scheme": None, "refused": {**refused, "differences": differences}}
    choice = one.answer.choice
    kernels = {name: list(listed) for name, listed in choice.kernels.items() if platform in {None, name}}
    return entry | {
        "row": choice.row,
        "scheme": choice.scheme,
        "keys": {name: key for name, key in choice.keys.items() if key is not None},
        "arguments": choice.arguments,
        "kernel_family": choice.family,
        "kernels": kernels,
        "requires": [
            {"dimension": at.dimension, "multiple_of": at.multiple_of, "when": at.when}
            for at in choice.requires
        ],
        "capability": choice.capability,
        "notes": list(choice.notes),
    }


def _json(made: Plan, platform: str | None) -> None:
    answer = {
        "target": made.target.name,
        "architecture": made.architecture,
        "architecture_known": made.known,
        "format_version": made.version,
        "problem": made.problem,
        "modules": [_entry(one, platform) for one in made.planned],
        "other_modules": made.unlooked,
        "other_bytes": made.unlooked_bytes,
    }
    typer.echo(json.dumps(answer, indent=2))


_FILE_WIDTH = 200
"""Columns of a table that goes to a file or another program."""

_WRITERS = {Format.text: _text, Format.json: _json}
