"""Timings of ours and others side by side.

python -m benchmarks run      everything that results/bench.json lacks
python -m benchmarks quick    ours and torch.nn, small, in this process
python -m benchmarks table    what was measured
python -m benchmarks growth   time and memory against lengths and sizes
python -m benchmarks envs     only make the peers' environments
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import tyro

from benchmarks.bench import (
    PEERS,
    in_all_precisions,
    machine,
    process_of,
    run_all,
)
from benchmarks.cases import PRECISIONS, SIZES, Case
from benchmarks.envs import ROOT, PeerError, python_of
from benchmarks.growth import growth
from benchmarks.local import Local
from benchmarks.race import race
from benchmarks.report import OURS, table
from benchmarks.shapes import all_cases, rows

RESULT = ROOT / "results" / "bench.json"


def run(
    *,
    cases: tuple[str, ...] = (),
    precisions: tuple[str, ...] = tuple(PRECISIONS),
    peers: tuple[str, ...] = tuple(PEERS),
    rounds: int = 7,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    size: str = "base",
    together: int = 0,
    again: tuple[str, ...] = (),
    out: Path = RESULT,
) -> int:
    """Measure what is missing, and print the table.

    Args:
        cases: the beginnings of their names; none: all.
        precisions: fp32, medium, bf16.
        peers: with whom ours is compared.
        rounds: timed turns.
        device: of all.
        threads: of each worker.
        size: of the model: base, small or tiny.
        together: peers in a race, all in memory at once; 0: as it allows.
        again: peers whose rows are measured anew; ours: all rows.
        out: the record.
    """
    origin, every = all_cases()
    chosen = [
        replace(case, size=SIZES[size], device=device, threads=threads)
        for case in every
        if not cases or case.name.startswith(cases)
    ]
    about = {
        **machine(device),
        "device": device,
        "threads": threads,
        "size": size,
        "rounds": rounds,
        "lengths of text": origin,
    }
    record = run_all(
        out,
        about,
        in_all_precisions(chosen, list(precisions)),
        list(peers),
        process_of(threads),
        rounds=rounds,
        together=together,
        again=again,
    )
    print(table(record))
    return 0


def quick(*, rounds: int = 11, threads: int = 2) -> int:
    """Ours and torch.nn.Transformer, a small model, in this process.

    Args:
        rounds: timed turns.
        threads: of torch.
    """
    shape = rows(32, 28, 28)
    case = Case("train 32x28", "train", shape, size=SIZES["small"])
    found: dict[str, Any] = {}
    for one in in_all_precisions([case], list(PRECISIONS)):
        one = replace(one, threads=threads)
        group = race([OURS, "torch_nn"], Local, one, rounds=rounds)
        found[one.key] = {
            "tokens": one.tokens,
            "flops": one.flops(),
            "groups": [group],
        }
    about = {**machine("cpu"), "threads": threads, "size": "small"}
    print(table({"about": about, "cases": found}))
    return 0


def show(*, path: Path = RESULT) -> int:
    """Print what was measured.

    Args:
        path: the record.
    """
    print(table(json.loads(path.read_text(encoding="utf-8"))))
    return 0


def envs() -> int:
    """Make the environments of all peers; say what is missing."""
    for name in sorted(set(PEERS.values()) - {""}):
        try:
            print(f"{name}: {python_of(name)}")
        except PeerError as reason:
            print(f"{name}: {reason}")
    return 0


def main() -> int:
    """The command; an error of the user's is one line."""
    commands: dict[str, Callable[..., int]] = {
        "run": run,
        "quick": quick,
        "table": show,
        "growth": growth,
        "envs": envs,
    }
    try:
        return tyro.extras.subcommand_cli_from_dict(
            commands, prog="python -m benchmarks", description=__doc__
        )
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
