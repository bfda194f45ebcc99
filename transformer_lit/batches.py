"""5.1 Training data and batching.

From book/05_1_data.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


# 05_1_data: Batches
def pad(sequences: list[list[int]], pad_id: int) -> Tensor:
    """Sequences of ids to one int64 tensor [B, S], padded at the end.

    Raises:
        ValueError: there are no sequences.
    """
    if not sequences:
        raise ValueError("there are no sequences to put into a batch")
    width = max(len(ids) for ids in sequences)
    rows = [ids + [pad_id] * (width - len(ids)) for ids in sequences]
    return torch.tensor(rows, dtype=torch.int64)


@dataclass
class Batch:
    """Sentence pairs to train on.

    Attributes:
        src: source ids [B, S], int64.
        tgt_in: what the decoder reads, [B, T]: the target behind BOS.
        tgt_out: what it must say, [B, T]: the target and EOS.
        number: its place among the batches of an update.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    number: int = 0


def make_batch(
    pairs: list[tuple[list[int], list[int]]], *, pad_id: int, bos_id: int
) -> Batch:
    """Pairs of source and target ids, each with its EOS, to a batch."""
    return Batch(
        src=pad([src for src, _ in pairs], pad_id),
        tgt_in=pad([[bos_id, *tgt[:-1]] for _, tgt in pairs], pad_id),
        tgt_out=pad([tgt for _, tgt in pairs], pad_id),
    )


# 05_1_data: Batches by tokens
Ints = NDArray[np.integer[Any]]
Plan = list[list[Ints]]
"""For each update its rectangles, for each rectangle its pairs' numbers."""


def rectangles(lengths: Ints, order: Ints, positions: int) -> list[Ints]:
    """Cut an order of pairs into batches of at most so many positions a side.

    A pair that is longer than that gets a rectangle of its own.
    """
    longest = lengths[order].max(1)
    found, start = [], 0
    while start < len(order):
        room = max(positions // int(longest[start]), 1)
        widths = np.maximum.accumulate(longest[start : start + room])
        fits = widths * np.arange(1, len(widths) + 1) <= positions
        size = max(int(fits.sum()), 1)
        found.append(order[start : start + size])
        start += size
    return found


def fill_rate(lengths: Ints, plan: Plan) -> float:
    """The share of a plan's positions that hold a token, both sides."""
    tokens = places = 0
    for rectangle in (r for update in plan for r in update):
        sides = lengths[rectangle]  # [B, 2]
        tokens += int(sides.sum())
        places += len(sides) * int(sides.max(0).sum())
    return tokens / places


# 05_1_data: Which pairs share a rectangle
def by_length(lengths: Ints, rng: np.random.Generator) -> Ints:
    """The pairs in an order that puts similar ones together, int64 [n].

    Target lengths within about seven per cent of each other make a bucket.
    Within a bucket the source lengths go up, in the next one down, so that
    they do not jump where one bucket ends. Equal pairs are in random order.
    """
    shuffled = rng.permutation(len(lengths))
    src, tgt = lengths[shuffled].T
    logarithms = np.floor(14 * np.log(tgt))
    _, bucket = np.unique(logarithms, return_inverse=True)  # 0, 1, 2, ...
    up_and_down = np.where(bucket % 2 == 0, src, -src)
    return shuffled[np.lexsort((up_and_down, bucket))]


# 05_1_data: A plan for an epoch
def plan_epoch(
    lengths: Ints, *, tokens: int, positions: int, seed: int, epoch: int
) -> Plan:
    """The updates of one pass over a corpus; depends on seed and epoch only.

    Args:
        lengths: source and target lengths [n, 2].
        tokens: about how many positions an update has on each side.
        positions: at most so many positions a side in one rectangle.
        seed, epoch: another one gives another order.
    """
    rng = np.random.default_rng([seed, epoch])
    positions = min(positions, tokens)
    found = rectangles(lengths, by_length(lengths, rng), positions)
    order = rng.permutation(len(found))
    size = max(round(tokens / positions), 1)  # rectangles in an update
    return [
        [found[i] for i in order[start : start + size]]
        for start in range(0, len(order), size)
    ]


__all__ = [
    "Batch",
    "Ints",
    "Plan",
    "by_length",
    "fill_rate",
    "make_batch",
    "pad",
    "plan_epoch",
    "rectangles",
]
