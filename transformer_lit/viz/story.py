"""What a figure shows at the start: its numbers in words, in a table and in a
picture that stands by itself.

Each kind has a module here and a script of the same name, which draws the same
again when a control is moved. What both say at the start is the same; a test
compares them. `core.js` is what the scripts share, as this module is here.
"""

import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from numbers import Integral
from typing import Any

from torch import Tensor

from transformer_lit.figures import new_figure

Value = str | int | float


def number_text(value: Value, digits: int) -> str:
    """A value as tables and sentences show it; as JavaScript rounds it."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    one = Decimal(1).scaleb(-digits)
    shown = Decimal(value).quantize(one, rounding=ROUND_HALF_UP)
    return f"{shown:z,f}".replace("-", "−")  # z: no minus before a zero


@dataclass(frozen=True)
class Story:
    """What a figure shows at the start.

    Attributes:
        kind: its key in `KINDS`, and the name of its script.
        title: its name.
        reading: what is drawn.
        trying: what to do with the controls.
        summary: what there is to see, computed from the data.
        head, rows: the table of values; the first column are names.
        digits: how many are shown behind the point.
        data: for that script, as JSON.
        figure: of matplotlib.
    """

    kind: str
    title: str
    reading: str
    trying: str
    summary: str
    head: Sequence[str]
    rows: Sequence[Sequence[Value]]
    digits: int
    data: dict[str, Any]
    figure: Any

    def svg(self) -> tuple[str, int]:
        """The picture, the same bytes each time, and its height in pixels."""
        import matplotlib.pyplot as plt

        text = io.StringIO()
        style = {"svg.fonttype": "none", "svg.hashsalt": self.kind}
        with plt.rc_context(style), warnings.catch_warnings():
            # The letters come from the reader's fonts, not from matplotlib's.
            warnings.filterwarnings("ignore", "Glyph", UserWarning)
            warnings.filterwarnings("ignore", "Matplotlib currently does not")
            self.figure.savefig(text, format="svg", metadata=NOBODY)
        plt.close(self.figure)
        drawn = text.getvalue()
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"(\d\.\d\d)\d+", r"\1", drawn)  # of a point
        drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", drawn, flags=re.S)
        drawn = re.sub(r"\s*<!--.*?-->|\s*\n\s*", "\n", drawn, flags=re.S)
        return drawn, round(100 * self.figure.get_figheight())


NOBODY = dict.fromkeys(("Creator", "Date", "Format", "Type"))
"""Nothing about when and by whom: outputs are compared."""


def panel(height: float, **options: Any) -> tuple[Any, Any]:
    """A figure as wide as the column, 7.2 inches of 100 pixels."""
    return new_figure(7.2, height, **options)


# ---- Words ----


def sentence_case(name: str) -> str:
    """A name at the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def shortened(text: str, most: int) -> str:
    """At most so many signs; what is longer ends in dots."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# ---- What is given ----


def chosen(one: Any, among: Sequence[Any], what: str) -> Any:
    """What is to be shown first: `one`, or the first if it is None."""
    if one is not None and one not in among:
        raise ValueError(f"{what}={one!r} is none of {[*among]}")
    return among[0] if one is None else one


def within(name: str, value: Any, least: int, most: int) -> int:
    """A whole number that lies within bounds, or a ValueError."""
    whole = isinstance(value, Integral)
    if not whole or not least <= int(value) <= most:
        raise ValueError(
            f"{name}={value!r} must be a whole number from {least:,} to "
            f"{most:,}"
        )
    return int(value)


def finite(value: Any, where: str) -> float:
    """A number that can be drawn, or a ValueError."""
    try:
        number = float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{where}: {value!r} is not a number") from None
    if not abs(number) < 1e15:
        raise ValueError(f"{where}: {number} cannot be drawn; leave it out")
    return number


# ---- Numbers ----


def rounded(value: Tensor | float) -> float:
    """To ten digits, so that it is the same number on every machine."""
    return float(f"{float(value):.10g}")


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def digits_of(values: Sequence[float], least: int) -> int:
    """How many digits behind the point tell these values apart."""
    span = max(values) - min(values) or abs(values[0]) or 1
    return min(15, max(least, 3 - math.floor(math.log10(span))))
