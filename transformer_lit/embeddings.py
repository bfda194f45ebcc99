"""3.4 Embeddings and softmax.

From book/03_4_embeddings.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


# 03_4_embeddings: A token is a row
class TokenEmbedding(nn.Module):
    """A matrix [W, D] that reads tokens in and writes logits out, section 3.4.

    Args:
        vocab_size: W.
        d_model: D.
        scale: multiply what is read by sqrt(D), as the paper does.
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, scale: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        self.scale = math.sqrt(d_model) if scale else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids [B, T], int64, to vectors [B, T, D].

        Raises:
            ValueError: an id is outside the vocabulary (checked on CPU).
        """
        try:
            return F.embedding(ids, self.weight) * self.scale
        except IndexError:
            raise ValueError(
                f"token ids run from {ids.min()} to {ids.max()}, but the "
                f"vocabulary has {len(self.weight)} entries; encode the text "
                "with the vocabulary that belongs to this model"
            ) from None

    def logits(self, x: Tensor) -> Tensor:
        """Vectors [B, T, D] to logits [B, T, W]: the transposed matrix."""
        return F.linear(x, self.weight)


__all__ = [
    "TokenEmbedding",
]
