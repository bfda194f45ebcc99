"""5.1 Training data and batching.

From book/05_1_data.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass

import torch
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
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor


def make_batch(
    pairs: list[tuple[list[int], list[int]]], *, pad_id: int, bos_id: int
) -> Batch:
    """Pairs of source and target ids, each with its EOS, to a batch."""
    return Batch(
        src=pad([src for src, _ in pairs], pad_id),
        tgt_in=pad([[bos_id, *tgt[:-1]] for _, tgt in pairs], pad_id),
        tgt_out=pad([tgt for _, tgt in pairs], pad_id),
    )


__all__ = [
    "Batch",
    "make_batch",
    "pad",
]
