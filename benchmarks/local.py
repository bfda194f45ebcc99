"""A worker in this process."""

from typing import Any

from benchmarks.envs import PeerError
from benchmarks.peer import load
from benchmarks.worker import Worker, one_line

Message = dict[str, Any]


class Local:
    """Answers as a worker process does.

    Args:
        name: of the peer.
    """

    def __init__(self, name: str) -> None:
        module = name if name == "ours" else f"peers.{name}"
        self.worker = Worker(lambda: load(module))

    def ask(self, request: Message) -> Message:
        """The answer, or a `PeerError` in one line."""
        try:
            return self.worker.answer(request)
        except Exception as error:
            raise PeerError(one_line(error)) from error

    def close(self) -> None:
        """Nothing to end."""
