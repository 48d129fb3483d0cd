import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serpette.report.page import write_selection_page

from .factory import CLASSES, selection

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
QUIET = ("background-networking", "component-update", "sync", "quic", "gpu")
SCRIPT, NAME = "<script>alert(1)</script>", "a$b$ <b>&"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in QUIET)]
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = selection(name=NAME, classes=(SCRIPT, *CLASSES[1:]))
    return write_selection_page(chosen, tmp_path_factory.mktemp("run") / "report.html")


@pytest.fixture
def page(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The report in a fresh tab, opened from disk; parametrize indirectly with options of the tab."""
    tab = browser.new_page(**getattr(request, "param", {}))
    tab.problems, tab.requests = [], []
    tab.on("console", lambda message: tab.problems.append(message.text))
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on("dialog", lambda dialog: tab.problems.append("a dialog opened"))
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.goto(report.as_uri())
    yield tab
    assert tab.problems == []
    assert tab.requests == [report.as_uri()]
    tab.close()


def test_every_chart_is_there_and_not_empty(page: Any) -> None:
    charts = page.locator(".chart svg")
    assert charts.count() == 4
    for chart in charts.all():
        box = chart.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 60
        assert chart.locator("path").count() > 5
        assert chart.locator("text").count() > 3


def test_marks_have_tooltips_and_a_size(page: Any) -> None:
    marks = page.locator(".chart svg g:has(> title)")
    assert marks.count() > 100
    assert all(mark.bounding_box()["width"] > 3 for mark in marks.all()[::20])


def test_text_stays_text(page: Any) -> None:
    assert page.locator("script").count() == 0
    assert page.get_by_role("rowheader", name=SCRIPT).count() == 1
    assert NAME in page.locator(".verdict").inner_text()


def test_ids_are_unique(page: Any) -> None:
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_a_phone_never_scrolls_the_page_sideways(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".key > div").first.bounding_box()["width"] > 120


def test_dark_mode_changes_page_and_charts(page: Any) -> None:
    colours = """[getComputedStyle(document.body).backgroundColor,
                  getComputedStyle(document.querySelector('.chart text')).fill]"""
    page.emulate_media(color_scheme="light")
    paper, ink = page.evaluate(colours)
    page.emulate_media(color_scheme="dark")
    dark_paper, dark_ink = page.evaluate(colours)
    assert paper != dark_paper
    assert ink != dark_ink
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(colours) == [paper, ink]


def test_the_keyboard_reaches_the_result(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the result"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#result"
