"""Whether a target loads the checkpoint, fails, or loads it and computes something else; and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quark_format.loading import OUTCOMES, Loading, Outcome, Platform, loading
from quark_format.plan import Plan, Planned, plan
from quark_format.resolver import Refusal
from quark_format.roles import is_float, routed_experts
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.report import TargetVerdict
from quark_format.validators.requirements import unmet

if TYPE_CHECKING:
    from quark_format.modules import Module
    from quark_format.targets import Target
    from quark_format.validators.context import Context

_WRONG = "QF605"
_ERROR = "error"
_MOST_REASONS = 5
_RANKS = "QF601"


def judge(
    context: Context, found: Sequence[Finding], to: Target, platform: Platform | None
) -> tuple[list[Finding], TargetVerdict]:
    """What `to` does with the checkpoint, as findings and as a verdict.

    `found` are the findings about the format, of which some mean that a load fails or goes wrong.
    """
    rows = loading(to)
    own = [] if rows is None else _merged(_findings(context, found, to, platform, rows))
    told = [(_outcome(one), one.message) for one in own if one.severity == _ERROR]
    told += [(effect, one.message) for one in found if rows and (effect := _effect(one, context, to, rows))]
    worst = max((outcome for outcome, _ in told), key=OUTCOMES.index, default=OUTCOMES[0])
    reasons = [message for outcome, message in told if outcome == worst]
    loads = worst != OUTCOMES[-1]
    return own, TargetVerdict(
        to.name, loads, tuple(reasons[:_MOST_REASONS]), worst, None if platform is None else str(platform)
    )


def _outcome(one: Finding) -> Outcome:
    return "wrong" if one.code == _WRONG else "fails"


def _effect(one: Finding, context: Context, to: Target, rows: Loading) -> Outcome | None:
    """What a finding about the format means for a load; nothing where its module is built unquantized."""
    module = context.modules.by_name.get(one.module or (one.tensor or "").rpartition(".")[0])
    kind = None if module is None else to.header.roles.get(module.role.role)
    if one.severity != _ERROR or _fits_anyway(module, kind, rows):
        return None
    effects: Mapping[str, Outcome] = {
        code: row["outcome"] for row in rows.raw["findings"] for code in row["codes"]
    }
    return effects.get(one.code)


def _fits_anyway(module: Module | None, kind: str | None, rows: Loading) -> bool:
    """Whether a float weight is stored for what the target builds unquantized whatever the config says."""
    plain = module is not None and module.weight is not None and is_float(module.weight.dtype)
    return plain and kind in rows.raw["unquantized"]["kinds"]


def _merged(found: Iterable[Finding]) -> list[Finding]:
    """The first finding of each code and reason, with the number of modules of all."""
    groups: dict[tuple[str, str], Finding] = {}
    for one in found:
        key = (one.code, one.message.partition(": ")[2])
        known = groups.get(key)
        groups[key] = one if known is None else replace(known, count=known.count + one.count)
    return list(groups.values())


def _findings(
    context: Context, found: Sequence[Finding], to: Target, platform: Platform | None, rows: Loading
) -> Iterator[Finding]:
    if any(error.rule is None for error in context.errors):
        return  # no spec can be read from such a block, and the errors themselves stop a load
    mode = next((row for row in rows.raw["modes"] if row["mode"] == context.mode), None)
    if mode is not None and context.mode not in (to.header.modes or ()):
        yield from _by_other_code(context, to, platform, mode)
        return
    made = plan(context.checkpoint, to)
    if made.problem is not None:
        yield finding(
            "QF606",
            file=context.checkpoint.config_file,
            pointer=context.pointer,
            target=to.name,
            reason=made.problem,
        )
        return
    if not made.known:
        yield finding(
            "QF607",
            file=context.checkpoint.config_file,
            pointer="/architectures",
            target=to.name,
            actual=made.architecture or "no architecture",
        )
    shared = all(one.code != _RANKS for one in found)
    config = context.checkpoint.config or {}
    dtype = config.get("dtype") or config.get("torch_dtype")
    for one in made.planned:
        if not _fits_anyway(context.modules.by_name.get(one.example), one.kind, rows):
            yield from _of_modules(one, to, platform, rows, dtype)
            yield from _of_sizes(one, to, context) if shared else ()
    yield from _experts(context, made)
    yield from _ignored(context, to, rows)


def _by_other_code(
    context: Context, to: Target, platform: Platform | None, mode: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """A mode that the target reads by code of its own, which only platforms decide."""
    reason = None if platform is None else mode["fails_on"].get(platform.name)
    if reason is not None:
        yield finding(
            "QF603",
            file=context.checkpoint.config_file,
            pointer=context.pointer,
            target=to.name,
            module="every module",
            spec=f"read by {mode['reader']}",
            platform=str(platform),
            reason=reason,
        )


def _of_modules(
    one: Planned, to: Target, platform: Platform | None, rows: Loading, dtype: str | None
) -> Iterator[Finding]:
    place: dict[str, Any] = {
        "module": one.example,
        "count": max(one.modules, 1),
        "target": to.name,
        "spec": one.spec,
    }
    if isinstance(one.answer, Refusal):
        misread = rows.misread(one.answer.layer, one.answer.nearest)
        if misread is None:
            yield finding("QF602", **place, reason=one.answer.reason)
        else:
            yield finding(_WRONG, **place, reason=misread)
        return
    choices = one.answer.choice.on(platform) if platform else (one.answer.choice,)
    problems = [
        None if platform is None else rows.kernel_problem(choice, platform, dtype) for choice in choices
    ]
    first = problems[0]
    if first is not None and all(problems):
        code = "QF603" if first.outcome == OUTCOMES[-1] else _WRONG
        yield finding(code, **place, platform=str(platform), reason=first.reason)
        return
    serving = choices[problems.index(None)]
    unread = rows.layout(one.layout, serving.row)
    if unread is not None:
        code = "QF604" if unread["outcome"] == OUTCOMES[-1] else _WRONG
        yield finding(code, **place, reason=unread["reason"])
    misread = rows.misread(one.answer.layer, serving.row)
    if misread is not None:
        yield finding(_WRONG, **place, reason=misread)


def _of_sizes(one: Planned, to: Target, context: Context) -> Iterator[Finding]:
    requires = () if isinstance(one.answer, Refusal) else one.answer.choice.requires
    reason = unmet(one, requires, context)
    if reason is not None:
        yield finding(
            "QF602",
            module=one.example,
            count=max(one.modules, 1),
            target=to.name,
            spec=one.spec,
            reason=reason,
        )


def _experts(context: Context, made: Plan) -> Iterator[Finding]:
    """Experts whose projections have names that the architecture's loader does not know."""
    known = made.implementation.experts
    if known is None:
        return
    names = {name for name in (known.gate, known.down, known.up) if name is not None}
    fused = {group["name"]: set(group["members"]) for group in table("roles.json")["fused"]}
    for module in context.modules.by_name.values():
        name = made.implementation.rename(module.name)
        parent, _, leaf = name.rpartition(".")
        alike = (name for name, members in fused.items() if leaf in members)
        if routed_experts(name) not in (None, parent) and not names & {leaf, *alike}:
            yield finding(
                "QF604",
                module=module.name,
                target=made.target.name,
                reason=f"{made.architecture} loads experts named {', '.join(sorted(names))}",
            )
            return


def _ignored(context: Context, to: Target, rows: Loading) -> Iterator[Finding]:
    for row in rows.raw["ignored"]:
        held = [module for module in context.modules.by_name.values() if row["suffix"] in module.tensors]
        if held:
            code = "QF604" if row["outcome"] == OUTCOMES[-1] else _WRONG
            yield finding(
                code,
                module=held[0].name,
                tensor=held[0].tensors[row["suffix"]].name,
                count=len(held),
                target=to.name,
                spec=row["suffix"],
                reason=row["reason"],
            )
