"""The masks of padding and of the future, and both together."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from transformer_lit.figures import FAINT, INK
from transformer_lit.masks import causal_mask, padding_mask, target_mask
from transformer_lit.viz.story import Story, Value, panel, within

PAD = 0
LONGEST = 8
"""The longest sentence whose masks are drawn."""


def masks(
    *,
    source: int = 6,
    source_padding: int = 2,
    target: int = 5,
    target_padding: int = 2,
    causal: bool = True,
) -> Story:
    """Who may read whom: padding, the future, and both.

    Args:
        source, target: S and T, tokens with their padding, at most 8.
        source_padding, target_padding: how many of them are padding; not all.
        causal: whether the decoder hides the future.

    Raises:
        ValueError: a sentence is empty or too long.
    """
    source, target = (
        within("source", source, 1, LONGEST),
        within("target", target, 1, LONGEST),
    )
    source_padding = within("source_padding", source_padding, 0, source - 1)
    target_padding = within("target_padding", target_padding, 0, target - 1)
    causal = bool(causal)
    src, tgt = (
        torch.tensor([[1] * (n - pads) + [PAD] * pads])
        for n, pads in ((source, source_padding), (target, target_padding))
    )
    T = len(tgt[0])
    past = causal_mask(T) if causal else torch.ones(T, T, dtype=torch.bool)
    own = padding_mask(tgt, PAD)[0, 0]
    both = target_mask(tgt, PAD)[0, 0] if causal else own.expand(T, T)
    grids = {
        "source padding": padding_mask(src, PAD)[0, 0].expand(T, -1),
        "target padding": own.expand(T, T),
        "causal": past,
        "both": both,
    }
    rows: list[list[Value]] = []
    for name, grid in grids.items():
        for t, line in enumerate(grid.tolist()):
            may = [str(s + 1) for s, open_ in enumerate(line) if open_]
            rows.append([f"{name}, query {t + 1}", " ".join(may), sum(line)])
    words = source - source_padding
    summary = f"Each target position may read {words} of the source's "
    summary += f"{source}. Of the target's own {target} × {target} pairs "
    summary += f"padding leaves {int(grids['target padding'].sum())}"
    if causal:
        summary += f", the causal mask {int(past.sum())}, both together "
        summary += f"{int(both.sum())}."
    else:
        summary += "; the causal mask is off."
    state = {
        "source": source,
        "sourcePadding": source_padding,
        "target": target,
        "targetPadding": target_padding,
        "causal": causal,
    }
    data = {"longest": LONGEST, "start": state}
    head = ["mask", "may read keys", "how many"]
    figure = draw_masks(grids)
    return Story(
        "masks",
        "Padding and future, hidden",
        "Each square is a mask: a row is a query, a column a key, and a mark "
        "says that this query may read that key.",
        "Make a sentence longer or pad it, and switch the causal mask off.",
        summary,
        head,
        rows,
        0,
        data,
        figure,
    )


def draw_masks(grids: Mapping[str, Tensor]) -> Any:
    """Grids side by side; filled cells may be read."""
    fig, axes = panel(2.2, ncols=len(grids))
    for ax, (name, grid) in zip(axes, grids.items(), strict=True):
        T, S = grid.shape
        ax.imshow(grid.tolist(), cmap="Blues", vmin=0, vmax=1.5)
        rows, columns = grid.nonzero().T.tolist()
        ax.plot(columns, rows, "o", color=INK, markersize=4)
        ax.set(title=name, xlabel="key")
        ax.set_xticks(range(S), range(1, S + 1))
        ax.set_yticks(range(T), range(1, T + 1))
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.hlines([t + 0.5 for t in range(T - 1)], -0.5, S - 0.5, FAINT, lw=0.5)
        ax.vlines([s + 0.5 for s in range(S - 1)], -0.5, T - 0.5, FAINT, lw=0.5)
    axes[0].set_ylabel("query")
    return fig
