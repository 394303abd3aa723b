"""The declared rules: well-formed, each code and name once, with templates that can be filled."""

from __future__ import annotations

import re
from string import Formatter

from jsonschema import Draft202012Validator

from quark_format.tables import table

RULES = table("rules.json")["rules"]


def test_the_rules_are_valid_by_their_schema() -> None:
    schema = table("rules.schema.json")
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(table("rules.json"))] == []


def test_codes_are_unique_and_in_order_and_names_are_unique() -> None:
    codes = [rule["code"] for rule in RULES]
    names = [rule["name"] for rule in RULES]
    assert sorted(set(codes)) == codes
    assert len(set(names)) == len(names)


def test_the_codes_are_of_this_project() -> None:
    """Others are of plugins, which the same schema is for."""
    assert [rule["code"] for rule in RULES if not re.fullmatch(r"QF[1-7]\d\d", rule["code"])] == []


def test_templates_have_named_fields_only() -> None:
    for rule in RULES:
        for part in ("message", "why", "fix"):
            for _, field, _, _ in Formatter().parse(rule[part]):
                assert field is None or field.isidentifier(), (rule["code"], field)
