"""The museum of mistakes, book/08_common_mistakes.md: every exhibit has the
same form, and its fault turns the test red that the exhibit names."""

import ast
import re
from dataclasses import dataclass

import mutants
import pytest
from mutants import PACKAGE, ROOT, TESTS

CHAPTER = ROOT / "book" / "08_common_mistakes.md"
EXHIBIT = re.compile(r"^### (\d+)\. (.+)\n((?:(?!^##).*\n)*)", re.M)
WRONG = re.compile(
    r"^```\{code-cell\} ipython3\n:tags: \['wrong:(\w+)\.(\w+)'\]\n\n"
    r"(.*?)^```$",
    re.M | re.S,
)
CELL = re.compile(r"^```\{code-cell\}", re.M)
PARTS = ("Why it tempts.", "The repair.", "Caught by", "Seen in")
CAUGHT = re.compile(
    r"^\*\*Caught by\*\* \*(.+?)\*,\s+in\s+`(\w+\.py)`\.", re.M | re.S
)
PARAGRAPH = re.compile(r"^\*\*(.+?)\*\*", re.M)

# The wrong version is made in a copy of the module's names, so that it finds
# the right one there, and then takes its place.
PLANT = """

_names = dict(globals())
exec({imports!r}, _names)
exec({cell!r}, _names)
{name} = _names[{wrong!r}]
"""
IMPORTS = """
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
"""


@dataclass(frozen=True)
class Exhibit:
    """A fault of the chapter.

    Attributes:
        number, title, text: of its section.
        module, name: what of the package is wrong.
        cell: the wrong version, the last definition in it.
    """

    number: int
    title: str
    text: str
    module: str
    name: str
    cell: str

    @property
    def test(self) -> str:
        """The test that is said to catch it, as pytest names it."""
        sentence, file = CAUGHT.search(self.text).groups()
        return f"{file}::test_{'_'.join(sentence.split())}"

    def source(self) -> str:
        """The module's text with the fault in it; `mutants.run` asks."""
        text = (PACKAGE / f"{self.module}.py").read_text(encoding="utf-8")
        return text + PLANT.format(
            imports=IMPORTS,
            cell=self.cell,
            name=self.name,
            wrong=ast.parse(self.cell).body[-1].name,
        )


def exhibits() -> list[Exhibit]:
    """All exhibits, in the order of the chapter."""
    found = []
    text = CHAPTER.read_text(encoding="utf-8")
    for number, title, section in EXHIBIT.findall(text):
        [wrong] = WRONG.findall(section)
        found.append(Exhibit(int(number), title, section, *wrong))
    return found


EXHIBITS = exhibits()
every_exhibit = pytest.mark.parametrize(
    "exhibit", EXHIBITS, ids=lambda exhibit: exhibit.title
)


def test_the_museum_is_counted_and_no_exhibit_comes_twice():
    assert len(EXHIBITS) >= 20
    numbers = [exhibit.number for exhibit in EXHIBITS]
    assert numbers == list(range(1, len(EXHIBITS) + 1))
    assert len({exhibit.cell for exhibit in EXHIBITS}) == len(EXHIBITS)
    text = CHAPTER.read_text(encoding="utf-8")
    assert text.count("'wrong:") == len(EXHIBITS)


@every_exhibit
def test_an_exhibit_has_the_form_of_all(exhibit):
    assert tuple(PARAGRAPH.findall(exhibit.text))[-4:] == PARTS
    cells = CELL.split(exhibit.text)
    assert len(cells) >= 3  # the fault, and what one sees of it
    assert "assert " in "".join(cells[2:])
    wrong = ast.parse(exhibit.cell).body[-1]
    assert isinstance(wrong, ast.FunctionDef | ast.ClassDef)
    right = (PACKAGE / f"{exhibit.module}.py").read_text(encoding="utf-8")
    assert re.search(rf"^(def|class) {exhibit.name}\b", right, re.M)


@every_exhibit
def test_the_named_test_exists(exhibit):
    file, _, test = exhibit.test.partition("::")
    names = re.findall(r"^def (test_\w+)", (TESTS / file).read_text(), re.M)
    assert test in names


@every_exhibit
def test_the_named_test_catches_the_fault(exhibit, tmp_path):
    outcome = mutants.run(tmp_path, [exhibit.test], exhibit)
    assert outcome.red, outcome.text


def test_planting_what_is_right_turns_nothing_red(tmp_path):
    # Were it otherwise, the way of planting would be what is caught.
    first = EXHIBITS[0]
    right = ast.parse((PACKAGE / f"{first.module}.py").read_text())
    [same] = [n for n in right.body if getattr(n, "name", "") == first.name]
    harmless = Exhibit(
        0, "", first.text, first.module, first.name, ast.unparse(same)
    )
    outcome = mutants.run(tmp_path, [first.test], harmless)
    assert outcome.green, outcome.text
