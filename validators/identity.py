"""What the config is: Quark's and of which version, another format's, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quark_format.formats import detect, locate
from quark_format.modules import group
from quark_format.tables import table
from quark_format.validators.findings import Finding, finding
from quark_format.validators.shown import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.checkpoint import Checkpoint
    from quark_format.formats import Format
    from quark_format.validators.context import Context


def check(checkpoint: Checkpoint, context: Context | None) -> Iterator[Finding]:
    """Yield what is wrong with the place, the tool and the version of the quantization block.

    `context` is what the other checks go by, None where the config is not Quark's.
    """
    located = locate(checkpoint.config or {})
    if not located:
        yield _missing(checkpoint)
        return
    pointer, block = located[0]
    yield from _conflicts(checkpoint, located)
    if not isinstance(block, Mapping):
        yield finding(
            "QF210",
            file=checkpoint.config_file,
            pointer=pointer,
            actual=short(block),
            expected="an object",
            advice="Copy the quantization_config of the export.",
        )
        return
    verdict = context.format if context is not None and context.block is block else detect(dict(block))
    if verdict.sister is not None:
        yield _sister(checkpoint, pointer, verdict)
    elif verdict.mode is None:
        yield finding(
            "QF202",
            file=checkpoint.config_file,
            pointer=f"{pointer}/quant_method",
            actual=short(block.get("quant_method")),
            expected=", ".join(f'"{mode["quant_method"]}"' for mode in table("catalog.json")["modes"]),
        )
    else:
        yield from _version(checkpoint, pointer, verdict, context.version if context else None)
        yield from _second_configs(checkpoint)


def _missing(checkpoint: Checkpoint) -> Finding:
    newest = table("catalog.json")["versions"][-1]["version"]
    modules = group(checkpoint.tensors, table(f"v{newest}/tensors.json")).by_name.values()
    module = next((module for module in modules if module.scales), None)
    scale = module.tensors[module.scales[0]].name if module else None
    hint = f", although `{scale}` is a scale of a quantized weight" if scale else ""
    file = checkpoint.config_file
    return finding("QF201", file=file, tensor=scale, where=file, hint=hint)


def _conflicts(checkpoint: Checkpoint, located: list[tuple[str, Any]]) -> Iterator[Finding]:
    (pointer, block), *others = located
    for other_pointer, other in others:
        if other == block:
            continue
        yield finding(
            "QF204",
            file=checkpoint.config_file,
            pointer=other_pointer,
            where=f"{checkpoint.config_file}{pointer}",
            other=f"{checkpoint.config_file}{other_pointer}",
            difference=_difference(block, other),
        )


def _difference(block: Any, other: Any) -> str:
    if not (isinstance(block, Mapping) and isinstance(other, Mapping)):
        return f"{short(block)} and {short(other)}"
    key = next(key for key in [*block, *other] if block.get(key) != other.get(key))
    return f"{key} is {short(block.get(key))} and {short(other.get(key))}"


def _second_configs(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Configs of other tools in the folder; only their names are looked at."""
    for other in table("catalog.json")["side_configs"]:
        if (checkpoint.path / other["file"]).is_file():
            yield finding("QF208", file=other["file"], title=other["title"])


def _sister(checkpoint: Checkpoint, pointer: str, verdict: Format) -> Finding:
    titles = {sister["name"]: sister["title"] for sister in table("catalog.json")["sisters"]}
    return finding(
        "QF203",
        file=checkpoint.config_file,
        pointer=pointer,
        format=titles[verdict.sister or ""],
        evidence="; ".join(verdict.evidence),
    )


def _version(checkpoint: Checkpoint, pointer: str, verdict: Format, used: str | None) -> Iterator[Finding]:
    place: dict[str, Any] = {"file": checkpoint.config_file, "pointer": f"{pointer}/version"}
    mode = next(mode for mode in table("catalog.json")["modes"] if mode["name"] == verdict.mode)
    if mode["version_key"] is None:
        return
    if verdict.declared is None:
        yield finding("QF207", **place, candidates=_range(verdict.candidates), used=used)
    elif not verdict.known:
        yield finding("QF205", **place, actual=short(verdict.declared), used=used)
    elif verdict.contradicted:
        yield finding(
            "QF206",
            **place,
            actual=short(verdict.declared),
            evidence="; ".join(verdict.evidence),
            used=used,
        )


def _range(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
