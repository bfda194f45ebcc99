"""5.4 Regularization.

From book/05_4_regularization.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


# 05_4_regularization: Two conventions
def smoothing_for_all(smoothing: float, W: int, convention: str) -> float:
    """The smoothing that gives the same targets by the convention "all".

    Args:
        smoothing: the mass asked for.
        W: the size of the vocabulary.
        convention: in which it was asked for, "others" or "all".

    Raises:
        ValueError: smoothing is not in [0, 1) or too large for W, or there
            is no such convention.
    """
    if convention == "others":
        for_all = smoothing * W / max(W - 1, 1)
    elif convention == "all":
        for_all = smoothing
    else:
        raise ValueError(f"convention={convention!r} must be 'others' or 'all'")
    if not (0.0 <= smoothing < 1.0 and for_all <= 1.0):
        raise ValueError(
            f"smoothing={smoothing} must lie in [0, 1), and leave the target "
            f"no less than the other {W - 1} tokens"
        )
    return for_all


# 05_4_regularization: Sums, not means
@dataclass
class LossSums:
    """Sums over the real tokens of a batch; divide by `tokens` for means.

    Attributes:
        loss: what training minimises, in nats, with its gradient.
        nll: the true negative log-likelihood, in nats, without gradient.
        tokens: how many tokens were counted, int64.
    """

    loss: Tensor
    nll: Tensor
    tokens: Tensor


# 05_4_regularization: The loss
def label_smoothed_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    pad_id: int,
    smoothing: float = 0.1,
    convention: Literal["others", "all"] = "others",
) -> LossSums:
    """Cross-entropy against smoothed targets, section 5.4.

    Args:
        logits: [B, T, W].
        targets: token ids [B, T], int64.
        pad_id: targets that count for nothing.
        smoothing: the mass that leaves the target, eps_ls.
        convention: "others" spreads it over the W - 1 other tokens, as the
            released code did; "all" over all W, the target included.

    Raises:
        ValueError: smoothing is not in [0, 1), there is no such convention,
            or the shapes do not agree.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits {list(logits.shape)} and targets {list(targets.shape)} "
            "do not agree; logits need one more axis, the vocabulary"
        )
    for_all = smoothing_for_all(smoothing, logits.shape[-1], convention)
    dtype = torch.promote_types(logits.dtype, torch.float32)  # no 16-bit sums
    log_p = logits.flatten(0, -2).log_softmax(-1, dtype)  # [B * T, W]
    targets = targets.flatten()
    real = targets != pad_id
    nll = F.nll_loss(log_p, targets, ignore_index=pad_id, reduction="sum")
    evenly = -log_p.mean(-1)[real].sum()  # against the uniform distribution
    loss = (1 - for_all) * nll + for_all * evenly
    return LossSums(loss, nll.detach(), real.sum())


__all__ = [
    "LossSums",
    "label_smoothed_loss",
    "smoothing_for_all",
]
