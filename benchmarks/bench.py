"""Runs the races and keeps what they find."""

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.cases import PRECISIONS, Case
from benchmarks.envs import ENVS, ROOT, python_of
from benchmarks.process import Asked, Process
from benchmarks.race import Start, race
from benchmarks.report import OURS, rows_of
from transformer_lit.hardware import memory_of_this_machine

Message = dict[str, Any]

# Each peer's environment, see `python_of`.
PEERS = {
    "torch_nn": "",
    "marian": "transformers",
    "marian_tuned": "transformers",
    "joeynmt": "joeynmt",
    "opennmt": "opennmt",
    "fairseq": "fairseq",
    "x_transformers": "x_transformers",
    "ctranslate2": "ctranslate2",
}
DOES = {
    "train": [name for name in PEERS if name != "ctranslate2"],
    "decode": ["marian", "opennmt", "fairseq", "ctranslate2"],
}
MEMORY = 3e9  # bytes that a worker takes, at most


def process_of(threads: int) -> Start:
    """What starts a worker process."""

    def start(name: str) -> Asked:
        python = python_of("" if name == OURS else PEERS[name])
        module = name if name == OURS else f"peers.{name}"
        command = [str(python), "-m", "benchmarks.worker", module]
        return Process(command, ENVS / "logs" / f"{name}.log", threads)

    return start


def machine(device: str) -> Message:
    """Where this runs."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(": ")[1] for line in lines if "model name" in line]
    found: Message = {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory": f"{memory_of_this_machine() / 1e9:.0f} GB",
        "system": platform.system(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def commit() -> str:
    """What is measured; "-dirty" if it is not what was committed."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def save(path: Path, record: Message) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def resume(path: Path, about: Message) -> Message:
    """The record that is there, if it is about the same.

    Raises:
        ValueError: it is not.
    """
    if not path.exists():
        return {"about": about}
    record: Message = json.loads(path.read_text(encoding="utf-8"))
    old = record["about"]
    other = [key for key in about if old.get(key) != about[key]]
    if other:
        raise ValueError(
            f"{path} was measured with another {other[0]} "
            f"({old.get(other[0])!r}, now {about[other[0]]!r}); remove it or "
            "name another file"
        )
    return record


def groups(names: list[str], most: int) -> list[list[str]]:
    """The names in as few groups as possible, of about the same size."""
    count = math.ceil(len(names) / max(most, 1))
    size = math.ceil(len(names) / max(count, 1))
    return [names[i : i + size] for i in range(0, len(names), size or 1)]


def forget(record: Message, cases: list[Case], names: list[str]) -> None:
    """Drop these peers' rows of some cases; all rows, if ours is named."""
    for case in cases:
        kept = record["cases"].get(case.key, {"groups": []})
        for group in kept["groups"]:
            rows = group["peers"]
            for name in list(rows) if OURS in names else names:
                rows.pop(name, None)
        kept["groups"] = [g for g in kept["groups"] if set(g["peers"]) - {OURS}]


def missing(record: Message, case: Case, peers: list[str]) -> list[str]:
    """The peers of a case that have no row yet."""
    old = record["cases"].get(case.key, {"groups": []})["groups"]
    done = {name for group in old for name in group["peers"]}
    return [n for n in peers if n in DOES[case.kind] and n not in done]


def in_all_precisions(cases: list[Case], precisions: list[str]) -> list[Case]:
    """Each case in each of `PRECISIONS` that is asked for."""
    assert set(precisions) <= set(PRECISIONS)
    return [
        replace(case, precision=precision)
        for precision in precisions
        for case in cases
    ]


def plan(
    record: Message, cases: list[Case], peers: list[str], most: int
) -> Iterator[tuple[Case, list[str]]]:
    """The races that are still to be run, ours in each of them."""
    for case in cases:
        for group in groups(missing(record, case, peers), most):
            yield case, [OURS, *group]


def run_all(
    path: Path,
    about: Message,
    cases: list[Case],
    peers: list[str],
    start: Start,
    *,
    rounds: int,
    together: int = 0,
    again: tuple[str, ...] = (),
) -> Message:
    """Run what is missing in a record, and save it after each race.

    Args:
        path: of the record.
        about: what all of it has in common.
        cases: what is timed.
        peers: with whom ours is compared.
        start: makes a worker.
        rounds: timed turns.
        together: peers in a race; 0: as memory allows.
        again: peers whose rows are measured anew; ours: all rows.
    """
    record = {"cases": {}, **resume(path, about)}
    forget(record, cases, list(again))
    most = together or max(1, int(memory_of_this_machine() * 0.8 / MEMORY) - 1)
    races = list(plan(record, cases, peers, most))
    rows = sum(len(names) - 1 for _, names in races)
    with tqdm(total=rows, unit=" rows", disable=None) as bar:
        for case, names in races:
            found = race(
                names, start, case, rounds=rounds, say=bar.set_description
            )
            facts: Message = {
                "tokens": case.tokens,
                "flops": case.flops(),
                "groups": [],
            }
            kept = record["cases"].setdefault(case.key, facts)
            kept["groups"].append({**found, "commit": commit()})
            kept["summary"] = rows_of(kept)
            save(path, record)
            bar.update(len(names) - 1)
    return record
