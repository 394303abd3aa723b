"""The config against the schema of its version: what no reader can use, and what no exporter writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quark_format.config_errors import SchemaError
from quark_format.declarations import stages
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.shown import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.validators.context import Context

_CODES = {"type": "QF210", "required": "QF212"}
_UNKNOWN_KEYS = ("additionalProperties", "unevaluatedProperties")
_REQUIRED = "required"


def check(context: Context) -> Iterator[Finding]:
    """Yield the schema's errors as findings, then what only the exporter's own schema refuses as warnings."""
    for error in context.errors:
        yield _error(context, error)
    refused = {error.pointer for error in context.errors}
    yield from _strict(context, [error for error in context.strict_errors if error.pointer not in refused])
    yield from _pack_method(context)
    yield from _weight_format(context)


def _place(context: Context, error: SchemaError) -> dict[str, Any]:
    return {
        "file": context.checkpoint.config_file,
        "pointer": context.at(error.pointer),
        "count": error.count,
    }


def _error(context: Context, error: SchemaError) -> Finding:
    place = _place(context, error)
    if error.rule is not None:
        advice = "Correct the spec, or copy it from the export."
        return finding("QF215", **place, rule=error.rule, reason=error.message, advice=advice)
    code = _CODES.get(error.keyword, "QF211")
    if code == "QF212":
        return finding(code, **place, key=", ".join(error.keys), advice="copy it from the export.")
    return finding(
        code,
        **place,
        actual=short(error.actual),
        expected=_expected(error),
        version=context.version,
        advice="Copy the value from the export.",
    )


def _expected(error: SchemaError) -> str:
    expected = error.expected
    if isinstance(expected, list):
        return ", ".join(value if error.keyword == "type" else short(value) for value in expected)
    return str(expected) if error.keyword == "type" else short(expected)


def _strict(context: Context, errors: Sequence[SchemaError]) -> Iterator[Finding]:
    """Keys that the version does not know, and one finding for all that its exporter would have written."""
    for error in errors:
        if error.keyword in _UNKNOWN_KEYS:
            for key in error.keys:
                yield finding(
                    "QF213",
                    **_place(context, error),
                    key=key,
                    hint=_since(context, key),
                    version=context.version,
                    advice="Correct its spelling, or remove it.",
                )
        elif error.keyword != _REQUIRED and error.rule is None:
            yield finding(
                "QF216",
                **_place(context, error),
                actual=short(error.actual),
                expected=_expected(error),
                version=context.version,
            )
    lacking = [error for error in errors if error.keyword == _REQUIRED]
    if lacking:
        yield finding(
            "QF214",
            **{**_place(context, lacking[0]), "count": sum(error.count for error in lacking)},
            keys=", ".join(f"`{key}`" for key in lacking[0].keys),
            version=context.version,
        )


def _since(context: Context, key: str) -> str:
    """A hint where another version of the format has the key."""
    for entry in table("catalog.json")["versions"]:
        if entry["version"] != context.version and f'"{key}":' in _text(entry["config"]):
            return f" (format {entry['version']} does)"
    return ""


def _text(name: str) -> str:
    return json.dumps(table(name), ensure_ascii=False)


def _pack_method(context: Context) -> Iterator[Finding]:
    """A packed dtype whose nibble order the config does not give."""
    known = table("packing.json")["pack_methods"]
    if context.export.get("pack_method", context.block.get("pack_method")) in known:
        return
    packed = table("packing.json")["dtypes"]
    for entry in context.judged:
        for stage in entry.specs["weight"]:
            if stage.get("dtype") in packed and entry.first.weight is not None:
                yield finding(
                    "QF230",
                    file=context.checkpoint.config_file,
                    pointer=context.at("/export/pack_method"),
                    module=entry.first.name,
                    actual=short(context.export.get("pack_method"))
                    if "pack_method" in context.export
                    else "absent",
                    dtype=stage.get("dtype"),
                )
                return


def _weight_format(context: Context) -> Iterator[Finding]:
    declared = context.export.get("weight_format")
    if declared in table("packing.json")["unread_weight_formats"] and _has_spec(context):
        yield finding(
            "QF231", file=context.checkpoint.config_file, pointer=context.at("/export/weight_format")
        )


def _has_spec(context: Context) -> bool:
    layers = [context.quark.get("global_quant_config"), *context.declarations.layers.values()]
    return any(stages(layer.get("weight")) for layer in layers if isinstance(layer, Mapping))
