"""Launching a run.

From book/11_launch.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transformer_lit.checkpoints import finish_checkpoint, start_checkpoint
from transformer_lit.corpus import write_json
from transformer_lit.trainer import Alone, Run, optimizer_tensors

# 11_launch: Many processes, one gradient
T = TypeVar("T")


class Group(Alone):
    """The processes that torchrun started, before they share anything."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        if cuda := torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        dist.init_process_group("nccl" if cuda else "gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def total(self, sums: Tensor) -> Tensor:
        """The sum of each process's numbers."""
        sums = sums.to(self.device, copy=True)
        dist.all_reduce(sums)
        return sums.cpu()

    def save_parts(self, run: Run, folder: Path, state: dict[str, Any]) -> None:
        """Write a checkpoint, each process its part."""
        save_parts(run, folder, state)  # see below: "A checkpoint in parts"

    def first(self, work: Callable[[], T]) -> T:
        """Let the first process do some work before the others do it."""
        if self.rank == 0:
            found = work()
            self.wait()
        else:
            self.wait()
            found = work()
        return found

    def wait(self) -> None:
        """Go on when all processes have come here."""
        dist.barrier()


class Together(Group):
    """Processes that each keep the whole model.

    Gradients are shared by torch's DistributedDataParallel: through nccl
    where there are GPUs, through gloo where there are none.
    """

    def share(self, model: nn.Module) -> nn.Module:
        """The model, whose gradients are shared as they are computed."""
        return DistributedDataParallel(model)

    def adding_up(
        self, model: nn.Module, last: bool
    ) -> AbstractContextManager[None]:
        """Keep the gradients to oneself until the last batch."""
        several: Any = model
        return nullcontext() if last else several.no_sync()


# 11_launch: A model in parts
class Sharded(Together):
    """As `Together`, but each process keeps only a part of every parameter.

    A layer's parameters are put together when it is its turn, by torch's
    `fully_shard` (FSDP2). It is for models that do not fit one GPU.
    """

    def share(self, model: nn.Module) -> nn.Module:
        """The model with its parameters divided among the processes."""
        parts: Any = model
        for layer in (*parts.encoder.layers, *parts.decoder.layers):
            fully_shard(layer)
        # Else a validation would leave the outermost parameters in one piece.
        fully_shard(model, reshard_after_forward=True)
        return model

    def adding_up(
        self, model: nn.Module, last: bool
    ) -> AbstractContextManager[None]:
        """Keep the gradients to oneself until the last batch."""
        several: Any = model
        several.set_requires_gradient_sync(last)
        return nullcontext()

    def whole(self, tensor: Tensor) -> Tensor:
        """A parameter, or what belongs to one, in one piece."""
        divided: Any = tensor.detach()
        return divided.full_tensor() if isinstance(tensor, DTensor) else divided

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """This process's part of a tensor, as `like` is divided."""
        if not isinstance(like, DTensor):
            return super().part(whole, like)
        whole = whole.to(like.device)
        return distribute_tensor(whole, like.device_mesh, like.placements)


# 11_launch: A checkpoint in parts
dcp: Any = checkpoint  # for type checkers: it does not say what it exports


def write_parts(
    tensors: dict[str, Tensor], folder: Path, *, join: bool = False
) -> None:
    """Let each process write its part of some tensors into a folder.

    Args:
        tensors: by name; of what is not divided one process writes each.
        folder: gets a file from each process.
        join: let the first process add one file with the whole tensors.
    """
    writer = dcp.HuggingFaceStorageWriter(
        str(folder), save_distributed=True, enable_consolidation=join
    )
    dcp.save(tensors, storage_writer=writer)


def save_parts(run: Run, folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint without a whole model in any process.

    The weights are joined on the disk, a tensor at a time, so that the
    folder is a model's. What Adam remembers stays in parts.
    """
    first = run.processes.rank == 0
    part = folder / "checkpoints" / f"part-{run.step:08d}"
    if first:
        start_checkpoint(folder, run.step)
    run.processes.wait()
    weights: dict[str, Tensor] = dict(run.model.named_parameters())
    write_parts(weights, part / "weights", join=True)
    write_parts(optimizer_tensors(run), part)
    if first:
        joined = part / "weights" / "model-00001-of-00001.safetensors"
        os.replace(joined, part / "weights.safetensors")
        shutil.rmtree(part / "weights")
        write_json(part / "config.json", {"model": asdict(run.model.config)})
        run.vocabulary.save(part)
        finish_checkpoint(part, state, run.config.training.keep)
    run.processes.wait()


__all__ = [
    "Group",
    "Sharded",
    "T",
    "Together",
    "dcp",
    "save_parts",
    "write_parts",
]
