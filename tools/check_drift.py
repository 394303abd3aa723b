"""Compare the declared tables with the installed amd-quark and vLLM; exit 1 and list what is new or gone.

    python tools/check_drift.py [--write-presets]

Run it after installing another release of either. What is compared: versions, Quark's enums, spec fields,
config keys and presets, and of the targets whose release is installed vLLM's schemes with the keys they
support, its kernels and its architectures.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import build_architectures
import build_kernels
from compact_json import compact
from target_folders import TARGETS, all_of, made_here, read

from quark_format.resolver import Refusal, Resolver
from quark_format.tables import table
from quark_format.targets import Target
from quark_format.targets import target as find_target

QUARK, VLLM = "amd-quark", "vllm"
ENUMS = {
    "dtype": "Dtype",
    "qscheme": "QSchemeType",
    "scale_type": "ScaleType",
    "round_method": "RoundType",
    "zero_point_type": "ZeroPointType",
}
KINDS = ("linear", "experts")
SCHEMES = "vllm.model_executor.layers.quantization.quark.schemes"
EXPERTS = "vllm.model_executor.layers.quantization.quark.quark_moe"
KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"
SPEC_ONLY_IN_MEMORY = {"qat_spec", "scale_spec"}


def differences(what: str, declared: Iterable[str], installed: Iterable[str]) -> Iterator[str]:
    """Sentences for what only one side has."""
    ours, theirs = set(declared), set(installed)
    for name in sorted(theirs - ours):
        yield f"{what}: `{name}` is new"
    for name in sorted(ours - theirs):
        yield f"{what}: `{name}` is gone"


def newest() -> dict[str, Any]:
    """The newest format version of the catalog."""
    version: dict[str, Any] = table("catalog.json")["versions"][-1]
    return version


def definitions() -> dict[str, Any]:
    """The definitions of the newest config schema."""
    found: dict[str, Any] = table(newest()["config"])["$defs"]
    return found


def quark_version() -> Iterator[str]:
    """Whether the installed release of Quark is one of the newest version's."""
    installed = importlib.metadata.version(QUARK)
    if installed not in newest()["releases"]:
        yield f"{QUARK} {installed} is installed, the newest declared releases are {newest()['releases']}"


def quark_enums() -> Iterator[str]:
    """Members of Quark's enums."""
    types = importlib.import_module("quark.torch.quantization.config.type")
    spec = definitions()["TensorSpec"]["properties"]
    for field, name in ENUMS.items():
        declared = (value for value in spec[field]["enum"] if value is not None)
        yield from differences(f"Quark's {name}", declared, getattr(types, name).__members__)


def quark_fields() -> Iterator[str]:
    """Keys that Quark writes for a spec, a layer and a whole config."""
    config = importlib.import_module("quark.torch.quantization.config.config")
    export = importlib.import_module("quark.torch.export.config.config")
    declared = definitions()
    spec = {one.name for one in fields(config.QTensorConfig)} - SPEC_ONLY_IN_MEMORY
    yield from differences("spec field", declared["TensorSpec"]["properties"], spec)
    layer = config.QLayerConfig()
    yield from differences("layer config key", declared["LayerConfig"]["properties"], layer.to_dict())
    whole = config.QConfig(global_quant_config=layer, kv_cache_quant_config={"*k_proj": layer})
    written = {*whole.to_dict(), "export"}
    yield from differences("config key", declared["QuarkConfig"]["properties"], written)
    exported = {one.name for one in fields(export.JsonExporterConfig)}
    yield from differences("export key", declared["Export"]["properties"], exported)


def presets(target: Target) -> dict[str, dict[str, str | None]]:
    """The rows that serve the presets of the installed Quark."""
    template = importlib.import_module("quark.torch.quantization.config.template").LLMTemplate
    found: dict[str, dict[str, str | None]] = {}
    for name in template.get_supported_schemes():
        layer = template._SCHEME_COLLECTION.get_scheme(name).config.to_dict()
        block = {
            "quant_method": "quark",
            "export": {"kv_cache_group": [], "pack_method": "reorder"},
            "exclude": [],
            "layer_type_quant_config": {},
            "layer_quant_config": {},
            "global_quant_config": layer,
        }
        resolver = Resolver(block, target)
        answers = {kind: resolver.resolve("module", kind) for kind in KINDS}
        found[name] = {
            kind: None if isinstance(answer, Refusal) else answer.choice.row
            for kind, answer in answers.items()
        }
    return found


def quark_presets(target: Target) -> Iterator[str]:
    """Presets of Quark, and the rows that serve them."""
    declared = table(f"targets/{target.folder}/presets.json")["presets"]
    installed = presets(target)
    yield from differences("preset", declared, installed)
    for name in sorted(declared.keys() & installed.keys()):
        if declared[name] != installed[name]:
            yield f"preset `{name}` is served by {installed[name]}, declared is {declared[name]}"


