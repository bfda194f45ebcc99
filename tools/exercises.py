"""An index of the exercises, with notes for those who teach.

    python tools/exercises.py            write the page book/exercises.md
    python tools/exercises.py --check    exit 1 and name what disagrees

An exercise that check_solution can judge must say so, and its solution must
pass the check.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from chapters import BOOK, PACKAGE, read, texts
from ledger import Section, prose_of, sections

PAGE = BOOK / "exercises.md"
LEVELS = {
    "★": "exercises to see whether you have understood",
    "★★": "exercises to think about, with pencil and computer",
    "★★★": "exercises to spend an evening on",
}
EXERCISE = re.compile(r"\{exercise\} (★*) ?(.*)\n:label: ([\w-]+)")
REFERENCE = re.compile(r'^ +"(ex-[\w-]+)": Reference\(', re.M)
CHECKED = re.compile(r'check_solution\(\s*"(ex-[\w-]+)"')
GUESS = "**Before you read on"
WORDS_A_MINUTE = 150
HEAD = """\
# Exercises

Each exercise has its solution hidden below it, and the code of the solution is
executed with the book. For the exercises with a ✓ your own solution can be checked
too: `check_solution` compares it with a reference and says
[on which input and where it differs](../notebooks/12_exercises.ipynb). If you want to
know first whether you are ready for the book, take [five questions](#how-self-check)
and three warm-ups: [a softmax](#ex-check-1), [a mean](#ex-check-2), [a
sentence](#ex-check-3).

## Which ones

[Four ways through the book](../notebooks/00_how_to_read.html#four-readers){.external}
are described at its beginning. Each has exercises that suit it.

**To learn**, do one with ★ after every chapter, before you go on, and one with
★★ a day later. If the second is easy, you have understood the chapter.

**To teach**, see the notes [below](#exercises-teachers). Those with ★ fit into a
lesson, those with ★★ into homework. Those with ★★★ can grow into a project.

**To build**, take those about what goes wrong in code: a mask that is
[one place off](#ex-model-2), a mask that
[seems superfluous](#ex-arch-3), probability that is
[spent on padding](#ex-regularization-3), a sum
[in place of a mean](#ex-optimizer-3), and the [memory that a cache takes](#ex-model-3).

**To investigate**, take those with ★★★, and [the experiment](#ex-arch-2) that
Table 3 does not have.
"""
TEACHERS = """\
(exercises-teachers)=
## Notes for teachers

The minutes are for reading the prose alone, at 150 words a minute, slow enough to
take in the formulas. Guessing, and running and changing cells, takes longer. A
*guess* is a place where the text stops and asks (look for **Before you read on**):
let everybody in the class answer before you scroll. The exercises are counted by
level, ★ + ★★ + ★★★. The rocket at the top of a chapter opens it in Colab. The
caption of each figure states what it shows, so a figure can open a lesson by itself.

For six lessons take the introduction, attention (two lessons), positions, the
whole model, and translation; for a single one, attention up to the root of $d_k$.

"""


class Exercise(NamedTuple):
    """One exercise."""

    section: Section
    level: str
    title: str
    label: str


def exercises() -> list[Exercise]:
    """Every exercise, in the order of the book."""
    found = []
    for path in texts():
        for section in sections(path):
            for match in EXERCISE.finditer(section.prose):
                found.append(Exercise(section, *match.groups()))
    return found


def references() -> set[str]:
    """The exercises that check_solution knows."""
    source = (PACKAGE / "exercises.py").read_text(encoding="utf-8")
    return set(REFERENCE.findall(source))


def passed(labels: set[str]) -> tuple[set[str], set[str]]:
    """Which exercises say that they can be checked, and which are, in code."""
    said, run = set(), set()
    for path in texts():
        said |= set(CHECKED.findall(prose_of(path)))
        cells = [c for c in read(path).cells if c.cell_type == "code"]
        for cell in cells:
            run |= set(CHECKED.findall(cell.source)) & labels
    return said, run


def faults(found: list[Exercise]) -> Iterator[str]:
    """What is wrong with the exercises."""
    known = references()
    labels = Counter(exercise.label for exercise in found)
    said, run = passed(set(labels))
    for exercise in found:
        if exercise.level not in LEVELS:
            yield f"{exercise.label}: one to three stars, please"
        if labels[exercise.label] > 1:
            yield f"{exercise.label}: the label is there twice"
    for label in sorted(known - set(labels)):
        yield f"{label}: has a reference, but there is no such exercise"
    for label in sorted(known & set(labels) - said):
        yield f"{label}: has a reference, but does not say so"
    for label in sorted(known & set(labels) - run):
        yield f"{label}: its solution is not checked"
    for label in sorted((said | run) - known):
        yield f"{label}: is to be checked, but has no reference"


def chapter_link(section: Section) -> str:
    """A link to the chapter of a section."""
    return section._replace(heading=section.title).link


def index(found: list[Exercise]) -> Iterator[str]:
    """The exercises level by level."""
    known = references()
    for level, purpose in LEVELS.items():
        here = [e for e in found if e.level == level]
        yield f"## {level}\n\n{len(here)} {purpose}.\n"
        lines = []
        for _, group in groupby(here, key=lambda e: e.section.chapter):
            part = list(group)
            links = [
                f"[{e.title}](#{e.label})" + (" ✓" if e.label in known else "")
                for e in part
            ]
            place = chapter_link(part[0].section)
            lines.append(f"* {place}: {', '.join(links)}\n")
        yield "".join(lines)


def notes(found: list[Exercise]) -> Iterator[str]:
    """What a chapter takes, as rows of a table."""
    yield "| chapter | minutes | guesses | cells | exercises |"
    yield "|---|---|---|---|---|"
    for path in texts():
        parts = sections(path)
        prose = " ".join(p.prose for p in parts if p.heading != "Exercises")
        minutes = max(5, 5 * round(len(prose.split()) / WORDS_A_MINUTE / 5))
        cells = sum(c.cell_type == "code" for c in read(path).cells)
        own = [e.level for e in found if e.section.chapter == path.stem]
        yield (
            f"| {chapter_link(parts[0])} | {minutes} | {prose.count(GUESS)} "
            f"| {cells} | {' + '.join(str(own.count(x)) for x in LEVELS)} |"
        )


def page(found: list[Exercise]) -> str:
    """The page."""
    parts = [HEAD, *index(found), TEACHERS + "\n".join(notes(found)), ""]
    return "\n".join(parts)


def main() -> int:
    found = exercises()
    text, wrong = page(found), list(faults(found))
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != text:
        wrong.append("book/exercises.md is out of date; run tools/exercises.py")
    for fault in wrong:
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
