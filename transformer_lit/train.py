"""Launching a run.

From book/11_launch.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import tyro

from transformer_lit.batches import Batch
from transformer_lit.config import TransformerConfig
from transformer_lit.distributed import Sharded, Together
from transformer_lit.hardware import (
    DEVICES,
    Device,
    Memory,
    Plan,
    memory_of_this_machine,
    plan,
    training_flops,
)
from transformer_lit.model import Transformer, count_parameters
from transformer_lit.optimizer import noam
from transformer_lit.shell import told_matmul
from transformer_lit.trainer import (
    Alone,
    RunConfig,
    TrainConfig,
    Trainer,
    accumulate,
)


# 11_launch: Before it runs: the plan
def passes_of(training: TrainConfig) -> tuple[int, int]:
    """The batches of an update, and the positions of one on each side."""
    positions = min(training.positions, training.tokens)
    return max(round(training.tokens / positions), 1), positions


def divided(memory: Memory, count: int, turns: int = 1) -> Memory:
    """What each of `count` processes keeps when the state is divided.

    Gradients are divided when they are complete: in an update of several
    batches a process keeps whole ones until its last turn.
    """
    return replace(
        memory,
        weights=memory.weights / count,
        gradients=memory.gradients / (count if turns == 1 else 1),
        optimizer=memory.optimizer / count,
    )


def plan_run(
    run: RunConfig, device: Device, *, length: int = 30, sharded: bool = False
) -> Plan:
    """What a run needs on a machine, from its file alone.

    A process computes whole batches, one after another. Where there are
    fewer batches than processes, some processes wait: their time counts.

    Args:
        run: the run.
        device: the machine.
        length: positions in a row, on each side.
        sharded: the state is divided among the processes (FSDP2).
    """
    training = run.training
    sizes = run.transformer(run.corpus.vocab_size)
    count, positions = passes_of(training)
    turns = -(-count // device.count)  # rounded up
    precision = training.precision
    found = plan(
        sizes,
        device,
        steps=training.steps,
        tokens=turns * device.count * positions,
        length=length,
        precision=precision if precision in device.peak else None,
        accumulate=turns,
        recompute=training.recompute,
    )
    memory = found.memory
    if sharded:
        memory = divided(memory, device.count, turns)
    share = count / (turns * device.count)  # of the turns that do some work
    return replace(
        found,
        tokens=count * positions,
        flops=found.flops * share,
        memory=memory,
    )


def a_batch(sizes: TransformerConfig, positions: int, length: int) -> Batch:
    """Random ids, about so many positions on each side."""
    shape = max(positions // length, 1), length
    ids = torch.randint(4, max(sizes.vocab_size, 5), shape) % sizes.vocab_size
    return Batch(src=ids, tgt_in=ids, tgt_out=ids)


def seconds_of_parts(
    sizes: TransformerConfig, training: TrainConfig, batch: Batch
) -> tuple[float, float]:
    """Seconds of a pass over a batch and of the optimiser's step, measured.

    The median of five: others may be using the machine.
    """
    processes = Alone()
    model = Transformer(sizes).to(processes.device)
    adam, _ = noam(model, training.warmup)
    ids = batch.src.to(processes.device)
    there = Batch(src=ids, tgt_in=ids, tgt_out=ids)
    times = []
    for _ in range(6):
        adam.zero_grad()
        start = clock(processes.device)
        accumulate(
            model,
            [there],
            tokens=batch.tgt_out.numel(),
            pad_id=sizes.pad_id,
            precision=training.precision,
            processes=processes,
        )
        middle = clock(processes.device)
        adam.step()
        times.append((middle - start, clock(processes.device) - middle))
    passes, steps = zip(*times[1:], strict=True)  # the first sets things up
    return sorted(passes)[2], sorted(steps)[2]


def clock(device: torch.device) -> float:
    """The time when all that was begun is done, in seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


LARGE = 2e10
"""Operations; a pass that takes more is not measured in full."""


def calibrated(run: RunConfig, *, length: int = 30) -> Device:
    """This machine, with the rate that the run's own passes reach on it.

    Of a large model one layer of each stack is measured, on fewer positions.
    """
    training = run.training
    sizes = run.transformer(run.corpus.vocab_size)
    count, positions = passes_of(training)

    def operations(config: TransformerConfig, tokens: int) -> float:
        return training_flops(
            config, tokens, tokens, src_length=length, tgt_length=length
        )

    trial, some = sizes, positions
    if operations(sizes, positions) > LARGE:
        trial = replace(sizes, n_layers=1)
        one = operations(trial, length) / length
        some = min(positions, max(int(LARGE / one), 4 * length))
    batch = a_batch(trial, some, length)
    one_pass, step = seconds_of_parts(trial, training, batch)
    one_pass /= operations(trial, batch.src.numel())
    step *= count_parameters(sizes) / count_parameters(trial)
    every = count * operations(sizes, positions)
    rate = every / (one_pass * every + step)
    name, memory, devices = "this machine", memory_of_this_machine(), 1
    if torch.cuda.is_available():
        memory = float(torch.cuda.get_device_properties(0).total_memory)
        devices = torch.cuda.device_count()
    peak = {training.precision: rate}
    return Device(name, peak, memory, devices, utilisation=(1.0, 1.0))


