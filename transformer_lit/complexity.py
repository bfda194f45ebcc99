"""4. Why self-attention.

From book/04_why_self_attention.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

from transformer_lit.attention import (
    HeadMaps,
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product,
    split_heads,
)


# 04_why_self_attention: Three questions
class Products(NamedTuple):
    """The multiply-adds of one layer's matrix products, for one sequence.

    Attributes:
        mixing: those in which positions meet.
        maps: those that work on each position by itself.
    """

    mixing: int
    maps: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.mixing + self.maps


class LayerCost(ABC):
    """A line of Table 1: a kind of layer, [B, n, d] -> [B, n, d].

    Here n is the length of a sequence and d the width, section 4.
    """

    @abstractmethod
    def products(self, n: int, d: int) -> Products:
        """What one layer multiplies, by formula."""

    def sequential(self, n: int) -> int:
        """How many of its steps must wait for one another."""
        return 1

    @abstractmethod
    def path_length(self, n: int) -> int:
        """The most moves that joining two of n positions takes, by formula."""

    @abstractmethod
    def reads(self, n: int, depth: int = 0) -> Tensor:
        """Who reads whom in one move, bool [n, n]; depth: moves before it."""

    @abstractmethod
    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """A real layer, [B, n, d] -> [B, n, d]; depth: layers below it."""


# 04_why_self_attention: Self-attention
@dataclass(frozen=True)
class SelfAttention(LayerCost):
    """Multi-head self-attention, everybody to everybody.

    Attributes:
        n_heads: H, a divisor of d.
    """

    n_heads: int = 8

    def products(self, n: int, d: int) -> Products:
        """Scores and weighted sums; then queries, keys, values, output."""
        return Products(mixing=2 * n**2 * d, maps=4 * n * d**2)

    def path_length(self, n: int) -> int:
        """One move."""
        return int(n > 1)

    def reads(self, n: int, depth: int = 0) -> Tensor:
        """Everybody."""
        return torch.ones(n, n, dtype=torch.bool)

    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """`MultiHeadAttention`."""
        attention = MultiHeadAttention(d, self.n_heads)
        return lambda x: attention(x, x)


# 04_why_self_attention: Watching a layer
def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors among nested arguments or results of an operation."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class Chain(TorchDispatchMode):
    """Measures the longest chain of operations that wait for one another.

    Attributes:
        length: how many operations of PyTorch are in it so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.ends = WeakIdKeyDictionary()  # a tensor: its longest chain

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation; it comes after the latest of its inputs."""
        output = func(*args, **(kwargs or {}))
        waited = 0
        for x in tensors_in((args, kwargs)):
            waited = max(waited, self.ends.get(x, 0))
        for y in tensors_in(output):
            self.ends[y] = waited + 1
            self.length = max(self.length, waited + 1)
        return output


class Measured(NamedTuple):
    """What a layer was seen to do.

    Attributes:
        products: multiply-adds.
        chain: operations of PyTorch in the longest chain.
    """

    products: int
    chain: int


def measure(layer: LayerCost, n: int, d: int) -> Measured:
    """Run a real layer on shapes alone, one sequence [1, n, d], and watch."""
    with torch.no_grad(), torch.device("meta"):
        run = layer.build(d)
        x = torch.empty(1, n, d)
        with FlopCounterMode(display=False) as flops, Chain() as chain:
            run(x)
    return Measured(flops.get_total_flops() // 2, chain.length)


# 04_why_self_attention: Who hears of whom
def behind(n: int) -> Tensor:
    """How far position j is behind position i, int [n, n]."""
    return torch.arange(n)[:, None] - torch.arange(n)


def moves(layer: LayerCost, n: int) -> Tensor:
    """The fewest moves by which position i hears of j, by brute force.

    Returns:
        int [n, n]; 0 on the diagonal, -1 where it never does.
    """
    heard = torch.eye(n, dtype=torch.bool)
    fewest, depth = heard.long() - 1, 0
    while True:
        reached = layer.reads(n, depth).float() @ heard.float() > 0
        news = reached & ~heard
        if not news.any():
            return fewest
        depth += 1
        fewest[news] = depth
        heard |= news


# 04_why_self_attention: Recurrence
CELLS = {"rnn": (nn.RNN, 1), "gru": (nn.GRU, 3), "lstm": (nn.LSTM, 4)}
"""Recurrent layers, and how many pairs of matrices each has."""


@dataclass(frozen=True)
class Recurrent(LayerCost):
    """A recurrent layer that reads from left to right.

    Attributes:
        cell: "rnn", "gru" or "lstm".

    Raises:
        ValueError: there is no such cell.
    """

    cell: str = "rnn"

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise ValueError(f"cell={self.cell!r} must be in {list(CELLS)}")

    def products(self, n: int, d: int) -> Products:
        """From state to state; then from token to state."""
        pairs = CELLS[self.cell][1]
        return Products(mixing=pairs * n * d**2, maps=pairs * n * d**2)

    def sequential(self, n: int) -> int:
        """One state after another."""
        return n

    def path_length(self, n: int) -> int:
        """From the first state to the last."""
        return n - 1

    def reads(self, n: int, depth: int = 0) -> Tensor:
        """The state before, and one's own token."""
        return (behind(n) == 0) | (behind(n) == 1)

    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """`nn.RNN`, `nn.GRU` or `nn.LSTM`."""
        layer = CELLS[self.cell][0](d, d, batch_first=True)
        return lambda x: layer(x)[0]


