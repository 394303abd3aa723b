"""The page on what Quark and compressed-tensors can say of each other, from its mapping in `schema/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doc_pages.markdown import code, text
from doc_pages.markdown import table as markdown_table
from quark_format.tables import table

Json = dict[str, Any]
MAPPING = "targets/compressed-tensors-0.17.json"

INTRODUCTION = """\
# Quark and compressed-tensors

What a Quark checkpoint says, whether the models of {distribution} can say it too, and what is lost, in
both directions. Each equivalent is constructed with that package by a test, each "no" is its own refusal or a
field that it lacks. The mapping is the file `schema/{mapping}`.
"""


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of the page."""
    mapping = table(MAPPING)
    yield "compressed-tensors.md", page(mapping)


def page(mapping: Json) -> str:
    """The whole page."""
    specs, presets = mapping["specs"], mapping["presets"]
    there = sum(one["format"] is not None for one in presets.values())
    used = {spec for one in presets.values() for spec in (one["weight"], one["input"])}
    others = [name for name in specs if name not in used]
    stored = list(dict.fromkeys(one["layout"] for one in presets.values() if one["layout"]))
    return "\n".join(
        (
            INTRODUCTION.format(distribution=mapping["distribution"], mapping=MAPPING),
            f"## Quark's presets\n\nOf the {len(presets)} presets of Quark {mapping['quark']}, {there} have "
            "an equivalent.\n",
            markdown_table(
                ("Preset", "Expressible", "Weight", "Input", "Format", "Stored tensors"),
                (_preset(name, one, specs, stored) for name, one in presets.items()),
            ),
            "How the stored tensors differ from Quark's:\n",
            "".join(f"{number}. {text(words)}\n" for number, words in enumerate(stored, 1)),
            "## Specs in detail\n",
            markdown_table(
                ("Spec", "In Quark", "As QuantizationArgs", "Lost, or why not"),
                (_spec(name, specs[name]) for name in (*sorted(used - {None}), *others)),
            ),
            "## Settings beside specs\n",
            markdown_table(
                ("Quark", "compressed-tensors", "Lost"),
                (
                    (
                        _names(one["quark"]),
                        code(one["compressed_tensors"])
                        if one["compressed_tensors"]
                        else f"no: {_proof(one['refused'])}",
                        text(one["lost"]),
                    )
                    for one in mapping["settings"]
                ),
            ),
            "## From compressed-tensors to Quark\n",
            markdown_table(
                ("compressed-tensors", "For example", "In Quark", "Lost"),
                (
                    (
                        text(one["compressed_tensors"]),
                        code(_arguments(one["arguments"])),
                        "<br>then ".join(code(_stage(stage)) for stage in one["quark"] or ()) or "no",
                        text(one["lost"]),
                    )
                    for one in mapping["reverse"]
                ),
            ),
        )
    )


def _preset(name: str, one: Json, specs: Json, layouts: list[str]) -> tuple[str, ...]:
    parts = [_equivalent(name_of, specs) for name_of in (one["weight"], one["input"])]
    stored = code(one["format"]) if one["format"] else "none"
    number = str(layouts.index(one["layout"]) + 1) if one["layout"] else ""
    return code(name), "yes" if one["format"] else "**no**", *parts, stored, number


def _equivalent(name: str | None, specs: Json) -> str:
    if name is None:
        return "none"
    given = specs[name]["arguments"]
    return f"no: [{text(name)}](#spec-{name})" if given is None else code(_arguments(given))


def _spec(name: str, spec: Json) -> tuple[str, ...]:
    head = f'<span id="spec-{name}"></span>{text(name)}'
    quark = "<br>then ".join(code(_stage(stage)) for stage in spec["quark"])
    if spec["arguments"] is None:
        proofs = "; ".join(_proof(one) for one in spec["refused"])
        return head, quark, "**no**", f"{text(spec['reason'])}. {proofs}"
    return (
        head,
        quark,
        code(_arguments(spec["arguments"])),
        "<br>".join(map(text, spec["lost"])) or "nothing",
    )


def _proof(refused: Json) -> str:
    if "lacks" in refused:
        return f"{refused['model']} has no {', '.join(map(code, refused['lacks']))}"
    return f"refused with {code(refused['says'])}"


def _names(value: str) -> str:
    return ", ".join(code(name) for name in value.split(", "))


def _arguments(given: Json) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items())


def _stage(stage: Json) -> str:
    return " ".join(f"{key}={value}" for key, value in stage.items())
