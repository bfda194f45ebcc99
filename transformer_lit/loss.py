"""5.4 Regularization.

From book/05_4_regularization.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from typing import Any, Literal, NamedTuple

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
class LossSums(NamedTuple):
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


# 05_4_regularization: The same, a few rows at a time
def loss_of_rows(
    x: Tensor, weight: Tensor, targets: Tensor, for_all: float, d_weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, nll, and the gradient by x of a few rows x [R, D].

    Args:
        x, weight: of one dtype, that of the products.
        targets: [R].
        for_all: the smoothing, convention "all".
        d_weight: the gradient by weight [W, D] is added to it.
    """
    wide = torch.promote_types(x.dtype, torch.float32)  # no 16-bit sums
    log_p = (x @ weight.T).log_softmax(-1, wide)  # [R, W]
    nll = -log_p.gather(-1, targets[:, None]).sum()
    evenly = -log_p.mean(-1).sum()
    gradient = log_p.exp_().sub_(for_all / len(weight))  # p - q, in place
    rows = torch.arange(len(x), device=x.device)
    gradient[rows, targets] -= 1 - for_all
    gradient = gradient.to(x.dtype)
    if x.dtype == d_weight.dtype:
        torch.addmm(d_weight, gradient.T, x, out=d_weight)
    else:
        d_weight += gradient.T @ x
    return (1 - for_all) * nll + for_all * evenly, nll, gradient @ weight


LOGITS = 2**22
"""So many logits are there at once; on a CPU its cache should hold them."""


class FusedLoss(torch.autograd.Function):
    """The sums of loss and nll, whose gradients are made on the way."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, for_all: float
    ) -> tuple[Tensor, Tensor]:
        device, dtype = x.device.type, x.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        d_x, d_weight = torch.empty_like(x), torch.zeros_like(weight)
        loss, nll = weight.new_zeros(2)
        step = max(1, LOGITS // len(weight))
        with torch.autocast(device, enabled=False):
            x, weight = x.to(dtype), weight.to(dtype)
            for i in range(0, len(x), step):
                rows = slice(i, i + step)
                some_loss, some_nll, d_x[rows] = loss_of_rows(
                    x[rows], weight, targets[rows], for_all, d_weight
                )
                loss, nll = loss + some_loss, nll + some_nll
        ctx.save_for_backward(d_x, d_weight)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        d_x, d_weight = ctx.saved_tensors
        return d_x * grad, d_weight * grad, None, None


def fused_loss(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    pad_id: int,
    smoothing: float = 0.1,
    convention: Literal["others", "all"] = "others",
) -> LossSums:
    """`label_smoothed_loss` of the logits x @ weight.T, section 5.4, which are
    never all there at once.

    Args:
        x: the decoder's outputs [B, T, D].
        weight: the output matrix [W, D].
        targets, pad_id, smoothing, convention: as in `label_smoothed_loss`,
            and its ValueErrors too.
    """
    if x.shape[:-1] != targets.shape:
        raise ValueError(
            f"outputs {list(x.shape)} and targets {list(targets.shape)} do "
            "not agree; outputs need one more axis, the model's width"
        )
    for_all = smoothing_for_all(smoothing, len(weight), convention)
    real = targets != pad_id
    loss, nll = FusedLoss.apply(x[real], weight, targets[real], for_all)
    return LossSums(loss, nll.detach(), tokens=real.sum())


__all__ = [
    "FusedLoss",
    "LOGITS",
    "LossSums",
    "fused_loss",
    "label_smoothed_loss",
    "loss_of_rows",
    "smoothing_for_all",
]
