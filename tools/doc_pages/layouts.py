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
be written as `[1]`. Where Quark cannot export a spec, its row says why.
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
        rows = [_row(row, declared["dtype_sets"]) for row in declared["rows"] if row["part"] == part]
        parts.append(markdown_table(("Layout", "Spec", "Written by", "Tensors"), rows))
    parts.append("## Dtypes by field of the spec {#dtypes}\n")
    parts.append(markdown_table(("Of", "Field", "Value and dtypes"), _sets(declared["dtype_sets"])))
    return "\n".join(parts)


def _row(row: Json, sets: Json) -> tuple[str, str, str, str]:
    title = f"{code(row['id'].partition('/')[2])}<br>{text(row['title'])}"
    tensors = "<br>".join(_tensor(one, row, sets) for one in row["tensors"])
    if row["unexportable"]:
        tensors = f"none: {text(row['unexportable'])}"
    modes = f"{', '.join(row['modes'])} mode"
    by = (", ".join(row["writers"]), modes, ", ".join(row["weight_formats"]))
    return (
        title,
        "<br>then ".join(_stage(stage) for stage in row["stages"]) or "no spec",
        "<br>".join(map(text, by)),
        tensors or "none",
    )


def _stage(stage: Json) -> str:
    return "; ".join(f"{field} {codes(wanted)}" for field, wanted in stage.items()) or "any"


def _tensor(tensor: Json, row: Json, sets: Json) -> str:
    optional = " (optional)" if tensor.get("optional") else ""
    shape = code(_shape(tensor.get("shape")))
    return f"{code(tensor['suffix'])}: {_dtypes(tensor['dtypes'], row, sets)} {shape}{optional}"


def _dtypes(declared: Any, row: Json, sets: Json) -> str:
    """The dtypes of a tensor; where a field decides that the row leaves open, a link to what it decides."""
    chosen = sets[declared["set"]] if isinstance(declared, dict) else {"dtypes": declared}
    if "dtypes" in chosen:
        return codes(chosen["dtypes"])
    field, cases = chosen["by"], chosen["cases"]
    listed = (value for stage in row["stages"] for value in stage.get(field, ()))
    found = dict.fromkeys(dtype for value in listed for dtype in cases.get(value, ()))
    return codes(found) or f"[by {code(field)}](#dtypes)"


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
        if "by" in content:
            told = "<br>".join(
                f"{code(value)}: {codes(dtypes)}" for value, dtypes in content["cases"].items()
            )
            yield text(name), code(content["by"]), told
