"""Run mypy over the package as it installs, and over the scripts and tests beside it.

`schema/` and `validators/` install inside `quark_format` (`[tool.setuptools.package-dir]`), which mypy cannot
be told. So it gets a folder of links with the installed layout, and its messages name the real files again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = Path("build/typecheck")
SCRIPTS = ("benchmarks", "examples", "tests", "tools")


def link_tree(places: dict[str, str]) -> None:
    """Fill `TREE` with links for `places`: installed folder -> folder in the repository, package first."""
    package, *nested = places
    tree = ROOT / TREE / package
    tree.mkdir(parents=True, exist_ok=True)
    for stale in tree.iterdir():
        stale.unlink()
    for child in (ROOT / places[package]).iterdir():
        (tree / child.name).symlink_to(child)
    for place in nested:
        (ROOT / TREE / place).symlink_to(ROOT / places[place])


def main() -> int:
    """Return mypy's exit code; the command's arguments are passed on to it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    places = {name.replace(".", "/"): folder for name, folder in sorted(settings["package-dir"].items())}
    link_tree(places)
    scripts = [folder for folder in SCRIPTS if any((ROOT / folder).glob("*.py"))]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *sys.argv[1:], str(TREE / next(iter(places))), *scripts],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(TREE)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    output = done.stdout
    for place, folder in reversed(places.items()):
        output = output.replace(f"{TREE.as_posix()}/{place}/", f"{folder}/")
    sys.stdout.write(output)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
