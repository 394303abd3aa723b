"""Build the npm package `quark-format-schema` from `schema/`: schemas, tables, TypeScript types, no runtime.

    python tools/npm_package.py OUT NODE_MODULES

In the folder NODE_MODULES json-schema-to-typescript is installed, as `tests/toolchains/package.json` pins it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "schema"
COMPILER = Path(__file__).with_name("npm_types.mjs")
NAME = "quark-format-schema"


def manifest(project: dict[str, Any]) -> dict[str, Any]:
    """The package.json: every JSON file is importable by its path, the types of a version by `./vX.Y`."""
    return {
        "name": NAME,
        "version": project["version"],
        "description": "AMD Quark's checkpoint format as data: JSON Schemas, tables, TypeScript types.",
        "license": project["license"],
        "keywords": project["keywords"],
        "type": "module",
        "exports": {
            "./*.json": "./*.json",
            "./*": {"types": "./*/config.d.ts"},
        },
    }


def build(out: Path, node_modules: Path) -> None:
    """Write the package to the folder `out`, which must not hold anything yet."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copytree(SCHEMA, out, ignore=shutil.ignore_patterns("*.py", "*.yaml", "__pycache__", "source"))
    (out / "package.json").write_text(json.dumps(manifest(project), indent=2) + "\n", encoding="utf-8")
    catalog = json.loads((SCHEMA / "catalog.json").read_text(encoding="utf-8"))
    modes = "|".join(mode["definition"] for mode in catalog["modes"])
    configs = [str(out / version["config"]) for version in catalog["versions"]]
    subprocess.run(["node", str(COMPILER), str(node_modules), modes, *configs], check=True)  # noqa: S607


def main() -> None:
    """Build the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("node_modules", type=Path, metavar="NODE_MODULES")
    given = parser.parse_args()
    build(given.out, given.node_modules)


if __name__ == "__main__":
    main()
