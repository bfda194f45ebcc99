"""How to read this book.

From book/00_how_to_read.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from typing import Any

# 00_how_to_read: How to read this book
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
"""Line colours that colour-blind readers can tell apart."""
INK, FAINT = "#222222", "#bbbbbb"
"""Text and grid."""


def new_figure(
    width: float = 6.4, height: float = 3.0, **options: Any
) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, in the style of this book.

    Args:
        width, height: in inches.
        options: for `matplotlib.pyplot.subplots`.

    Returns:
        The figure and what `subplots` gives: one axes, or an array of them.
    """
    import matplotlib.pyplot as plt

    style = {
        "axes.axisbelow": True,
        "axes.edgecolor": INK,
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.constrained_layout.use": True,
        "figure.dpi": 150,
        "font.size": 9,
        "grid.color": "#e6e6e6",
        "lines.linewidth": 1.8,
    }
    with plt.rc_context(style):
        size = (width, height)
        return plt.subplots(figsize=size, facecolor="white", **options)


__all__ = [
    "BLUE",
    "FAINT",
    "GREEN",
    "INK",
    "ORANGE",
    "PINK",
    "new_figure",
]
