"""Launching a run.

From book/11_launch.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch.distributed as dist
import tyro

from transformer_lit.distributed import Sharded, Together
from transformer_lit.trainer import Alone, RunConfig, Trainer


# 11_launch: From the shell
@contextlib.contextmanager
def processes(sharded: bool = False) -> Iterator[Alone]:
    """This process, or those that torchrun started it with."""
    if "RANK" not in os.environ:
        yield Alone()
        return
    together = Sharded() if sharded else Together()
    try:
        yield together
    finally:
        dist.destroy_process_group()


def train(
    config: Annotated[Path, tyro.conf.Positional],
    /,
    out: Path | None = None,
    seed: int | None = None,
    steps: int | None = None,
    sharded: bool = False,
) -> int:
    """Train a model, or go on with a run that was interrupted.

    Args:
        config: the run's file, for example configs/multi30k_en_de.toml.
        out: the run's folder; runs/NAME-SEED if none is given.
        seed: another seed than the file's.
        steps: another number of updates than the file's.
        sharded: divide the model among the processes (FSDP2).
    """
    run = RunConfig.load(config)
    recipe = run.training
    if seed is not None:
        recipe = replace(recipe, seed=seed)
    if steps is not None:
        recipe = replace(recipe, steps=steps)
    run = replace(run, training=recipe)
    folder = out or Path("runs") / f"{config.stem}-{run.training.seed}"
    with processes(sharded) as together:
        Trainer(run, folder, together).fit()
        if together.rank == 0:
            print(folder)
    return 0


def main() -> int:
    """`python -m transformer_lit.train`, alone or under torchrun."""
    try:
        return tyro.cli(train, prog="transformer_lit.train")
    except (ValueError, FloatingPointError) as error:
        print(f"transformer_lit.train: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__" and "__file__" in globals():
    sys.exit(main())


__all__ = [
    "main",
    "processes",
    "train",
]
