"""3.5 Positional encoding.

From book/03_5_positions.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import torch
from torch import Tensor, nn


# 03_5_positions: A wall of clocks
def sinusoids(
    length: int, d_model: int, *, start: int = 0, released: bool = False
) -> Tensor:
    """The position encodings of section 3.5.

    Args:
        length: T, how many positions.
        d_model: D, even.
        start: the first position.
        released: as the authors' code had it: all sines, then all cosines,
            wavelengths from 2 pi to exactly 10000 * 2 pi. False: as printed,
            sine and cosine in turn.

    Returns:
        float64 [T, D].

    Raises:
        ValueError: d_model is odd, or too small for the released rates.
    """
    if d_model % 2:
        raise ValueError(
            f"d_model={d_model} must be even: sines and cosines come in pairs"
        )
    if released and d_model < 4:
        raise ValueError(
            f"d_model={d_model} must be at least 4: the released rates run "
            "from a first pair to a last"
        )
    pairs = torch.arange(d_model // 2, dtype=torch.float64)
    last = d_model // 2 - 1 if released else d_model // 2
    rates = 10000.0 ** (-pairs / last)  # radians per position, [D / 2]
    steps = torch.arange(start, start + length, dtype=torch.float64)
    angles = steps[:, None] * rates  # [T, D / 2]
    if released:
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


# 03_5_positions: A table for any length
class SinusoidalPositions(nn.Module):
    """Adds `sinusoids` to embeddings, for any length.

    The table is computed in float64 when it is first needed and kept once
    for each device and dtype. It is no part of the state dict, and moving or
    casting the module cannot spoil it.

    Args:
        d_model: D, even.
        released: as in `sinusoids`.
    """

    def __init__(self, d_model: int, *, released: bool = False) -> None:
        super().__init__()
        self.d_model, self.released = d_model, released
        self.tables: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x [B, T, D] plus the encodings of positions start, start + 1, ..."""
        end = start + x.shape[1]
        table = self.tables.get((x.device, x.dtype))
        if table is None or len(table) < end:
            room = max(64, 2 ** (end - 1).bit_length())  # a power of 2, >= end
            table = sinusoids(room, self.d_model, released=self.released).to(x)
            self.tables[x.device, x.dtype] = table
        return x + table[start:end]


# 03_5_positions: Learned positions
class LearnedPositions(nn.Module):
    """Adds a learned vector for each position: row (E) of Table 3.

    Args:
        max_len: how many positions there are.
        d_model: D.
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x [B, T, D] plus the vectors of positions start, start + 1, ...

        Raises:
            ValueError: the table ends before the sequence does.
        """
        end = start + x.shape[1]
        if end > len(self.weight):
            raise ValueError(
                f"position {end - 1} is beyond the {len(self.weight)} learned "
                "positions; build the model with a larger max_len or take "
                "sinusoidal positions"
            )
        return x + self.weight[start:end]


__all__ = [
    "LearnedPositions",
    "SinusoidalPositions",
    "sinusoids",
]
