"""Which format a checkpoint's config has: where its block lies, which tool, mode and version wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from quark_format.conditions import FormatModel
from quark_format.config_errors import SchemaError, schema_errors
from quark_format.repeats import distinct
from quark_format.tables import table

__all__ = ["ConfigError", "Format", "SchemaError", "detect", "load_config", "locate", "schema_errors"]

_MAX_CONFIG_BYTES = 1 << 26
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Format:
    """What wrote a block.

    A block of Quark has a `mode` ("quark", "fp8", "awq") and a format `version`; `declared` is the version
    string it carries, `candidates` the format versions that its keys allow, `writer` the code path of Quark
    that its key order suggests, `contradicted` whether the keys disagree with the declared version or with
    each other. A block of another tool has the name of its format in `sister`. `known` is False where the
    declared version is none of the catalog's, and where neither mode nor sister is known. `evidence` says in
    words what the verdict rests on.
    """

    version: str | None = None
    declared: str | None = None
    candidates: tuple[str, ...] = ()
    mode: str | None = None
    sister: str | None = None
    writer: str | None = None
    evidence: tuple[str, ...] = ()
    contradicted: bool = False
    known: bool = True


class ConfigError(ValueError):
    """A config that cannot be read as one of Quark.

    `errors` are the structured reasons, empty where the config is of another tool or there is none; `format`
    is the verdict on the block, or None where there is no block.
    """

    def __init__(
        self, message: str, errors: Sequence[SchemaError] = (), verdict: Format | None = None
    ) -> None:
        """Put the message and one line for each error together."""
        lines = [f"{error.pointer or '/'}: {error.message}" for error in errors[:_MAX_SHOWN]]
        if len(errors) > _MAX_SHOWN:
            lines.append(f"… and {len(errors) - _MAX_SHOWN:,} more")
        super().__init__("\n  ".join([message, *lines]))
        self.errors = tuple(errors)
        self.format = verdict


def locate(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return every quantization block of a parsed config.json with its JSON pointer, in readers' order.

    A block that is null is absent. Any other value is returned as it is, so that a caller can name it.
    """
    found = []
    for pointer in table("catalog.json")["locations"]:
        values = list(_select(config, pointer.split("/")[1:]))
        found += [(pointer, value) for value in values if value is not None]
    return found


def detect(block: dict[str, Any]) -> Format:
    """Tell the mode and version of a block of Quark, or which other format it is."""
    method = block.get("quant_method")
    return _named(block, method) if isinstance(method, str) else _unnamed(block)


def _named(block: dict[str, Any], method: str) -> Format:
    """The verdict on a block that says its method; a sister may share the method and differ in its keys."""
    catalog = table("catalog.json")
    name = method.strip().lower()
    evidence = f"quant_method is {method}"
    sisters = [item for item in catalog["sisters"] if name in item["quant_methods"]]
    sharing = [
        item["name"]
        for item in sisters
        if "when" in item and _matches(block, "sisters", item["name"], "when")
    ]
    if sharing:
        return Format(sister=sharing[0], evidence=(evidence, f"its keys are those of {sharing[0]}"))
    for mode in catalog["modes"]:
        if name == mode["quant_method"]:
            return _versioned(block, mode, evidence)
    return Format(sister=sisters[0]["name"] if sisters else None, known=bool(sisters), evidence=(evidence,))


def _unnamed(block: dict[str, Any]) -> Format:
    """The verdict on a block that lacks its method, by its keys."""
    catalog = table("catalog.json")
    for sister in catalog["sisters"]:
        for keys in sister["keys"]:
            if all(key in block for key in keys):
                return Format(sister=sister["name"], evidence=(f"it has {', '.join(keys)}",))
    for mode in catalog["modes"]:
        if _matches(block, "modes", mode["name"], "guess"):
            return _versioned(block, mode, f"it has no quant_method but keys of mode {mode['name']}")
    return Format(known=False, evidence=("it has no quant_method",))


def load_config(source: str | PathLike[str] | dict[str, Any]) -> FormatModel:
    """Read a checkpoint folder, a config.json, its parsed content or a block, as the model of its version.

    Raises:
        ConfigError: it cannot be read, has no block, is of another tool, or is not valid in its version.
    """
    config = source if isinstance(source, dict) else _read(Path(source))
    located = locate(config)
    if located:
        pointer, block = located[0]
    elif isinstance(source, dict):
        pointer, block = "", source
    else:
        raise ConfigError(f"{source} has no quantization_config")
    if not isinstance(block, dict):
        raise ConfigError(f"{pointer} is not an object but {json.dumps(block)[:80]}")
    verdict = detect(block)
    if verdict.sister is not None:
        raise ConfigError(f"the config is of {verdict.sister}, not of Quark", verdict=verdict)
    if verdict.version is None or verdict.mode is None:
        reason = "; ".join(verdict.evidence)
        raise ConfigError(f"the config is of no known format: {reason}", verdict=verdict)
    errors = list(schema_errors(block, verdict.version, mode=verdict.mode))
    if errors:
        raise ConfigError(f"the config is not valid in format version {verdict.version}", errors, verdict)
    return _model(verdict.version, verdict.mode).model_validate(block)


