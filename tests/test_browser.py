"""The built book in Chromium, from file://, as a reader opens it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import transformer_lit

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
PAGES = sorted([*HTML.glob("notebooks/*.html"), *HTML.glob("book/*.html")])
# Jupyter Book emits its head scripts twice; nothing of ours.
THEIRS = ("THEBE_JS_URL",)

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def browser(tools):
    chromium = tools("chromium")
    if not chromium.FOUND:
        # On CI a missing browser is a fault, elsewhere a reason to skip.
        assert not os.environ.get("CI"), chromium.MISSING
        pytest.skip(chromium.MISSING)
    with chromium.started() as browser:
        yield browser


@dataclass
class Visit:
    """An opened page and what happened while it opened."""

    page: Path
    tab: Any
    requests: list[str]
    errors: list[str]


@pytest.fixture(scope="module", params=PAGES, ids=lambda page: page.stem)
def opened(browser, request):
    """Each page, opened once for all the tests that look at it."""
    tab = browser.new_page()
    visit = Visit(request.param, tab, [], [])
    tab.on("request", lambda request: visit.requests.append(request.url))
    tab.on("requestfailed", lambda r: visit.errors.append(f"failed: {r.url}"))
    tab.on("pageerror", lambda error: visit.errors.append(str(error)))
    tab.goto(request.param.as_uri())
    tab.wait_for_function("!window.MathJax || MathJax.startup?.promise")
    tab.evaluate("window.MathJax?.startup?.promise")
    yield visit
    tab.close()


def test_the_book_is_built():
    assert PAGES, "run `make book` first"


def test_a_page_needs_nothing_from_outside(opened):
    local = ("file:", "data:")
    assert [u for u in opened.requests if not u.startswith(local)] == []


def test_a_page_has_no_errors(opened):
    ours = [e for e in opened.errors if not any(t in e for t in THEIRS)]
    assert ours == []


def test_formulas_are_set(opened):
    assert opened.tab.locator("mjx-merror").count() == 0
    raw = opened.tab.locator("span.math, div.math").count()
    assert opened.tab.locator("mjx-container").count() >= raw


def test_every_picture_has_a_text(opened):
    images = opened.tab.locator("article img").all()
    assert all(image.get_attribute("alt") for image in images)


def test_a_page_prints_the_version(opened):
    footer = "".join(opened.tab.locator("footer").all_inner_texts())
    assert f"transformer_lit {transformer_lit.__version__}" in footer


def test_a_page_fits_a_phone(opened):
    opened.tab.set_viewport_size({"width": 390, "height": 844})
    width = opened.tab.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


def test_the_colab_link_opens_a_file_that_exists(opened):
    if opened.page.parent.name != "notebooks":
        return
    links = "a[href^='https://colab.research.google.com']"
    href = opened.tab.locator(links).first.get_attribute("href")
    _, _, inside = href.partition("/blob/")
    _, _, path = inside.partition("/")
    assert path == f"notebooks/{opened.page.stem}.ipynb"
    assert (ROOT / path).is_file()


def test_icons_are_there(browser):
    tab = browser.new_page()
    tab.goto(PAGES[0].as_uri())
    fonts = "[...document.fonts].some(font => font.status == 'loaded')"
    tab.wait_for_function(fonts)
    tab.close()


def test_search_finds_a_chapter(browser):
    tab = browser.new_page()
    tab.goto((HTML / "search.html").as_uri() + "?q=softmax")
    tab.wait_for_selector("#search-results a")
    found = tab.locator("#search-results a").all_inner_texts()
    assert any("attention" in title.lower() for title in found)
    tab.close()
