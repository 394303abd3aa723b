"""The config of each format version, key by key, and what changed between the versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from doc_pages.markdown import code, codes, text
from doc_pages.markdown import table as markdown_table
from quark_format.tables import table

Json = dict[str, Any]
Key = tuple[str, str]
"""A definition and one of its properties."""

ROOT = "#/$defs/"


def versions() -> list[str]:
    """The format versions, the oldest first."""
    return [entry["version"] for entry in table("catalog.json")["versions"]]


def versions_but(version: str, page: str) -> str:
    """Links to a page's siblings of the other versions."""
    return " · ".join(other if other == version else f"[{other}]({page}-{other}.md)" for other in versions())


def definitions(version: str) -> Mapping[str, Json]:
    """The definitions of a version's config schema."""
    found: Mapping[str, Json] = table(f"v{version}/config.schema.json")["$defs"]
    return found


@cache
def keys(version: str) -> dict[Key, Json]:
    """Every key of the config of a version, by definition."""
    return {
        (name, key): value
        for name, definition in definitions(version).items()
        for key, value in definition.get("properties", {}).items()
    }


def values(schema: Json) -> list[Any]:
    """The values that a property may have, where the schema lists them."""
    listed: list[Any] = schema.get("enum", [])
    return listed


def since(known: list[bool]) -> tuple[str, str]:
    """The first and the last version of those where something is there; "now" is still there."""
    there = [version for version, one in zip(versions(), known, strict=True) if one]
    return there[0], ("now" if there[-1] == versions()[-1] else there[-1])


def key_span(key: Key) -> tuple[str, str]:
    """Since and until which version a key is known."""
    return since([key in keys(version) for version in versions()])


def pages() -> Iterator[tuple[str, str]]:
    """The path and the text of each page."""
    for version in versions():
        yield f"reference/config-{version}.md", reference(version)
    yield "reference/versions.md", differences()


def reference(version: str) -> str:
    """The page of one version's config."""
    whole = table(f"v{version}/config.schema.json")
    parts = [
        f"# Config, format {version}\n\n{text(whole['description'])}\n\nOther versions: "
        f"{versions_but(version, 'config')}. What changed between them: [Versions](versions.md).\n"
    ]
    for name, definition in whole["$defs"].items():
        parts.append(f"## {name} {{#{name.lower()}}}\n\n{text(definition.get('description', ''))}\n")
        rows = [
            (
                f"{code(key)}{' (required)' if key in definition.get('required', []) else ''}",
                f"{text(schema.get('description', ''))}{_listed((name, key), schema)}",
                _type(schema),
                code(schema["default"]) if "default" in schema else "",
                *key_span((name, key)),
            )
            for key, schema in definition.get("properties", {}).items()
        ]
        if rows:
            parts.append(markdown_table(("Key", "Meaning", "Type", "Default", "Since", "Until"), rows))
        ruled = [rule for rule in definition.get("allOf", []) if "title" in rule]
        if ruled:
            parts.append(
                "\n".join(f"- **{text(rule['title'])}**: {text(rule['description'])}" for rule in ruled)
            )
            parts.append("")
    return "\n".join(parts)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(ROOT)
        return f"[{name}](#{name.lower()})"
    options = [option for word in ("anyOf", "oneOf") for option in schema.get(word, [])]
    if options:
        return " or ".join(_type(option) for option in options)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict) and schema[inner]:
            of = {"items": "list of", "additionalProperties": "object of"}[inner]
            null = " or null" if "null" in schema.get("type", []) else ""
            return f"{of} {_type(schema[inner])}{null}"
    if "enum" in schema:
        return "one of"
    if "const" in schema:
        return f"always {code(schema['const'])}"
    named = schema.get("type", "any")
    return " or ".join(named) if isinstance(named, list) else str(named)


def _listed(key: Key, schema: Json) -> str:
    """The values of a property, each with the version it came with if that is a later one than the key's."""
    if not values(schema):
        return ""
    first = key_span(key)[0]
    told = []
    for value in values(schema):
        began, _ = since([value in values(keys(one).get(key, {})) for one in versions()])
        told.append(code(value) if began == first else f"{code(value)} (since {began})")
    return f" Values: {', '.join(told)}."


def differences() -> str:
    """The page that compares each version with the one before."""
    parts = [
        "# Versions\n\nWhat Quark writes changed from release to release without a format version. These are "
        "the differences of the declared schemas and layout tables.\n"
    ]
    for before, after in reversed(list(zip(versions(), versions()[1:], strict=False))):
        releases = next(
            one["releases"] for one in table("catalog.json")["versions"] if one["version"] == after
        )
        parts.append(f"## {after}, after {before} {{#v{after.replace('.', '-')}}}\n")
        parts.append(f"Releases of amd-quark: {', '.join(releases)}.\n")
        rows = [*_key_changes(before, after), *_row_changes(before, after)]
        shown = markdown_table(("What", "Added", "Removed"), rows) if rows else "Nothing changed.\n"
        parts.append(shown)
    return "\n".join(parts)


def _key_changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    old, new = keys(before), keys(after)
    for name in dict.fromkeys(name for name, _ in (*new, *old)):
        added = [key for of, key in new if of == name and (of, key) not in old]
        gone = [key for of, key in old if of == name and (of, key) not in new]
        if added or gone:
            yield f"Keys of {name}", codes(added), codes(gone)
    for key in (key for key in new if key in old):
        added = [value for value in values(new[key]) if value not in values(old[key])]
        gone = [value for value in values(old[key]) if value not in values(new[key])]
        if values(new[key]) and values(old[key]) and (added or gone):
            yield f"Values of {key[0]}.{key[1]}", codes(added), codes(gone)


def _row_changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    old, new = ({row["id"]: row for row in table(f"v{one}/tensors.json")["rows"]} for one in (before, after))
    added, gone = [one for one in new if one not in old], [one for one in old if one not in new]
    if added or gone:
        yield "Layouts", codes(added), codes(gone)
    changed = [one for one in new if one in old and _stored(old[one]) != _stored(new[one])]
    if changed:
        yield "Layouts with other tensors", codes(changed), ""


def _stored(row: Json) -> Any:
    return row["tensors"], row["stages"], row["writers"]
