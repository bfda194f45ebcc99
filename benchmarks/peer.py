"""What an adapter has to tell about an implementation."""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.cases import Case, Size
from transformer_lit.batches import Batch
from transformer_lit.optimizer import noam_rate

# The learning rate: the loss shall fall within a few updates.
WARMUP, FACTOR = 100, 0.5
SMOOTHING = 0.1
ALPHA = 0.6

Update = Callable[[Batch], float]
"""One update on a batch; the mean loss of a target token before it."""

Decode = Callable[[Tensor], list[list[int]]]
"""Source ids [B, S] to the best output of each sentence, as ids."""


def autocast(case: Case) -> AbstractContextManager[None]:
    """The number format of a case."""
    enabled = case.precision == "bf16"
    found: AbstractContextManager[None] = torch.autocast(
        case.device, torch.bfloat16, enabled=enabled
    )
    return found


def stub(*names: str) -> None:
    """Let modules be imported that are not there and that nothing calls."""
    for name in names:
        sys.modules.setdefault(name, MagicMock(__path__=[]))


def learned(model: nn.Module) -> int:
    """The numbers that got a gradient; some register others, too."""
    return sum(p.numel() for p in model.parameters() if p.grad is not None)


class Peer:
    """An implementation; an adapter derives `Adapter` from it.

    Attributes:
        package: whose version is recorded.
        parameters: how many numbers it learned, known after an update.
    """

    package = "torch"
    parameters = 0

    def version(self) -> str:
        """Of the package."""
        return importlib.metadata.version(self.package)

    def model(self, size: Size) -> nn.Module:
        """A model with random weights, on the CPU."""
        raise NotImplementedError(f"{self.package} has no model here")

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean label-smoothed loss of a target token."""
        raise NotImplementedError(f"{self.package} does not train here")

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Adam as everybody gets it from torch, learning rate 1."""
        return torch.optim.Adam(
            model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9
        )

    def updates(self, case: Case) -> Update:
        """Training: build everything, return what does one update."""
        model = self.model(case.size).to(case.device).train()
        adam = self.optimizer(model)
        schedule = LambdaLR(
            adam,
            lambda done: noam_rate(done + 1, case.size.d_model, WARMUP, FACTOR),
        )

        def update(batch: Batch) -> float:
            adam.zero_grad()
            with autocast(case):
                loss = self.loss(model, batch)
            loss.backward()
            self.parameters = learned(model)
            adam.step()
            schedule.step()
            return loss.item()

        return update

    def decoder(self, case: Case) -> Decode:
        """Decoding: build everything, return what decodes a batch."""
        raise NotImplementedError(f"{self.package} does not decode here")


def load(name: str) -> Peer:
    """The adapter of that name."""
    found: Peer = importlib.import_module(f"benchmarks.{name}").Adapter()
    return found
