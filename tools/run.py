"""Execute the notebooks whose outputs are out of date with their code.

    python tools/run.py                     those that are out of date
    python tools/run.py --all               every one
    python tools/run.py 03_2_attention ...  these
    python tools/run.py --check             exit 1 and name the stale ones

A notebook runs in an empty folder, as it would in Colab, and stores only
what is stable: no time stamps, no Python version.
"""

import sys
import tempfile
import time
from pathlib import Path

import nbformat
from chapters import fingerprint, named, notebook_of, write
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

LANGUAGE = {
    "name": "python",
    "pygments_lexer": "ipython3",
    "file_extension": ".py",
}


def is_stale(notebook: Path) -> bool:
    """Whether the code changed since the outputs were made."""
    nb = nbformat.read(notebook, 4)
    return nb.metadata.get("executed") != fingerprint(nb)


def join_streams(cell: nbformat.NotebookNode) -> None:
    """What a cell prints arrives in pieces, cut by chance: glue them."""
    joined: list[nbformat.NotebookNode] = []
    for output in cell.get("outputs", []):
        same = joined and joined[-1].get("name") == output.get("name", "")
        if same and output.output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    cell.outputs = joined


def run(notebook: Path) -> None:
    """Execute one notebook and store it; on an error nothing is stored."""
    nb = nbformat.read(notebook, 4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as empty:
        NotebookClient(
            nb,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": empty}},
            timeout=900,
        ).execute()
    for cell in nb.cells:
        if cell.cell_type == "code":
            join_streams(cell)
    nb.metadata["language_info"] = LANGUAGE
    nb.metadata["executed"] = fingerprint(nb)
    write(nb, notebook)


def main() -> int:
    notebooks = [notebook_of(text) for text in named(sys.argv[1:])]
    explicit = "--all" in sys.argv or any(a[0] != "-" for a in sys.argv[1:])
    if "--check" in sys.argv or not explicit:
        notebooks = [n for n in notebooks if is_stale(n)]
    for notebook in notebooks:
        if "--check" in sys.argv:
            print(f"{notebook.name}: the code changed after it was executed")
            continue
        start = time.perf_counter()
        try:
            run(notebook)
        except CellExecutionError as error:
            sys.exit(f"{notebook.name}: {error}")
        print(f"{notebook.name}: {time.perf_counter() - start:.0f} s")
    return 1 if "--check" in sys.argv and notebooks else 0


if __name__ == "__main__":
    sys.exit(main())
