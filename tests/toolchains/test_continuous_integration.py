"""The pre-commit hook and the GitHub action, run as their services run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "llama-fp8-kv"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "quark_format", "schema", "validators")


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A git repository with a right checkpoint, `good`, and one with an unknown dtype, `bad`."""
    for name in ("good", "bad"):
        shutil.copytree(EXAMPLE, tmp_path / "models" / name)
    config = tmp_path / "models" / "bad" / "config.json"
    faulty: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    faulty["quantization_config"]["global_quant_config"]["weight"]["dtype"] = "fp8_e4m4"
    config.write_text(json.dumps(faulty), encoding="utf-8")
    return tmp_path / "models"


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command; what it says goes to stdout."""
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def repository(folder: Path) -> str:
    """Make a git repository of a folder; return its commit."""
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "All")):
        done = run("git", *who, *command, folder=folder)
        assert done.returncode == 0, done.stdout
    return run("git", "rev-parse", "HEAD", folder=folder).stdout.strip()


def test_what_ci_needs_and_cannot_install_is_named(tmp_path: Path) -> None:
    """Here there is neither a browser nor Node nor apt-get."""
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    done = run(tmp_path / "bash", ROOT / ".ci" / "run", folder=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 2
    assert "Debian's packages chromium fonts-dejavu-core chromium-driver npm: install them" in done.stdout


def test_the_hook_refuses_a_faulty_checkpoint(clean_bin: Path, checkpoints: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in (*SOURCES, ".pre-commit-hooks.yaml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, hooks / name)
    repos = [{"repo": str(hooks), "rev": repository(hooks), "hooks": [{"id": "quark-validate"}]}]
    (checkpoints / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": repos}), encoding="utf-8")
    repository(checkpoints)
    pre_commit = (clean_bin / "pre-commit", "run", "quark-validate", "--files")
    home = {"PRE_COMMIT_HOME": str(tmp_path / "home")}
    good = run(*pre_commit, "good/config.json", folder=checkpoints, **home)
    assert (good.returncode, "Passed" in good.stdout) == (0, True), good.stdout
    bad = run(*pre_commit, "bad/config.json", folder=checkpoints, **home)
    assert bad.returncode == 1
    assert "fp8_e4m4" in bad.stdout


def test_the_steps_of_the_action_annotate_a_faulty_checkpoint(checkpoints: Path, tmp_path: Path) -> None:
    """The validating step, with a runner's environment and this project as the installed one."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    installed = tmp_path / "temp" / "quark-format" / "bin"
    installed.mkdir(parents=True)
    (installed / "quark-validate").symlink_to(Path(sys.executable).parent / "quark-validate")
    step = action["runs"]["steps"][-1]
    inputs = {"checkpoints": "good bad", "arguments": action["inputs"]["arguments"]["default"]}
    given = {
        name: inputs[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, value in step["env"].items()
    }
    done = run(
        *("bash", "-e", "-o", "pipefail", "-c", step["run"]),
        folder=checkpoints,
        RUNNER_TEMP=str(tmp_path / "temp"),
        **given,
    )
    assert done.returncode == 1
    assert "::error file=bad/config.json" in done.stdout
    assert "file=good/" not in done.stdout
