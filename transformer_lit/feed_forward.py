"""3.3 Position-wise feed-forward networks.

From book/03_3_feed_forward.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from torch import Tensor, nn

from transformer_lit.attention import glorot
from transformer_lit.stacks import Dropout


# 03_3_feed_forward: One formula, at every position
class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, equation 2 of section 3.3.

    Args:
        d_model: D, the width of input and output.
        d_ff: F, the number of inner units.
        p_drop: the rate of dropout on the inner units; the paper has none.
    """

    def __init__(self, d_model: int, d_ff: int, p_drop: float = 0.0) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(p_drop)
        glorot(self.w_1)
        glorot(self.w_2)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D], each position by itself."""
        inner = self.w_1(x).relu()  # [B, T, F]
        return self.w_2(self.dropout(inner))


__all__ = [
    "FeedForward",
]
