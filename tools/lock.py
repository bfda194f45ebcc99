"""Compile requirements.in to requirements.txt, the exact lock.

    python tools/lock.py            write the lock (needs uv and the network)
    python tools/lock.py --check    exit 1 if a pin of requirements.in is not
                                    in the lock, or the package needs more

torch's CUDA packages are left out, so that a machine whose torch is a CPU
build downloads none of them; a CUDA torch still brings its own.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIRECT, LOCK = ROOT / "requirements.in", ROOT / "requirements.txt"
CUDA = re.compile(r"^(nvidia-|cuda-|triton)")
COMPILE = "uv pip compile --quiet --universal --python-version 3.11"


def compile_lock() -> str:
    """The text of the lock."""
    command = [*COMPILE.split(), "--no-annotate", "--no-header", str(DIRECT)]
    lines = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    kept = [line for line in lines if not CUDA.match(line)]
    head = ["# Written by tools/lock.py from requirements.in.", "-e ."]
    return "\n".join([*head, *kept]) + "\n"


def missing() -> list[str]:
    """Pins and dependencies that the lock does not hold."""
    lock = set(LOCK.read_text().splitlines())
    pins = [
        line
        for line in DIRECT.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [re.split(r"[<>=]", d)[0] for d in needs["project"]["dependencies"]]
    locked = {re.split(r"[=; ]", line)[0] for line in lock}
    return [p for p in pins if p not in lock] + [
        n for n in names if n not in locked
    ]


if __name__ == "__main__":
    if "--check" in sys.argv:
        absent = missing()
        if absent:
            sys.exit(f"not in requirements.txt: {', '.join(absent)}")
    else:
        LOCK.write_text(compile_lock())
        print("wrote", LOCK.name)
