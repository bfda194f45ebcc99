"""A virtual environment for each peer, made when it is first needed.

A peer's packages stand in locks/NAME.txt, all of them with their versions;
torch and what else is in the environment of this process are seen from there,
so that all run on the same torch, and it need not be installed again.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVS = Path(__file__).parent / ".envs"
LOCKS = Path(__file__).parent / "locks"


class PeerError(Exception):
    """Something of a peer does not work; the text says what, in a line."""


def run(command: list[str], log: Path) -> None:
    """Run a command, its output to the end of a log.

    Raises:
        PeerError: it failed; the text is its last word.
    """
    with log.open("a", encoding="utf-8") as file:
        code = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code:
        raise PeerError(last_error(log) or f"exit code {code}; see {log}")


def last_error(log: Path) -> str:
    """The last line of a log that speaks of an error, else the last one."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1][:200]


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if need be.

    Args:
        name: of the environment; "": this process's own.

    Raises:
        PeerError: its packages cannot be installed.
    """
    if not name:
        return Path(sys.executable)
    folder, lock = ENVS / name, LOCKS / f"{name}.txt"
    python, stamp = folder / "bin" / "python", folder / "lock.txt"
    pins = lock.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == pins:
        return python
    ENVS.mkdir(exist_ok=True)
    (ENVS / ".gitignore").write_text("*\n")
    shutil.rmtree(folder, ignore_errors=True)
    log = ENVS / f"{name}.log"
    log.unlink(missing_ok=True)
    run([sys.executable, "-m", "venv", str(folder)], log)
    [packages] = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "ours.pth").write_text(f"{ours}\n")
    pip = [str(python), "-m", "pip", "install", "--no-deps"]
    run([*pip, "--ignore-installed", "-r", str(lock)], log)
    stamp.write_text(pins, encoding="utf-8")
    return python
