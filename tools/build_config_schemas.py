"""Project schema/source/config.yaml to the config schemas of every version in schema/catalog.json.

`--check` writes nothing and exits 1 when a file on disk differs from its projection.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "schema" / "source" / "config.yaml"
CATALOG = ROOT / "schema" / "catalog.json"

Level = Literal["reader", "strict"]
LEVELS: dict[Level, str] = {"reader": "config", "strict": "strict"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_GATES = frozenset({"since", "until", "level"})
_NOTATION = frozenset(
    {"required", "nullable", "ref", "map", "stages", "variants", "sources", "dispatch", "rules", "properties"}
)


@dataclass(frozen=True)
class Projection:
    """The part of the source that one version has at one level."""

    source: dict[str, Any]
    version: str
    file: str
    releases: tuple[str, ...]
    maps: tuple[str, ...]
    level: Level

    def schema(self) -> dict[str, Any]:
        """The whole JSON Schema document."""
        defs = {
            name: self.definition(body) for name, body in self.source["defs"].items() if self.exists(body)
        }
        root = self.definition({"type": "object", **self.source["root"]})
        self.exclude_known_names(defs)
        return {
            "$schema": DIALECT,
            "$id": f"{self.source['id']}/{self.file}",
            "title": f"{self.source['title']}, version {self.version}",
            "description": self.source["description"] + _LEVEL_NOTES[self.level],
            **root,
            "$defs": defs,
        }

    def exists(self, item: Any) -> bool:
        """Whether a gated item has a release of this version inside its range, and this level."""
        if not isinstance(item, dict):
            return True
        return item.get("level", self.level) == self.level and any(
            _inside(release, item) for release in self.releases
        )

    def always(self, item: dict[str, Any]) -> bool:
        """Whether the item exists in every release of this version."""
        return all(_inside(release, item) for release in self.releases)

    def definition(self, body: dict[str, Any]) -> dict[str, Any]:
        """One entry of `$defs`, or the root."""
        result = {key: value for key, value in body.items() if key not in _GATES | _NOTATION}
        if "sources" in body:
            result["$comment"] = "; ".join(body["sources"])
        if "dispatch" in body:
            return {**result, **self.dispatch(body["dispatch"])}
        properties = {
            name: self.merge_variants(value)
            for name, value in body["properties"].items()
            if self.exists(value)
        }
        required = [name for name, value in properties.items() if self.is_required(value)]
        result["properties"] = {name: self.subschema(value) for name, value in properties.items()}
        if required:
            result["required"] = required
        if self.level == "strict":
            result["additionalProperties"] = False
        rules = [self.rule(rule, properties) for rule in body.get("rules", ()) if self.exists(rule)]
        if rules:
            result["allOf"] = rules
        return result

    def merge_variants(self, body: dict[str, Any]) -> dict[str, Any]:
        """The property with the keywords of the variant that this version has."""
        for variant in body.get("variants", ()):
            if self.exists(variant):
                return {**body, **{key: value for key, value in variant.items() if key not in _GATES}}
        return body

    def is_required(self, body: dict[str, Any]) -> bool:
        """Whether this level asks for the key."""
        need = body.get("required", "written")
        return need == "always" or (need == "written" and self.level == "strict" and self.always(body))

    def subschema(self, body: dict[str, Any]) -> dict[str, Any]:
        """The subschema of one key."""
        result = {key: self.value(value) for key, value in body.items() if key not in _GATES | _NOTATION}
        nullable = body.get("nullable") in {"both", self.level}
        if "map" in body:
            result["type"] = "object"
            result["additionalProperties"] = _reference(body["map"])
        if "ref" in body and not nullable:
            return {**result, **_reference(body["ref"])}
        if "ref" in body:
            return {**result, "anyOf": [_reference(body["ref"]), {"type": "null"}]}
        if "stages" in body:
            return {**result, "anyOf": self.stages(body["stages"])}
        if nullable:
            result["type"] = [result["type"], "null"]
        return result

    def stages(self, name: str) -> list[dict[str, Any]]:
        """A spec, null, and where the version has them a list of specs."""
        one, none = _reference(name), {"type": "null"}
        many = {"type": "array", "items": one}
        return [one, many, none] if self.has_lists else [one, none]

    @property
    def has_lists(self) -> bool:
        """Whether the version knows lists of specs."""
        return any(_inside(release, {"since": self.source["lists_since"]}) for release in self.releases)

    def value(self, value: Any) -> Any:
        """Resolve sets and gates anywhere below a keyword."""
        if isinstance(value, list):
            return [member for item in value if self.exists(item) for member in self.members(item)]
        if isinstance(value, dict):
            if set(value) == {"set"}:
                return self.value(self.source["sets"][value["set"]])
            if set(value) == {"ref"}:
                return _reference(value["ref"])
            return {key: self.value(item) for key, item in value.items()}
        return value

    def members(self, item: Any) -> list[Any]:
        """What one list item stands for: itself, a gated value, or the members of a set."""
        if isinstance(item, dict) and set(item) == {"set"}:
            return list(self.value(item))
        if isinstance(item, dict) and "value" in item and set(item) <= _GATES | {"value"}:
            return [item["value"]]
        return [self.value(item)]

    def rule(self, rule: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
        """One entry of the `allOf` of a definition with `properties`, its title led by the rule's id."""
        result = {
            "$comment": f"{rule['id']}: {'; '.join(rule['sources'])}",
            "title": f"{rule['id']}: {rule['title']}",
            "description": rule["description"],
        }
        if "roles" not in rule:
            return {**result, **{key: self.value(rule[key]) for key in ("if", "then")}}
        array = {"type": "array"}
        if "stages" in rule:
            stages = {**array, "items": {"type": "object"}}
            condition = {"if": stages, "then": {**array, **self.value(rule["stages"])}}
        else:
            each = self.value(rule["each"])
            lists = {"if": array, "then": {**array, "items": each}, "else": each}
            condition = lists if self.has_lists else each
        roles = {"patternProperties": {_either(rule["roles"]): condition}}
        if "layers" not in rule:
            return {**result, **roles}
        layer = {"type": "object", **roles}
        entries = {"type": ["object", "null"], "additionalProperties": layer}
        known = [key for key in rule["layers"] if key in properties]
        layers = {
            _either([key for key in known if key not in self.maps]): layer,
            _either([key for key in known if key in self.maps]): entries,
        }
        return {**result, "if": {"not": self.value(rule["unless"])}, "then": {"patternProperties": layers}}

    def dispatch(self, body: dict[str, Any]) -> dict[str, Any]:
        """The conditions that choose a definition by the value of one key."""
        key = body["key"]
        cases = [case for case in body["cases"] if self.exists(case)]
        known = [case["value"] for case in cases]
        otherwise = body.get("otherwise")
        fallback = otherwise["ref"] if otherwise is not None and self.exists(otherwise) else None
        described = {name: body[name] for name in ("title", "description", "examples")}
        entries = [_choice(key, {"const": case["value"]}, case["ref"]) for case in cases]
        if fallback is not None:
            entries.append(_choice(key, {"type": "string", "not": {"enum": known}}, fallback))
        return {
            "properties": {key: {**described, **({"type": "string"} if fallback else {"enum": known})}},
            "required": [key],
            "allOf": entries,
        }

    def exclude_known_names(self, defs: dict[str, Any]) -> None:
        """Say inside the definition of the unknown case that it takes no known value."""
        for body in self.source["defs"].values():
            otherwise = body.get("dispatch", {}).get("otherwise")
            if otherwise is None or otherwise["ref"] not in defs:
                continue
            dispatch = body["dispatch"]
            known = [case["value"] for case in dispatch["cases"] if self.exists(case)]
            defs[otherwise["ref"]]["allOf"] = [{"properties": {dispatch["key"]: {"not": {"enum": known}}}}]


