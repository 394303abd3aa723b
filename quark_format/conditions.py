"""The base of the generated models: strict types, kept extras, and conditions that types cannot say."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from quark_format.repeats import distinct
from quark_format.tables import table


class FormatModel(BaseModel):
    """One definition of a config schema.

    Values are of exactly the declared JSON type (an integral float is an integer, a bool is no number),
    unknown keys are kept in `model_extra`, and the conditions across keys are those of the schema's
    definition of the same name, found by the names of the module and the class.
    """

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _meets_conditions(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        failure = _failure(cls.__module__.rpartition(".")[2], cls.__name__, json.dumps(value, default=repr))
        if failure is not None:
            raise ValueError(failure)
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _reads_integral_floats(cls, value: Any) -> Any:
        return _integral(value)


def _integral(value: Any) -> Any:
    """`value` with every float of integral value, in lists too, as an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return value


@lru_cache(maxsize=4096)
def _failure(module: str, name: str, text: str) -> str | None:
    """The first condition of the definition that the JSON object `text` does not meet."""
    conditions = _conditions(module, name)
    if conditions is None:
        return None
    value, _ = distinct(json.loads(text))
    return next((error.message for error in conditions.iter_errors(value)), None)


@cache
def _conditions(module: str, name: str) -> Draft202012Validator | None:
    """A validator of the conditions of definition `name` in the schema that `module` was generated from."""
    definition = table(f"{module.replace('_', '.')}/config.schema.json")["$defs"][name]
    conditions = definition.get("allOf")
    return Draft202012Validator({"allOf": conditions}) if conditions else None
