"""The strict build of the site refuses what leads nowhere; what pages say of this release is true."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import build_docs
import pytest

SETTINGS = build_docs.ROOT / "mkdocs.yml"
PAGE = "# Start\n\n[The other](other.md), [a part of it](other.md#part)\n"
OTHER = "# Other\n\n## Part\n"
NAV = ["index.md", "other.md"]


def built(folder: Path, page: str = PAGE, nav: list[str] = NAV) -> subprocess.CompletedProcess[str]:
    """Build a site of two pages with the settings of ours, its generated pages aside."""
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(page, encoding="utf-8")
    (folder / "docs" / "other.md").write_text(OTHER, encoding="utf-8")
    settings = {
        "INHERIT": str(SETTINGS),
        "docs_dir": "docs",
        "site_dir": "site",
        "hooks": [],
        "extra_css": [],
        "nav": nav,
    }
    (folder / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_two_pages_that_lead_to_each_other_are_built(tmp_path: Path) -> None:
    assert built(tmp_path).returncode == 0
    assert list(build_docs.problems(tmp_path / "site")) == []


@pytest.mark.parametrize(
    ("page", "nav", "says"),
    [
        (PAGE, [*NAV, "third.md"], "third.md"),
        (f"{PAGE}[gone](third.md)", NAV, "third.md"),
        (f"{PAGE}[gone](other.md#section)", NAV, "other.md#section"),
        (f"{PAGE}[gone](/other.html)", NAV, "/other.html"),
        (f'{PAGE}\n``` json\n--8<-- "gone.json"\n```\n', NAV, "gone.json"),
    ],
)
def test_what_leads_nowhere_fails_the_build(page: str, nav: list[str], says: str, tmp_path: Path) -> None:
    done = built(tmp_path, page, nav)
    assert done.returncode != 0
    assert says in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<a href="gone.html">', "index.html leads to gone.html, which is not there"),
        ('<a href="#gone">', "index.html leads to #gone, which has no such anchor"),
        ('<script src="https://cdn.example/x.js">', "index.html loads https://cdn.example/x.js"),
    ],
)
def test_a_built_page_is_looked_at(body: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(body, encoding="utf-8")
    assert says in list(build_docs.problems(tmp_path))


def test_the_pages_name_this_release() -> None:
    project = tomllib.loads((build_docs.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (build_docs.ROOT / "docs" / "schemas.md").read_text(encoding="utf-8")
    assert f"    rev: v{project['version']}\n" in page
    assert f"quark-format@v{project['version']}\n" in page
