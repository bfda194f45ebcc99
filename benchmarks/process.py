"""A worker in a process of its own, seen from outside."""

import json
import os
import subprocess
from pathlib import Path
from threading import Timer
from typing import Any, Protocol

from benchmarks.envs import ROOT, PeerError, last_error

Message = dict[str, Any]


class Asked(Protocol):
    """Something that answers requests."""

    def ask(self, request: Message) -> Message:
        """The answer; raises `PeerError` if there is none."""

    def close(self) -> None:
        """No more requests."""


class Process:
    """A worker that a command starts and that speaks JSON lines.

    Args:
        command: what to start.
        log: where its standard error goes.
        threads: that it may use.
        limit: seconds that an answer may take.
    """

    def __init__(
        self, command: list[str], log: Path, threads: int, limit: float = 900
    ) -> None:
        self.log, self.limit = log, limit
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                encoding="utf-8",
            )

    def ask(self, request: Message) -> Message:
        """Send a request, wait for the answer."""
        assert self.process.stdin and self.process.stdout
        timer = Timer(self.limit, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            raise PeerError(self.last_word())
        answer: Message = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def last_word(self) -> str:
        """Why there was no answer."""
        code = self.process.wait()
        if code < 0:
            return f"killed by signal {-code}, or slower than {self.limit} s"
        return last_error(self.log) or f"ended with exit code {code}"

    def close(self) -> None:
        """End the process; a worker ends when its input does."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
