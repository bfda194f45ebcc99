"""A softmax over scores of wider and wider heads."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_lit.figures import BLUE, ORANGE
from transformer_lit.viz.story import (
    Story,
    Value,
    chosen,
    number_text,
    panel,
    rounded,
    within,
)

WIDTHS = [2**n for n in range(10)]
"""The d_k of the table, 1 to 512."""


def softmax(
    *, keys: int = 10, draws: int = 500, seed: int = 0, d_k: int = 64
) -> Story:
    """What a softmax becomes as heads grow wider, section 3.2.1.

    Queries and keys have components of mean 0 and variance 1.

    Args:
        keys: n, among how many a query chooses, from 2 to 20.
        draws: queries, each with keys of its own, at most 5000.
        seed: of the random numbers.
        d_k: what is shown first, one of `WIDTHS`.

    Raises:
        ValueError: there is no such width, or another number is too small or
            too large.
    """
    chosen(d_k, WIDTHS, "d_k")
    keys, draws = within("keys", keys, 2, 20), within("draws", draws, 2, 5000)
    seed = within("seed", seed, 0, 2**32)
    widths = [saturation(width, keys, draws, seed) for width in WIDTHS]
    head = ["d_k", "variance of q·k", "its error"]
    head += ["largest, unscaled", "largest, scaled"]
    head += ["p(1 − p), unscaled", "p(1 − p), scaled"]
    rows: list[list[Value]] = []
    for one in widths:
        row: list[Value] = [str(one["d_k"]), one["variance"], one["error"]]
        rows.append(row + one["largest"] + one["slope"])
    at = WIDTHS.index(d_k)
    plain, scaled = widths[at]["largest"]
    summary = f"At width {d_k} the largest of {keys} weights is on average "
    summary += f"{number_text(plain, 2)} without the scale and "
    summary += f"{number_text(scaled, 2)} with it; the sum of p(1 − p), the "
    summary += "slope it learns through, "
    summary += f"{number_text(widths[at]['slope'][0], 2)} and "
    summary += f"{number_text(widths[at]['slope'][1], 2)}. The bars are "
    tallest = weights_of(widths[at]).max()
    summary += f"unscaled; the tallest is {number_text(float(tallest), 2)}."
    data = {"widths": widths, "start": {"width": at, "scaled": False}}
    return Story(
        "softmax",
        "A softmax saturates, unless it is scaled",
        f"Random queries and keys. Left, what one query gives to each of its "
        f"{keys} keys; right, the largest such weight, the mean of "
        f"{draws:,} queries.",
        "Make the vectors wider, then divide by the root of the width.",
        summary,
        head,
        rows,
        3,
        data,
        draw_softmax(widths, at),
    )


def weights_of(width: dict[str, Any]) -> Tensor:
    """What the query of the bars gives to each key, unscaled."""
    return torch.tensor(width["scores"], dtype=torch.float64).softmax(-1)


def saturation(d_k: int, keys: int, draws: int, seed: int) -> dict[str, Any]:
    """The softmax of many queries at one width, without and with the scale."""
    random = torch.Generator().manual_seed(seed)
    both = torch.randn(
        draws, 1 + keys, d_k, dtype=torch.float64, generator=random
    )
    q, k = both[:, :1], both[:, 1:]
    scores = (q * k).sum(-1)  # [R, n]
    squares = scores.square().mean(-1)  # one a query: those are independent
    weights = [s.softmax(-1) for s in (scores, scores / d_k**0.5)]
    slopes = [(p * (1 - p)).sum(-1).mean() for p in weights]
    return {
        "d_k": d_k,
        "variance": rounded(squares.mean()),
        "error": rounded(squares.std() / draws**0.5),
        "largest": [rounded(p.amax(-1).mean()) for p in weights],
        "slope": [rounded(slope) for slope in slopes],
        "scores": [rounded(score) for score in scores[0]],
    }


def draw_softmax(widths: Sequence[dict[str, Any]], at: int) -> Any:
    """One query's weights, and the mean of the largest over all widths."""
    fig, (left, right) = panel(2.9, ncols=2)
    weights = weights_of(widths[at]).tolist()
    left.bar(range(1, len(weights) + 1), weights, color=ORANGE)
    left.set(title=f"one query's weights, d_k = {WIDTHS[at]}", ylim=(0, 1.05))
    left.set(xlabel="key")
    for n, (name, colour, mark) in enumerate(
        (("unscaled", ORANGE, "s--"), ("scaled", BLUE, "o-"))
    ):
        largest = [one["largest"][n] for one in widths]
        right.plot(WIDTHS, largest, mark, color=colour, markersize=4)
        right.text(*((1, 0.8), (60, 0.38))[n], name, color=colour)
    right.set(title="largest weight, mean", ylim=(0, 1.05), xscale="log")
    right.set(xlabel="d_k")
    right.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
    right.minorticks_off()
    return fig
