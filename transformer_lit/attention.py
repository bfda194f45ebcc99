"""3.2 Attention.

From book/03_2_attention.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


# 03_2_attention: Scaled dot-product attention
def is_empty(mask: Tensor) -> Tensor:
    """Queries that may attend to nothing: bool [..., T, S] -> [..., T, 1]."""
    return ~mask.any(-1, keepdim=True)


def scaled_dot_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    p_drop: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, equation 1 of section 3.2.1, as printed.

    Args:
        q: queries [..., T, K].  k: keys [..., S, K].  v: values [..., S, V].
        mask: bool, broadcastable to [..., T, S]; True where a query may
            attend. None: everywhere.
        p_drop: the rate of dropout on the weights; the paper mentions none
            for translation.

    Returns:
        The mixed values [..., T, V] and the weights [..., T, S]. A query
        that may attend to nothing has zero weights, not NaN.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [..., T, S]
    if mask is None:
        weights = scores.softmax(-1)
    else:
        scores = scores.masked_fill(~(mask | is_empty(mask)), -torch.inf)
        weights = scores.softmax(-1).masked_fill(~mask, 0.0)
    weights = torch.dropout(weights, p_drop, train=p_drop > 0.0)
    return weights @ v, weights


# 03_2_attention: Where do the scores start?
def glorot(linear: nn.Linear, gain: float = 1.0) -> None:
    """Glorot's uniform initialisation, biases zero, as in the code that the
    authors released; the paper does not say."""
    nn.init.xavier_uniform_(linear.weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


# 03_2_attention: The same, faster
def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    p_drop: float = 0.0,
) -> Tensor:
    """`scaled_dot_product` by torch's fused kernel, without the weights.

    Args and the first value returned are those of `scaled_dot_product`.
    """
    sdpa = F.scaled_dot_product_attention
    if mask is None:
        return sdpa(q, k, v, dropout_p=p_drop)
    empty = is_empty(mask)
    mixed = sdpa(q, k, v, attn_mask=mask | empty, dropout_p=p_drop)
    return mixed.masked_fill(empty, 0.0)


def fast_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    p_drop: float = 0.0,
) -> Tensor:
    """The mixed values, by whichever of the two ways is the faster here.

    Args and the first value returned are those of `scaled_dot_product`.
    """
    half = q.dtype == torch.bfloat16
    few = q.shape[-2] <= 8 and not torch.is_grad_enabled()
    if (half or few) and q.device.type == "cpu" and k.shape[-2] <= 512:
        return scaled_dot_product(q, k, v, mask, p_drop=p_drop)[0]
    return fused_attention(q, k, v, mask, p_drop=p_drop)


# 03_2_attention: Heads are slices
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, S, H * K] -> [B, H, S, K]: head h takes the h-th K columns."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, V] -> [B, T, H * V], the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


# 03_2_attention: The layer
def head_widths(
    d_model: int, n_heads: int, d_k: int | None = None, d_v: int | None = None
) -> tuple[int, int]:
    """K and V, the widths of one head; D / H where they are not given.

    Raises:
        ValueError: d_model is not a multiple of n_heads, and d_k or d_v is
            not given.
    """
    if d_model % n_heads and (d_k is None or d_v is None):
        raise ValueError(
            f"d_model={d_model} is not a multiple of n_heads={n_heads}; "
            "change one of them or give d_k and d_v"
        )
    share = d_model // n_heads
    return d_k or share, d_v or share


class HeadMaps(nn.Module):
    """The four maps of `MultiHeadAttention`, whose arguments it takes."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        p_drop: float = 0.0,
    ) -> None:
        super().__init__()
        d_k, d_v = head_widths(d_model, n_heads, d_k, d_v)
        self.n_heads, self.p_drop = n_heads, p_drop
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias)
        self.w_k = nn.Linear(d_model, n_heads * d_k, bias)
        self.w_v = nn.Linear(d_model, n_heads * d_v, bias)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias)
        for linear in (self.w_q, self.w_k, self.w_v):
            glorot(linear, gain=math.sqrt(0.5))
        glorot(self.w_o)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project [B, S, D] to keys [B, H, S, K] and values [B, H, S, V]."""
        k = split_heads(self.w_k(memory), self.n_heads)
        v = split_heads(self.w_v(memory), self.n_heads)
        return k, v


class MultiHeadAttention(HeadMaps):
    """Multi-head attention, section 3.2.2.

    Args:
        d_model: D, the width of input and output.
        n_heads: H.
        d_k, d_v: K and V, the widths of one head; None: D / H.
        bias: biases on all four maps, as in the code the authors released.
        p_drop: the rate of dropout on the weights; the paper mentions none
            for translation.

    Raises:
        ValueError: d_model is not a multiple of n_heads, and d_k or d_v is
            not given.
    """

    def attend(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """Read with queries from x [B, T, D] to give [B, T, D].

        Args:
            x: where the queries come from.
            k, v: what `keys_values` returned.
            mask: bool, broadcastable to [B, H, T, S]; True: may attend.
            maps: if given, the weights [B, H, T, S] are appended to it.
        """
        q = split_heads(self.w_q(x), self.n_heads)
        p_drop = self.p_drop if self.training else 0.0
        if maps is None:
            mixed = fast_attention(q, k, v, mask, p_drop=p_drop)
        else:
            mixed, weights = scaled_dot_product(q, k, v, mask, p_drop=p_drop)
            maps.append(weights)
        return self.w_o(merge_heads(mixed))

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Queries from x [B, T, D], keys and values from memory [B, S, D]."""
        return self.attend(x, *self.keys_values(memory), mask)


__all__ = [
    "HeadMaps",
    "MultiHeadAttention",
    "fast_attention",
    "fused_attention",
    "glorot",
    "head_widths",
    "is_empty",
    "merge_heads",
    "scaled_dot_product",
    "split_heads",
]