# 04_why_self_attention: Convolution
def check_at_least(least: int, **values: int) -> None:
    """Raise a ValueError that names the first value that is too small."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name}={value} must be at least {least}")


@dataclass(frozen=True)
class Convolution(LayerCost):
    """A convolution that looks back, at its own position and k - 1 others.

    Attributes:
        k: the width of the kernel.
        dilated: the places it looks at stand k, k^2, k^3, ... apart in the
            layers above the first, instead of side by side.

    Raises:
        ValueError: k is below 2: no two positions would ever meet.
    """

    k: int = 3
    dilated: bool = False

    def __post_init__(self) -> None:
        check_at_least(2, k=self.k)

    def spread(self, depth: int) -> int:
        """How far apart the places stand that a layer looks at."""
        return self.k**depth if self.dilated else 1

    def products(self, n: int, d: int) -> Products:
        """One matrix for each place that is looked at."""
        return Products(mixing=self.k * n * d**2, maps=0)

    def path_length(self, n: int) -> int:
        """n / k in order, or the logarithm of n to base k if dilated."""
        if not self.dilated:
            return math.ceil((n - 1) / (self.k - 1))
        layers = 0
        while self.k**layers < n:
            layers += 1
        return layers

    def reads(self, n: int, depth: int = 0) -> Tensor:
        """k places at equal distances, back from one's own."""
        return torch.isin(behind(n), self.spread(depth) * torch.arange(self.k))

    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """`nn.Conv1d` with zeros before the first position."""
        spread = self.spread(depth)
        conv = nn.Conv1d(d, d, self.k, dilation=spread)
        pad = (self.k - 1) * spread, 0
        return lambda x: conv(F.pad(x.mT, pad)).mT


# 04_why_self_attention: Attention to a neighbourhood
def neighbours(x: Tensor, r: int) -> Tensor:
    """Each position with its neighbours, [..., n, K] -> [..., n, r, K].

    Beyond the ends of the sequence stand zeros.
    """
    half = r // 2
    padded = F.pad(x, (0, 0, half, half))  # [..., n + r - 1, K]
    return padded.unfold(-2, r, 1).mT  # all windows of r positions


def check_neighbourhood(r: int) -> None:
    """Raise a ValueError if r positions have none in their middle."""
    if r < 1 or r % 2 == 0:
        raise ValueError(f"r={r} must be odd: a position and r // 2 a side")


class RestrictedAttention(HeadMaps):
    """Multi-head self-attention in a neighbourhood, section 4.

    Args:
        d_model: D, the width of input and output.
        n_heads: H, a divisor of D.
        r: how many positions each one reads, itself in the middle.

    Raises:
        ValueError: r is even, or d_model is not a multiple of n_heads.
    """

    def __init__(self, d_model: int, n_heads: int, r: int) -> None:
        super().__init__(d_model, n_heads)
        check_neighbourhood(r)
        self.r = r

    def forward(self, x: Tensor) -> Tensor:
        """Each position of x [B, n, D] reads its r neighbours: [B, n, D]."""
        q = split_heads(self.w_q(x), self.n_heads)  # [B, H, n, K]
        q = q[..., None, :]  # one query for each position: [B, H, n, 1, K]
        k, v = self.keys_values(x)
        k, v = neighbours(k, self.r), neighbours(v, self.r)  # [B, H, n, r, K]
        exists = torch.ones(x.shape[1], 1, dtype=torch.bool, device=x.device)
        mask = neighbours(exists, self.r).mT  # [n, 1, r]
        mixed, _ = scaled_dot_product(q, k, v, mask)  # [B, H, n, 1, K]
        return self.w_o(merge_heads(mixed[..., 0, :]))


@dataclass(frozen=True)
class RestrictedSelfAttention(SelfAttention):
    """Self-attention in which each position reads its neighbourhood only.

    Attributes:
        n_heads: H, a divisor of d.
        r: how many positions each one reads, itself in the middle.

    Raises:
        ValueError: r is even, or below 3: no two positions would ever meet.
    """

    r: int = 3

    def __post_init__(self) -> None:
        check_neighbourhood(self.r)
        check_at_least(3, r=self.r)

    def products(self, n: int, d: int) -> Products:
        """Scores and weighted sums of r each; the maps of self-attention."""
        return Products(mixing=2 * self.r * n * d, maps=4 * n * d**2)

    def path_length(self, n: int) -> int:
        """r // 2 positions a move."""
        return math.ceil((n - 1) / (self.r // 2))

    def reads(self, n: int, depth: int = 0) -> Tensor:
        """Who stands no further away than r // 2."""
        return behind(n).abs() <= self.r // 2

    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """`RestrictedAttention`."""
        return RestrictedAttention(d, self.n_heads, self.r)


# 04_why_self_attention: Separable convolution
@dataclass(frozen=True)
class SeparableConvolution(Convolution):
    """A convolution of each number by itself, then a map at each position.

    Attributes and errors are those of `Convolution`.
    """

    def products(self, n: int, d: int) -> Products:
        """k numbers for each of n d, then one matrix at each position."""
        return Products(mixing=self.k * n * d, maps=n * d**2)

    def build(self, d: int, depth: int = 0) -> Callable[[Tensor], Tensor]:
        """`nn.Conv1d` with a group for each number, and one of width 1."""
        spread = self.spread(depth)
        by_itself = nn.Conv1d(d, d, self.k, dilation=spread, groups=d)
        layers = nn.Sequential(by_itself, nn.Conv1d(d, d, 1))
        pad = (self.k - 1) * spread, 0
        return lambda x: layers(F.pad(x.mT, pad)).mT


__all__ = [
    "CELLS",
    "Chain",
    "Convolution",
    "LayerCost",
    "Measured",
    "Products",
    "Recurrent",
    "RestrictedAttention",
    "RestrictedSelfAttention",
    "SelfAttention",
    "SeparableConvolution",
    "behind",
    "check_at_least",
    "check_neighbourhood",
    "measure",
    "moves",
    "neighbours",
    "tensors_in",
]
