"""Three answers per weight: what the config says, what dtype is stored, whether there is a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quark_format.declarations import describe
from quark_format.layouts import describe as describe_tensor
from quark_format.layouts import recognize
from quark_format.modules import abstract
from quark_format.roles import is_draft
from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

QUANTIZED, EXCLUDED, UNDECLARED = "quantized", "excluded", "undeclared"

_DISAGREEMENTS = {
    (QUANTIZED, False, False): "QF401",
    (QUANTIZED, False, True): "QF403",
    (EXCLUDED, True, False): "QF402",
    (EXCLUDED, True, True): "QF402",
    (EXCLUDED, False, True): "QF402",
    (UNDECLARED, True, False): "QF404",
    (UNDECLARED, True, True): "QF404",
    (UNDECLARED, False, True): "QF404",
}
"""(config, codes are stored, a scale is stored) to the finding; what is not listed agrees."""


def disagreement(entry: Judged) -> str | None:
    """The code of the finding where the three answers contradict each other, None where they agree."""
    if entry.first.weight is None or (entry.quantized and entry.expects_float):
        return None
    code = _DISAGREEMENTS.get((_config_says(entry), entry.stores_codes, entry.has_scales))
    if not entry.role.quantizable:
        return None
    if entry.quantized and not entry.stores_codes and not entry.has_scales and _excusable(entry):
        return None
    return code


def _config_says(entry: Judged) -> str:
    if entry.quantized:
        return QUANTIZED
    return EXCLUDED if entry.declared.excluded else UNDECLARED


def _excusable(entry: Judged) -> bool:
    """A float weight that some reader of the config allows, or that the exporter never sees as a layer."""
    return entry.declared.disputed or entry.role.may_be_parameter


def check(context: Context) -> Iterator[Finding]:
    """Yield contradictions of config, dtype and scale, and quantized embeddings and output layers."""
    for entry in context.sound:
        code = disagreement(entry)
        if code is not None:
            yield _contradiction(context, entry, code)
        elif entry.stores_codes and not entry.role.quantizable:
            yield _never_quantized(entry)
        is_stored = entry.stores_codes or entry.has_scales
        if entry.quantized and is_stored and entry.role.role in _NOTED_ROLES:
            yield finding(
                "QF411",
                module=entry.first.name,
                role=_NOTED_ROLES[entry.role.role],
                spec=describe(entry.specs["weight"]),
                count=len(entry.members),
            )


_NOTED_ROLES = {"head": "an output layer", "embedding": "an embedding"}


def _contradiction(context: Context, entry: Judged, code: str) -> Finding:
    module, weight = entry.first, entry.first.weight
    shown = weight
    if not entry.stores_codes and entry.has_scales:
        shown = weight if entry.quantized else module.tensors[module.scales[0]]
    stored = recognize(module.tensors, context.layouts, context.mode, context.weight_format)
    draft = is_draft(abstract(module.name))
    return finding(
        code,
        file=shown.file if shown else None,
        tensor=shown.name if shown else None,
        module=module.name,
        count=len(entry.members),
        dtype=describe_tensor(shown) + (f" ({stored.title})" if stored and entry.stores_codes else "")
        if shown
        else "",
        pointer=context.at("/exclude") if entry.declared.excluded else context.at(entry.declared.pointer),
        spec=describe(entry.specs["weight"]),
        hint="; it is part of a multi-token prediction head, which exports often leave as it was"
        if draft
        else "",
    )


def _never_quantized(entry: Judged) -> Finding:
    weight = entry.first.weight
    assert weight is not None  # noqa: S101 - stores_codes is False without a weight
    return finding(
        "QF414",
        file=weight.file,
        tensor=weight.name,
        module=entry.first.name,
        count=len(entry.members),
        dtype=describe_tensor(weight),
        role=entry.role.role,
    )
