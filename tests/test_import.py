"""What `import transformer_lit` does, and mostly does not do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Everything that the import does behind torch's own, as Python's audit
# events tell it, from a fresh interpreter.
WATCH = """
import sys, threading, json
import torch

events = []
watching = True

def hook(event, arguments):
    if watching and event.split(".")[0] in (
        "open", "socket", "_thread", "subprocess", "os", "shutil", "tempfile"
    ):
        events.append([event, [str(a) for a in arguments]])

torch_brings = set(sys.modules)
threads = threading.active_count()
sys.addaudithook(hook)
import transformer_lit
watching = False
print(json.dumps({
    "events": events,
    "threads": threading.active_count() - threads,
    "modules": sorted(set(sys.modules) - torch_brings),
    "file": transformer_lit.__file__,
}))
"""


def fresh(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter, with the paths of this one."""
    paths = [path for path in sys.path if path]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


@pytest.fixture(scope="module")
def report():
    return json.loads(fresh("-c", WATCH).stdout)


def test_the_import_opens_code_and_nothing_else(report):
    opened = [
        arguments[0] for event, arguments in report["events"] if event == "open"
    ]
    # Python itself reads the source or the compiled code of a module
    code = re.compile(r"\.(py|pyc|pyc\.\d+|so|pyd)$")
    assert [path for path in opened if not code.search(path)] == []


def test_the_import_starts_no_thread_and_opens_no_socket(report):
    # looking into folders for modules is Python's own doing
    harmless = {"open", "os.listdir", "os.scandir"}
    harmless |= {"os.mkdir", "os.rename"}  # __pycache__, when it is stale
    kinds = {event for event, _ in report["events"]} - harmless
    assert kinds == set()
    assert report["threads"] == 0


def test_the_import_makes_no_folder_but_python_s_own(report):
    made = [
        arguments[0]
        for event, arguments in report["events"]
        if event == "os.mkdir"
    ]
    assert {Path(path).name for path in made} <= {"__pycache__"}


@pytest.mark.parametrize(
    "name",
    ["matplotlib", "tyro", "num2words", "sentencepiece", "sacrebleu", "tqdm"],
)
def test_the_import_leaves_heavy_companions_alone(report, name):
    assert name not in report["modules"]


def test_the_import_is_quick():
    # From Python's own account of the imports: what transformer_lit takes,
    # without torch, which stands before it. It is about 0.015 s, so a busy
    # machine does not break the rule of 0.1 s; the best of three counts.
    def seconds():
        account = fresh(
            "-X", "importtime", "-c", "import torch; import transformer_lit"
        ).stderr
        [line] = [
            line
            for line in account.splitlines()
            if line.endswith("| transformer_lit")
        ]
        return int(line.split("|")[1]) / 1e6

    assert min(seconds() for _ in range(3)) < 0.1
