"""Build the documentation site into `build/site`; generated pages are made from `schema/` on the way.

`--check` does the same: the site is no part of the repository, so nothing can drift. A warning of mkdocs, a
link that leads nowhere, a page that needs another host to be read, and a finding without an example give exit
code 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
SOURCES = ("docs", "examples", "quark_format", "schema", "tests", "tools", "validators")
SUFFIXES = {".css", ".json", ".md", ".py", ".svg", ".toml", ".ts", ".tsv"}
"""What the site is made from."""

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Attributes whose address a browser fetches to show a page."""

NOT_LOADED = {"canonical", "next", "prev", "edit"}
"""Kinds of `<link>` that a browser does not fetch."""


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, source: str) -> None:
        """Read `source`."""
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and addresses of one element."""
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag) in given and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """Links of the built site that lead nowhere, and what a page loads from another host."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        place = path.relative_to(site)
        yield from (f"{place} loads {address}" for address in page.loads if urlsplit(address).netloc)
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or place.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{place} leads to {address}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{place} leads to {address}, which has no such anchor"


def build() -> list[str]:
    """Build the site; return what is wrong with it."""
    done = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(SITE)),
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return [done.stdout.strip() or "mkdocs failed"] if done.returncode else list(problems(SITE))


def current() -> bool:
    """Whether the built site is newer than all that it is made from."""
    built = SITE / "index.html"
    files = (path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return built.is_file() and all(path.stat().st_mtime < built.stat().st_mtime for path in files)


def main() -> int:
    """Build, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="the same")
    parser.parse_args()
    found = build()
    print("\n".join(found) if found else f"{SITE.relative_to(ROOT)}/index.html")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
