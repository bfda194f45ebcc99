"""The book on paper: what a page prints, and the PDF of the whole."""

import io
import os
import re
import time
from pathlib import Path

import pytest
import test_browser
from pypdf import PdfReader

from transformer_lit import viz

browser, HTML = test_browser.browser, test_browser.HTML
ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    HTML / f"{page}.html"
    for page in (
        "notebooks/00_how_to_read",
        "notebooks/03_2_attention",
        "book/machine",
    )
]
TEXT_WIDTH = 650  # pixels: A4 less two margins of 19 mm
TYPESET = "window.MathJax?.startup.promise.then(() => document.fonts.ready)"

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module", params=PAGES, ids=lambda page: page.stem)
def sheet(browser, request):
    """A page as it is laid out for paper, from the dark theme."""
    size = {"width": TEXT_WIDTH, "height": 900}
    tab = browser.new_page(viewport=size, color_scheme="dark")
    tab.goto(request.param.as_uri())
    tab.evaluate(TYPESET)
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    yield tab
    tab.close()


def test_paper_holds_the_text_alone(sheet):
    seen = sheet.evaluate("""() => [...document.querySelectorAll(
        "nav, header, footer, button, summary, iframe, dialog, .headerlink")]
        .filter(part => part.checkVisibility()).map(part => part.outerHTML)""")
    assert seen == []
    assert sheet.locator("h1:visible").count() == 1


def test_nothing_is_cut_at_the_margin(sheet):
    wide = sheet.evaluate("""() => [...document.querySelectorAll("article *")]
        .filter(part => !part.closest("mjx-container > *"))
        .filter(part => part.getBoundingClientRect().right > innerWidth + 1
                || getComputedStyle(part).overflowX !== "visible"
                && part.scrollWidth > part.clientWidth + 1)
        .map(part => part.outerHTML.slice(0, 200))""")
    assert wide == []
    page = "document.documentElement.scrollWidth"
    assert sheet.evaluate(page) <= TEXT_WIDTH


def test_no_word_is_broken_in_the_head_of_a_table(sheet):
    lines = sheet.evaluate("""() => [...document.querySelectorAll(
        "article th")].filter(cell => cell.checkVisibility()
                              && /^\\S+$/.test(cell.textContent.trim()))
        .map(cell => {
          const word = document.createRange();
          word.selectNodeContents(cell.querySelector("p") ?? cell);
          return word.getClientRects().length;
        })""")
    assert set(lines) <= {1}
    assert lines or "how_to_read" not in sheet.url


def test_what_was_folded_is_printed(sheet):
    hidden = "details.hide pre, .solution p, .solution pre"
    shown = sheet.evaluate(
        "css => [...document.querySelectorAll(css)]"
        ".map(part => part.checkVisibility() && part.clientHeight > 0)",
        hidden,
    )
    assert all(shown)
    assert shown or "machine" in sheet.url


def test_no_figure_is_blank(sheet):
    sizes = sheet.evaluate("""() => [...document.querySelectorAll(
        "article img")].map(image =>
        [image.naturalWidth, image.clientWidth, image.clientHeight])""")
    assert sizes
    assert all(min(size) > 50 for size in sizes)


def test_formulas_are_set_and_stay_in_their_lines(sheet):
    text = sheet.locator("article").inner_text()
    assert not re.search(r"\\\(|\\\[|\$\$|\\frac|\\sqrt", text)
    inline = sheet.evaluate("""() => [...document.querySelectorAll(
        "span.math")].map(span => getComputedStyle(span).display)""")
    assert set(inline) <= {"inline", "inline-flex"}


def test_ink_is_dark_on_white(sheet):
    """Printing from the dark theme, too; the screen gets it back."""
    light = sheet.evaluate("""() => {
      const luminance = colour => {
        const [r, g, b, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
        const found = (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
        return alpha * found + (1 - alpha);
      };
      const parts = [document.documentElement, ...document.querySelectorAll(
        "article, article :is(div, p, td, pre, pre span, h1, h2, a, code)")];
      const of = name => parts.map(part => luminance(getComputedStyle(part)[name]));
      return [Math.max(...of("color")), Math.min(...of("backgroundColor"))];
    }""")
    ink, paper = light
    assert ink < 0.65 < 0.85 < paper


