"""Answers requests, a line of JSON each on standard input, each in a forked child of this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def _child(answer: Answer, request: dict[str, Any], write: int) -> None:
    """Answer into a pipe, whatever happens; an error is the first of its chain."""
    try:
        reply = answer(request)
    except BaseException as error:
        while (
            cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        ) is not None:
            error = cause
        reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    with os.fdopen(write, "w") as pipe:
        json.dump(reply, pipe)


def serve(answer: Answer) -> None:
    """Serve requests from standard input until it ends; what they print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                _child(answer, json.loads(line), write)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            reply = pipe.read()
        _, status = os.waitpid(pid, 0)
        print(
            reply or json.dumps({"ok": False, "error": f"it died with status {status}"}),
            file=answers,
            flush=True,
        )
