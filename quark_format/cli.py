"""The command `quark-format`: access to the declared format."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from quark_format.plugins import PluginError, refuse
from quark_format.resolve_command import resolve
from quark_format.serve_command import serve_check

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
schema = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(schema, name="schema", help="The files that declare the format.")


@app.callback()
def quark_format() -> None:
    """Work with AMD Quark's checkpoint format, declared as data."""


app.command()(resolve)
app.command("serve-check")(serve_check)


@schema.command("list")
def list_files() -> None:
    """List the declared files."""
    for name, _ in declared_files():
        typer.echo(name)


@schema.command()
def export(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Where to; made if need be.", file_okay=False, show_default=False
        ),
    ],
) -> None:
    """Copy the declared files to a folder, replacing those of the same name."""
    count = 0
    for name, source in declared_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        count += 1
    typer.echo(f"{count} files in {folder}")


def declared_files() -> Iterator[tuple[str, Traversable]]:
    """Yield every file of `schema/` that is no Python and its path below there, in the order of the paths."""
    yield from sorted(_declared(files("quark_format.schema"), ""), key=lambda entry: entry[0])


def _declared(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for child in folder.iterdir():
        if child.is_dir() and child.name != "__pycache__":
            yield from _declared(child, f"{prefix}{child.name}/")
        elif child.is_file() and not child.name.endswith(".py"):
            yield f"{prefix}{child.name}", child


def main() -> None:
    """Run the command."""
    try:
        app(prog_name="quark-format")
    except PluginError as error:
        refuse(error)