def vllm_version() -> Iterator[str]:
    """Whether the installed vLLM is a release that a target's tables are made from."""
    if not made_here(VLLM):
        installed = importlib.import_module("vllm").__version__
        declared = [read(one, "target")["distribution"] for one in all_of(VLLM)]
        yield f"vllm {installed} is installed, the tables are those of {', '.join(declared)}"


def target_schemes(target: Target) -> Iterator[str]:
    """The scheme classes of vLLM, and the keys that each supports."""
    schemes = importlib.import_module(SCHEMES)
    experts = importlib.import_module(EXPERTS)
    installed = {f"{SCHEMES}.{name}" for name in schemes.__all__ if name != "QuarkScheme"}
    base = experts.QuarkMoEMethod
    installed |= {
        f"{EXPERTS}.{name}"
        for name, value in vars(experts).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }
    rows = [row for row in target.schemes.rows if row.kind in KINDS]
    yield from differences("scheme class", (str(row.scheme) for row in rows), installed)
    keys = importlib.import_module(KEYS)
    for row in rows:
        home, _, name = str(row.scheme).rpartition(".")
        kept = getattr(importlib.import_module(home), name, None)
        for position, attribute in {"weight": "weight", "input": "activation"}.items():
            supported: list[Any] | None = getattr(kept, f"supported_{attribute}_quant_keys", None)
            for spec in row.specs[position] if supported is not None else ():
                key = target.schemes.specs[spec].key
                if (None if key is None else getattr(keys, key, key)) not in (supported or ()):
                    yield f"row {row.id}: {name} does not support {key} for the {position}"


def target_kernels(target: Target) -> Iterator[str]:
    """The kernels of vLLM, by family and platform, in order."""
    declared = table(f"targets/{target.folder}/kernels.json")["families"]
    installed = build_kernels.kernels(TARGETS / target.folder)["families"]
    yield from differences("kernel family", declared, installed)
    for family in sorted(declared.keys() & installed.keys()):
        for platform in target.header.platforms:
            ours, theirs = (side[family]["platforms"].get(platform, []) for side in (declared, installed))
            yield from differences(f"kernel of {family} on {platform}", ours, theirs)
            if ours != theirs and sorted(ours) == sorted(theirs):
                yield f"kernels of {family} on {platform} are tried in another order"
        if declared[family].get("schemes") != installed[family].get("schemes"):
            yield f"kernels of {family} take other quantization keys"


def target_architectures(target: Target) -> Iterator[str]:
    """The architectures of vLLM, and how each joins and renames modules."""
    declared = build_architectures.spelled_out(table(f"targets/{target.folder}/architectures.json"))
    installed = build_architectures.spelled_out(build_architectures.architectures())
    yield from differences("architecture", declared, installed)
    for name in sorted(declared.keys() & installed.keys()):
        if declared[name] != installed[name]:
            yield f"architecture `{name}` joins or renames modules otherwise"


def checks() -> dict[str, Callable[[], Iterator[str]]]:
    """Every comparison, by what it looks at."""
    found: dict[str, Callable[[], Iterator[str]]] = {
        "Quark's release": quark_version,
        "Quark's enums": quark_enums,
        "Quark's fields": quark_fields,
        "vLLM's release": vllm_version,
    }
    for target in map(of_folder, all_of(VLLM)):
        found[f"{target.name}: Quark's presets"] = partial(quark_presets, target)
    for target in map(of_folder, made_here(VLLM)):
        found |= {
            f"{target.name}: schemes": partial(target_schemes, target),
            f"{target.name}: kernels": partial(target_kernels, target),
            f"{target.name}: architectures": partial(target_architectures, target),
        }
    return found


def of_folder(path: Path) -> Target:
    """The target in a folder."""
    header = read(path, "target")
    return find_target(f"{header['name']}@{header['version']}")


def write_presets() -> None:
    """Write presets.json of every target of vLLM from the installed Quark."""
    for target in map(of_folder, all_of(VLLM)):
        content = {
            "$schema": "../target.schema.json#/$defs/presets",
            "quark": importlib.metadata.version(QUARK),
            "presets": presets(target),
        }
        (TARGETS / target.folder / "presets.json").write_text(compact(content), encoding="utf-8")


def main() -> int:
    """Run every comparison and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-presets", action="store_true", help="first take over Quark's presets")
    options = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if options.write_presets:
        write_presets()
    count = 0
    for name, check in checks().items():
        found = list(check())
        count += len(found)
        sys.stdout.write(f"{name}: {f'{len(found)} differences' if found else 'as declared'}\n")
        sys.stdout.writelines(f"  {line}\n" for line in found)
    return int(count > 0)


if __name__ == "__main__":
    raise SystemExit(main())
