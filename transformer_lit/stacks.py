"""3.1 Encoder and decoder stacks.

From book/03_1_stacks.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lit.config import TransformerConfig


# 03_1_stacks: Layer normalisation
def layer_norm(
    x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-6
) -> Tensor:
    """Layer normalisation, as section 3.1 uses it, written as defined.

    Args:
        x: [..., D], any floating dtype.
        gain: [D], the learned scale.  bias: [D], the learned shift.
        eps: what keeps the root from zero; it stands under the root.

    Returns:
        [..., D]: each vector with mean 0 and (biased) variance 1, then
        scaled and shifted.
    """
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


class LayerNorm(nn.Module):
    """`layer_norm` with its parameters; torch's fused kernel computes it.

    Args:
        d_model: D, the width.
        eps: as in `layer_norm`.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


# 03_1_stacks: The frame around a sub-layer
LEVELS = 2**16
"""Dropout's rate is rounded to a multiple of 1 / LEVELS on a CPU."""


class DropoutFunction(torch.autograd.Function):
    """Zero a component with probability dropped / LEVELS, enlarge the rest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        size = -(-x.numel() // 4)  # rounded up
        numbers = torch.empty(size, dtype=torch.int64, device=x.device)
        counts = numbers.random_(-(2**63), None).view(torch.int16)
        kept = counts[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
        kept = kept.view(torch.int8)  # as a number: 1 or 0
        ctx.save_for_backward(kept)
        ctx.scale = LEVELS / (LEVELS - dropped)
        return (x * kept.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        return (grad * kept.to(grad.dtype)).mul_(ctx.scale), None


class Dropout(nn.Dropout):
    """`nn.Dropout`, several times as fast on a CPU; section 5.4."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the same shape."""
        dropped = round(self.p * LEVELS)
        draws = self.training and 0 < dropped < LEVELS
        if draws and x.device.type in ("cpu", "meta"):
            out: Tensor = DropoutFunction.apply(x, dropped)
            return out
        return super().forward(x)


class Residual(nn.Module):
    """The frame around a sub-layer: LayerNorm(x + Dropout(Sublayer(x))).

    A layer uses it in two steps, so that the flow of data stays visible:

        h = residual.enter(x)                  # x itself, in the paper
        x = residual.leave(x, sublayer(h))

    Args:
        d_model: D.
        p_drop: the rate of dropout on the sub-layer's output, section 5.4.
        pre_norm: normalise on entering instead (not the paper's way).
        eps: LayerNorm's.
    """

    def __init__(
        self,
        d_model: int,
        p_drop: float = 0.1,
        *,
        pre_norm: bool = False,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model, eps)
        self.dropout = Dropout(p_drop)
        self.pre_norm = pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads, [B, T, D] -> [B, T, D]."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Join the input x and the sub-layer's output y, both [B, T, D]."""
        x = x + self.dropout(y)
        return x if self.pre_norm else self.norm(x)


# 03_1_stacks: An encoder layer
class Attention(Protocol):
    """What a layer asks of its attention; section 3.2 builds it."""

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project [B, S, D] to keys [B, H, S, K] and values [B, H, S, V]."""

    def attend(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """Read with queries from x [B, T, D] to give [B, T, D]."""


def residual(config: TransformerConfig) -> Residual:
    """A `Residual` of the configuration's sizes."""
    return Residual(
        config.d_model,
        config.p_drop,
        pre_norm=config.pre_norm,
        eps=config.layer_norm_eps,
    )


