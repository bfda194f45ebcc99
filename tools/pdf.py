"""Write _build/transformer_lit.pdf: the rendered book, printed by Chromium.

    python tools/pdf.py    print the book, if a page has changed since

The pages in _build/html are printed one by one, in the order of _toc.yml, and
put together behind a cover and a table of contents. Links between them become
links inside the PDF.
"""

import html
import io
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urldefrag, urlsplit

import yaml
from chapters import BOOK, CONFIG, ROOT
from chromium import started
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring, tostring
from playwright.sync_api import Browser
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    Destination,
    DictionaryObject,
    Fit,
    IndirectObject,
    NameObject,
    NumberObject,
    PdfObject,
    TextStringObject,
)

RENDERED = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / "transformer_lit.pdf"
COVER = BOOK / "machine.png"
# What a page holds for the screen alone.
SCREEN = (
    ".//script | .//iframe | .//div[contains(@class, 'toctree-wrapper')]"
    " | .//a[contains(@class, 'headerlink')]"
)
# The addresses by which one part of the book links to a place in another.
BETWEEN = "book:"
FORMULAS = "MathJax.startup.promise.then(() => document.fonts.ready)"
STYLE = """
@page {
  size: A4;
  @top-left { color: #666; font: 8pt sans-serif; }
}
@page :first { @top-left { content: none !important; } }
@page cover { @bottom-center { content: none; } }
#cover { font-size: 12pt; page: cover; padding-top: 2cm; text-align: center; }
#cover strong { font-size: 28pt; font-weight: 500; }
#cover img { margin: 1.5cm 0; max-width: 100%; }
#contents { columns: 2; column-gap: 10mm; font-size: 8.5pt; }
#contents h1 { column-span: all; margin-top: 0; }
#contents a { align-items: end; color: inherit; display: flex; gap: 1em;
  justify-content: space-between; line-height: 1.45; text-decoration: none; }
#contents a b { font-weight: inherit; min-width: 2em; text-align: right; }
#contents .chapter { break-after: avoid; font-weight: 600; margin-top: 0.6em; }
#contents .section { padding-left: 1em; }
"""


@dataclass(frozen=True)
class Chapter:
    """One page of the book, made to stand in a part of its own.

    Attributes:
        name: its page's name; a place in it is called `name#id`.
        title: its heading as plain text.
        sections: the place of each section, and its heading as an element.
        body: its article, as HTML.
        ids: all the ids in it.
    """

    name: str
    title: str
    sections: list[tuple[str, HtmlElement]]
    body: str
    ids: list[str]


@dataclass(frozen=True)
class Place:
    """Where something is in the PDF: a sheet, and a point on it."""

    sheet: int  # counted from zero
    fit: Fit


# From a rendered page to a chapter -------------------------------------------


def pages(rendered: Path) -> list[Path]:
    """The rendered pages in the order of the book."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    files = [toc["root"], *(entry["file"] for entry in toc["chapters"])]
    return [rendered / f"{file}.html" for file in files]


def read(page: Path) -> HtmlElement:
    """A page as a tree."""
    parser = HTMLParser(encoding="utf-8", huge_tree=True)
    return document_fromstring(page.read_bytes(), parser=parser)


def chapter(page: Path, book: list[Path]) -> Chapter:
    """A page as a chapter."""
    (article,) = read(page).xpath("//article")
    for element in article.xpath(SCREEN):
        element.drop_tree()
    for element in article.iter(etree.Element):
        adapt(element, page, book)
    # A section may begin at the foot of a sheet, and its heading overleaf.
    for heading in article.iter("h1", "h2", "h3"):
        if "id" in heading.getparent().attrib:
            heading.set("id", heading.getparent().attrib.pop("id"))
    return Chapter(
        page.stem,
        plain(article.find(".//h1")),
        [(f"{page.stem}#{h.get('id')}", h) for h in article.iter("h2")],
        tostring(article, encoding="unicode"),
        article.xpath(".//@id"),
    )


def adapt(element: HtmlElement, page: Path, book: list[Path]) -> None:
    """Make an element independent of the page that it stands on."""
    if "src" in element.attrib:
        element.set("src", address(element.get("src"), page))
    if "href" not in element.attrib or urlsplit(element.get("href")).scheme:
        return
    file, part = urldefrag(element.get("href"))
    there = Path(os.path.normpath(page.parent / file)) if file else page
    if there in book:
        place = f"{there.stem}#{part}" if part else there.stem
        element.set("href", BETWEEN + place)
    else:
        del element.attrib["href"]


def address(url: str, page: Path) -> str:
    """A file's address, wherever the page that names it may go."""
    if urlsplit(url).scheme:
        return url
    return (page.parent / urlsplit(url).path).resolve().as_uri()


