"""The blocks that tests of the config schemas use, and a mutator of them."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import exports

FOLDER = Path(__file__).parent / "data" / "configs"


def wild_names() -> list[str]:
    """Return the name of every config found in public repositories, issues and posts."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def wild(name: str) -> dict[str, Any]:
    """Return a config found in the wild: a block, or a cut of one."""
    config: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return config


def exported(name: str) -> dict[str, Any]:
    """Return the block of the real export `name`."""
    block: dict[str, Any] = exports.load(name)["config"]["quantization_config"]
    return block


def exporter_version(name: str) -> str:
    """Return the format version that wrote the export `name`, which begins with qRELEASE or is of 0.13."""
    if not name.startswith("q0."):
        return "0.13"
    return ".".join(name[1:].split("_", maxsplit=1)[0].split(".")[:2])


@cache
def corpus() -> list[tuple[str, str, dict[str, Any]]]:
    """Return (name, format version, block) of every block, exported blocks of equal shape once."""
    seen: set[tuple[str, str]] = set()
    blocks = []
    for name in exports.names():
        block, version = exported(name), exporter_version(name)
        shape = (version, json.dumps({**block, "exclude": [], "ignored_layers": []}, sort_keys=True))
        if shape not in seen:
            seen.add(shape)
            blocks.append((name, version, block))
    return blocks + [(name, "0.13", wild(name)) for name in wild_names()]


_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        32,
        32.0,
        0.5,
        1e300,
        "",
        "x",
        [],
        {},
        [1],
        [128, 128],
        [1.0, 2.0, 3],
        {"a": None},
    ),
    *(
        "per_tensor",
        "per_channel",
        "per_group",
        "per_block",
        "int8",
        "fp4",
        "mx",
        "bfloat16",
        "uint2",
        "float32",
    ),
    *(
        "PerTensorMinMaxObserver",
        "PerGroupMinMaxObserver",
        "PlaceholderObserver",
        "quark",
        "fp8",
        "awq",
        "smooth",
    ),
    *(
        [{"name": "awq", "scaling_layers": 1}],
        [{"name": "rotation", "r1": None}],
        [{"name": "mine"}],
        {"name": "gptq"},
    ),
)


def mutate(block: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """Return `block` changed in one to three places: a key dropped, added or renamed, a value replaced."""
    result = copy.deepcopy(block)
    for _ in range(generator.randint(1, 3)):
        node = generator.choice(_objects(result))
        keys = list(node)
        key = generator.choice(keys) if keys else "added"
        match generator.randrange(6):
            case 0:
                node.pop(key, None)
            case 1:
                node[key + "_"] = node.pop(key, None)
            case 2:
                node["added"] = generator.choice(_VALUES)
            case 3:
                node[key] = [node.get(key)] * generator.randint(1, 2)
            case _:
                node[key] = copy.deepcopy(generator.choice(_VALUES))
    return result


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(inner for item in value.values() for inner in _objects(item))]
    if isinstance(value, list):
        return [inner for item in value for inner in _objects(item)]
    return []
