"""Checkpoints of equal experts are judged by one of each layer, with the findings that all would give."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exports
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quark_format.checkpoint import Checkpoint, read_checkpoint
from quark_format.folding import KEPT, folded
from quark_format.regular import Expression
from quark_format.tables import table
from quark_format.validators import validate as module
from quark_format.validators.validate import validate

EXPERTS = 16
EXPERT = re.compile(r"(.*\.experts\.)0(\..*)")


def mixture(change: Callable[[dict[str, Any], dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """A real export of a mixture, with more experts like its first one; `change` gets config and tensors."""
    export = exports.load("qwen3_moe_mxfp4")
    ((file, content),) = export["files"].items()
    tensors: dict[str, Any] = {}
    for name, row in content["tensors"].items():
        if ".experts." not in name:
            tensors[name] = row
        elif match := EXPERT.fullmatch(name):
            tensors |= {f"{match[1]}{number}{match[2]}": row for number in range(EXPERTS)}
    for key in table("roles.json")["experts"]["counts"]:
        if key in export["config"]:
            export["config"][key] = EXPERTS
    block = export["config"]["quantization_config"]
    block["exclude"] = [name for name in block["exclude"] if ".experts." not in name]
    if change:
        change(export["config"], tensors)
    export["files"] = {file: {**content, "tensors": tensors}}
    return export


def read(export: dict[str, Any], path: Path) -> Checkpoint:
    return read_checkpoint(exports.write(export, path))


def test_equal_experts_are_folded(tmp_path: Path) -> None:
    checkpoint = read(mixture(), tmp_path)
    smaller = folded(checkpoint)
    assert smaller is not None
    assert checkpoint.config is not None
    changed = {key: value for key, value in (smaller.config or {}).items() if value != checkpoint.config[key]}
    assert changed.keys() <= set(table("roles.json")["experts"]["counts"])
    assert set(changed.values()) == {KEPT}
    kept = {name for name in checkpoint.tensors if ".experts." not in name or ".experts.0." in name}
    assert smaller.tensors == {name: checkpoint.tensors[name] for name in kept}


def shape(_: Any, tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if ".experts.7.up_proj.weight" in name)
    tensors[name] = [tensors[name][0], [tensors[name][1][0] * 2, tensors[name][1][1]]]


def absent(_: Any, tensors: dict[str, Any]) -> None:
    del tensors[next(name for name in tensors if name.endswith(".experts.7.up_proj.weight_scale"))]


def more(_: Any, tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if name.endswith(".experts.7.up_proj.weight_scale"))
    tensors[name.replace("scale", "scale_2")] = ["F32", [1]]


def last(_: Any, tensors: dict[str, Any]) -> None:
    for name in [name for name in tensors if f".experts.{EXPERTS - 1}." in name]:
        del tensors[name]


def count(config: dict[str, Any], _: Any) -> None:
    for key in table("roles.json")["experts"]["counts"]:
        if key in config:
            config[key] = EXPERTS + 1


def exclude(entry: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(config: dict[str, Any], _: dict[str, Any]) -> None:
        config["quantization_config"]["exclude"].append(entry)

    return change


@pytest.mark.parametrize(
    "change",
    [
        shape,
        absent,
        more,
        last,
        count,
        exclude("model.layers.0.mlp.experts.3.up_proj"),
        exclude("*experts.1?.up_proj"),
        exclude("*.3.*"),
        exclude("*[5]*"),
        exclude("re:.*experts.1.up_proj"),
        exclude(r"re:.*experts\.\d\.up_proj"),
        exclude("re:.*up_proj|.*experts.(1|2)..*"),
        exclude("re:.{30}"),
    ],
)
def test_unequal_experts_are_not_folded(
    change: Callable[[dict[str, Any], dict[str, Any]], None], tmp_path: Path
) -> None:
    assert folded(read(mixture(change), tmp_path)) is None


@pytest.mark.parametrize(
    "entry",
    [
        "lm_head",
        "model.layers.0.self_attn.q_proj",
        "*self_attn*",
        "*experts*",
        "*.experts.*.up_proj",
        "model.layers.1.*",
        "re:model.layers.1.*",
        "re:.*mlp.gate$",
        r"re:.*experts\.\d+\.up_proj",
        r"re:.*experts\.[0-9]+\..*",
        "re:.*experts.*down_proj",
    ],
)
def test_patterns_that_do_not_tell_experts_apart(entry: str, tmp_path: Path) -> None:
    assert folded(read(mixture(exclude(entry)), tmp_path)) is not None


def widen(_: Any, tensors: dict[str, Any]) -> None:
    for name in [name for name in tensors if name.endswith("up_proj.weight_scale") and ".experts." in name]:
        tensors[name] = ["F32", tensors[name][1]]


@pytest.mark.parametrize(
    "change",
    [
        None,
        widen,
        exclude("*self_attn*"),
        exclude("re:model.layers.1.*"),
        exclude("*experts*"),
        exclude("re:.*experts.*down_proj"),
        exclude("nothing"),
    ],
)
def test_findings_are_those_of_all(change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = exports.write(mixture(change), tmp_path)
    assert folded(read_checkpoint(path)) is not None
    report = validate(path)
    monkeypatch.setattr(module, "folded", lambda _: None)
    assert validate(path) == report


PIECES = st.sampled_from(
    ["a", ".", ".*", "1", "7", r"\d", r"\d+", "[0-9]*", "(1|2)", "b?", "^", "$", "(?=a)", ".+"]
)


@given(pieces=st.lists(PIECES, max_size=6), tail=st.sampled_from(["", ".a", ".b.c", "7"]))
def test_indifference_is_true_of_matches(pieces: list[str], tail: str) -> None:
    pattern = "".join(pieces)
    try:
        expression = Expression(pattern)
    except ValueError:
        return
    heads, middles = ["a.", "a.b.1."], [str(number) for number in range(12)]
    if expression.indifferent(heads, middles):
        for head in heads:
            names = [f"{head}{middle}.{tail}" for middle in middles]
            assert len({expression.match(name) for name in names}) == 1
            assert len({re.match(pattern, name) is None for name in names}) == 1
