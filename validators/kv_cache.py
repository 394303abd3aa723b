"""KV cache and attention: what the config declares against the scales that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from quark_format.declarations import PARTS, describe, escape, stages
from quark_format.layouts import describe as describe_tensor
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.judgement import is_kv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.declarations import Stages
    from quark_format.modules import Module
    from quark_format.validators.context import Context
    from quark_format.validators.judgement import Judged

_SCALARS = ((), (1,))
_KV_KEY = "kv_cache_quant_config"


def check(context: Context) -> Iterator[Finding]:
    """Yield contradictions of KV settings, missing and undeclared scales, and names that readers drop."""
    yield from _settings(context)
    if not context.checkpoint.tensors:
        return
    for entry in context.sound:
        yield from _projection(context, entry)
    yield from _on_attention(context)
    yield from _softmax(context)


def _output(layer: Mapping[str, Any]) -> Stages:
    return stages(layer.get(PARTS["output"]))


def _settings(context: Context) -> Iterator[Finding]:
    """`export.kv_cache_group`, `kv_cache_quant_config` and the output specs of `layer_quant_config`."""
    file = context.checkpoint.config_file
    listed = context.export.get("kv_cache_group")
    group = [pattern for pattern in listed if isinstance(pattern, str)] if isinstance(listed, list) else []
    declared = context.declarations.kv_cache
    layers = {key: layer for key, layer in context.declarations.layers.items() if _output(layer)}
    if group and context.mode in table("modes.json")["modes"]:
        return
    pointer = context.at("/export/kv_cache_group")
    unmatched = [
        pattern for pattern in group if not any(_covers(pattern, key) for key in (*declared, *layers))
    ]
    if unmatched and not (declared or layers):
        yield finding("QF507", file=file, pointer=pointer, actual=", ".join(group))
    elif unmatched:
        yield finding(
            "QF504",
            file=file,
            pointer=pointer,
            actual=", ".join(group),
            other=context.at(f"/{_KV_KEY}"),
            expected=", ".join(declared or layers),
        )
    uncovered = [key for key in declared if not any(_covers(pattern, key) for pattern in group)]
    if uncovered and context.complete and context.writer == context.reference_writer:
        yield finding(
            "QF504",
            file=file,
            pointer=pointer,
            actual=", ".join(group) or "empty",
            other=context.at(f"/{_KV_KEY}"),
            expected=", ".join(declared),
        )
    for key in declared.keys() & context.declarations.layers.keys():
        given = _output(context.declarations.layers[key])
        if _output(declared[key]) != given:
            yield finding(
                "QF504",
                file=file,
                pointer=context.at(f"/{_KV_KEY}/{escape(key)}/output_tensors"),
                actual=describe(_output(declared[key])),
                other=context.at(f"/layer_quant_config/{escape(key)}/output_tensors"),
                expected=describe(given),
            )
    for key, layer in declared.items():
        spec = _output(layer)
        if spec and not _loadable(spec):
            yield finding(
                "QF509",
                file=file,
                pointer=context.at(f"/{_KV_KEY}/{escape(key)}/output_tensors"),
                actual=describe(spec),
            )


def _covers(pattern: str, key: str) -> bool:
    return pattern == key or fnmatchcase(key, pattern) or fnmatchcase(pattern, key)


def _loadable(spec: Stages) -> bool:
    loadable = table("roles.json")["kv_projections"]["loadable"]
    return len(spec) == 1 and all(spec[0].get(field) in values for field, values in loadable.items())


def _projection(context: Context, entry: Judged) -> Iterator[Finding]:
    """Scales that hang on the projections themselves."""
    module = entry.first
    names = table("roles.json")["kv_projections"]
    leaf = module.name.rpartition(".")[2]
    outputs = [
        tensor for suffix, tensor in module.tensors.items() if context.layouts.parts.get(suffix) == "output"
    ]
    place: dict[str, Any] = {"module": module.name, "count": len(entry.members)}
    if entry.kv and leaf in names["fused"] and outputs:
        yield finding("QF503", file=outputs[0].file, tensor=outputs[0].name, **place)
    for deviation in entry.fit.deviations:
        if context.layouts.parts.get(deviation.suffix) != "output":
            continue
        tensor = module.tensors.get(deviation.suffix)
        name = f"{module.name}.{deviation.suffix}"
        file = tensor.file if tensor else None
        if name in context.expected_elsewhere:
            continue
        if entry.kv and deviation.kind == "missing" and context.complete:
            yield finding(
                "QF501",
                file=file,
                tensor=name,
                pointer=_declared_at(context, entry),
                **place,
            )
        elif entry.kv and deviation.kind == "shape" and tensor is not None:
            yield finding("QF506", file=file, tensor=name, actual=describe_tensor(tensor), **place)
        elif entry.kv and deviation.kind == "dtype":
            yield finding(
                "QF303",
                file=file,
                tensor=name,
                actual=deviation.actual,
                spec=f"output {describe(entry.specs['output'])}",
                expected=deviation.expected,
                **place,
            )
        elif deviation.kind == "extra" and leaf in (*names["mapped"], *names["fused"]):
            yield finding("QF502", file=file, tensor=name, what="KV cache or attention", **place)


def _declared_at(context: Context, entry: Judged) -> str:
    key = context.declarations.kv_layers.first(entry.first.name)
    if key is not None and _KV_KEY in context.block:
        return context.at(f"/{_KV_KEY}/{escape(key)}")
    return context.at(entry.declared.pointer)


def _on_attention(context: Context) -> Iterator[Finding]:
    """Scales that hang on the attention module, and those that no setting declares."""
    rows = [row for row in context.layouts.raw["kv_cache"] if context.mode in row["modes"]]
    needed = [suffix for row in rows if row["holder"] == "attention" for suffix in row["suffixes"]]
    parents = _kv_parents(context)
    modules = context.modules.by_name
    lacking: dict[str, list[str]] = {}
    for parent in parents if needed else ():
        held = modules[parent].tensors if parent in modules else {}
        absent = [suffix for suffix in needed if suffix not in held]
        if absent and len(absent) < len(needed):
            present = next(suffix for suffix in needed if suffix in held)
            yield finding(
                "QF505", module=parent, tensor=held[present].name, expected=f"`{parent}.{absent[0]}`"
            )
        elif absent:
            lacking.setdefault(absent[0], []).append(parent)
    if context.complete:
        for suffix, holders in lacking.items():
            yield finding(
                "QF501",
                tensor=f"{holders[0]}.{suffix}",
                module=holders[0],
                pointer=context.at(
                    "/kv_cache_scheme" if context.mode != "quark" else "/export/kv_cache_group"
                ),
                count=len(holders),
            )
    yield from _stray(context, parents if needed else set(), needed)


def _kv_parents(context: Context) -> set[str]:
    """Attention modules whose projections the config sends to a quantized KV cache."""
    names = table("roles.json")["kv_projections"]
    leaves = {*names["mapped"][:2], *names["fused"]}
    return {
        module.name.rpartition(".")[0]
        for entry in context.judged
        for module in entry.members
        if module.name.rpartition(".")[2] in leaves
        and is_kv(module.name, entry.declared, context.declarations)
    }


def _stray(context: Context, parents: set[str], needed: list[str]) -> Iterator[Finding]:
    softmax = [row["suffix"] for row in context.layouts.raw["softmax"]]
    allowed = {suffix: row["dtypes"] for row in context.layouts.raw["kv_cache"] for suffix in row["suffixes"]}
    found: dict[str, list[Module]] = {}
    for module in context.modules.by_name.values():
        for suffix, tensor in module.tensors.items():
            if context.layouts.parts.get(suffix) != "attention" or suffix in softmax:
                continue
            if tensor.shape not in _SCALARS:
                yield finding(
                    "QF506",
                    file=tensor.file,
                    tensor=tensor.name,
                    module=module.name,
                    actual=describe_tensor(tensor),
                )
            if tensor.dtype not in allowed.get(suffix, [tensor.dtype]):
                yield finding(
                    "QF303",
                    file=tensor.file,
                    tensor=tensor.name,
                    module=module.name,
                    actual=tensor.dtype,
                    spec="a KV cache scale",
                    expected=" or ".join(allowed[suffix]),
                )
            if suffix not in needed or module.name not in parents:
                found.setdefault(suffix, []).append(module)
    for suffix, modules in found.items():
        tensor = modules[0].tensors[suffix]
        yield finding(
            "QF502",
            file=tensor.file,
            tensor=tensor.name,
            module=modules[0].name,
            count=len(modules),
            what="KV cache of that kind",
        )


def _softmax(context: Context) -> Iterator[Finding]:
    suffixes = [row["suffix"] for row in context.layouts.raw["softmax"]]
    declared = stages(context.quark.get("softmax_quant_spec"))
    static = any(stage.get("is_dynamic") is False for stage in declared)
    modules = context.modules.by_name
    leaves = table("roles.json")["kv_projections"]["mapped"]
    parents = sorted({name.rpartition(".")[0] for name in modules if name.rpartition(".")[2] in leaves})
    for suffix in suffixes:
        holding = [name for name, module in modules.items() if suffix in module.tensors]
        lacking = [parent for parent in parents if parent not in holding]
        if static and lacking and context.complete and context.writer == context.reference_writer:
            yield finding(
                "QF508",
                tensor=f"{lacking[0]}.{suffix}",
                module=lacking[0],
                pointer=context.at("/softmax_quant_spec"),
                count=len(lacking),
            )
        if not declared and holding:
            tensor = modules[holding[0]].tensors[suffix]
            yield finding(
                "QF502",
                file=tensor.file,
                tensor=tensor.name,
                module=holding[0],
                count=len(holding),
                what="attention",
            )
