"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lit.model import Transformer


# 06_1_translation: Greedy search
@dataclass(frozen=True)
class Hypothesis:
    """One finished or cut-off output.

    Attributes:
        tokens: its ids, without BOS and EOS.
        log_prob: the sum of its tokens' log-probabilities, EOS's among them
            if it ended, in nats.
        score: what orders hypotheses, higher first.
    """

    tokens: list[int]
    log_prob: float
    score: float


class Written:
    """A hypothesis while it grows."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.log_prob = 0.0

    def add(self, token: int, log_prob: float, eos_id: int) -> None:
        """Add a token; EOS counts in the probability only."""
        self.log_prob += log_prob
        if token != eos_id:
            self.tokens.append(token)

    def hypothesis(self) -> Hypothesis:
        """What was written."""
        return Hypothesis(self.tokens, self.log_prob, self.log_prob)


@torch.inference_mode()
def greedy_search(
    model: Transformer, src: Tensor, *, max_extra: int = 50
) -> list[list[Hypothesis]]:
    """Take the most probable token each time, section 6.1 with a beam of 1.

    Args:
        model: in eval mode, or dropout will disturb the output.
        src: source ids [B, S], int64.
        max_extra: a sentence of n ids gets at most n + max_extra, its EOS
            counted on both sides, and at least one.

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        ValueError: max_extra is negative.
    """
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative")
    config = model.config
    room = (src != config.pad_id).sum(1) + max_extra  # [B]
    found = [Written() for _ in src]
    cache = model.start(src)
    rows = torch.arange(len(src), device=src.device)  # still being written
    ids = torch.full_like(rows, config.bos_id)
    while len(rows):
        log_probs, ids = model.step(ids, cache).log_softmax(-1).max(-1)
        for row, token, log_prob in zip(
            rows.tolist(), ids.tolist(), log_probs.tolist(), strict=True
        ):
            found[row].add(token, log_prob, config.eos_id)
        length = cache.ids.shape[1]
        goes_on = (ids != config.eos_id) & (length < room[rows])
        if not goes_on.all():
            keep = goes_on.nonzero()[:, 0]
            cache.select(keep)
            rows, ids = rows[keep], ids[keep]
    return [[written.hypothesis()] for written in found]


__all__ = [
    "Hypothesis",
    "Written",
    "greedy_search",
]
