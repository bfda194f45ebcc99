"""What nbval does not see: it passes a cell that was never run, for one."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_LINES = 30  # of code in a cell, as `lines_of_code` counts them
every_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda path: path.stem
)


def code_cells(path):
    """The code cells of a notebook."""
    cells = nbformat.read(path, 4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


def text_of(output):
    """What an output prints."""
    data = output.get("data", {})
    return output.get("text", "") + str(data.get("text/plain", ""))


def lines_of_code(source):
    """The lines of a cell that hold code: no docstrings, comments or blanks;
    a signature, which lists names and types, counts as one line."""
    skipped = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            skipped |= set(range(node.lineno + 1, node.body[0].lineno))
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else []:
            if isinstance(part, ast.Expr) and isinstance(
                getattr(part.value, "value", None), str
            ):
                skipped |= set(range(part.lineno, part.end_lineno + 1))
    return [
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in skipped
        and line.strip()
        and not line.strip().startswith("#")
    ]


@every_notebook
def test_every_cell_was_executed_in_order(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_outputs_are_clean(path):
    for cell in code_cells(path):
        assert "execution" not in cell.metadata, "time stamps"
        assert not cell.source.rstrip().endswith(";"), "nbval ignores the ;"
        for output in cell.outputs:
            if "raises-exception" not in tags(cell):
                assert output.output_type != "error", output.get("evalue")
            assert output.get("name") != "stderr", output.get("text")
            printed = text_of(output)
            assert not re.search(r"/(home|root|tmp|work|Users)/", printed)
            assert not re.search(r"\b(inf|nan)\b", printed), cell.source
            assert not re.search(r"0x[0-9a-f]{6,}", printed), "an address"


@every_notebook
def test_an_output_that_is_not_compared_is_asserted(path):
    for cell in code_cells(path):
        if "nbval-ignore-output" in tags(cell):
            assert "assert" in cell.source, cell.source


@every_notebook
def test_cells_are_short(path):
    for cell in code_cells(path):
        lines = lines_of_code(cell.source)
        assert len(lines) <= MOST_LINES, f"{len(lines)} lines:\n{cell.source}"


@every_notebook
def test_every_picture_says_what_it_shows(path):
    for cell in code_cells(path):
        kinds = {kind for o in cell.outputs for kind in o.get("data", {})}
        if any(kind.startswith("image/") for kind in kinds):
            about = cell.metadata.get("mystnb", {})
            assert len(about.get("image", {}).get("alt", "")) >= 60, cell.source
            assert about.get("figure", {}).get("caption"), cell.source


@every_notebook
def test_a_chapter_ends_with_exercises_and_what_you_can_do(path):
    cells = nbformat.read(path, 4).cells
    prose = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    exercises = re.findall(r"\{exercise\}[^\n]*\n:label: ([\w-]+)", prose)
    solutions = re.findall(r"\{solution-start\} ([\w-]+)", prose)
    assert len(exercises) >= 3
    assert exercises == solutions
    assert "**You can now**" in cells[-1].source


@every_notebook
def test_every_solution_runs(path):
    # A solution is hidden, but its code is a cell like any other.
    inside, ran = False, True
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            ran = ran or inside
            continue
        for mark in re.findall(r"\{solution-(start|end)\}", cell.source):
            if mark == "end":
                assert ran, cell.source
            inside = mark == "start"
            ran = not inside
