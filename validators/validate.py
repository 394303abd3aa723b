"""`validate`: read a checkpoint, run every check, return the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quark_format.checkpoint import Checkpoint, collector_paused, read_checkpoint
from quark_format.folding import folded
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
from quark_format.validators import (
    values as value_checks,
)
from quark_format.validators.context import Context
from quark_format.validators.findings import merged
from quark_format.validators.options import Values
from quark_format.validators.report import Report

if TYPE_CHECKING:
    import os

    from quark_format.validators.findings import Finding

_CHECKS = (config, patterns, tensors, agreement, structure, kv_cache, parallel)
_VERSIONED_CHECKS = (tensors, kv_cache)


def validate(
    path: str | os.PathLike[str],
    *,
    tensor_parallel_size: int = 1,
    values: Values | str = Values.NONE,
) -> Report:
    """Judge the checkpoint at `path`, a folder or a config.json, from its config and headers.

    `values` also has scales and zero points read ("scales"), or every tensor ("all").

    `tensor_parallel_size` is the number of ranks it is to be split over. Nothing raises for what is wrong
    with the checkpoint: that is what the findings are for.
    """
    with collector_paused():
        return _report(path, tensor_parallel_size, Values(values))


def _report(path: str | os.PathLike[str], tensor_parallel_size: int, wanted: Values) -> Report:
    checkpoint = read_checkpoint(path)
    context, found = _judge(checkpoint, tensor_parallel_size)
    if context is not None and wanted is not Values.NONE:
        found += value_checks.check(replace(context, checkpoint=checkpoint), wanted)
    return Report(
        path=str(path),
        readable=checkpoint.readable,
        findings=tuple(merged([*container.check(checkpoint), *found])),
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


def _judge(checkpoint: Checkpoint, tensor_parallel_size: int) -> tuple[Context | None, list[Finding]]:
    """The context that was judged and what was found, of a few experts where that is the same as of all."""
    if not checkpoint.readable:
        return None, []
    smaller = folded(checkpoint)
    if smaller is not None:
        context = _context(smaller, tensor_parallel_size)
        found = _findings(checkpoint, context)
        if not any(one.tensor or one.module or one.count > 1 for one in found):
            return context, found
    context = _context(checkpoint, tensor_parallel_size)
    return context, _findings(checkpoint, context)


def _findings(checkpoint: Checkpoint, context: Context | None) -> list[Finding]:
    found = list(identity.check(checkpoint, context.version if context else None))
    if context is not None:
        found += [one for check in _CHECKS for one in check.check(context)]
    return found
