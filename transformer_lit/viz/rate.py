"""The schedule of the learning rate."""

from typing import Any

from transformer_lit.figures import BLUE, ORANGE
from transformer_lit.optimizer import noam_rate
from transformer_lit.viz.story import (
    Story,
    Value,
    chosen,
    number_text,
    panel,
    within,
)

MODEL_WIDTHS = [2**n for n in range(5, 13)]
"""The d_model that can be chosen, 32 to 4096."""


def rate(
    *, d_model: int = 512, warmup: int = 4000, step: int = 10_000
) -> Story:
    """The paper's schedule, equation 3 of section 5.3.

    Args:
        d_model: D, one of `MODEL_WIDTHS`.
        warmup: steps of linear growth, from 100 to 20,000.
        step: where the rate is told, from 1 to 40,000.

    Raises:
        ValueError: one of them lies outside.
    """
    chosen(d_model, MODEL_WIDTHS, "d_model")
    warmup = within("warmup", warmup, 100, 20_000)
    step = within("step", step, 1, 40_000)
    peak, here = (noam_rate(s, d_model, warmup) for s in (warmup, step))
    summary = f"For width {d_model} and a warm-up of {warmup:,} steps the rate "
    summary += f"rises to {number_text(1e3 * peak, 4)} thousandths at step "
    summary += f"{warmup:,}. At step {step:,} it is "
    part = 100 * here / peak
    share = "less than 1" if part < 1 else number_text(part, 0)
    summary += f"{number_text(1e3 * here, 4)}, {share} % of the peak."
    rows: list[list[Value]] = []
    for part in (0.25, 0.5, 1, 2, 4, 16):
        s = round(part * warmup)
        rows.append([f"{s:,}", 1e3 * noam_rate(s, d_model, warmup)])
    rows.append([f"{step:,} (chosen)", 1e3 * here])
    head = ["step", "rate, in thousandths"]
    start = {"width": d_model, "warmup": warmup, "step": step}
    return Story(
        "rate",
        "The rate rises in a line and falls as a root",
        "The learning rate of each step. The two marks are its peak and the "
        "chosen step.",
        "Halve the warm-up, double the width, and move along the curve.",
        summary,
        head,
        rows,
        4,
        {"start": start},
        draw_rate(d_model, warmup, step),
    )


def draw_rate(d_model: int, warmup: int, step: int) -> Any:
    """The curve, its peak and the chosen step."""
    fig, ax = panel(2.9)
    steps = range(1, 40_001, 100)
    curve = [1e3 * noam_rate(s, d_model, warmup) for s in steps]
    ax.plot(steps, curve, color=BLUE)
    for s, mark, colour in ((warmup, "o", BLUE), (step, "s", ORANGE)):
        ax.plot(s, 1e3 * noam_rate(s, d_model, warmup), mark, color=colour)
    ax.set(xlabel="step", ylabel="rate, in thousandths", xlim=(0, 40_000))
    ax.set_ylim(bottom=0)
    return fig
