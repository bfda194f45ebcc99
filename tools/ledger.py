"""Keep the paper's numbers honest: book/ledger.yml against the prose.

    python tools/ledger.py            write the page book/ledger.md
    python tools/ledger.py --check    exit 1 and name what disagrees

A number of the paper stands in the prose as a link to its row, like
[512](#f-3.1.dmodel). Each number in such a link must be in the row's value,
each link must have a row, and a number that only the paper could have given
(27.3, 37,000, ...) must not stand without a link.
"""

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from chapters import BOOK, read, texts

LEDGER, PAGE = BOOK / "ledger.yml", BOOK / "ledger.md"
LINK = re.compile(r"\[([^\]\[]+)\]\(#f-([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w^])")
POWER = re.compile(r"\s*\\(?:cdot|times)\s*10\^\{?(-?\d+)\}?")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", re.S)
WORDS = "zero one two three four five six seven eight nine ten".split()
HEAD = """\
# Ledger

Every number of the paper that this book states, with the sentence it comes
from, quoted in at most 25 words {cite}`vaswani2017attention`. A number in a chapter links here; a test compares the two.
"""


def numbers(text: str) -> set[float]:
    """The numbers that a piece of prose states, number words included."""
    text = POWER.sub(r"e\1", text).replace("$", "")
    words = re.findall(r"[a-z]+", text.lower())
    spelled = {float(WORDS.index(w)) for w in words if w in WORDS}
    digits = {m.group().rstrip(",") for m in NUMBER.finditer(text)}
    return spelled | {float(d.replace(",", "")) for d in digits}


def stated(value: Any) -> set[float]:
    """The numbers that a row's value holds."""
    if isinstance(value, dict):
        return set().union(*map(stated, value.values()))
    if isinstance(value, bool) or value is None:
        return set()
    if isinstance(value, int | float):
        return {float(value)}
    return numbers(str(value))


def telling(value: float) -> bool:
    """Whether a number points to the paper wherever it stands: not a round
    one, not a power of two."""
    if value == int(value):
        return 3000 <= value != 10000 and int(value).bit_count() > 1
    return len(f"{value:g}".replace(".", "").strip("0")) >= 3


def faults(where: str, prose: str, rows: dict[str, Any]) -> list[str]:
    """What is wrong with the numbers of one text."""
    found = []
    for text, name in LINK.findall(prose):
        if name not in rows:
            found.append(f"{where}: [{text}] links to no row of the ledger")
            continue
        value = rows[name]["value"]
        for number in sorted(numbers(text) - stated(value)):
            found.append(f"{where}: {number:g}, but {name} is {value}")
    rest = NOT_PROSE.sub(" ", LINK.sub(" ", prose))
    known = set().union(*(stated(row["value"]) for row in rows.values()))
    loose = {n for n in known if telling(n)} & numbers(rest)
    return found + [
        f"{where}: {number:,g} is the paper's; link it to its row"
        for number in sorted(loose)
    ]


def prose_of(path: Path) -> str:
    """The Markdown of a chapter or page."""
    cells = read(path).cells
    return "\n\n".join(c.source for c in cells if c.cell_type == "markdown")


def show(value: Any) -> str:
    """A row's value for the page."""
    if isinstance(value, dict):
        items = {**value, **value.get("printed", {})}
        skip = ("printed", "effective")
        parts = [f"{k} {show(v)}" for k, v in items.items() if k not in skip]
        return ", ".join(parts)
    if value is True:
        return "stated"
    if value is None:
        return "absent"
    if isinstance(value, int | float):
        return f"{value:,}" if value < 1e9 else f"{value:.1e}"
    return f"`{value}`"


def page(rows: dict[str, Any]) -> str:
    """The ledger as a page."""
    parts = [HEAD]
    for section, group in groupby(rows.values(), key=lambda r: r["section"]):
        digit = str(section)[0].isdigit()
        name = f"Section {section}" if digit else str(section).capitalize()
        parts.append(f"## {name}\n")
        for row in group:
            quote = f" “{row['quote']}”" if row.get("quote") else ""
            parts.append(
                f"(f-{row['id']})=\n**{row['id']}** {show(row['value'])} "
                f"({row['unit']}). {row['what']}.{quote}\n"
            )
    return "\n".join(parts).replace("\\", "\\\\")


def main() -> int:
    rows = {row["id"]: row for row in yaml.safe_load(LEDGER.read_text("utf-8"))}
    text = page(rows)
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    found = [
        f"{name}: the quote has more than 25 words"
        for name, row in rows.items()
        if len(row.get("quote", "").split()) > 25
    ]
    for path in [*texts(), *BOOK.glob("[a-z]*.md")]:
        if path != PAGE:
            found += faults(path.name, prose_of(path), rows)
    if PAGE.read_text("utf-8") != text:
        found.append("book/ledger.md is out of date; run tools/ledger.py")
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