def test_a_live_figure_prints_its_picture(browser):
    tab = browser.new_page()
    tab.goto(PAGES[0].as_uri())
    tab.locator("article").evaluate(
        "(article, figure) => article.insertAdjacentHTML('beforeend', figure)",
        viz.show("rate").output(),
    )
    frame, picture = tab.locator("iframe"), tab.locator("div:has(+ iframe) img")
    picture.wait_for(state="hidden")
    tab.emulate_media(media="print")
    assert picture.is_visible() and not frame.is_visible()
    tab.close()


def test_the_screen_gets_its_theme_back(browser):
    tab = browser.new_page(color_scheme="dark")
    tab.goto(PAGES[-1].as_uri())
    tab.evaluate(
        "addEventListener('beforeprint', () => "
        "window.printed = document.documentElement.dataset.theme)"
    )
    tab.pdf(page_ranges="1")
    assert tab.evaluate("window.printed") == "light"
    theme = "document.documentElement.dataset.theme"
    assert tab.evaluate(theme) == "dark"
    tab.evaluate(f"delete {theme}")  # where the theme's script did not run
    tab.pdf(page_ranges="1")
    assert tab.evaluate("window.printed") == "light"
    assert tab.evaluate(theme) is None
    tab.close()


# The PDF of the whole book ---------------------------------------------------

SMALL = [HTML / "book/intro.html", HTML / "notebooks/00_how_to_read.html"]


@pytest.fixture(scope="module")
def tool(tools):
    return tools("pdf")


@pytest.fixture(scope="module")
def small(browser, tool):
    """The PDF of a book of two chapters."""
    pdf = io.BytesIO()
    tool.bind(SMALL, browser).write(pdf)
    return PdfReader(pdf)


@pytest.fixture(scope="module")
def texts(small):
    """The text of each sheet, its white space made even."""
    return [" ".join(page.extract_text().split()) for page in small.pages]


def test_the_pdf_has_a_cover_and_numbered_sheets(small, texts, tool):
    assert small.metadata.title == tool.CONFIG["title"]
    assert tool.CONFIG["title"] in texts[0]
    assert len(texts) > 10
    for number, text in enumerate(texts[1:], start=2):
        assert re.search(rf"(^| ){number}( |$)", text), number
    last = tool.chapter(SMALL[-1], SMALL).title
    assert last in texts[-1]  # the running title


def test_the_table_of_contents_tells_the_truth(small, texts, tool):
    lines = small.pages[1].extract_text().splitlines()
    entries = dict(re.findall(r"^(.+) (\d+)$", "\n".join(lines), re.M))
    for chapter in (tool.chapter(page, SMALL) for page in SMALL):
        assert chapter.title in entries
        for _, heading in chapter.sections:
            assert tool.plain(heading) in entries
    for title, number in entries.items():
        assert title in texts[int(number) - 1]


def test_the_pdf_has_an_outline(small, texts, tool):
    chapters = [tool.chapter(page, SMALL) for page in SMALL]
    for one, top, below in zip(
        chapters, small.outline[::2], small.outline[1::2], strict=True
    ):
        assert top.title == one.title
        assert [mark.title for mark in below] == [
            tool.plain(heading) for _, heading in one.sections
        ]
        for mark in (top, *below):
            assert mark.title in texts[small.get_destination_page_number(mark)]


def test_every_link_leads_to_its_place(small, tool):
    """Each inside the PDF to a sheet, none to a file of this machine."""
    sheets = [page.indirect_reference.idnum for page in small.pages]
    ways = set()
    for number, page in enumerate(small.pages):
        for link in page.get("/Annots", []):
            link = link.get_object()
            if "/Dest" in link:
                ways.add((number, sheets.index(link["/Dest"][0].idnum)))
            else:
                assert link["/A"]["/URI"].startswith("https://")
    first, second = (
        small.get_destination_page_number(mark) for mark in small.outline[::2]
    )
    assert {(1, first), (1, second), (first, second)} <= ways


def test_a_screen_reader_finds_its_way_through_the_pdf(small, tool):
    """Each sheet and each link has its tags, in one tree."""
    assert small.root_object["/MarkInfo"]["/Marked"]
    tree = small.root_object["/StructTreeRoot"]
    numbers = tree["/ParentTree"]["/Nums"]
    tags = dict(zip(numbers[::2], numbers[1::2], strict=True))
    links = 0
    for page in small.pages:
        here = {
            tag.get_object().raw_get("/Pg")
            for tag in tags[page["/StructParents"]].get_object()
            if tag.get_object()
        }
        assert page.indirect_reference in here
        for link in page.get("/Annots", []):
            tag = tags[link.get_object()["/StructParent"]].get_object()
            assert tag["/S"] == "/Link"
            links += 1
    assert links > 10
    found = list(walked(tree["/K"]))
    titles = [tool.chapter(page, SMALL).title for page in SMALL]
    assert sum(tag["/S"] == "/H1" for tag in found) == 1 + len(titles)
    assert {"/H2", "/P", "/TH", "/Code"} <= {tag["/S"] for tag in found}
    words = [tag["/Alt"] for tag in found if "/Alt" in tag]
    assert any("eleven German pieces" in text for text in words)


