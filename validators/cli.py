"""The command `quark-validate`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from quark_format.plugins import PluginError, refuse
from quark_format.validators.options import Values
from quark_format.validators.reporters import Format

if TYPE_CHECKING:
    from quark_format.validators.report import Report
    from quark_format.validators.selection import Selection

UNREADABLE = 2
"""Exit code where the usage is wrong, or a checkpoint could not be judged."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

EPILOG = (
    "Exit code: 0 no errors, 1 errors found, 2 wrong usage or a path that cannot be read as a checkpoint."
)


class _Command(TyperCommand):
    """A command whose `--values` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fill in what `--values` alone means, then parse as usual."""
        known = {value.value for value in Values}
        for at, word in enumerate(args):
            if word == "--":
                break
            if word == "--values" and (at + 1 == len(args) or args[at + 1] not in known):
                args = [*args[:at], f"{word}={Values.SCALES.value}", *args[at + 1 :]]
        return super().parse_args(ctx, args)


app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - keeps --help fast

        typer.echo(f"quark-validate {version('quark-format')}")
        raise typer.Exit


def _explain(name: str | None) -> None:
    """Print the page of the rule `name`, or the list of rules for `all`, and leave."""
    if name is None:
        return
    from quark_format.validators.explain import explain, list_rules  # noqa: PLC0415
    from quark_format.validators.findings import rules  # noqa: PLC0415
    from quark_format.validators.reporters.styles import console_of  # noqa: PLC0415
    from quark_format.validators.selection import UnknownRule, rule_code  # noqa: PLC0415

    console = console_of(sys.stdout)
    if name.lower() == "all":
        list_rules(console)
    else:
        try:
            explain(rules()[rule_code(name)], console)
        except UnknownRule as error:
            raise typer.BadParameter(str(error)) from None
    raise typer.Exit


@app.command(epilog=EPILOG, cls=_Command)
def quark_validate(  # noqa: PLR0913, PLR0917 - one parameter for each option
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT", help="A checkpoint's folder, or a config.json.", show_default=False
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[@VERSION]", help="Also judge whether this consumer loads it, such as vllm@0.32."
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:DEVICE]", help="Where it is to run: cpu, cuda:90, rocm:gfx942…; asks for kernels."
        ),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, metavar="N", help="Also check that the sizes divide over N ranks.")
    ] = 1,
    expert_parallel: Annotated[
        bool, typer.Option("--expert-parallel", help="Each routed expert stays whole on one of the ranks.")
    ] = False,
    values: Annotated[
        Values,
        typer.Option(help="Also read values: of scales and zero points (also --values alone), or of all."),
    ] = Values.NONE,
    form: Annotated[Format, typer.Option("--format", help="How to write the report.")] = Format.TEXT,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES", help="Report only these: codes, prefixes (QF3) or names, comma-separated."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", help="Leave these out. The longer prefix wins over --select."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every finding in the text report, not the first of each rule.")
    ] = False,
    explain: Annotated[  # noqa: ARG001 - handled by its callback
        str | None,
        typer.Option(
            metavar="CODE", help="Explain a rule (all: list the rules).", callback=_explain, is_eager=True
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Judge checkpoints in AMD Quark's format from their config and safetensors headers.

    Without --values no weight is read and nothing is loaded, so a checkpoint of any size takes seconds.
    """
    from quark_format.validators.progress import progress  # noqa: PLC0415
    from quark_format.validators.report import exit_code  # noqa: PLC0415
    from quark_format.validators.reporters import reporter  # noqa: PLC0415

    selection = _selection(select or [], ignore or [])
    _known(target or [], platform)
    asked = {
        "target": target,
        "platform": platform,
        "tensor_parallel_size": tensor_parallel,
        "expert_parallel": expert_parallel,
        "values": values,
        "verdicts": True,
    }
    with progress(len(checkpoints)) as advance:
        judged = [_judge(path, asked, selection) for path in map(advance, checkpoints)]
    reports = [report for report in judged if report is not None]
    reporter(form, show_all=show_all)(reports, sys.stdout)
    raise typer.Exit(exit_code(reports) if len(reports) == len(judged) else UNREADABLE)


def _selection(select: list[str], ignore: list[str]) -> Selection:
    from quark_format.validators.selection import Selection, UnknownRule  # noqa: PLC0415

    try:
        return Selection.parse(select, ignore)
    except UnknownRule as error:
        raise typer.BadParameter(str(error)) from None


def _known(names: list[str], platform: str | None) -> None:
    """Refuse a target that is not declared, or a platform that none of the targets has."""
    if not names and platform is None:
        return
    from quark_format.targets import UnknownTargetError, targets  # noqa: PLC0415
    from quark_format.targets import target as find  # noqa: PLC0415

    try:
        wanted = [find(name) for name in names] or list(targets().values())
    except UnknownTargetError as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None
    known = list(dict.fromkeys(name for one in wanted for name in one.header.platforms))
    if platform is not None and platform.partition(":")[0] not in known:
        raise typer.BadParameter(f"there are {', '.join(known)}", param_hint="--platform")


def _judge(path: str, asked: dict[str, Any], selection: Selection) -> Report | None:
    """Return the report of one checkpoint; None, with a sentence on stderr, where judging it failed."""
    try:
        from quark_format.validators.validate import validate  # noqa: PLC0415

        return selection.apply(validate(path, **asked))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except PluginError:
        raise
    except Exception as error:
        _complain(f"{path}: the check itself failed", error)
        return None


def _complain(what: str, error: Exception) -> None:
    """Say on stderr that a bug was met; raise it again where QUARK_FORMAT_DEBUG is set."""
    from quark_format.validators.reporters.printable import printable  # noqa: PLC0415

    if os.environ.get("QUARK_FORMAT_DEBUG"):
        raise error
    sentence = f"quark-validate: {what} ({type(error).__name__}: {error}). This is a bug in quark-format:"
    advice = "please report it with the checkpoint's config.json. QUARK_FORMAT_DEBUG=1 shows the traceback."
    typer.echo(f"{printable(sentence)} {advice}", err=True)


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="quark-validate")
    except PluginError as error:
        refuse(error)
    except Exception as error:
        _complain("the command failed", error)
        sys.exit(UNREADABLE)
