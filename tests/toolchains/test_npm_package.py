"""The npm package, packed, installed in an empty project, and used by TypeScript and JavaScript."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import blocks
import exports
import pytest

from toolchains import corpus

ROOT = Path(__file__).parents[2]
WRONG = {
    "an unknown dtype": ("dtype", "fp8_e4m4"),
    "a text for a number": ("group_size", "128"),
    "no dtype": ("dtype", None),
}


@pytest.fixture(scope="module")
def project(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project with the packed package in it."""
    folder = tmp_path_factory.mktemp("npm")
    built, empty = folder / "built", folder / "project"
    tool = [sys.executable, str(ROOT / "tools" / "npm_package.py"), str(built), str(node_modules)]
    subprocess.run(tool, check=True)
    empty.mkdir()
    (empty / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    pack = ["npm", "pack", "--json", "--pack-destination", str(folder), str(built)]
    packed = json.loads(subprocess.run(pack, capture_output=True, check=True).stdout)
    archive = next(folder.glob("*.tgz"))
    assert packed
    install = ["npm", "install", "--offline", "--no-audit", "--no-fund", str(archive)]
    subprocess.run(install, cwd=empty, check=True, capture_output=True)
    return empty


def tsc(node_modules: Path, project: Path, values: list[tuple[str, Any]]) -> str:
    """What the compiler says about constants of the type of each version."""
    lines = [
        f"export const v{number}: import('quark-format-schema/v{version}').QuantizationConfig = "
        f"{json.dumps(value)};"
        for number, (version, value) in enumerate(values)
    ]
    (project / "values.ts").write_text("\n".join(lines), encoding="utf-8")
    compiler = [str(node_modules / "node_modules" / ".bin" / "tsc"), "--noEmit", "--strict"]
    options = ["--module", "nodenext", "--target", "es2022", "values.ts"]
    return subprocess.run(
        [*compiler, *options], cwd=project, capture_output=True, text=True, check=False
    ).stdout


def test_the_types_take_every_real_config(node_modules: Path, project: Path) -> None:
    real = [(blocks.exporter_version(name), blocks.exported(name)) for name in exports.all_names()]
    assert tsc(node_modules, project, real) == ""


@pytest.mark.parametrize("what", WRONG)
def test_the_types_refuse(what: str, node_modules: Path, project: Path) -> None:
    key, value = WRONG[what]
    block = blocks.exported("llama_mxfp4")
    spec = block["global_quant_config"]["weight"]
    del spec[key]
    spec |= {} if value is None else {key: value}
    assert "error TS2322" in tsc(node_modules, project, [("0.13", block)])


def test_every_declared_file_is_importable(project: Path) -> None:
    names = sorted(
        path.relative_to(corpus.SCHEMA).as_posix()
        for path in corpus.SCHEMA.rglob("*.json")
        if "source" not in path.parts
    )
    lines = [
        f'import v{number} from "quark-format-schema/{name}" with {{ type: "json" }};'
        for number, name in enumerate(names)
    ]
    told = ", ".join(f"v{number}.$schema" for number in range(len(names)))
    (project / "all.js").write_text(
        "\n".join([*lines, f"console.log(JSON.stringify([{told}]));"]), encoding="utf-8"
    )
    command = ["node", "all.js"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = [json.loads((corpus.SCHEMA / name).read_text(encoding="utf-8"))["$schema"] for name in names]
    assert json.loads(done.stdout) == wanted
