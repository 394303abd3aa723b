"""What is installed: one top-level package, light, typed, with the declared data."""

from __future__ import annotations

import ast
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

import quark_format

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLACES = SETTINGS["tool"]["setuptools"]["package-dir"]
CORE = {"jsonschema", "junitparser", "msgspec", "numpy", "pydantic", "rich", "typer", "typing-extensions"}
CPU_TORCH = {"UV_TORCH_BACKEND": "cpu"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from a copy of the sources."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in set(PLACES.values()):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    built = tmp_path_factory.mktemp("wheel")
    command = [
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(built),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", *command], check=True)
    (made,) = built.iterdir()
    return made


def test_wheel_holds_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"quark_format"}


def test_wheel_holds_every_module_and_declared_file(wheel: Path) -> None:
    expected = set()
    for package, folder in PLACES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".json"} or path.name in {"py.typed", "LICENSE"}:
                expected.add(f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith((".py", ".json", "py.typed", "LICENSE"))}
    assert {name for name in held if ".dist-info" not in name} == expected


def test_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import quark_format; "
        "from quark_format.validators.findings import rules; "
        "print(quark_format.__file__, len(rules()), quark_format.__version__)"
    )
    isolated = [sys.executable, "-I", "-c", script]
    done = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, check=True)
    place, count, version = done.stdout.split()
    assert Path(place).is_relative_to(tmp_path)
    assert int(count) > 50
    assert version == SETTINGS["project"]["version"]


def test_core_requirements_are_light() -> None:
    core = [line for line in requires("quark-format") or [] if "extra ==" not in line]
    assert {line.split(">")[0] for line in core} == CORE


def test_core_imports_only_its_requirements() -> None:
    foreign = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in set(PLACES.values())
        for path in (ROOT / folder).rglob("*.py")
        if "vllm_plugin" not in path.parts
        for name in imported(path)
        if name.replace("_", "-") not in CORE | {"quark-format"} and name not in sys.stdlib_module_names
    }
    assert foreign == set()


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).split(".")[0])
    return names


def test_public_names_are_found_on_first_use() -> None:
    script = (
        "import sys, quark_format\n"
        "assert not any(name.startswith('quark_format.') for name in sys.modules), sys.modules\n"
        "assert set(quark_format.__all__) <= set(dir(quark_format))\n"
        "print(quark_format.validate.__module__, quark_format.load_config.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["quark_format.validators.validate", "quark_format.formats"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = quark_format.nothing


def test_example_is_small() -> None:
    size = sum(path.stat().st_size for path in (ROOT / "examples").rglob("*") if path.is_file())
    assert size < 1_000_000


@pytest.mark.parametrize(
    ("listed", "settings"),
    [
        ("", CPU_TORCH),
        (
            "global.index-url='https://a.example/simple'",
            {"UV_DEFAULT_INDEX": "https://a.example/simple"} | CPU_TORCH,
        ),
        (":env:.find-links='/a /b'\nglobal.find-links='/c'\nglobal.timeout='60'", {"UV_FIND_LINKS": "/a,/b"}),
    ],
)
def test_uv_gets_the_settings_of_pip(
    listed: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    run_tests = runpy.run_path(str(ROOT / "tools" / "run_tests.py"))
    answer = subprocess.CompletedProcess([], 0, stdout=listed)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert run_tests["uv_settings"]() == settings
