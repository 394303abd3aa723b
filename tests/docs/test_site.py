"""The built site in headless Chromium: on a desk and on a phone, light and dark, with a working search."""

from __future__ import annotations

from pathlib import Path

import build_docs
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.command import Command
from selenium.webdriver.support.ui import WebDriverWait

from quark_format.tables import table
from quark_format.targets import targets

PAGES = ("index.html", "findings/QF401.html", "reference/matrix.html")
PHONE, DESK = (390, 844), (1280, 900)
CODES = [rule["code"] for rule in table("rules.json")["rules"]]
HEADINGS = ["What it does", "Why is this bad?", "Example", "How to fix", "References"]


def shown(browser: Chrome, address: str, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
    """Open a page on a screen of `size`, with the system's wish for light or dark."""
    width, height = size
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < height},
    )
    wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    browser.get(address)
    browser.execute_script("localStorage.clear()")
    browser.get(address)


def picture(browser: Chrome, name: str) -> None:
    """Leave a screenshot in `build/screenshots`."""
    folder = build_docs.ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(folder / f"{name}.png"))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_fits_and_follows_the_system(
    page: str, size: tuple[int, int], dark: bool, browser: Chrome, address: str
) -> None:
    """No page is wider than the screen; its colours follow the system; nothing is logged as an error."""
    shown(browser, f"{address}/{page}", size, dark=dark)
    body = browser.find_element(By.TAG_NAME, "body")
    picture(browser, f"{Path(page).stem}-{size[0]}-{'dark' if dark else 'light'}")

    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert body.get_attribute("data-md-color-scheme") == ("slate" if dark else "default")
    assert browser.find_element(By.TAG_NAME, "h1").is_displayed()
    log: list[dict[str, str]] = browser.execute(Command.GET_LOG, {"type": "browser"})["value"]
    assert [entry["message"] for entry in log if entry["level"] == "SEVERE"] == []


def test_nothing_comes_from_another_host(browser: Chrome, address: str) -> None:
    """Every resource that the start page loads is the site's own."""
    shown(browser, f"{address}/index.html")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    assert loaded
    assert [name for name in loaded if not name.startswith(address)] == []


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_search_finds_a_finding(size: tuple[int, int], browser: Chrome, address: str) -> None:
    """Its name leads to its page."""
    shown(browser, f"{address}/index.html", size)
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    wait = WebDriverWait(browser, 20)
    field = browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    wait.until(lambda _: field.is_displayed())
    field.send_keys("declared-but-float")
    wanted = ".md-search-result__link[href*='findings/QF401.html']"
    wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, wanted))
    picture(browser, f"search-{size[0]}")
    browser.get(browser.find_element(By.CSS_SELECTOR, wanted).get_attribute("href") or "")

    assert "QF401" in browser.find_element(By.TAG_NAME, "h1").text


def test_the_matrix_has_every_target(browser: Chrome, address: str) -> None:
    """A column for each target, and rows with both answers and with an answer for some platforms."""
    shown(browser, f"{address}/reference/matrix.html")
    script = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)"
    heads, cells = (set(browser.execute_script(script, selector)) for selector in ("th", "td"))

    assert set(targets()) <= heads
    assert {"✓", "no"} <= cells
    assert any("✓ cuda" in cell for cell in cells)


def test_two_releases_are_compared(site: Path) -> None:
    """Each section has a table, in which what the older release has not is refused."""
    source = (site / "reference" / "vllm-0.22-0.32.html").read_text(encoding="utf-8")
    sections = source.split("<h2")[1:]

    assert len(sections) == 8
    assert all("<table>" in section for section in sections)
    assert "<td>refused</td>\n<td><code>linear.int4</code></td>" in source


@pytest.mark.parametrize("code", CODES)
def test_a_finding_has_its_page(code: str, site: Path) -> None:
    """The sections stand in order, and the example's output has the finding."""
    source = (site / "findings" / f"{code}.html").read_text(encoding="utf-8")
    places = [source.find(f">{heading}<") for heading in HEADINGS]
    example = source[source.index('id="example"') : source.index('id="how-to-fix"')]

    assert -1 not in places
    assert places == sorted(places)
    assert "quark-validate" in example
    assert any(f"{severity} {code} " in example for severity in ("error", "warning", "info"))


def test_the_tutorial_finds_the_fault_and_fixes_it(site: Path) -> None:
    """Its commands, run while the site was built, show the fault and then a healthy checkpoint."""
    source = (site / "checkpoint.html").read_text(encoding="utf-8")
    fault, _, fixed = source.partition('id="fix-it"')

    assert "error QF401 declared-but-float" in fault
    assert "exit code 0" in fixed
    assert "QF401" not in fixed


def test_no_page_shows_its_markup(site: Path) -> None:
    """What was to be a line break is one."""
    pages = site.rglob("*.html")
    assert [page.name for page in pages if "&lt;br&gt;" in page.read_text(encoding="utf-8")] == []


def test_links_lead_somewhere(site: Path) -> None:
    """Pages, anchors and files that a page names are there."""
    assert list(build_docs.problems(site)) == []
