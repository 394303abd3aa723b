"""What changed for Quark between two releases of a consumer, from the folders of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from build_architectures import spelled_out

from doc_pages.markdown import code, codes, text
from doc_pages.markdown import table as markdown_table
from quark_format.tables import has_table, table
from quark_format.targets import Target, targets

Json = dict[str, Any]
Cells = tuple[str, ...]

CONSUMERS = {"vllm": "vLLM"}
NOTHING = "Nothing.\n"
ABSENT = "none"


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of a page for each two releases that follow each other."""
    for name, words in CONSUMERS.items():
        releases = [one for one in targets().values() if one.header.name == name]
        for old, new in pairwise(releases):
            path = f"reference/{name}-{old.header.version}-{new.header.version}.md"
            yield path, page(words, old, new)


def page(words: str, old: Target, new: Target) -> str:
    """All that differs, a section for each table."""
    versions = (old.header.version, new.header.version)
    parts = [
        f"# What changed for Quark between {words} {versions[0]} and {versions[1]}\n",
        f"The tables of `{old.name}` and `{new.name}` compared; what is alike in both is not listed. What a\n"
        f"release does with a checkpoint is told by `quark-validate --target {old.name}`.\n",
    ]
    sections: dict[str, tuple[Cells, Iterable[Cells]]] = {
        "Presets of Quark": (("Preset", "Modules", *versions), presets(old, new)),
        "Schemes": (("Modules", "Weight", "Input", *versions), schemes(old, new)),
        "Kernels and platforms": (("Family", "Platform", *versions), kernels(old, new)),
        "Kernels that are listed and do not all work": (
            ("Platform", "Families", "Keys", "Release", "Outcome", "Reason"),
            platforms(old, new),
        ),
        "Config keys": (("Key", *versions), keys(old, new)),
        "Names": (("Rule", *versions), names(old, new)),
        "Architectures": (("What", "Architectures"), architectures(old, new)),
        "Loading rules": (("Rule", "Release", "Row"), rules(old, new)),
    }
    for title, (heads, rows) in sections.items():
        listed = list(rows)
        parts.append(f"## {title}\n\n{markdown_table(heads, listed) if listed else NOTHING}")
    return "\n".join(parts)


def _file(of: Target, name: str) -> Json:
    path = f"targets/{of.folder}/{name}.json"
    return dict(table(path)) if has_table(path) else {}


def presets(old: Target, new: Target) -> Iterator[Cells]:
    """The rows that serve the presets of Quark."""
    before, after = (_file(one, "presets")["presets"] for one in (old, new))
    for name in after:
        for kind, row in after[name].items():
            was = before.get(name, {}).get(kind)
            if (was is None) != (row is None):
                yield code(name), kind, code(was) if was else "refused", code(row) if row else "refused"


def schemes(old: Target, new: Target) -> Iterator[Cells]:
    """The specs that one release serves and the other does not."""
    before, after = _served(old), _served(new)
    for place in sorted(before.keys() ^ after.keys()):
        yield (
            *map(text, place),
            code(before[place]) if place in before else "refused",
            code(after[place]) if place in after else "refused",
        )


def _served(of: Target) -> dict[tuple[str, str, str], str]:
    specs = of.schemes.specs
    return {
        (row.kind, specs[weight].words, specs[into].words): row.id
        for row in of.schemes.rows
        for weight in row.specs.get("weight", ())
        for into in row.specs.get("input", ())
    }


def kernels(old: Target, new: Target) -> Iterator[Cells]:
    """The kernels of the families, in the order in which they are tried."""
    before, after = (one.kernels.families for one in (old, new))
    for family in dict.fromkeys([*before, *after]):
        for platform in new.header.platforms:
            was, now = (
                one[family].platforms.get(platform, []) if family in one else None for one in (before, after)
            )
            if was != now and (was or now):
                yield code(family), platform, *(_lines(one) for one in (was, now))


def _lines(names: Sequence[str] | None) -> str:
    return "no such family" if names is None else "<br>".join(map(code, names)) or "none"


