"""One implementation at work, told what to do by JSON lines.

    python -m benchmarks.worker peers.marian

Requests on standard input, one answer each on standard output:

    {"do": "prepare", "case": {...}}  ->  {"version": ...}
    {"do": "step", "n": 3}            ->  {"seconds": ..., "losses": [...],
                                           "lengths": [...],
                                           "parameters": ...,
                                           "peak_mb": ...}
    {"do": "peak"}                    ->  {"flops": ...}

A step is one pass over the case's batches. `losses` has the mean of each
step, `lengths` those of the outputs of the last one. An answer with `error`
says in one line what failed.
"""

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.cases import Case, sources, training_batches
from benchmarks.peer import Peer, autocast, load

Message = dict[str, Any]


def memory_mb(device: str) -> float:
    """The most memory that this process has held, in megabytes."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Worker:
    """Does what it is told.

    Args:
        peer: makes the implementation when it is first needed.
    """

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self.make = peer
        self.peer: Peer | None = None
        self.case: Case | None = None
        self.work: Callable[[], float | list[int]]

    def answer(self, request: Message) -> Message:
        """The answer to a request."""
        actions = {
            "prepare": self.prepare,
            "step": self.step,
            "peak": self.peak,
        }
        return actions[request["do"]](request)

    def prepare(self, request: Message) -> Message:
        """Build what the case needs."""
        case = self.case = Case.from_json(request["case"])
        route = "medium" if case.precision == "medium" else "highest"
        torch.set_float32_matmul_precision(route)
        torch.set_num_threads(case.threads)
        torch.manual_seed(0)
        peer = self.peer = self.make()
        if case.kind == "train":
            batches, update = training_batches(case), peer.updates(case)
            self.work = lambda: (
                sum(update(batch) for batch in batches) / len(batches)
            )
        else:
            src, decode = sources(case), peer.decoder(case)

            def outputs() -> list[int]:
                with torch.inference_mode(), autocast(case):
                    return [len(ids) for ids in decode(src)]

            self.work = outputs
        return {"version": peer.version()}

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.case and self.case.device == "cuda":
            torch.cuda.synchronize()

    def step(self, request: Message) -> Message:
        """Work, and time it."""
        assert self.case and self.peer
        self.wait()
        start = time.perf_counter()
        found = [self.work() for _ in range(request["n"])]
        self.wait()
        seconds = time.perf_counter() - start
        last = found[-1]
        return {
            "seconds": seconds,
            "losses": [] if isinstance(last, list) else found,
            "lengths": last if isinstance(last, list) else [],
            "parameters": self.peer.parameters,
            "peak_mb": round(memory_mb(self.case.device), 1),
        }

    def peak(self, request: Message) -> Message:
        """Operations a second of square products by the case's route."""
        case = self.case
        assert case is not None
        size = 4 * case.size.d_model if case.device == "cpu" else 8192
        dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
        a = torch.ones(size, size, dtype=dtype, device=case.device)
        best = float("inf")
        for _ in range(8):
            self.wait()
            start = time.perf_counter()
            a @ a
            self.wait()
            best = min(best, time.perf_counter() - start)
        return {"flops": 2 * size**3 / best}


def one_line(error: BaseException) -> str:
    """An error in one line that is not too long."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


def serve(peer: Callable[[], Peer]) -> None:
    """Answer until the input ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(peer)
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"error": one_line(error)}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    serve(lambda: load(sys.argv[1]))
