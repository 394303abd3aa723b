"""`validate`: read a checkpoint, run every check, return the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quark_format.checkpoint import Checkpoint, read_checkpoint
from quark_format.formats import detect, locate
from quark_format.validators import (
    agreement,
    config,
    container,
    identity,
    kv_cache,
    parallel,
    patterns,
    structure,
    tensors,
)
from quark_format.validators.context import Context
from quark_format.validators.findings import merged
from quark_format.validators.report import Report

if TYPE_CHECKING:
    import os

    from quark_format.validators.findings import Finding

_CHECKS = (config, patterns, tensors, agreement, structure, kv_cache, parallel)
_VERSIONED_CHECKS = (tensors, kv_cache)


def validate(path: str | os.PathLike[str], *, tensor_parallel_size: int = 1) -> Report:
    """Judge the checkpoint at `path`, a folder or a config.json, from its config and headers.

    `tensor_parallel_size` is the number of ranks it is to be split over. Nothing raises for what is wrong with
    the checkpoint: that is what the findings are for.
    """
    checkpoint = read_checkpoint(path)
    context = _context(checkpoint, tensor_parallel_size)
    return Report(
        path=str(path),
        readable=checkpoint.readable,
        findings=tuple(merged(_findings(checkpoint, context))),
        format_version=context.version if context else None,
        mode=context.mode if context else None,
        writer=context.writer if context and checkpoint.tensor_count else None,
        tensors=checkpoint.tensor_count,
        shards=len(checkpoint.shards),
        tensor_bytes=checkpoint.tensor_bytes,
    )


def _context(checkpoint: Checkpoint, tensor_parallel_size: int) -> Context | None:
    """The context of the checks, None where the config is not Quark's.

    Where the config does not tell its version, that one is taken of those its keys allow which the tensors
    contradict least, the newest first.
    """
    for pointer, block in locate(checkpoint.config or {}):
        if not isinstance(block, Mapping):
            continue
        verdict = detect(dict(block))
        if verdict.version is None or verdict.mode is None:
            continue
        context = Context(checkpoint, pointer, block, verdict, verdict.version, tensor_parallel_size)
        if verdict.declared is not None or not _contradictions(context):
            return context
        others = [replace(context, version=version) for version in reversed(verdict.candidates)]
        return min([context, *others], key=_contradictions)
    return None


def _contradictions(context: Context) -> int:
    """How many findings say that the tensors are not those of the format version."""
    return sum(1 for check in _VERSIONED_CHECKS for _ in check.check(context))


def _findings(checkpoint: Checkpoint, context: Context | None) -> Iterator[Finding]:
    yield from container.check(checkpoint)
    if not checkpoint.readable:
        return
    yield from identity.check(checkpoint, context.version if context else None)
    if context is not None:
        for check in _CHECKS:
            yield from check.check(context)
