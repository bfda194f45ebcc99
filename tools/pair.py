"""Carry book/*.md, the source, over to notebooks/*.ipynb.

    python tools/pair.py            text into notebooks, keeping the outputs
                                    of cells that did not change
    python tools/pair.py --check    exit 1 and show each pair that differs

Time stamps play no part: a clone has none that mean anything. The one thing
that a notebook holds and its text does not is the first code cell, which
installs the package where it is missing; the address is that of _config.yml.
"""

import difflib
import hashlib
import sys
from pathlib import Path

import jupytext
import nbformat
from chapters import (
    BOOK,
    CONFIG,
    NOTEBOOKS,
    notebook_of,
    read,
    tags,
    texts,
    write,
)
from jupytext.config import load_jupytext_config

FORMAT = {"extension": ".md", "format_name": "myst"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SETUP = """\
# Installs the package where it is missing (in Colab); else does nothing.
import importlib
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("transformer_lit") is None:
    source = os.environ.get(
        "TRANSFORMER_LIT_SOURCE",
        "git+{url}@{branch}",
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.check_call([*pip, source])
    importlib.invalidate_caches()"""


def setup_cell() -> nbformat.NotebookNode:
    """The cell that makes a notebook run anywhere, hidden on the page."""
    cell = nbformat.v4.new_code_cell(SETUP.format(**CONFIG["repository"]))
    cell.metadata["tags"] = ["setup", "remove-cell"]
    return cell


def is_code(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is run."""
    return cell.cell_type == "code"


def join(text: Path) -> nbformat.NotebookNode:
    """The notebook of a text, with the outputs that are still good."""
    new, old = read(text), notebook_of(text)
    new.metadata.kernelspec = KERNEL
    first = next((i for i, c in enumerate(new.cells) if is_code(c)), 0)
    new.cells.insert(first, setup_cell())
    known = nbformat.read(old, 4) if old.exists() else None
    outputs: dict[str, list[nbformat.NotebookNode]] = {}
    for cell in known.cells if known else []:
        outputs.setdefault(cell.source, []).append(cell)
    count: dict[str, int] = {}
    for cell in new.cells:
        count[cell.source] = count.get(cell.source, 0) + 1
        name = f"{cell.source}{count[cell.source]}".encode()
        cell.id = hashlib.sha256(name).hexdigest()[:8]
        if is_code(cell) and outputs.get(cell.source):
            same = outputs[cell.source].pop(0)
            cell.outputs = same.get("outputs", [])
            cell.execution_count = same.get("execution_count")
    for key in ("executed", "language_info"):
        if known and key in known.metadata:
            new.metadata[key] = known.metadata[key]
    new.nbformat_minor = 5
    return new


def text_of(nb: nbformat.NotebookNode) -> str:
    """A notebook as text, in one canonical form."""
    nb = nbformat.reads(nbformat.writes(nb, 4), 4)  # sorts the metadata
    nb.cells = [c for c in nb.cells if "setup" not in tags(c)]
    for key in ("executed", "language_info"):
        nb.metadata.pop(key, None)
    config = load_jupytext_config(str(BOOK / "x.md"))
    config.set_default_format_options(FORMAT)
    return jupytext.writes(nb, FORMAT, config=config)


def check(text: Path) -> bool:
    """Whether both halves of a chapter say the same; prints how not."""
    notebook = notebook_of(text)
    if not notebook.exists():
        print(f"{text.stem}: the notebook is missing; run tools/pair.py")
        return False
    halves = text_of(read(text)), text_of(jupytext.read(notebook))
    lines = [half.splitlines(True) for half in halves]
    sys.stdout.writelines(difflib.unified_diff(*lines, str(text), "notebook"))
    setups = [c for c in nbformat.read(notebook, 4).cells if "setup" in tags(c)]
    installs = [c.source for c in setups] == [setup_cell().source]
    if not installs:
        print(f"{text.stem}: the setup cell is not the one of tools/pair.py")
    return halves[0] == halves[1] and installs


def main() -> int:
    stems = {text.stem for text in texts()}
    alone = [p.name for p in NOTEBOOKS.glob("*.ipynb") if p.stem not in stems]
    if alone:
        print("no text in book/ for", ", ".join(alone))
        return 1
    if "--check" in sys.argv:
        agree = [check(text) for text in texts()]
        return 0 if all(agree) else 1
    for text in texts():
        write(join(text), notebook_of(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
