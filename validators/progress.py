"""A progress bar on a terminal, once the work has lasted a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

DELAY = 1.0
"""Seconds of work before the bar shows."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], str]]:
    """Give what is to be called with each of `total` paths as work on it begins; it returns the path."""
    if not sys.stderr.isatty():
        yield lambda path: path
        return
    state = _State(total)
    timer = threading.Timer(DELAY, state.show)
    timer.daemon = True
    timer.start()
    try:
        yield state.begin
    finally:
        timer.cancel()
        state.end()


class _State:
    """How far the work is, and the bar once it shows."""

    def __init__(self, total: int) -> None:
        self._lock = threading.Lock()
        self._total = total
        self._begun = 0
        self._path = ""
        self._bar: Progress | None = None
        self._over = False

    def begin(self, path: str) -> str:
        with self._lock:
            self._begun += 1
            self._path = path
            self._update()
        return path

    def show(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        with self._lock:
            if not self._over:
                self._bar = Progress(console=Console(stderr=True), transient=True)
                self._bar.add_task("", total=self._total)
                self._update()
                self._bar.start()

    def end(self) -> None:
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def _update(self) -> None:
        from rich.markup import escape  # noqa: PLC0415

        from quark_format.validators.reporters.printable import printable  # noqa: PLC0415

        if self._bar is not None:
            task = self._bar.task_ids[0]
            shown = escape(printable(self._path))
            self._bar.update(task, completed=max(self._begun - 1, 0), description=shown)
