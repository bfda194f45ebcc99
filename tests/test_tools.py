"""The tools catch what they are there to catch: each fault is planted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = "03_3_feed_forward"
PARTS = (
    "_config.yml _toc.yml book jupytext.toml notebooks pyproject.toml "
    "requirements.in requirements.txt tests tools transformer_lit"
).split()

pytestmark = pytest.mark.xdist_group("tools")


@pytest.fixture
def house(tmp_path):
    """A copy of the repository in which a test may break things."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(source, tmp_path / part, ignore=skip)
        else:
            shutil.copy(source, tmp_path / part)
    return tmp_path


def tool(house, name, *arguments):
    """Run one of the tools of the copy."""
    command = [sys.executable, f"tools/{name}.py", *arguments]
    return subprocess.run(
        command, cwd=house, capture_output=True, text=True, timeout=600
    )


def replace(path, old, new):
    """Change one place of a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def edit_notebook(house, change):
    """Change the stored notebook of the chapter."""
    path = house / "notebooks" / f"{CHAPTER}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["pair", "export", "run", "ledger", "lock"])
def test_a_clean_house_passes(house, name):
    done = tool(house, name, "--check")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["pair", "export", "ledger"])
def test_a_second_writing_changes_nothing(house, name):
    tool(house, name)
    before = {
        path: path.read_bytes() for path in house.rglob("*") if path.is_file()
    }
    assert tool(house, name).returncode == 0
    assert all(path.read_bytes() == data for path, data in before.items())


def test_an_edited_text_is_seen(house):
    text = house / "book" / f"{CHAPTER}.md"
    replace(text, "3.3 Position-wise", "3.3 Pointwise")
    done = tool(house, "pair", "--check")
    assert done.returncode == 1
    assert "Pointwise" in done.stdout


def test_an_edited_notebook_is_seen(house):
    def change(notebook):
        notebook["cells"][0]["source"] = ["# Another title"]

    edit_notebook(house, change)
    done = tool(house, "pair", "--check")
    assert done.returncode == 1
    assert "Another title" in done.stdout


def test_another_address_in_a_notebook_is_seen(house):
    replace(house / "_config.yml", "github.com/", "github.com/someone-")
    done = tool(house, "pair", "--check")
    assert done.returncode == 1
    assert "setup cell" in done.stdout


def test_an_edited_module_is_seen(house):
    module = house / "transformer_lit" / "feed_forward.py"
    replace(module, "self.w_1(x).relu()", "self.w_1(x).sigmoid()")
    done = tool(house, "export", "--check")
    assert done.returncode == 1
    assert "sigmoid" in done.stdout


def test_a_module_without_a_chapter_is_seen(house):
    (house / "transformer_lit" / "extra.py").write_text("x = 1\n")
    assert tool(house, "export", "--check").returncode == 1


def test_a_changed_cell_makes_the_outputs_stale(house):
    text = house / "book" / f"{CHAPTER}.md"
    replace(text, "self.w_1(x).relu()", "self.w_1(x).sigmoid()")
    tool(house, "pair")
    done = tool(house, "run", "--check")
    assert done.returncode == 1
    assert CHAPTER in done.stdout


def test_a_changed_module_makes_later_chapters_stale(house):
    module = house / "transformer_lit" / "attention.py"
    replace(module, "math.sqrt(0.5)", "1.0")
    done = tool(house, "run", "--check")
    assert "03_6_transformer" in done.stdout


def test_a_changed_number_of_the_paper_is_seen(house):
    replace(house / "book" / "ledger.yml", "value: 2048", "value: 2047")
    done = tool(house, "ledger", "--check")
    assert done.returncode == 1
    assert "3.3.dff" in done.stdout


@pytest.mark.parametrize(
    ("prose", "complaint"),
    [
        ("The width is [511](#f-3.1.dmodel).", "511, but 3.1.dmodel is 512"),
        ("It has [seven](#f-3.1.N_enc) layers.", "7, but 3.1.N_enc is 6"),
        ("See [this](#f-9.nothing).", "links to no row"),
        ("The best model reached 27.3 BLEU.", "27.3 is the paper's"),
        ("There were 37,000 entries.", "37,000 is the paper's"),
    ],
)
def test_a_wrong_number_in_the_prose_is_seen(house, prose, complaint):
    with (house / "book" / f"{CHAPTER}.md").open("a") as text:
        text.write(f"\n{prose}\n")
    done = tool(house, "ledger", "--check")
    assert done.returncode == 1
    assert complaint in done.stdout


def test_a_pin_that_is_not_locked_is_seen(house):
    with (house / "requirements.in").open("a") as pins:
        pins.write("leftpad==1.0\n")
    assert "leftpad" in tool(house, "lock", "--check").stderr


def unexecuted(notebook):
    cell = [c for c in notebook["cells"] if c["cell_type"] == "code"][-1]
    cell["execution_count"], cell["outputs"] = None, []


def long_cell(notebook):
    cell = [c for c in notebook["cells"] if c["cell_type"] == "code"][-1]
    cell["source"] = "\n".join(f"x{i} = {i}" for i in range(31))


@pytest.mark.parametrize("fault", [unexecuted, long_cell])
def test_a_cell_that_breaks_the_rules_is_seen(house, fault):
    edit_notebook(house, fault)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, "tests/test_notebooks.py", "-k", CHAPTER],
        cwd=house,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout


def test_a_tampered_digit_is_seen(house):
    def change(notebook):
        for cell in notebook["cells"]:
            for output in cell.get("outputs", []):
                text = "".join(output.get("text", ""))
                digit = next((c for c in text if c.isdigit()), None)
                if digit:
                    other = str((int(digit) + 1) % 10)
                    output["text"] = text.replace(digit, other, 1)
                    return
        raise AssertionError("the chapter prints no number")

    path = edit_notebook(house, change)
    options = "--nbval --nbval-current-env -q -p no:xdist".split()
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(
        command,
        cwd=house,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    "reference",
    [
        "{eq}`eq-that-is-not-there`",
        "{cite:t}`nobody1999nothing`",
        "{prf:ref}`prop-that-is-not-there`",
        "[a chapter](99_nothing.ipynb)",
        "[a fact](#f-9.nothing)",
    ],
)
def test_a_broken_reference_is_seen(house, reference):
    # A book of one page suffices.
    with (house / "book" / "intro.md").open("a") as page:
        page.write(f"\n{reference}\n")
    toc = "format: jb-book\nroot: book/intro\nchapters:\n"
    (house / "_toc.yml").write_text(toc + "  - file: book/bibliography\n")
    command = "jupyter-book build . --all -W -n --keep-going -q".split()
    command[0] = str(Path(sys.executable).parent / "jupyter-book")
    done = subprocess.run(command, cwd=house, capture_output=True, text=True)
    assert done.returncode != 0
    name = reference.split("(")[-1].strip("{}`)#").split("`")[-1]
    assert name in done.stdout + done.stderr


def test_a_book_without_faults_builds(house):
    (house / "book" / "intro.md").write_text("# Title\n\n{cite}`ba2016layer`\n")
    toc = "format: jb-book\nroot: book/intro\nchapters:\n"
    (house / "_toc.yml").write_text(toc + "  - file: book/bibliography\n")
    command = "jupyter-book build . --all -W -n --keep-going -q".split()
    command[0] = str(Path(sys.executable).parent / "jupyter-book")
    done = subprocess.run(command, cwd=house, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
