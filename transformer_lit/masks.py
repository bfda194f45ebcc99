"""3.2 Attention.

From book/03_2_attention.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import torch
from torch import Tensor


# 03_2_attention: Padding: mask the keys
def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Which keys are real tokens, section 3.2.3.

    Args:
        ids: token ids [B, S], int64.
        pad_id: the id of the padding.

    Returns:
        bool [B, 1, 1, S], True where a token is: it broadcasts over heads
        and over queries.
    """
    return (ids != pad_id)[:, None, None, :]


# 03_2_attention: The future: up to and including
def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Position i may attend to positions j <= i, section 3.2.3.

    Returns:
        bool [T, T], rows are queries, columns keys.
    """
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril()


def target_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Both at once, for the decoder's self-attention: bool [B, 1, T, T]."""
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1], ids.device)


__all__ = [
    "causal_mask",
    "padding_mask",
    "target_mask",
]
