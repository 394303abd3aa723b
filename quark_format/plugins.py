"""Entry points by which other distributions add targets and findings, and what is said of a broken one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TARGETS = "quark_format.targets"
FINDINGS = "quark_format.findings"


class PluginError(Exception):
    """A plugin cannot be used; the text names its distribution, its entry point and the reason."""


@cache
def _installed() -> Mapping[str, tuple[EntryPoint, ...]]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - keeps --help fast

    every = entry_points()
    return {
        group: tuple(sorted(every.select(group=group), key=lambda entry: (entry.name, entry.value)))
        for group in (TARGETS, FINDINGS)
    }


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of `group`, in the order of their names."""
    return _installed()[group]


@contextmanager
def blamed(entry: EntryPoint | None) -> Iterator[None]:
    """Raise what goes wrong inside as a `PluginError` of `entry`; nothing is caught where there is none.

    Raises:
        PluginError: anything was raised.
    """
    try:
        yield
    except PluginError:
        raise
    except Exception as error:
        if entry is None:
            raise
        reason = str(error) if isinstance(error, ProblemError) else f"{type(error).__name__}: {error}"
        raise PluginError(f"{described(entry)} cannot be used: {reason}") from error


def refuse(error: PluginError) -> NoReturn:
    """End a command: one line on stderr, exit code 2; QUARK_FORMAT_DEBUG=1 shows the traceback."""
    if os.environ.get("QUARK_FORMAT_DEBUG"):
        raise error
    sys.stderr.write(f"{' '.join(str(error).split())}. Repair or uninstall it.\n")
    sys.exit(2)


def described(entry: EntryPoint) -> str:
    """The distribution of an entry point, and the line that declares it."""
    whose = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "of no distribution"
    return f"plugin {whose} (entry point {entry.name} = {entry.value!r} in {entry.group})"


class ProblemError(ValueError):
    """Something in a plugin that is not as it must be, in words."""