ABOUT_SPEED = """
A position is a token or padding. On this machine the speed was measured. On
the others it is assumed: the paper's own on P100s, and 40 % of the peak on the
rest, which a narrow model does not reach. Exchanging gradients is left out."""


def short(number: float, unit: str = "") -> str:
    """A number for a table, with the digits that matter."""
    if number < 0.01:
        return f"<{unit}0.01"
    return f"{unit}{number:,.{0 if number >= 100 else 2}f}"


def plan_lines(run: RunConfig, plans: list[Plan]) -> list[str]:
    """A plan as lines of text: what the run is, and a line a machine."""
    some, count = plans[0], passes_of(run.training)[0]
    lines = [
        f"parameters   {some.parameters:,}",
        f"vocabulary   {run.corpus.vocab_size:,} entries, as the file says",
        f"updates      {some.steps:,}, each of {some.tokens:,} positions a side",
        f"batches      {count:,} an update, {some.tokens // count:,} positions each",
        f"operations   {some.flops:.2e}",
        "",
        "machine       in    batches   memory    hours    price",
        "                    (each process)",
    ]
    for one in plans:
        known = run.training.precision in one.device.peak
        precision = run.training.precision if known else one.device.precision
        turns = -(-count // one.device.count)
        price = "-" if one.price is None else short(one.price, "$")
        lines.append(
            f"{one.device.name:12}  {precision}  {turns:7,}"
            f"{one.memory.total / 1e9:7.2f} GB {short(one.hours):>8} {price:>8}"
            + ("" if one.fits else "  does not fit")
        )
    return lines


def print_plan(run: RunConfig, *, sharded: bool = False) -> None:
    """Print what a run needs on machines of 2017, of today, and on this."""
    machines = [*DEVICES.values(), calibrated(run)]
    plans = [plan_run(run, one, sharded=sharded) for one in machines]
    print("\n".join(plan_lines(run, plans)))
    print(ABOUT_SPEED)


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
    precision: str | None = None,
    sharded: bool = False,
    dry_run: bool = False,
    fast_matmul: bool = True,
) -> int:
    """Train a model, or go on with a run that was interrupted.

    Args:
        config: the run's file, for example configs/multi30k_en_de.toml.
        out: the run's folder; runs/NAME-SEED if none is given.
        seed: another seed than the file's.
        steps: another number of updates than the file's.
        precision: another one than the file's: fp32 or bf16.
        sharded: divide the model among the processes (FSDP2).
        dry_run: only print what the run needs: memory, time, price.
        fast_matmul: in fp32, take the faster route of products (5.2).
    """
    run = RunConfig.load(config)
    given = {"seed": seed, "steps": steps, "precision": precision}
    changes: dict[str, Any] = {
        name: value for name, value in given.items() if value is not None
    }
    run = replace(run, training=replace(run.training, **changes))
    folder = out or Path("runs") / f"{config.stem}-{run.training.seed}"
    width = run.transformer(run.corpus.vocab_size).d_model
    on_cpu = run.training.precision == "fp32" and not torch.cuda.is_available()
    with told_matmul(fast_matmul and on_cpu, width):
        if not dry_run:
            with processes(sharded) as together:
                Trainer(run, folder, together).fit()
                if together.rank == 0:
                    print(folder)
        elif os.environ.get("RANK", "0") == "0":
            print_plan(run, sharded=sharded)
    return 0


def guarded(work: Callable[[], int], prog: str) -> int:
    """The exit code of some work; what goes wrong becomes one line.

    Args:
        work: what to do.
        prog: the program's name, which begins the line.
    """
    try:
        return work()
    except (ValueError, FloatingPointError, OSError) as error:
        print(f"{prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m transformer_lit.train`, alone or under torchrun."""
    prog = "transformer_lit.train"
    return guarded(lambda: tyro.cli(train, prog=prog, args=arguments), prog)


if __name__ == "__main__" and "__file__" in globals():
    sys.exit(main())


__all__ = [
    "ABOUT_SPEED",
    "LARGE",
    "a_batch",
    "calibrated",
    "clock",
    "divided",
    "guarded",
    "main",
    "passes_of",
    "plan_lines",
    "plan_run",
    "print_plan",
    "processes",
    "seconds_of_parts",
    "short",
    "train",
]