_LEVEL_NOTES: dict[Level, str] = {
    "reader": " This schema says what a block must be for its meaning to be read; other keys are allowed.",
    "strict": " This schema says what the exporter of this version writes, with every key and no other.",
}


def _either(keys: list[str]) -> str:
    """The pattern of exactly these keys."""
    return f"^({'|'.join(keys)})$"


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _choice(key: str, condition: dict[str, Any], name: str) -> dict[str, Any]:
    return {"if": {"properties": {key: condition}, "required": [key]}, "then": _reference(name)}


def _numbers(release: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", release)
    if match is None:
        raise ValueError(f"not a release: {release!r}")
    numbers = tuple(int(part) for part in match[0].split("."))
    return numbers + (0,) * (3 - len(numbers))


def _inside(release: str, item: dict[str, Any]) -> bool:
    """Whether `release` lies between `since` and `until`; a two-part `until` covers its patch releases."""
    number = _numbers(release)
    if "since" in item and number < _numbers(item["since"]):
        return False
    if "until" not in item:
        return True
    parts = item["until"].count(".") + 1
    return number[:parts] <= _numbers(item["until"])[:parts]


def projections() -> dict[Path, dict[str, Any]]:
    """Every file that the source declares, by its path."""
    source = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    catalog = json.loads(CATALOG.read_text(encoding="utf-8"))
    return {
        ROOT / "schema" / entry[key]: Projection(
            source, entry["version"], entry[key], tuple(entry["releases"]), tuple(catalog["maps"]), level
        ).schema()
        for entry in catalog["versions"]
        for level, key in LEVELS.items()
    }


def render(document: dict[str, Any]) -> str:
    """The bytes of a schema file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the projections, or compare them with the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    stale = []
    for path, document in projections().items():
        text = render(document)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    sys.stdout.writelines(f"{'differs' if check else 'wrote'}: {name}\n" for name in stale)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