def plain(heading: HtmlElement) -> str:
    """A heading without markup; of its formulas, the few that we have."""
    text = str(heading.text_content())
    for tex, sign in {
        r"\sqrt": "√",
        r"\(": "",
        r"\)": "",
        "{": "",
        "}": "",
    }.items():
        text = text.replace(tex, sign)
    return text


# From chapters to sheets -----------------------------------------------------


def head(page: Path) -> str:
    """The styles of a page, and the script that sets its formulas."""
    kept = read(page).xpath(
        "//head/link[@rel='stylesheet']"
        " | //head/script[contains(., 'MathJax') or contains(@src, 'mathjax')]"
    )
    for element in kept:
        for name in {"href", "src"} & set(element.attrib):
            element.set(name, address(element.get(name), page))
    return "".join(tostring(element, encoding="unicode") for element in kept)


def document(head: str, body: str, running: str = "", before: int = 0) -> str:
    """A page to be printed, with its running title, after so many sheets."""
    words = json.dumps(running, ensure_ascii=False)  # as CSS quotes, too
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<meta charset="utf-8">
{head}
<style>{STYLE}
@page {{ @top-left {{ content: {words}; }} }}
html {{ counter-reset: page {before}; }}
</style>
<body class="mathjax_ignore">
<main class="bd-main"><div class="bd-content">
<div class="bd-article-container">
{body}
</div></div></main>
"""


def front(chapters: list[Chapter], places: dict[str, Place]) -> str:
    """Cover and table of contents, with the sheets that are known."""

    def line(level: str, name: str, words: str) -> str:
        number = places[name].sheet + 1 if name in places else ""
        return (
            f'<a class="{level}" href="{BETWEEN}{name}"><span>{words}</span>'
            f"<b>{number}</b></a>\n"
        )

    lines = ""
    for one in chapters:
        lines += line("chapter", one.name, html.escape(one.title))
        lines += "".join(
            line("section", name, inner(heading))
            for name, heading in one.sections
        )
    return f"""<div id="cover">
<p><strong>{CONFIG["title"]}</strong></p>
<p>{CONFIG["author"]}</p>
<img src="{COVER.as_uri()}" alt="">
<p>{CONFIG["html"]["extra_footer"]} · {CONFIG["copyright"]}</p>
</div>
<nav id="contents"><h1>Contents</h1>
{lines}</nav>"""


def inner(element: HtmlElement) -> str:
    """What an element holds, as HTML."""
    parts = [tostring(child, encoding="unicode") for child in element]
    return html.escape(element.text or "") + "".join(parts)


def targets(ids: list[str]) -> str:
    """Links that nobody sees: Chromium notes where those places are."""
    links = "".join(f'<a href="#{one}"></a>' for one in ids)
    return f"<nav hidden>{links}</nav>"


def printed(text: str, browser: Browser) -> PdfReader:
    """A document as a PDF."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(text, encoding="utf-8")
        tab = browser.new_page()
        tab.set_default_timeout(0)
        tab.goto(page.as_uri())
        tab.evaluate(FORMULAS)
        pdf = tab.pdf(
            prefer_css_page_size=True, print_background=True, tagged=True
        )
        tab.close()
    return PdfReader(io.BytesIO(pdf))


def places_in(part: PdfReader, name: str, before: int) -> dict[str, Place]:
    """The places in a chapter that begins after so many sheets."""
    top = Fit.xyz(0, float(part.pages[0].mediabox.top))
    found = {name: Place(before, top)}
    for anchor, there in part.named_destinations.items():
        number = part.get_destination_page_number(there)
        assert number is not None, f"{anchor} is on no sheet"
        place = Place(before + number, Fit.xyz(there.left, there.top))
        found[f"{name}#{anchor.removeprefix('/')}"] = place
    return found