def walked(tag):
    """A tag and those below it."""
    tag = tag.get_object()
    if isinstance(tag, list):
        for each in tag:
            yield from walked(each)
    elif isinstance(tag, dict) and "/S" in tag:
        yield tag
        yield from walked(tag.get("/K", []))


def test_formulas_and_figures_are_in_the_pdf(small, texts):
    assert not re.search(r"\\\(|\$\$|\\frac|\\sqrt", " ".join(texts))
    pictures = [image for page in small.pages for image in page.images]
    assert len(pictures) >= 3  # the cover and the chapter's two


def test_a_chapter_stands_by_itself(tool, tmp_path):
    """Each link goes where it did, or nowhere; each file is found."""
    one, two = tmp_path / "a" / "one.html", tmp_path / "b" / "two.html"
    for page, body in (
        (
            one,
            '<article><section id="one"><h1>One<a class="headerlink" '
            'href="#one">#</a></h1></section>'
            '<p id="top"><a href="../b/two.html">w</a>'
            '<a href="../b/two.html#top">x</a><a href="#top">y</a>'
            '<a href="../search.html">z</a><a href="https://a.b/c">o</a>'
            '<img src="../i.png?v=1"></p><iframe srcdoc="p"></iframe></article>',
        ),
        (two, '<article><h1>Two</h1><p id="top"></p></article>'),
    ):
        page.parent.mkdir()
        page.write_text(body, encoding="utf-8")
    body = tool.chapter(one, [one, two]).body
    assert tool.chapter(one, [one, two]).title == "One"
    assert re.findall(r'href="([^"]*)"', body) == [
        "book:two",
        "book:two#top",
        "book:one#top",
        "https://a.b/c",
    ]
    assert '<section><h1 id="one">One</h1></section>' in body
    assert (tmp_path / "i.png").as_uri() in body
    assert "iframe" not in body


@pytest.fixture
def house(tool, tmp_path, monkeypatch):
    """A rendered book of one page, to be printed by a stand-in."""
    page = tmp_path / "one.html"
    page.write_text("<article><h1>One</h1></article>", encoding="utf-8")
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "book.css").touch()
    for name, value in {
        "ROOT": tmp_path,
        "RENDERED": tmp_path,
        "TARGET": tmp_path / "book.pdf",
        "pages": lambda rendered: [page],
        "print_book": lambda book: b"new",
    }.items():
        monkeypatch.setattr(tool, name, value)
    return tmp_path


def test_a_book_that_has_not_changed_is_not_printed_again(
    tool, house, monkeypatch
):
    tool.main()
    assert tool.TARGET.read_bytes() == b"new"
    monkeypatch.setattr(tool, "print_book", lambda book: b"newer")
    tool.main()
    assert tool.TARGET.read_bytes() == b"new"
    later = time.time() + 60
    os.utime(house / "one.html", (later, later))
    tool.main()
    assert tool.TARGET.read_bytes() == b"newer"


def test_a_print_that_fails_leaves_the_old_pdf(tool, house, monkeypatch):
    def fails(book):
        raise RuntimeError("no paper")

    tool.TARGET.write_bytes(b"old")
    os.utime(tool.TARGET, (0, 0))
    monkeypatch.setattr(tool, "print_book", fails)
    with pytest.raises(RuntimeError, match="no paper"):
        tool.main()
    assert tool.TARGET.read_bytes() == b"old"


def test_a_missing_browser_is_said_in_one_line(tools, tool, monkeypatch):
    monkeypatch.setattr(tools("chromium"), "FOUND", None)
    with pytest.raises(SystemExit, match=r"^no Chromium: apt-get .* chromium$"):
        tool.print_book(SMALL)


def test_a_missing_page_is_said_in_one_line(tool, house):
    (house / "one.html").unlink()
    with pytest.raises(SystemExit, match=r"^one.html is missing; run `make b"):
        tool.main()
