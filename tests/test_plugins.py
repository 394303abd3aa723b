"""`examples/plugin`, installed by pip: a target and a finding from another distribution, and broken ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from quark_format.tables import table

ROOT = Path(__file__).parents[1]
CHECKPOINT = ROOT / "examples" / "llama-fp8-kv"
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the plugin."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(folder / "source")], check=True)
    return folder / "site"


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of `site` installed."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def quark_validate(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(site, "-c", "from quark_format.validators.cli import main; main()", *arguments)


def verdict(site: Path, *arguments: str) -> dict[str, Any]:
    """The report on the example."""
    done = quark_validate(site, str(CHECKPOINT), "--format", "json", *arguments)
    assert done.stderr == ""
    document = json.loads(done.stdout)
    Draft202012Validator(table("report.schema.json")).validate(document)
    report: dict[str, Any] = document["checkpoints"][0]
    return report


def test_a_target_from_a_plugin(site: Path) -> None:
    """It is judged like ours: by name, by platform, and among all where none is named."""
    assert "acme@1.0" in [one["name"] for one in verdict(site)["targets"]]
    assert verdict(site, "--target", "acme", "--platform", "cuda:90")["ok"]
    failed = verdict(site, "--target", "acme@1.0", "--platform", "cpu")
    assert [one["code"] for one in failed["findings"] if one["severity"] == "error"] == ["QF603"]
    assert [one["outcome"] for one in failed["targets"]] == ["fails"]


def test_a_finding_from_a_plugin(site: Path) -> None:
    """It is reported, selected, ignored and explained like ours."""
    (found,) = verdict(site)["findings"]
    assert (found["code"], found["severity"], found["count"]) == ("ACME001", "warning", 4)
    assert found["message"].startswith("`model.layers.0.self_attn.k_proj.weight` has 64 rows")
    for selector in ("ACME", "ACME001", "acme-rows-padded"):
        assert verdict(site, "--ignore", selector)["findings"] == []
        assert verdict(site, "--select", selector)["findings"] == [found]
    assert verdict(site, "--ignore", "QF")["findings"] == [found]
    assert verdict(site, "--select", "QF")["findings"] == []
    assert "https://acme.example/quark/ACME001" in quark_validate(site, "--explain", "ACME001").stdout
    assert "ACME001" in quark_validate(site, "--explain", "all").stdout
    (run,) = json.loads(quark_validate(site, str(CHECKPOINT), "--format", "sarif").stdout)["runs"]
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["helpUri"]) == ("ACME001", "https://acme.example/quark/ACME001")


def test_a_target_that_extends_one_of_ours(site: Path, tmp_path: Path) -> None:
    """A fork of vLLM, say: what it has no rows for is as in the release that it extends."""
    shutil.copytree(site, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "site" / TARGET
    header = table("targets/vllm-0.32/target.json")
    written = {
        "target": {**header, "name": "acme", "version": "1.0", "extends": "vllm@0.32"},
        "extension": {"$schema": "", "inherited": [], "kinds": {}, "specs": {}, "rows": []},
        "kernels": {"$schema": "", "families": {}},
    }
    for name in ("schemes", "architectures", "loading"):
        (folder / f"{name}.json").unlink()
    for name, content in written.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    for platform in ("cpu", "cuda:90"):
        targets = ("--target", "acme", "--target", "vllm@0.32")
        acme, vllm = verdict(tmp_path / "site", *targets, "--platform", platform)["targets"]
        assert (acme["name"], acme["outcome"]) == ("acme@1.0", vllm["outcome"])


ACME = '"acme",\n  "version": "1.0"'
TARGET, FINDING = "acme_quark/acme-1.0", "acme_quark/findings"
BROKEN = {
    "a value that the schema refuses": (f"{TARGET}/schemes.json", '"fields": [', '"fields": [1,'),
    "no JSON": (f"{TARGET}/loading.json", "{", ""),
    "no file": (f"{TARGET}/kernels.json", None, "lacks kernels.json"),
    "a name that is not declared": (f"{TARGET}/schemes.json", '"weight": ["fp8"]', '"weight": ["fp9"]'),
    "a target that is there": (f"{TARGET}/target.json", ACME, '"vllm", "version": "0.32"'),
    "an odd release": (f"{TARGET}/target.json", '"version": "1.0"', '"version": "one"'),
    "a code of ours": (f"{FINDING}/rules.json", "ACME001", "QF101"),
    "a name of ours": (f"{FINDING}/rules.json", "acme-rows-padded", "tensor-missing"),
    "no rule": (f"{FINDING}/rules.json", '"name"', '"title"'),
    "a code without a rule": (f"{FINDING}/__init__.py", "ACME001", "ACME002"),
    "a check that raises": (f"{FINDING}/__init__.py", "% ROWS", "% 0"),
    "no module": (f"{FINDING}/__init__.py", None, "No module named"),
}  # fmt: skip


@pytest.fixture
def broken(request: pytest.FixtureRequest, site: Path, tmp_path: Path) -> Path:
    """The installed plugin with one text replaced, or one file gone."""
    file, old, new = BROKEN[request.param]
    shutil.copytree(site, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__"))
    place = tmp_path / "site" / file
    if old is None:
        place.unlink()
    else:
        source = place.read_text(encoding="utf-8")
        assert old in source
        place.write_text(source.replace(old, new, 1), encoding="utf-8")
    return tmp_path / "site"


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_a_broken_plugin_is_named(broken: Path, request: pytest.FixtureRequest) -> None:
    """One line says which distribution and entry point it is, without a traceback."""
    file = BROKEN[request.node.callspec.params["broken"]][0]
    line = "acme-1.0 = 'acme_quark'" if file.startswith(TARGET) else "ACME = 'acme_quark.findings'"
    done = quark_validate(broken, str(CHECKPOINT))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"plugin acme-quark 1.0 (entry point {line} in quark_format.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("broken", ["a value that the schema refuses"], indirect=True)
def test_what_needs_no_plugin_works_beside_a_broken_one(broken: Path) -> None:
    script = "from quark_format.targets import target; print(target('vllm@0.32').name)"
    assert python(broken, "-c", script).stdout == "vllm@0.32\n"
    command = "from quark_format.cli import main; main()"
    done = python(broken, "-c", command, "resolve", str(CHECKPOINT), "--target", "acme")
    assert (done.returncode, done.stdout) == (2, "")
    assert "acme-1.0/schemes.json, $.fields[0]: 1 is not of type 'object'" in done.stderr