def bind(book: list[Path], browser: Browser) -> PdfWriter:
    """The whole book: cover, contents, chapters, links, tags and outline.

    Raises:
        KeyError: a link leads to a place that is not in the book.
        RuntimeError: the table of contents grew when it was filled in.
    """
    styles = head(book[0])
    chapters = [chapter(page, book) for page in book]
    blank = printed(document(styles, front(chapters, {})), browser)
    count, parts = len(blank.pages), []
    places: dict[str, Place] = {}
    for one in chapters:
        body = one.body + targets(one.ids)
        text = document(styles, body, one.title, count)
        part = printed(text, browser)
        places |= places_in(part, one.name, count)
        count += len(part.pages)
        parts.append(part)
    filled = printed(document(styles, front(chapters, places)), browser)
    if len(filled.pages) != len(blank.pages):
        raise RuntimeError("the numbers have moved what they count")
    writer = PdfWriter()
    for part in (filled, *parts):
        for page in part.pages:
            writer.add_page(page)
    for page in writer.pages:
        link(page, places, writer)
    tag((filled, *parts), writer)
    outline(chapters, places, writer)
    writer.page_mode = "/UseOutlines"  # show the bookmarks
    writer.add_metadata(
        {"/Title": CONFIG["title"], "/Author": CONFIG["author"]}
    )
    return writer


def link(page: PageObject, places: dict[str, Place], writer: PdfWriter) -> None:
    """Lead a page's links to places of the book there."""
    for each in page.get("/Annots", []):
        each = each.get_object()
        url = each.get("/A", {}).get("/URI", "")
        if url.startswith(BETWEEN):
            place = places[url.removeprefix(BETWEEN)]
            there = writer.pages[place.sheet].indirect_reference
            assert there is not None
            del each["/A"]
            array = Destination("", there, place.fit).dest_array
            each[NameObject("/Dest")] = array


def tag(parts: Iterable[PdfReader], writer: PdfWriter) -> None:
    """Join the tags of the parts: what is a heading, a table, a picture.

    Pages and links know their tags by numbers; each part counts from zero.
    """
    top, tags = ArrayObject(), ArrayObject()
    kind, numbered = NameObject("/StructTreeRoot"), entries(Nums=tags)
    root = entries(Type=kind, K=top, ParentTree=numbered)
    home = writer._add_object(root)
    pages, first = iter(writer.pages), 0
    for part in parts:
        copy = part.root_object.raw_get("/StructTreeRoot").clone(writer)
        tree = copy.get_object()
        tree["/K"].update(entries(P=home))
        top.append(tree.raw_get("/K"))
        numbers = tree["/ParentTree"]["/Nums"]
        for number, tagged in zip(numbers[::2], numbers[1::2], strict=True):
            tags.extend([NumberObject(first + number), tagged])
        for old, page in zip(part.pages, pages, strict=False):
            number = NumberObject(first + old["/StructParents"])
            page.update(entries(StructParents=number))
            for each in page.get("/Annots", []):
                link = each.get_object()
                number = NumberObject(first + link["/StructParent"])
                link.update(entries(StructParent=number))
        first += tree["/ParentTreeNextKey"]
    marked = entries(Marked=BooleanObject(True))
    language = TextStringObject("en")
    writer.root_object.update(
        entries(StructTreeRoot=home, MarkInfo=marked, Lang=language)
    )


def entries(**values: PdfObject) -> DictionaryObject:
    """A dictionary of the PDF."""
    return DictionaryObject({NameObject(f"/{k}"): v for k, v in values.items()})


def outline(
    chapters: list[Chapter], places: dict[str, Place], writer: PdfWriter
) -> None:
    """Write the bookmarks: chapters, and their sections below them."""

    def mark(
        title: str, name: str, above: IndirectObject | None = None
    ) -> IndirectObject:
        place = places[name]
        return writer.add_outline_item(
            title=title,
            page_number=place.sheet,
            parent=above,
            fit=place.fit,
            is_open=False,
        )

    for one in chapters:
        above = mark(one.title, one.name)
        for name, heading in one.sections:
            mark(plain(heading), name, above)


def print_book(book: list[Path]) -> bytes:
    """The PDF of a book, from a browser of its own."""
    pdf = io.BytesIO()
    with started() as browser:
        bind(book, browser).write(pdf)
    return pdf.getvalue()


def fresh(book: list[Path]) -> bool:
    """Whether the PDF is younger than all that it is made of."""
    style = RENDERED / "_static" / "book.css"
    sources = [*book, style, COVER, Path(__file__)]
    newest = max(source.stat().st_mtime for source in sources)
    return TARGET.exists() and TARGET.stat().st_mtime > newest


def main() -> None:
    book = pages(RENDERED)
    if absent := [page for page in book if not page.exists()]:
        sys.exit(f"{absent[0].relative_to(ROOT)} is missing; run `make book`")
    if fresh(book):
        return
    part = TARGET.with_suffix(".part")
    part.write_bytes(print_book(book))
    part.replace(TARGET)


if __name__ == "__main__":
    main()