def _read(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise ConfigError(f"{file} is larger than {_MAX_CONFIG_BYTES:,} bytes")
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file} does not hold a JSON object")
    return config


def _model(version: str, mode: str) -> type[FormatModel]:
    catalog = table("catalog.json")
    module = next(item["model"] for item in catalog["versions"] if item["version"] == version)
    definition = next(item["definition"] for item in catalog["modes"] if item["name"] == mode)
    model: type[FormatModel] = getattr(import_module(f"quark_format.models.{module}"), definition)
    return model


def _versioned(block: dict[str, Any], mode: dict[str, Any], reason: str) -> Format:
    """The verdict on a block of Quark in a known mode."""
    versions = [item["version"] for item in table("catalog.json")["versions"]]
    least, least_says, most, most_says = _bounds(block, mode, versions)
    text = block.get(mode["version_key"]) if mode["version_key"] else None
    declared = text if isinstance(text, str) else None
    evidence = [reason, *(says for says in (least_says, most_says) if says)]
    candidates = tuple(versions[least : max(least, most) + 1])
    version, contradicted, known = candidates[-1], least > most, True
    if declared is not None:
        evidence.append(f"version says {declared}")
        reading = _reading(declared)
        known = reading is not None and reading[1]
        if reading is not None:
            at = versions.index(reading[0])
            contradicted = contradicted or not least <= at <= most
            version = versions[max(at, least)]
            candidates = candidates if contradicted else (version,)
    return Format(
        version=version,
        declared=declared,
        candidates=candidates,
        mode=mode["name"],
        writer=_writer(block) if _matches(block, "modes", mode["name"], "complete") else None,
        evidence=tuple(evidence),
        contradicted=contradicted,
        known=known,
    )


def _bounds(
    block: dict[str, Any], mode: dict[str, Any], versions: list[str]
) -> tuple[int, str | None, int, str | None]:
    """Index and reason of the oldest and of the newest version that the block's keys allow.

    A key that is there outweighs one that is not: an absence that would exclude a version which another key
    proves is a key somebody dropped, and is passed over.
    """
    complete = _matches(block, "modes", mode["name"], "complete")
    smaller, _ = distinct(block)
    probes = [
        probe
        for probe in table("catalog.json")["probes"]
        if mode["name"] in probe["modes"]
        and (complete or not probe["needs_complete"])
        and _holds(smaller, probe)
    ]
    least, least_says = 0, None
    for probe in probes:
        if "at_least" in probe and versions.index(probe["at_least"]) > least:
            least, least_says = versions.index(probe["at_least"]), probe["says"]
    most, most_says = len(versions) - 1, None
    for probe in probes:
        at = versions.index(probe.get("at_most", versions[-1]))
        if at < most and (at >= least or not probe["needs_complete"]):
            most, most_says = at, probe["says"]
    return least, least_says, most, most_says


_QUANTIFIERS = {"any": any, "all": all}


def _holds(block: dict[str, Any], probe: dict[str, Any]) -> bool:
    parts = list(_parts(block, probe["place"]))
    return bool(parts) and _QUANTIFIERS[probe["quantifier"]](
        _matches(part, "probes", probe["id"], "schema") for part in parts
    )


def _parts(block: dict[str, Any], name: str) -> Iterator[Any]:
    place = table("catalog.json")["places"][name]
    for pointer in place["pointers"]:
        for part in _select(block, pointer.split("/")[1:]):
            if "schema" not in place or _matches(part, "places", name, "schema"):
                yield part


def _select(value: Any, tokens: Sequence[str]) -> Iterator[Any]:
    """The values that a pointer leads to, where `*` stands for any key or index."""
    if not tokens:
        yield value
    elif tokens[0] == "*" and isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _select(item, tokens[1:])
    elif isinstance(value, dict) and tokens[0] in value:
        yield from _select(value[tokens[0]], tokens[1:])


def _matches(value: Any, section: str, name: str, key: str) -> bool:
    return _predicate(section, name, key).is_valid(value)


@cache
def _predicate(section: str, name: str, key: str) -> Draft202012Validator:
    """The validator of one predicate of the catalog."""
    items = table("catalog.json")[section]
    if isinstance(items, list):
        items = {item.get("id", item.get("name")): item for item in items}
    return Draft202012Validator(items[name][key])


def _reading(text: str) -> tuple[str, bool] | None:
    """The format version that a version string belongs to, and whether the catalog covers it."""
    catalog = table("catalog.json")
    match = re.match(catalog["version_string"]["pattern"], text)
    if match is None:
        return None
    numbers = _numbers(match[1])
    versions = [item["version"] for item in catalog["versions"]]
    older = [version for version in versions if _numbers(version) <= numbers]
    newest = _numbers(versions[-1])
    return (older or versions)[-1 if older else 0], bool(older) and numbers[: len(newest)] <= newest


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _writer(block: dict[str, Any]) -> str | None:
    """The writer whose order of keys the block has."""
    keys = list(block)
    for writer in table("catalog.json")["writers"]:
        order = writer["key_order"]
        first = order.get("first", sorted(keys))
        if keys[: len(first)] == first:
            name: str = writer["name"]
            return name
    return None
