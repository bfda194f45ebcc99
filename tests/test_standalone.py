"""Every notebook runs in an empty folder, in an environment like Colab's.

Once with the package installed by the notebook's own setup cell, once as the
standalone notebook of `make standalone`, which needs no package at all.
"""

import json
import os
import re
import subprocess
import venv
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
COLAB = ROOT / "_build" / "colab"
STANDALONE = sorted((ROOT / "_build" / "standalone").glob("*.ipynb"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(COLAB / "wheels")}
PINNED = ("torch", "numpy", "matplotlib")

pytestmark = pytest.mark.skipif(
    not (COLAB / "ready").exists(), reason="made by `make test`"
)


def copy_of_colab(folder):
    """A fresh environment in which Colab's own packages are there."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    ask = "import site; print(site.getsitepackages()[0])"
    theirs, ours = (
        subprocess.check_output([p, "-c", ask], text=True).strip()
        for p in (COLAB / "venv" / "bin" / "python", python)
    )
    (Path(ours) / "colab.pth").write_text(theirs + "\n")
    return python


def versions(python):
    """The versions that installing a notebook's needs must not change."""
    code = (
        "from importlib.metadata import version;"
        f"print([version(name) for name in {PINNED}])"
    )
    return subprocess.check_output([python, "-c", code], text=True)


def execute(notebook, python, folder, monkeypatch):
    """Run a notebook with this Python in an empty folder."""
    spec = folder / "jupyter" / "kernels" / "colab"
    spec.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": argv, "display_name": "Colab", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(about))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    empty = folder / "empty"
    empty.mkdir()
    nb = nbformat.read(notebook, 4)
    where = {"metadata": {"path": str(empty)}}
    NotebookClient(
        nb, kernel_name="colab", resources=where, timeout=900
    ).execute()
    return nb


# One environment for each process of pytest: the notebooks are in no group,
# so that they spread over all of them.
@pytest.fixture(scope="session")
def colab(tmp_path_factory):
    return copy_of_colab(tmp_path_factory.mktemp("installed") / "venv")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_after_its_setup_cell(notebook, colab, tmp_path, monkeypatch):
    [wheel] = (COLAB / "wheels").glob("transformer_lit-*.whl")
    monkeypatch.setenv("TRANSFORMER_LIT_SOURCE", str(wheel))
    before = versions(colab)
    execute(notebook, colab, tmp_path, monkeypatch)
    assert versions(colab) == before


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    return copy_of_colab(tmp_path_factory.mktemp("bare") / "venv")


@pytest.mark.parametrize("notebook", STANDALONE, ids=lambda path: path.stem)
def test_runs_alone(notebook, bare, tmp_path, monkeypatch):
    execute(notebook, bare, tmp_path, monkeypatch)
    find = "import importlib.util as u; print(u.find_spec('transformer_lit'))"
    command = [bare, "-c", find]
    found = subprocess.check_output(command, cwd=tmp_path, text=True)
    assert found == "None\n"


def test_there_is_a_standalone_notebook_for_each_chapter():
    names = [path.name for path in NOTEBOOKS]
    assert [path.name for path in STANDALONE] == names


def test_a_standalone_notebook_places_each_file_once():
    for path in STANDALONE:
        cells = nbformat.read(path, 4).cells
        text = "\n".join(cell.source for cell in cells)
        placed = re.findall(r"^place\('([^']+)'", text, re.M)
        assert placed[0] == "__init__.py", path.name
        assert len(set(placed)) == len(placed), path.name


def test_the_installed_package_translates_and_records(colab, tmp_path):
    # An ordinary user: pip install, then the command, away from the sources.
    [wheel] = (COLAB / "wheels").glob("transformer_lit-*.whl")
    pip = [colab, "-m", "pip", "install", "--quiet", str(wheel)]
    environment = {**os.environ, **OFFLINE}
    subprocess.run(pip, check=True, env=environment)
    command = [colab.parent / "transformer-lit", "translate", "forty two"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "zweiundvierzig\n"
    code = (
        "from transformer_lit.records import load_record;"
        "print(len(load_record('numbers')['runs']))"
    )
    out = subprocess.check_output([colab, "-c", code], cwd=tmp_path, text=True)
    assert out == "3\n"
