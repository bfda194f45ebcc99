"""Write _build/standalone/*.ipynb: notebooks that need no installed package.

    python tools/standalone.py

Each carries, in its first cell, the modules of transformer_lit that it
imports (and the miniature's files, where it translates), so that it runs
after being uploaded to Colab alone.
"""

import base64
import re
from pathlib import Path

import nbformat
from chapters import CONFIG, PACKAGE, ROOT, closure, code, notebook_of, texts

from transformer_lit import __version__

TARGET = ROOT / "_build" / "standalone"
SMALL = (
    "num2words",
    "portalocker",
    "sacrebleu",
    "sacremoses",
    "tyro",
)  # not among Colab's own packages
SETUP = """\
# @title transformer_lit {version}, as this chapter needs it {{ display-mode: "form" }}
# Written from {url}
import base64
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

for needed in {small}:
    if importlib.util.find_spec(needed) is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        subprocess.check_call([*pip, needed])

home = Path(tempfile.mkdtemp(prefix="transformer_lit_"))
sys.path.insert(0, str(home))


def place(name, text="", data=""):
    path = home / "transformer_lit" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data) if data else text.encode())

"""


def setup(source: str) -> str:
    """The first cell for a chapter with this code."""
    files = sorted({PACKAGE / "__init__.py", *closure(source)})
    everything = source + "".join(path.read_text("utf-8") for path in files)
    small = [
        name
        for name in SMALL
        if re.search(rf"(import|from) {name}\b", everything)
    ]
    url = CONFIG["repository"]["url"]
    parts = [SETUP.format(version=__version__, url=url, small=small)]
    for path in files:
        text = quoted(path.read_text(encoding="utf-8"))
        parts.append(f"place({path.relative_to(PACKAGE).as_posix()!r}, {text})")
    data = carried(source, files)
    if "corpora.json" in everything:
        data.append(PACKAGE / "corpora.json")
    for path in data:
        base = ROOT if path.is_relative_to(ROOT / "results") else PACKAGE
        content = base64.b64encode(path.read_bytes()).decode()
        name = path.relative_to(base).as_posix()
        parts.append(f"place({name!r}, data={content!r})")
    return "\n".join(parts)


def quoted(text: str) -> str:
    """A text as a raw literal that people can read."""
    if "'''" in text or text.endswith("\\"):
        return repr(text)
    return f"r'''{text}'''"


def carried(source: str, files: list[Path]) -> list[Path]:
    """The records, and the shipped models that a chapter's code names, if
    the modules that read them are among its files."""
    found: list[Path] = []
    if PACKAGE / "records.py" in files:
        found += sorted((ROOT / "results").glob("*.json"))
    if PACKAGE / "translator.py" in files:
        for folder in sorted((PACKAGE / "models").iterdir()):
            if f'"{folder.name}"' in source:
                found += sorted(folder.iterdir())
    return found


def standalone(notebook: Path) -> nbformat.NotebookNode:
    """A chapter's notebook with the setup cell that carries everything."""
    nb = nbformat.read(notebook, 4)
    source = "\n".join(cell.source for cell in code(nb))
    for cell in nb.cells:
        if "setup" in cell.metadata.get("tags", []):
            cell.source = setup(source)
            cell.metadata["cellView"] = "form"
    return nb


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for text in texts():
        notebook = notebook_of(text)
        nbformat.write(standalone(notebook), TARGET / notebook.name)
    print(f"{len(texts())} notebooks in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
