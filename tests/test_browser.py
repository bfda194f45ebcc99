"""The built book in Chromium, from file://, as a reader opens it."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
PAGES = sorted([*HTML.glob("notebooks/*.html"), *HTML.glob("book/*.html")])
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
# Jupyter Book emits its head scripts twice; nothing of ours.
THEIRS = ("THEBE_JS_URL",)

pytestmark = pytest.mark.xdist_group("browser")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        # On CI a missing browser is a fault, elsewhere a reason to skip.
        missing = "no Chromium: apt-get install chromium"
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=QUIET
        )
        yield started
        started.close()


def visit(browser, page, **options):
    """Open a page; the tab, what it requested, and its errors."""
    tab = browser.new_page(**options)
    requests, errors = [], []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("requestfailed", lambda r: errors.append(f"failed: {r.url}"))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri())
    tab.wait_for_function("!window.MathJax || MathJax.startup?.promise")
    tab.evaluate("window.MathJax?.startup?.promise")
    errors = [e for e in errors if not any(known in e for known in THEIRS)]
    return tab, requests, errors


def test_the_book_is_built():
    assert PAGES, "run `make html` or `make book` first"


@every_page
def test_a_page_needs_nothing_from_outside(browser, page):
    tab, requests, errors = visit(browser, page)
    outside = [
        url for url in requests if not url.startswith(("file:", "data:"))
    ]
    assert outside == []
    assert errors == []
    tab.close()


@every_page
def test_formulas_are_set(browser, page):
    tab, _, _ = visit(browser, page)
    assert tab.locator("mjx-merror").count() == 0
    raw = tab.locator("span.math, div.math").count()
    assert tab.locator("mjx-container").count() >= raw
    tab.close()


@every_page
def test_a_page_fits_a_phone(browser, page):
    tab, _, _ = visit(browser, page, viewport={"width": 390, "height": 844})
    width = tab.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    tab.close()


@every_page
def test_every_picture_has_a_text(browser, page):
    tab, _, _ = visit(browser, page)
    images = tab.locator("article img").all()
    assert all(image.get_attribute("alt") for image in images)
    tab.close()


@every_page
def test_a_page_prints_the_version(browser, page):
    import transformer_lit

    tab, _, _ = visit(browser, page)
    footer = tab.locator("footer").all_inner_texts()
    assert f"transformer_lit {transformer_lit.__version__}" in "".join(footer)
    tab.close()


def test_icons_are_there(browser):
    tab, _, _ = visit(browser, PAGES[0])
    fonts = "[...document.fonts].filter(f => f.status == 'loaded').length"
    tab.wait_for_function(f"{fonts} > 0")
    tab.close()


def test_search_finds_a_chapter(browser):
    tab = browser.new_page()
    tab.goto((HTML / "search.html").as_uri() + "?q=softmax")
    tab.wait_for_selector("#search-results a")
    found = tab.locator("#search-results a").all_inner_texts()
    assert any("attention" in title.lower() for title in found)
    tab.close()


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.parent.name == "notebooks"],
    ids=lambda p: p.stem,
)
def test_the_colab_link_opens_a_file_that_exists(browser, page):
    tab, _, _ = visit(browser, page)
    links = tab.locator("a[href^='https://colab.research.google.com']")
    href = links.first.get_attribute("href")
    _, _, inside = href.partition("/blob/")
    _, _, path = inside.partition("/")
    assert path == f"notebooks/{page.stem}.ipynb"
    assert (ROOT / path).is_file()
    tab.close()
