"""What is wrong with a block by the config schema of its version, as precise and structured errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from quark_format.repeats import distinct
from quark_format.tables import table

_RULE_TITLE = re.compile(r"(R\d+): ")
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class SchemaError:
    """One thing in a block that its schema does not allow.

    `pointer` is a JSON pointer into the block ("" is the block), `keyword` the JSON Schema keyword that
    failed, `rule` the id of a cross-field rule of the format such as "R11", or None. `message` says what is
    wrong without the place. `expected` is the keyword's value, `actual` the value found, `keys` the keys that
    are missing or too many. `count` is the number of entries with the same content that share the error;
    `pointer` names the first.
    """

    pointer: str
    keyword: str
    rule: str | None
    message: str
    expected: Any
    actual: Any
    keys: tuple[str, ...] = ()
    count: int = 1


def schema_errors(
    block: Any, version: str, strict: bool = False, mode: str | None = None
) -> Iterator[SchemaError]:
    """Yield what the schema of format version `version` does not allow in `block`, in document order.

    With `strict` the block is held against what that version's exporter writes, otherwise against what a
    reader needs. `mode` names the form to hold it against (see `catalog.json`); without it `quant_method`
    chooses.

    Raises:
        KeyError: the version or the mode is not in the catalog.
    """
    entry = {item["version"]: item for item in table("catalog.json")["versions"]}[version]
    file = entry["strict" if strict else "config"]
    smaller, counts = distinct(block)
    seen: set[tuple[str, str, str | None, tuple[str, ...]]] = set()
    validator = _validator(file, mode)
    shared = {_pointer(place): count for place, count in counts.items()}
    leaves = [leaf for error in validator.iter_errors(smaller) for leaf in _leaves(error, validator.schema)]
    leaves.sort(key=lambda leaf: (_position(smaller, leaf.absolute_path), str(leaf.validator), leaf.message))
    errors = [_structured(leaf, validator.schema) for leaf in leaves]
    plain = {error.pointer for error in errors if error.rule is None}
    for error in errors:
        identity = (error.pointer, error.keyword, error.rule, error.keys)
        if identity in seen or (error.rule is not None and error.pointer in plain):
            continue
        seen.add(identity)
        yield replace(error, count=shared.get("/".join(error.pointer.split("/")[:3]), 1))


@cache
def _validator(file: str, mode: str | None) -> Draft202012Validator:
    schema = table(file)
    if mode is None:
        return Draft202012Validator(schema)
    definition = {item["name"]: item["definition"] for item in table("catalog.json")["modes"]}[mode]
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})


def _position(value: Any, path: Iterable[Any]) -> tuple[int, ...]:
    """Where in the document a path leads: the index of each of its keys among its siblings."""
    position = []
    for token in path:
        position.append(list(value).index(token) if isinstance(value, dict) else token)
        value = value[token]
    return tuple(position)


def _leaves(error: ValidationError, schema: Any) -> Iterator[ValidationError]:
    """The errors that explain `error`: for alternatives, those of the alternative that was meant."""
    if not error.context or _rule(error, schema) is not None:
        yield error
        return
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [errors for errors in branches.values() if not any(_is_other_type(inner) for inner in errors)]
    if len(meant) != 1:
        yield error
        return
    for inner in meant[0]:
        yield from _leaves(inner, schema)


def _is_other_type(error: ValidationError) -> bool:
    return error.validator == "type" and not error.relative_path


def rule_id(node: dict[str, Any]) -> str | None:
    """The id that leads the title of a rule, such as R16; None for what is no rule."""
    match = _RULE_TITLE.match(node.get("title", ""))
    return match[1] if match else None


def _rule(error: ValidationError, schema: Any) -> dict[str, Any] | None:
    """The rule whose conditions `error` failed, found along its path through the schema."""
    node: Any = schema
    rule = None
    for token in error.absolute_schema_path:
        node = _step(node, token, schema)
        if isinstance(node, dict) and rule_id(node):
            rule = node
    return rule


def _step(node: Any, token: Any, schema: Any) -> Any:
    """One step of a schema path, in which jsonschema leaves out `$ref`."""
    while isinstance(node, dict) and token not in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node[token]


def _structured(error: ValidationError, schema: Any) -> SchemaError:
    rule = _rule(error, schema)
    types = _types_of_alternatives(error)
    keyword = "type" if types else str(error.validator)
    keys = _KEYS.get(keyword, _no_keys)(error)
    if types and rule is None:
        message = f"{_shown(error.instance)} is not of type {' or '.join(types)}"
    elif rule is not None:
        message = f"{rule['description']}, found {_shown(error.instance)}"
    else:
        message = _MESSAGES.get(keyword, _default)(error, keys)
    return SchemaError(
        pointer=_pointer(error.absolute_path),
        keyword=keyword,
        rule=None if rule is None else rule_id(rule),
        message=message,
        expected=types or error.validator_value,
        actual=error.instance,
        keys=keys,
    )


def _types_of_alternatives(error: ValidationError) -> list[str]:
    """The JSON types of the alternatives where the value has none of them, else nothing."""
    context: Any = error.context or ()
    branches = {inner.schema_path[0]: inner for inner in context if _is_other_type(inner)}
    values: Any = error.validator_value
    if not branches or not isinstance(values, list) or len(branches) < len(values):
        return []
    found = (inner.validator_value for inner in branches.values())
    return [kind for kinds in found for kind in ([kinds] if isinstance(kinds, str) else kinds)]


def _pointer(path: Iterable[Any]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _no_keys(_: ValidationError) -> tuple[str, ...]:
    return ()


def _missing(error: ValidationError) -> tuple[str, ...]:
    needed: Any = error.validator_value
    found: Any = error.instance
    return tuple(key for key in needed if key not in found)


def _unknown(error: ValidationError) -> tuple[str, ...]:
    found: Any = error.instance
    schema: Any = error.schema
    return tuple(key for key in found if key not in schema.get("properties", ()))


_KEYS: Mapping[str, Callable[[ValidationError], tuple[str, ...]]] = {
    "required": _missing,
    "additionalProperties": _unknown,
}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(value if isinstance(value, str) else _shown(value) for value in values)


def _kinds(error: ValidationError) -> list[str]:
    """The JSON types that a type keyword, or the alternatives of anyOf, allow."""
    value: Any = error.validator_value
    if isinstance(value, str):
        return [value]
    return [item if isinstance(item, str) else item.get("type", "object") for item in value]


def _wrong_type(error: ValidationError, _: Sequence[str]) -> str:
    return f"{_shown(error.instance)} is not of type {' or '.join(_kinds(error))}"


def _not_listed(error: ValidationError, _: Sequence[str]) -> str:
    values: Any = error.validator_value
    return f"{_shown(error.instance)} is not one of {_listed(values)}"


def _not_constant(error: ValidationError, _: Sequence[str]) -> str:
    return f"{_shown(error.instance)} is not {_shown(error.validator_value)}"


def _lacks(_: ValidationError, keys: Sequence[str]) -> str:
    return f"lacks {_listed(keys)}"


def _has_unknown(_: ValidationError, keys: Sequence[str]) -> str:
    return f"has unknown {_listed(keys)}"


def _wrong_length(error: ValidationError, _: Sequence[str]) -> str:
    return f"{_shown(error.instance)} does not have {error.validator_value} items"


def _default(error: ValidationError, _: Sequence[str]) -> str:
    return error.message if len(error.message) <= _SHOWN else error.message[:_SHOWN] + "…"


_MESSAGES: Mapping[str, Callable[[ValidationError, Sequence[str]], str]] = {
    "type": _wrong_type,
    "anyOf": _wrong_type,
    "enum": _not_listed,
    "const": _not_constant,
    "required": _lacks,
    "additionalProperties": _has_unknown,
    "minItems": _wrong_length,
    "maxItems": _wrong_length,
}
