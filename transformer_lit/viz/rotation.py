"""A pair of the position encoding as the hand of a clock."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from transformer_lit.figures import BLUE, FAINT, ORANGE
from transformer_lit.positions import sinusoids
from transformer_lit.viz.story import Story, Value, number_text, panel, within

WIDEST = 4096
"""The widest d_model."""


def rotation(
    *, d_model: int = 16, pair: int = 1, position: int = 3, offset: int = 4
) -> Story:
    """To move on is to turn: PE(p + k) from PE(p), section 3.5.

    Args:
        d_model: D, even, at most 4096.
        pair: i, which sine and cosine, from 0 to D / 2 - 1.
        position: p, from 0 to 100.
        offset: k, from 0 to 100.

    Raises:
        ValueError: one of them lies outside.
    """
    d_model = within("d_model", d_model, 2, WIDEST)
    pair = within("pair", pair, 0, d_model // 2 - 1)
    position = within("position", position, 0, 100)
    offset = within("offset", offset, 0, 100)
    table = sinusoids(position + offset + 1, d_model)  # refuses an odd width
    rate = 10000.0 ** (-2 * pair / d_model)
    here, there = (
        table[p, 2 * pair : 2 * pair + 2].tolist()
        for p in (position, position + offset)
    )
    angle = offset * rate
    cos, sin = math.cos(angle), math.sin(angle)
    turned = [cos * here[0] + sin * here[1], -sin * here[0] + cos * here[1]]
    wave = 2 * math.pi / rate
    rows: list[list[Value]] = [
        ["PE(p)", *here],
        ["R(k), first row", cos, sin],
        ["R(k), second row", -sin, cos],
        ["R(k) PE(p)", *turned],
        ["PE(p + k)", *there],
    ]
    summary = f"Pair {pair} of width {d_model} turns by "
    summary += f"{number_text(rate, 4)} radians a position, once around in "
    summary += f"{number_text(wave, 1)} positions. From {position} to "
    summary += f"{position + offset} it turns by {number_text(angle, 4)}, "
    summary += f"as from any p to p + {offset}."
    start = {"pair": pair, "position": position, "offset": offset}
    data = {"width": d_model, "start": start}
    head = ["", "sine", "cosine"]
    figure = draw_rotation(here, there, position, position + offset)
    return Story(
        "rotation",
        "To move on is to turn",
        "Pair i of PE(p) is the sine and the cosine of one angle: the hand of "
        "a clock, as it stands at position p, and k positions later.",
        "Move p: the matrix of the turn stays as it is. Move i: the clock runs "
        "slower.",
        summary,
        head,
        rows,
        4,
        data,
        figure,
    )


def draw_rotation(
    here: Sequence[float], there: Sequence[float], p: int, q: int
) -> Any:
    """Two hands of one clock."""
    fig, ax = panel(3.2)
    around = torch.linspace(0, 2 * math.pi, 200)
    ax.plot(around.sin().tolist(), around.cos().tolist(), color=FAINT, lw=1)
    for (x, y), name, colour in ((here, p, BLUE), (there, q, ORANGE)):
        ax.plot([0, x], [0, y], color=colour)
        ax.plot(x, y, "o", color=colour)
        style = {"ha": "center", "va": "center", "color": colour}
        ax.text(1.25 * x, 1.25 * y, f"PE({name})", **style)
    ax.set(xlim=(-3.2, 3.2), ylim=(-1.45, 1.45), aspect="equal")
    ax.axis("off")
    return fig
