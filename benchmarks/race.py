"""Workers that take turns at the same case."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.cases import Case
from benchmarks.envs import ROOT, PeerError
from benchmarks.process import Asked
from transformer_lit.model import count_parameters

Message = dict[str, Any]
Start = Callable[[str], Asked]
"""Start the worker of that name; raises `PeerError` if it cannot."""

TURN = 1.0  # seconds that a turn lasts at least: short passes are repeated,
MOST = 50  # but not more often than this
TOLERANCE = 0.05  # sizes: some have no biases, or one more


class Entrant:
    """A worker in a race, and what it has shown.

    Attributes:
        seconds: of a pass over the case's batches, one a round.
        losses: the mean of each pass, those of the warm-up first.
        failed: why it is out; "": it is not.
    """

    def __init__(self) -> None:
        self.worker: Asked | None = None
        self.passes = 1
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.last: Message = {}
        self.version = self.failed = ""

    def ask(self, **request: Any) -> Message:
        """What the worker answers."""
        assert self.worker
        return self.worker.ask(request)

    def step(self, n: int) -> float:
        """Let it work; seconds of a pass."""
        self.last = self.ask(do="step", n=n)
        self.losses += self.last["losses"]
        return float(self.last["seconds"]) / n

    def prepare(self, worker: Asked, case: Case, n: int) -> None:
        """Build what the case needs; warm up, the last pass by itself."""
        self.worker = worker
        self.version = self.ask(do="prepare", case=case.to_json())["version"]
        self.step(n - 1)
        self.passes = min(MOST, 1 + int(TURN / max(self.step(1), 1e-9)))

    def check(self, case: Case) -> None:
        """It does what it is timed for, or a `PeerError`."""
        if case.kind == "train":
            first, last = self.losses[0], self.losses[-1]
            if not last < first:  # neither if they are not numbers
                raise PeerError(f"loss does not fall: {first:.4g}, {last:.4g}")
            learned, same = (
                self.last["parameters"],
                count_parameters(case.size.config()),
            )
            if abs(learned / same - 1) > TOLERANCE:
                raise PeerError(f"learns {learned:,} numbers, not {same:,}")
        elif self.last["lengths"] != [tgt for _, tgt in case.lengths[0]]:
            found = sorted(set(self.last["lengths"]))
            raise PeerError(f"outputs are {found} tokens long")

    def row(self) -> Message:
        """What is recorded."""
        if self.failed:
            return {"version": self.version, "failed": self.failed}
        return {
            "version": self.version,
            "seconds": self.seconds,
            "losses": [round(loss, 4) for loss in self.losses],
            "parameters": self.last["parameters"],
            "peak_mb": self.last["peak_mb"],
        }


def race(
    names: list[str],
    start: Start,
    case: Case,
    *,
    rounds: int,
    warmup: int = 2,
    say: Callable[[str], None] = lambda text: None,
) -> Message:
    """Let workers do the same case in turn: A B C A B C ...

    A worker that fails drops out, and the others go on.

    Args:
        names: who takes part.
        start: makes a worker.
        case: what is timed.
        rounds: timed turns of each.
        warmup: passes before those, two or more.
        say: told whose turn it is.

    Returns:
        `peers`: a row each; `peak_flops`: operations a second of the best
        square products of the same minutes.
    """
    entrants = {name: Entrant() for name in names}
    peaks = [0.0]

    def still() -> list[str]:
        return [name for name in names if not entrants[name].failed]

    @contextmanager
    def turn(name: str, what: str) -> Iterator[Entrant]:
        say(f"{case.key}: {name} {what}")
        try:
            yield entrants[name]
        except PeerError as reason:
            entrants[name].failed = str(reason).replace(str(ROOT), ".")

    def measure_peak() -> None:
        for name in still()[:1]:
            with turn(name, "multiplies") as entrant:
                peaks.append(float(entrant.ask(do="peak")["flops"]))

    try:
        for name in names:
            with turn(name, "prepares") as entrant:
                entrant.prepare(start(name), case, warmup)
        measure_peak()
        for number in range(1, rounds + 1):
            for name in still():
                with turn(name, f"round {number} of {rounds}") as entrant:
                    entrant.seconds.append(entrant.step(entrant.passes))
        measure_peak()
        for name in still():
            with turn(name, "is checked") as entrant:
                entrant.check(case)
    finally:
        for entrant in entrants.values():
            if entrant.worker:
                entrant.worker.close()
    rows = {name: entrant.row() for name, entrant in entrants.items()}
    return {"peers": rows, "peak_flops": max(peaks)}
