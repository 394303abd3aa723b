"""The layout tables: for each spec the tensors that a module has, by format version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doc_pages.markdown import code, codes, text
from doc_pages.markdown import table as markdown_table
from doc_pages.schemas import versions
from quark_format.tables import table

Json = dict[str, Any]

INTRODUCTION = """\
Which tensors a module stores for a spec. `out` and `in` are the sizes of the layer; a shape of `[]` may also
be written as `[1]`. A row whose tensors cannot be exported says why.
"""


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of each page."""
    for version in versions():
        yield f"reference/layouts-{version}.md", page(version)


def page(version: str) -> str:
    """The layouts of one format version."""
    declared = table(f"v{version}/tensors.json")
    links = " · ".join(
        other if other == version else f"[{other}](layouts-{other}.md)" for other in versions()
    )
    parts = [f"# Layouts, format {version}\n\n{INTRODUCTION}\nOther versions: {links}.\n"]
    for part in dict.fromkeys(row["part"] for row in declared["rows"]):
        parts.append(f"## {part.capitalize()}\n")
        rows = [_row(row) for row in declared["rows"] if row["part"] == part]
        parts.append(markdown_table(("Layout", "Spec", "Written by", "Tensors"), rows))
    parts.append("## Sets of dtypes\n")
    parts.append(markdown_table(("Set", "Depends on", "Dtypes"), _sets(declared["dtype_sets"])))
    return "\n".join(parts)


def _row(row: Json) -> tuple[str, str, str, str]:
    title = f"{code(row['id'].partition('/')[2])}<br>{text(row['title'])}"
    tensors = "<br>".join(_tensor(one) for one in row["tensors"])
    if row["unexportable"]:
        tensors = f"none: {text(row['unexportable'])}"
    by = (
        f"{', '.join(row['writers'])}<br>{', '.join(row['modes'])} mode<br>{', '.join(row['weight_formats'])}"
    )
    return (
        title,
        "<br>then ".join(_stage(stage) for stage in row["stages"]) or "no spec",
        text(by).replace(r"\<br\>", "<br>"),
        tensors or "none",
    )


def _stage(stage: Json) -> str:
    return "; ".join(f"{field} {codes(wanted)}" for field, wanted in stage.items()) or "any"


def _tensor(tensor: Json) -> str:
    dtypes = tensor["dtypes"]
    named = f"set *{text(dtypes['set'])}*" if isinstance(dtypes, dict) else codes(dtypes)
    optional = " (optional)" if tensor.get("optional") else ""
    return f"{code(tensor['suffix'])}: {named} {code(_shape(tensor.get('shape')))}{optional}"


def _shape(shape: Any) -> str:
    if shape is None:
        return "any shape"
    if isinstance(shape, str):
        return "[]"
    return f"[{', '.join(_term(term) for term in shape)}]"


def _term(term: Json) -> str:
    told = term["of"] if term["times"] == 1 else f"{term['times']} * {term['of']}"
    if term["over"] == 1:
        return str(told)
    rounded = {"exact": "", "up": ", rounded up", "down": ", rounded down"}[term["round"]]
    return f"{told} / {term['over']}{rounded}"


def _sets(sets: Json) -> Iterator[tuple[str, str, str]]:
    for name, content in sets.items():
        if "dtypes" in content:
            yield text(name), "", codes(content["dtypes"])
        else:
            told = "<br>".join(
                f"{code(value)}: {codes(dtypes)}" for value, dtypes in content["cases"].items()
            )
            yield text(name), code(content["by"]), told
