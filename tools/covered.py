"""Which statement of the paper is dealt with where, and how far.

    python tools/covered.py            write the page book/coverage.md
    python tools/covered.py --check    exit 1 and name what is missing

The items stand in book/paper_items.yml. The tag of an item in a chapter is a
link to one of its rows in the ledger, so that readers see no tag at all.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from chapters import BOOK, PACKAGE, ROOT, texts
from ledger import LEDGER, Section, sections, uses

ITEMS, PAGE = BOOK / "paper_items.yml", BOOK / "coverage.md"
STATUSES = {
    "exact": "they hold as stated, at the paper's sizes or at any",
    "small scale": "measured, on a small model or on little data",
    "formula only": "derived, or recomputed from printed numbers",
    "not run": "not tried here; the reason stands beside each",
}
KEYS = set("what facts chapter at symbol test status why waits".split())
HEAD = """\
# What is covered

What the paper states {cite}`vaswani2017attention`, in its order, and what this
book does about it: the section that deals with it, the function or class that
does it, a test that would fail if that were wrong, and in brackets how far it
goes. Where no test is named, any check is in the cells of the section itself. The
name of an item leads to the paper's own words, in the [ledger](ledger.md).

"""


def items() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every item with the paper's section."""
    for part in yaml.safe_load(ITEMS.read_text(encoding="utf-8")):
        for item in part["items"]:
            yield part["section"], item


def tree_of(path: Path) -> ast.Module | None:
    """A source file, parsed; None where there is none."""
    if not path.is_file():
        return None
    return ast.parse(path.read_text(encoding="utf-8"))


def defines(path: Path, name: str) -> bool:
    """Whether a source file defines a name: NAME or CLASS.NAME."""
    node: Any = tree_of(path)
    for part in name.split("."):
        children = node.body if node else []
        named = [child for child in children if part in names_in(child)]
        node = named[-1] if named else None
    return node is not None


def names_in(statement: ast.stmt) -> set[str | None]:
    """The names that a statement gives: of a class, a function or a value."""
    targets = getattr(statement, "targets", [])  # a = b = 1
    one = getattr(statement, "target", None)  # a: int = 1
    given = {getattr(target, "id", None) for target in [*targets, one]}
    return given | {getattr(statement, "name", None)}


def places() -> dict[tuple[str, str], Section]:
    """Every section, by chapter and heading."""
    return {(s.chapter, s.heading): s for p in texts() for s in sections(p)}


def place_of(
    item: dict[str, Any],
    known: dict[tuple[str, str], Section],
    used: dict[str, list[Section]],
) -> Section | None:
    """The section that deals with an item."""
    chapter = item.get("chapter", item.get("waits"))
    if "at" in item:
        return known.get((chapter, item["at"]))
    for fact in item["facts"]:
        for section in used.get(fact, []):
            if section.chapter == chapter:
                return section
    return None


def faults() -> Iterator[str]:
    """What is wrong with the list of items."""
    rows = [r["id"] for r in yaml.safe_load(LEDGER.read_text("utf-8"))]
    chapters = {path.stem for path in texts()}
    known, used = places(), uses()
    count: Counter[str] = Counter()
    for _, item in items():
        name = item["what"]
        count.update(item["facts"])
        for fact in set(item["facts"]) - set(rows):
            yield f"{name}: the ledger has no row {fact}"
        for key in set(item) - KEYS:
            yield f"{name}: there is no key {key}"
        yield from faults_of(item, chapters)
        place = place_of(item, known, used)
        if "waits" in item and place:
            yield f"{name}: {item['waits']} has it now; fill in its row"
        if item.get("chapter") in chapters and not place:
            where = item.get("at", f"link to one of {item['facts']}")
            yield f"{name}: {item['chapter']} has no {where}"
    for row in rows:
        if count[row] != 1:
            yield f"{row}: is in {count[row]} items, not in one"


def faults_of(item: dict[str, Any], chapters: set[str]) -> Iterator[str]:
    """What is wrong with one item, taken by itself."""
    name, status = item["what"], item.get("status")
    if "waits" in item:
        return
    if status not in STATUSES:
        yield f"{name}: the status is {status}, not one of {list(STATUSES)}"
    if status != "exact" and not item.get("why"):
        yield f"{name}: why is it {status}?"
    if status != "not run" and "chapter" not in item:
        yield f"{name}: no chapter, but {status}"
    if item.get("chapter", "") not in chapters | {""}:
        yield f"{name}: there is no chapter {item['chapter']}"
    if "symbol" in item:
        module, _, symbol = item["symbol"].partition(".")
        if not defines(PACKAGE / f"{module}.py", symbol):
            yield f"{name}: the package has no {item['symbol']}"
    if "test" in item:
        file, _, test = item["test"].partition("::")
        if not defines(ROOT / "tests" / file, test):
            yield f"{name}: there is no test {item['test']}"


def details(
    item: dict[str, Any],
    known: dict[tuple[str, str], Section],
    used: dict[str, list[Section]],
) -> str:
    """Where an item is dealt with, by what, how it is tested; and why not."""
    found = ""
    if "waits" in item:
        found = f"left for the chapter `{item['waits']}`, which is to come"
    elif "chapter" in item and (place := place_of(item, known, used)):
        number = place.title.split(" ")[0].rstrip(".")
        chapter = number if number[0].isdigit() else place.title
        whole = place.heading == place.title
        found = place.link if whole else f"{chapter}: {place.link}"
    if "symbol" in item:
        found += f", by `{item['symbol']}`"
    if "test" in item:
        file, _, test = item["test"].partition("::")
        words = test.removeprefix("test_").replace("_", " ")
        found += f", tested by *{words}* in `{file}`"
    if item.get("why"):
        found += f"; {item['why']}" if found else item["why"]
    return found[0].upper() + found[1:] + "."


def page() -> str:
    """The page."""
    known, used = places(), uses()
    count = Counter(item.get("status", "not run") for _, item in items())
    parts = [HEAD, f"Of the {count.total()} items,\n\n"]
    for status, meaning in STATUSES.items():
        parts.append(f"* {count[status]} are **{status}**: {meaning}.\n")
    current = ""
    for section, item in items():
        if section != current:
            parts.append(f"\n## {section}\n")
            current = section
        first, *more = item["facts"]
        what = f"[{item['what']}](#f-{first})"
        what += "".join(f" [+](#f-{fact})" for fact in more)
        parts.append(f"\n{what} ({item.get('status', 'not run')})\n")
        parts.append(f": {details(item, known, used)}\n")
    return "".join(parts)


def main() -> int:
    found = list(faults())
    text = page() if not found else ""
    if "--check" not in sys.argv:
        if text:
            PAGE.write_text(text, encoding="utf-8")
    elif text and (not PAGE.exists() or PAGE.read_text("utf-8") != text):
        found.append("book/coverage.md is out of date; run tools/covered.py")
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
