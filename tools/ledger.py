"""Keep the paper's numbers honest: book/ledger.yml against the prose.

    python tools/ledger.py            write the page book/ledger.md
    python tools/ledger.py --check    exit 1 and name what disagrees

The page links back: each row names the sections that use it, and behind the
rows stands each claim that a chapter calls often said and wrong.

A number of the paper stands in the prose as a link to its row, like
[512](#f-3.1.dmodel). Each number in such a link must be in the row's value,
each link must have a row, and a number that only the paper could have given
(27.3, 37,000, ...) must not stand without a link.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from chapters import BOOK, read, texts
from docutils.nodes import make_id

LEDGER, PAGE = BOOK / "ledger.yml", BOOK / "ledger.md"
COVERAGE = BOOK / "coverage.md"  # names facts by what they are
LINK = re.compile(r"\[([^\]\[]+)\]\(#f-([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w^])")
POWER = re.compile(r"\s*\\(?:cdot|times)\s*10\^\{?(-?\d+)\}?")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", re.S)
FENCE = re.compile(r"^(```+).*?^\1$", re.S | re.M)
HEADING = re.compile(r"^#{1,4} (.+)$", re.M)
LABEL = re.compile(r"^\(([\w-]+)\)=$", re.M)
BOX = re.compile(
    r"^:::\{admonition\} Often said, and wrong\n(.*?)^:::$", re.S | re.M
)
CLAIM = re.compile(
    r"\*.+?\*(?!\w)(?:,? and \*.+?\*)*|[\"“].+?[\"”](?!\w)|.+?\.(?=\s)", re.S
)
WORDS = "zero one two three four five six seven eight nine ten".split()
HEAD = """\
# Ledger

Every number and statement of the paper that this book uses, with the words it
comes from, at most 25 of them {cite}`vaswani2017attention`. A number of the paper
in a chapter is a link to its row here, and a check compares the two; each row
links back to the sections that use it. EN-DE and EN-FR are the paper's two tasks,
translation from English to German and to French.

At the end stand the places [where the paper disagrees with
itself](#ledger-conflicts) and what is [often said about it and is not
so](#ledger-often-said), each with a link to the section that shows it.
"""
CONFLICT = "[The paper does not agree with itself]"
CONFLICTS = """\
(ledger-conflicts)=
## Where the paper disagrees with itself

"""
SAID = """\
(ledger-often-said)=
## Often said, and wrong

Each of these claims is refuted in the section that it links to, by the cell
below it.
"""


class Section(NamedTuple):
    """One section of a chapter."""

    chapter: str
    title: str
    heading: str
    prose: str

    @property
    def link(self) -> str:
        """A link to it, from a page in book/."""
        if self.heading == self.title:
            return f"[{self.title}](../notebooks/{self.chapter}.ipynb)"
        slug = make_id(self.heading.replace("$", ""))
        page = f"../notebooks/{self.chapter}.html#{slug}"
        return f"[{self.heading}]({page}){{.external}}"


def sections(path: Path) -> list[Section]:
    """A chapter cut at its headings; what stands in fences is left out."""
    prose = FENCE.sub("", prose_of(path))
    _, *parts = HEADING.split(prose)
    title = parts[0].strip()
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [Section(path.stem, title, h.strip(), p) for h, p in pairs]


def book() -> Iterator[Section]:
    """Every section of every chapter."""
    for path in texts():
        yield from sections(path)


def uses() -> dict[str, list[Section]]:
    """The sections that link to a row, by the row's name."""
    found: dict[str, list[Section]] = {}
    for section in book():
        for name in dict.fromkeys(n for _, n in LINK.findall(section.prose)):
            found.setdefault(name, []).append(section)
    return found


def listed(places: list[Section]) -> str:
    """Sections as a line of links, chapter by chapter."""
    parts = []
    for title, group in groupby(places, key=lambda s: s.title):
        found = list(group)
        whole = found[0]._replace(heading=title).link
        inner = [s.link for s in found if s.heading != title]
        parts.append(whole + (f": {', '.join(inner)}" if inner else ""))
    return "; ".join(parts)


def claims(box: str) -> list[str]:
    """What people say, at the head of each paragraph of a box."""
    found = []
    for part in re.split(r"\n\s*\n", box):
        text = part.replace(":class: warning", "").strip()
        match = CLAIM.match(f"{text} ")
        if match and (text[0] in '*"“' or not found):
            found.append(" ".join(match.group().split()))
    return found


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


@cache
def prose_of(path: Path) -> str:
    """The Markdown of a chapter or page."""
    if not path.name[0].isdigit():
        return path.read_text(encoding="utf-8")
    cells = read(path).cells
    return "\n\n".join(c.source for c in cells if c.cell_type == "markdown")


def show(value: Any) -> str:
    """A row's value for the page."""
    if isinstance(value, dict):
        items = {**value, **value.get("printed", {})}
        skip = ("printed", "effective")
        parts = [f"{k} {show(v)}" for k, v in items.items() if k not in skip]
        return ", ".join(parts)
    if value is None:
        return "absent"
    if isinstance(value, int | float):
        return f"{value:,}" if value < 1e9 else f"{value:.1e}"
    return f"`{value}`"


def page(rows: dict[str, Any]) -> str:
    """The ledger as a page."""
    parts, used = [HEAD], uses()
    for section, group in groupby(rows.values(), key=lambda r: r["section"]):
        digit = str(section)[0].isdigit()
        name = f"Section {section}" if digit else str(section).capitalize()
        parts.append(f"## {name}\n")
        for row in group:
            value = "" if row["value"] is True else f" {show(row['value'])}"
            unit = row["unit"].replace(" (", ", ").replace(")", "")
            text = f"**{row['id']}**{value} ({unit}): {row['what']}."
            text += f" “{row['quote']}”" if row.get("quote") else ""
            text = text.replace("\\", "\\\\") + "\n\n"
            if "conflict" in row:
                text += f"{CONFLICT}(#{row['conflict']}).\n"
            if row["id"] in used:
                text += f"Used in {listed(used[row['id']])}.\n"
            parts.append(f"(f-{row['id']})=\n{text.rstrip()}\n")
    shown: dict[str, list[str]] = {}
    for name, row in rows.items():
        if "conflict" in row:
            link = f"[{name}](#f-{name})"
            shown.setdefault(row["conflict"], []).append(link)
    lines = [f"* [](#{c}): {', '.join(links)}\n" for c, links in shown.items()]
    parts += [CONFLICTS + "".join(lines), SAID]
    for title, group in groupby(book(), key=lambda section: section.title):
        said = [
            f"* {claim} {section.link}"
            for section in group
            for box in BOX.findall(section.prose)
            for claim in claims(box)
        ]
        if said:
            parts.append(f"### {title}\n\n" + "\n".join(said) + "\n")
    return "\n".join(parts)


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
    labels = {n for s in book() for n in LABEL.findall(s.prose)}
    found += [
        f"{name}: no chapter has the label {row['conflict']}"
        for name, row in rows.items()
        if "conflict" in row and row["conflict"] not in labels
    ]
    for path in [*texts(), *BOOK.glob("[a-z]*.md")]:
        if path not in (PAGE, COVERAGE):
            found += faults(path.name, prose_of(path), rows)
    if PAGE.read_text("utf-8") != text:
        found.append("book/ledger.md is out of date; run tools/ledger.py")
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
