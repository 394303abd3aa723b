"""`validate`: read a checkpoint, run every check, return the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from quark_format.validators.plugin_findings import plugin_checks
from quark_format.validators.report import Report, TargetVerdict

if TYPE_CHECKING:
    import os

    from quark_format.validators.findings import Finding

_CHECKS = (config, patterns, tensors, agreement, structure, kv_cache, parallel)
_VERSIONED_CHECKS = (tensors, kv_cache)


def validate(  # noqa: PLR0913 - one parameter for each thing that can be asked
    path: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    platform: str | None = None,
    tensor_parallel_size: int = 1,
    expert_parallel: bool = False,
    values: Values | str = Values.NONE,
    verdicts: bool = False,
) -> Report:
    """Judge the checkpoint at `path`, a folder or a config.json, from its config and headers.

    `values` also has scales and zero points read ("scales"), or every tensor ("all").

    `target` is a consumer such as "vllm@0.32", or several: what it cannot load is an error. `platform` is
    where it is to run, such as "cpu", "cuda:90" or "rocm:gfx942"; without it kernels are not asked for.
    With `verdicts` and without a target, the report tells what the newest release of each consumer does, as
    information.

    `tensor_parallel_size` is the number of ranks it is to be split over; with `expert_parallel` each routed
    expert stays whole on one of them. Nothing else raises for what is wrong with the checkpoint: that is what
    the findings are for.

    Raises:
        UnknownTargetError: no such target is declared.
        PluginError: an installed plugin cannot be used.
    """
    with collector_paused():
        report, context, every = _report(path, tensor_parallel_size, Values(values), expert_parallel)
        names = [target] if isinstance(target, str) else list(target or ())
        if not names and not verdicts:
            return report
        return _for_targets(report, context, every, names, platform)


def _for_targets(
    report: Report,
    context: Context | None,
    every: Sequence[Finding],
    names: Sequence[str],
    platform: str | None,
) -> Report:
    """`report` with a verdict for each target, where none is named for the newest of each consumer.

    What a named target does not load is a finding. `every` has the report's findings before they were merged.
    """
    from quark_format.loading import Platform  # noqa: PLC0415 - the tables of targets take a while
    from quark_format.plugins import blamed  # noqa: PLC0415
    from quark_format.targets import newest  # noqa: PLC0415
    from quark_format.targets import target as find  # noqa: PLC0415
    from quark_format.validators.loadability import judge, judge_unread  # noqa: PLC0415

    wanted = [find(name) for name in names] or newest()
    place = None if platform is None else Platform.parse(platform)
    judged: list[tuple[list[Finding], TargetVerdict | None]] = []
    for one in wanted:
        with blamed(one.entry):
            if context is None:
                judged.append(([], judge_unread(every, one, place)))
            else:
                judged.append(judge(context, every, one, place))
    found = merged(one for findings, _ in judged for one in findings) if names else []
    verdicts = tuple(verdict for _, verdict in judged if verdict is not None)
    return replace(report, findings=(*report.findings, *found), targets=verdicts)


def _report(
    path: str | os.PathLike[str], tensor_parallel_size: int, wanted: Values, expert_parallel: bool = False
) -> tuple[Report, Context | None, list[Finding]]:
    checkpoint = read_checkpoint(path)
    context, found = _judge(checkpoint, tensor_parallel_size, expert_parallel)
    if context is not None and wanted is not Values.NONE:
        found += value_checks.check(replace(context, checkpoint=checkpoint), wanted)
    every = [*container.check(checkpoint), *found]
    report = Report(
        path=str(path),
        readable=checkpoint.readable,
        findings=tuple(merged(every)),
        format_version=context.version if context else None,
        mode=context.mode if context else None,
        writer=context.writer if context and checkpoint.tensor_count else None,
        tensors=checkpoint.tensor_count,
        shards=len(checkpoint.shards),
        tensor_bytes=checkpoint.tensor_bytes,
    )
    return report, context, every


def _context(
    checkpoint: Checkpoint, tensor_parallel_size: int, expert_parallel: bool = False
) -> Context | None:
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
        context = Context(
            checkpoint, pointer, block, verdict, verdict.version, tensor_parallel_size, expert_parallel
        )
        if verdict.declared is not None or not _contradictions(context):
            return context
        others = [replace(context, version=version) for version in reversed(verdict.candidates)]
        return min([context, *others], key=_contradictions)
    return None


def _contradictions(context: Context) -> int:
    """How many findings say that the tensors are not those of the format version."""
    return sum(1 for check in _VERSIONED_CHECKS for _ in check.check(context))


def _judge(
    checkpoint: Checkpoint, tensor_parallel_size: int, expert_parallel: bool = False
) -> tuple[Context | None, list[Finding]]:
    """The context that was judged and what was found, of a few experts where that is the same as of all."""
    if not checkpoint.readable:
        return None, []
    smaller = folded(checkpoint)
    if smaller is not None:
        context = _context(smaller, tensor_parallel_size, expert_parallel)
        found = _findings(checkpoint, context)
        if not any(one.tensor or one.module or one.count > 1 for one in found):
            return context, found
    context = _context(checkpoint, tensor_parallel_size, expert_parallel)
    return context, _findings(checkpoint, context)


def _findings(checkpoint: Checkpoint, context: Context | None) -> list[Finding]:
    found = list(identity.check(checkpoint, context))
    if context is not None:
        found += [one for check in _CHECKS for one in check.check(context)]
        found += [one for plugin in plugin_checks() for one in plugin.found(context)]
    return found