def platforms(old: Target, new: Target) -> Iterator[Cells]:
    """What loading.json says about kernels on platforms."""
    before, after = (_file(one, "loading").get("platforms", {}) for one in (old, new))
    for platform in dict.fromkeys([*before, *after]):
        lists = (before.get(platform, ()), after.get(platform, ()))
        for release, row in _apart(old, new, *lists):
            outcome = "works" if row["works"] else row.get("outcome", "fails")
            where = "".join(f", {key} {' '.join(row[key])}" for key in ("with", "dtypes") if key in row)
            unless = f", unless {' '.join(row['features'])}" if "features" in row else ""
            held = "<br>".join(f"{part} {codes(keys)}" for part, keys in row.get("keys", {}).items()) or "any"
            yield (
                platform + where + unless,
                codes(row["families"]),
                held,
                release,
                outcome,
                text(row["reason"]),
            )


def keys(old: Target, new: Target) -> Iterator[Cells]:
    """What the releases need of the config."""
    before, after = (dict(_keys(_file(one, "config.schema"), "")) for one in (old, new))
    for path in dict.fromkeys([*before, *after]):
        if before.get(path) != after.get(path):
            yield code(path), before.get(path, "not read"), after.get(path, "not read")


def _keys(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, one in schema.get("properties", {}).items():
        types = one.get("type", [])
        inside = one.get("additionalProperties", one.get("items", {}))
        told = _types(types) + (f", each {_types(inside['type'])}" if "type" in inside else "")
        if "const" in one:
            told = code(one["const"])
        yield path + key, told + (", required" if key in schema.get("required", ()) else "")
        yield from _keys(one, f"{path}{key}.")


def _types(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)


def names(old: Target, new: Target) -> Iterator[Cells]:
    """How the releases read `exclude` and the keys of layer_quant_config."""
    file = table("names.json")
    rows = [
        {row["since"]: row for row in file["readers"] if row["reader"] == one.header.reader}
        for one in (old, new)
    ]
    before, after = (listed[one.header.version] for listed, one in zip(rows, (old, new), strict=True))
    told: dict[str, Callable[[Json], str]] = {
        "exclude": lambda row: text(file["semantics"][row["exclude"]]["description"]),
        "layer_quant_config": lambda row: text(file["semantics"][row["layers"]]["description"]),
        "an entry of `exclude` with a fused module's own name excludes it": lambda row: _yes(
            row.get("fused_by_name")
        ),
        "routed experts are excluded by an entry of `exclude` below them": lambda row: _yes(
            row["experts_by_children"]
        ),
    }
    for what, of in told.items():
        if of(before) != of(after):
            yield what, of(before), of(after)


def _yes(value: Any) -> str:
    return "yes" if value else "no"


def architectures(old: Target, new: Target) -> Iterator[Cells]:
    """New and gone architectures, and those whose modules are joined or named otherwise."""
    before, after = (spelled_out(_file(one, "architectures")) for one in (old, new))
    both = sorted(before.keys() & after.keys())
    yield "new", codes(sorted(after.keys() - before.keys())) or ABSENT
    yield "gone", codes(sorted(before.keys() - after.keys())) or ABSENT
    for what, key in {
        "join modules otherwise": "fused",
        "rename modules otherwise": "renames",
        "name the projections of experts otherwise": "experts",
    }.items():
        yield what, codes(one for one in both if before[one][key] != after[one][key]) or ABSENT


def rules(old: Target, new: Target) -> Iterator[Cells]:
    """The other rows of loading.json."""
    before, after = (_file(one, "loading") for one in (old, new))
    for rule in dict.fromkeys([*before, *after]):
        if rule in {"$schema", "platforms"}:
            continue
        lists = (_listed(one.get(rule)) for one in (before, after))
        for release, row in _apart(old, new, *lists):
            yield code(rule), release, "; ".join(_told(key, value) for key, value in row.items())


def _listed(rule: Any) -> list[Json]:
    return rule if isinstance(rule, list) else [rule] if rule else []


def _told(key: str, value: Any) -> str:
    return text(value) if key == "reason" else f"{text(key)} {code(value)}"


def _apart(
    old: Target, new: Target, before: Sequence[Json], after: Sequence[Json]
) -> Iterator[tuple[str, Json]]:
    """The rows that only one release has, with the release; sources do not count."""
    plain = [[{key: row[key] for key in row if key != "source"} for row in rows] for rows in (before, after)]
    for one, rows, others in ((old, plain[0], plain[1]), (new, plain[1], plain[0])):
        for row in rows:
            if row not in others:
                yield one.header.version, row
