"""Whether a target loads the checkpoint, fails, or loads it and computes something else; and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from quark_format.loading import OUTCOMES, Loading, Outcome, Platform, loading
from quark_format.plan import EXPERTS, Plan, Planned, plan
from quark_format.resolver import Refusal
from quark_format.roles import is_float, routed_experts
from quark_format.tables import table
from quark_format.validators.effects import Effects
from quark_format.validators.findings import Finding, finding
from quark_format.validators.report import TargetVerdict
from quark_format.validators.requirements import unmet

if TYPE_CHECKING:
    from quark_format.targets import Target
    from quark_format.validators.context import Context

_WRONG = "QF605"
_UNREAD: Mapping[Outcome, str] = {"fails": "QF604", "wrong": _WRONG}
_NO_EXPERTS = "it takes no experts one by one"
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
    told: list[tuple[Outcome, str]] = []
    own: list[Finding] = []
    if rows is not None:
        effects = Effects(rows, context, _plan(context, to, rows))
        own = _merged(_findings(context, found, to, platform, effects))
        told = [(_outcome(one), one.message) for one in own if one.severity == _ERROR]
        lost = any(one.code == _WRONG and routed_experts(one.module or "") for one in own)
        told += effects.told(one for one in found if not (lost and _of_expert(one)))
    return own, _verdict(to, platform, told)


def judge_unread(found: Sequence[Finding], to: Target, platform: Platform | None) -> TargetVerdict | None:
    """The verdict on a checkpoint without a config of Quark; None where the findings do not tell any."""
    rows = loading(to)
    told = [] if rows is None else Effects(rows).told(found)
    return _verdict(to, platform, told) if told else None


def _verdict(to: Target, platform: Platform | None, told: Sequence[tuple[Outcome, str]]) -> TargetVerdict:
    worst = max((outcome for outcome, _ in told), key=OUTCOMES.index, default=OUTCOMES[0])
    reasons = dict.fromkeys(message for outcome, message in told if outcome == worst != OUTCOMES[0])
    loads = worst != OUTCOMES[-1]
    place = None if platform is None else str(platform)
    return TargetVerdict(to.name, loads, tuple(reasons)[:_MOST_REASONS], worst, place)


def _plan(context: Context, to: Target, rows: Loading) -> Plan | None:
    """What the target builds; None where it reads the config by other code."""
    return None if _mode(context, to, rows) else plan(context.checkpoint, to)


def _mode(context: Context, to: Target, rows: Loading) -> Mapping[str, Any] | None:
    """The row of the mode that the target reads by code of its own."""
    if context.mode in (to.header.modes or ()):
        return None
    return next((row for row in rows.raw["modes"] if row["mode"] == context.mode), None)


def _outcome(one: Finding) -> Outcome:
    return "wrong" if one.code == _WRONG else "fails"


def _of_expert(one: Finding) -> bool:
    name = one.module or (one.tensor or "").rpartition(".")[0]
    return routed_experts(name) is not None or name.rpartition(".")[2] == EXPERTS


def _merged(found: Iterable[Finding]) -> list[Finding]:
    """The first finding of each code and reason, with the number of modules of all."""
    groups: dict[tuple[str, str], Finding] = {}
    for one in found:
        key = (one.code, one.message.partition(": ")[2])
        known = groups.get(key)
        groups[key] = one if known is None else replace(known, count=known.count + one.count)
    return list(groups.values())


def _findings(
    context: Context, found: Sequence[Finding], to: Target, platform: Platform | None, effects: Effects
) -> Iterator[Finding]:
    rows, made = effects.rows, effects.plan
    if made is None:
        yield from _by_other_code(context, to, platform, rows)
        return
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
    unknown = _experts(context, made, rows)
    yield from unknown
    unread = {EXPERTS} if any(one.code == _WRONG for one in unknown) else set()
    for one in made.planned:
        if one.kind not in unread and not _fits_anyway(one, context, rows):
            yield from _of_modules(one, to, platform, rows, dtype)
            yield from _of_sizes(one, to, context) if shared else ()
    yield from _unnamed(context, to, effects)
    yield from _scaled(context, to, effects)
    yield from _ignored(context, to, rows)


def _fits_anyway(one: Planned, context: Context, rows: Loading) -> bool:
    """Whether float weights are stored for what the target builds unquantized whatever the config says."""
    weights = [context.modules.by_name[name].weight for name in one.stored.values()]
    plain = bool(weights) and all(weight is not None and is_float(weight.dtype) for weight in weights)
    return plain and one.kind in rows.raw["unquantized"]["kinds"]


def _by_other_code(
    context: Context, to: Target, platform: Platform | None, rows: Loading
) -> Iterator[Finding]:
    """A mode that the target reads by code of its own: what that does, on the platform or everywhere."""
    mode = _mode(context, to, rows) or {}
    fails = None if platform is None else mode["fails_on"].get(platform.name)
    reason = fails or mode.get("wrong")
    if reason is not None:
        yield finding(
            "QF603" if fails else _WRONG,
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
        if misread is not None:
            yield finding(_WRONG, **place, reason=misread)
        elif not rows.unread(one.answer):
            yield finding("QF602", **place, reason=one.answer.reason)
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
        yield finding(_UNREAD[unread["outcome"]], **place, reason=unread["reason"])
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


def _experts(context: Context, made: Plan, rows: Loading) -> list[Finding]:
    """Experts whose projections have names that the architecture's loader does not know."""
    known = made.implementation.experts
    if known is None:
        return []
    names = {name for name in (known.gate, known.down, known.up) if name is not None}
    fused = {group["name"]: set(group["members"]) for group in table("roles.json")["fused"]}
    told = f"{made.architecture} loads experts named {', '.join(sorted(names))}" if names else _NO_EXPERTS
    row = rows.raw.get("unknown_experts", {"outcome": OUTCOMES[-1]})
    for module in context.modules.by_name.values():
        name = made.implementation.rename(module.name)
        parent, _, leaf = name.rpartition(".")
        alike = (name for name, members in fused.items() if leaf in members)
        if routed_experts(name) not in (None, parent) and not names & {leaf, *alike}:
            place: dict[str, Any] = {
                "module": module.name,
                "target": made.target.name,
                "spec": made.target.schemes.kinds[EXPERTS].words,
            }
            reason = f"{told}; {row['reason']}" if "reason" in row else told
            return [finding(_UNREAD[row["outcome"]], **place, reason=reason)]
    return []


