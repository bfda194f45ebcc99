"""What the tools share: where the chapters are and how a text is read."""

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
BOOK, NOTEBOOKS = ROOT / "book", ROOT / "notebooks"
PACKAGE = ROOT / "transformer_lit"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
IMPORT = re.compile(
    r"(?:transformer_lit|\btl)\.(\w+)|^import transformer_lit as", re.M
)


def texts() -> list[Path]:
    """The text of every chapter, in the order of the book."""
    return sorted(BOOK.glob("[0-9]*.md"))


def notebook_of(text: Path) -> Path:
    """The executed half of a chapter."""
    return NOTEBOOKS / f"{text.stem}.ipynb"


def named(arguments: list[str]) -> list[Path]:
    """The chapters that the command line names; all when it names none."""
    stems = [Path(a).stem for a in arguments if not a.startswith("-")]
    unknown = set(stems) - {t.stem for t in texts()}
    if unknown:
        sys.exit(f"no such chapter in book/: {', '.join(sorted(unknown))}")
    return [t for t in texts() if not stems or t.stem in stems]


def read(text: Path) -> nbformat.NotebookNode:
    """A chapter's text as a notebook without outputs."""
    return jupytext.read(text)


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Store a notebook if it changed, whole or not at all."""
    text = nbformat.writes(notebook, 4) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """A cell's tags."""
    return list(cell.metadata.get("tags", []))


def code(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    """The code cells that a chapter's author wrote."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and "setup" not in tags(cell):
            yield cell


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """A digest of all that an execution depends on: the code of the cells
    and of the package's modules that they import, directly or not."""
    found = "\n".join(cell.source for cell in code(notebook))
    digest = hashlib.sha256(found.encode())
    for path in closure(found):
        text = path.read_text(encoding="utf-8")
        digest.update(meaning(text) if path.suffix == ".py" else text.encode())
    return digest.hexdigest()[:16]


def closure(source: str) -> list[Path]:
    """The files of the modules that a source imports, directly or not."""
    waiting, seen = modules(source), set()
    while waiting:
        name = waiting.pop()
        for path in (PACKAGE / f"{name}.py", *PACKAGE.glob(f"{name}/*.*")):
            if path not in seen and path.exists():
                seen.add(path)
                waiting |= modules(path.read_text(encoding="utf-8"))
    return sorted(seen)


def modules(source: str) -> set[str]:
    """The modules of the package that a source names."""
    return {m.group(1) or "__init__" for m in IMPORT.finditer(source)}


def meaning(source: str) -> bytes:
    """A module without its comments and layout."""
    return ast.unparse(ast.parse(source)).encode()