class EncoderLayer(nn.Module):
    """One of the encoder's N layers: self-attention, then feed-forward.

    Args:
        config: the sizes.
        self_attention: the first sub-layer.
        feed_forward: the second, [B, S, D] -> [B, S, D].
    """

    def __init__(
        self,
        config: TransformerConfig,
        self_attention: Attention,
        feed_forward: nn.Module,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.residual_1 = residual(config)
        self.residual_2 = residual(config)

    def forward(
        self,
        x: Tensor,
        src_mask: Tensor | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """[B, S, D] -> [B, S, D].

        Args:
            x: the layer's input.
            src_mask: bool, broadcastable to [B, 1, S, S]; True: may attend.
            maps: if given, the attention weights are appended to it.
        """
        h = self.residual_1.enter(x)
        k, v = self.self_attention.keys_values(h)
        y = self.self_attention.attend(h, k, v, src_mask, maps)
        x = self.residual_1.leave(x, y)
        h = self.residual_2.enter(x)
        return self.residual_2.leave(x, self.feed_forward(h))


# 03_1_stacks: A decoder layer
@dataclass
class LayerCache:
    """What a decoder layer remembers while it writes token by token.

    Attributes:
        memory: keys and values of the encoder's output, computed once.
        past: keys and values of the target so far; None before the first.
    """

    memory: tuple[Tensor, Tensor]
    past: tuple[Tensor, Tensor] | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys [B, H, 1, K] and values [B, H, 1, V]; return them all."""
        if self.past is not None:
            k = torch.cat([self.past[0], k], dim=2)
            v = torch.cat([self.past[1], v], dim=2)
        self.past = k, v
        return k, v

    def reorder(self, rows: Tensor) -> None:
        """Keep the past of these targets, in this order; rows is int64."""
        if self.past is not None:
            self.past = self.past[0][rows], self.past[1][rows]

    def select(self, rows: Tensor, targets: Tensor) -> None:
        """Keep these rows of the memory, and the past of these targets."""
        self.memory = self.memory[0][rows], self.memory[1][rows]
        self.reorder(targets)


class DecoderLayer(nn.Module):
    """One of the decoder's N layers: masked self-attention, attention over
    the encoder's output, feed-forward.

    Args:
        config: the sizes.
        self_attention: the first sub-layer.
        cross_attention: the second.
        feed_forward: the third, [B, T, D] -> [B, T, D].
    """

    def __init__(
        self,
        config: TransformerConfig,
        self_attention: Attention,
        cross_attention: Attention,
        feed_forward: nn.Module,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residual_1 = residual(config)
        self.residual_2 = residual(config)
        self.residual_3 = residual(config)

    def open_cache(self, memory: Tensor) -> LayerCache:
        """An empty cache over the encoder's output [B, S, D]."""
        return LayerCache(self.cross_attention.keys_values(memory))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        src_mask: Tensor | None = None,
        *,
        cache: LayerCache | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D].

        Args:
            x: the layer's input; with a cache only the newest position. It
                may have A rows for each row of the memory, side by side.
            memory: the encoder's output [B, S, D].
            tgt_mask: bool, broadcastable to [B, 1, T, T].
            src_mask: bool, broadcastable to [B, 1, T, S].
            cache: what earlier calls left, the projected memory among it;
                this call adds to it.
            maps: if given, self and cross weights are appended to it.
        """
        if cache is None:
            cache = self.open_cache(memory)
        h = self.residual_1.enter(x)
        k, v = cache.append(*self.self_attention.keys_values(h))
        y = self.self_attention.attend(h, k, v, tgt_mask, maps)
        x = self.residual_1.leave(x, y)
        h = self.residual_2.enter(x)
        k, v = cache.memory
        h = h.reshape(len(k), -1, h.shape[-1])  # [B, A * T, D]
        y = self.cross_attention.attend(h, k, v, src_mask, maps)
        x = self.residual_2.leave(x, y.view(x.shape))
        h = self.residual_3.enter(x)
        return self.residual_3.leave(x, self.feed_forward(h))


__all__ = [
    "Attention",
    "DecoderLayer",
    "Dropout",
    "DropoutFunction",
    "EncoderLayer",
    "LEVELS",
    "LayerCache",
    "LayerNorm",
    "Residual",
    "layer_norm",
    "residual",
]