def _unnamed(context: Context, to: Target, effects: Effects) -> Iterator[Finding]:
    """Tensors and modules below a linear layer for which the target has no place."""
    row = effects.rows.raw.get("unknown_names")
    if row is None:
        return
    modules = context.modules
    stored = {name: next(iter(one.tensors.values())) for name, one in modules.by_name.items() if one.tensors}
    below = [(name, one) for name, one in {**stored, **modules.loose}.items() if effects.below_linear(name)]
    odd = [one for _, one in below if not any(fnmatchcase(one.name, glob) for glob in row.get("except", ()))]
    if odd:
        yield finding(
            _UNREAD[row["outcome"]],
            module=odd[0].name.rpartition(".")[0],
            tensor=odd[0].name,
            count=len(odd),
            target=to.name,
            spec=odd[0].name,
            reason=f"it has no parameter for `{odd[0].name}`",
        )


def _scaled(context: Context, to: Target, effects: Effects) -> Iterator[Finding]:
    """Scales of modules that the target builds unquantized."""
    if "unknown_names" not in effects.rows.raw:
        return
    held = [one for one in context.modules.by_name.values() if one.scales and effects.plain(one.name)]
    if held:
        first = held[0]
        yield finding(
            _UNREAD[effects.rows.raw["unknown_names"]["outcome"]],
            module=first.name,
            tensor=first.tensors[first.scales[0]].name,
            count=len(held),
            target=to.name,
            spec="excluded",
            reason=f"it builds the module unquantized, without a parameter for `{first.scales[0]}`",
        )


def _ignored(context: Context, to: Target, rows: Loading) -> Iterator[Finding]:
    holding = [row for row in rows.raw["ignored"] if _declares(context, row.get("declared_by"))]
    first = {row["suffix"]: row for row in reversed(holding)}
    for row in first.values():
        held = [module for module in context.modules.by_name.values() if row["suffix"] in module.tensors]
        if held:
            yield finding(
                _UNREAD[row["outcome"]],
                module=held[0].name,
                tensor=held[0].tensors[row["suffix"]].name,
                count=len(held),
                target=to.name,
                spec=row["suffix"],
                reason=row["reason"],
            )


def _declares(context: Context, key: str | None) -> bool:
    return key is None or context.block.get(key) is not None
