"""The forms of a report: one module each, with `render(reports, stream)`, imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TextIO

from quark_format.validators.report import Report

Reporter = Callable[[Sequence[Report], TextIO], None]


class Format(StrEnum):
    """The names of the forms, each also the name of its module here."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"


def reporter(name: Format, *, show_all: bool = False) -> Reporter:
    """Return the function that writes reports to a text stream in the form `name`.

    The text form shows the first findings of each rule only, unless `show_all`; the others show all of them.
    """
    module = import_module(f"{__name__}.{name}")
    render: Reporter = module.render_all if show_all and name is Format.TEXT else module.render
    return render
