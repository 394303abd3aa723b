"""The exports that the tests load cover the plugin's tables: every row that can serve a CPU serves one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from plugin.served_exports import DENSE, EXPERTS
from quark_format.checkpoint import read_checkpoint
from quark_format.loading import Platform
from quark_format.models.targets.tables import Inherited
from quark_format.plan import plan
from quark_format.resolver import Choice, Resolution, Resolver
from quark_format.targets import target

TARGET = target("vllm-plugin@0.32")
EXTENSION = TARGET.extension
assert EXTENSION is not None
PLATFORMS = [Platform.parse(text) for text in ("cpu", "cpu:amx")]
ATTENTION = "model.layers.0.self_attn.attn"
LEAST = 30


def described(one: Inherited) -> str:
    """A row of vLLM's with the specs for which it is tried."""
    words = [f"{position} {'/'.join(names)}" for position, names in (one.specs or {}).items()]
    return ", ".join([f"{one.row} of vLLM", *words, *(f"with {feature}" for feature in one.with_ or ())])


def answers(folder: Path) -> Iterator[Resolution]:
    """Of every module of an export, and of what is joined in it."""
    checkpoint = read_checkpoint(folder)
    attention = Resolver(checkpoint.config, TARGET).resolve(ATTENTION, "attention")
    for answer in (attention, *(one.answer for one in plan(checkpoint, TARGET).planned)):
        if isinstance(answer, Resolution):
            yield answer
            yield from answer.parts


@cache
def choices(folder: Path) -> list[tuple[str, Choice]]:
    """What the plugin tries for the modules of an export, first by platform."""
    return [
        (str(platform), choice)
        for answer in answers(folder)
        for platform in PLATFORMS
        for choice in answer.choice.on(platform)
    ]


@pytest.fixture(scope="module")
def tried(exports: Path) -> list[tuple[str, Choice]]:
    """What the plugin tries for the modules of all exports."""
    names = [*DENSE, *EXPERTS]
    assert len(names) >= LEAST
    return [one for name in names for one in choices(exports / name)]


def test_every_row_serves_an_export(tried: list[tuple[str, Choice]]) -> None:
    served = {choice.row for _, choice in tried}
    assert not {row.id for row in TARGET.schemes.rows} - served


def test_every_row_of_vllm_serves_an_export(tried: list[tuple[str, Choice]]) -> None:
    """With the specs and on the processors that the table names."""
    assert EXTENSION is not None
    unserved = [
        described(one)
        for one in EXTENSION.inherited
        if "cpu" in one.platforms
        and not any(
            choice.row == one.row
            and (one.scheme is None or choice.scheme == one.scheme)
            and all(choice.specs[position] in names for position, names in (one.specs or {}).items())
            and (one.with_ is None or platform.endswith(tuple(one.with_)))
            for platform, choice in tried
        )
    ]
    assert not unserved


@pytest.mark.parametrize("position", ["weight", "input"])
@pytest.mark.parametrize("row", ["linear.reference", "experts.reference"])
def test_every_spec_of_the_reference_serves_an_export(
    tried: list[tuple[str, Choice]], row: str, position: str
) -> None:
    declared = next(one for one in TARGET.schemes.rows if one.id == row).specs[position]
    served = {choice.specs[position] for _, choice in tried if choice.row == row}
    assert not set(declared) - served
