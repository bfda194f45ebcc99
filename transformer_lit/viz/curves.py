"""Learning curves, a line for each run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformer_lit.pictures import COLOURS
from transformer_lit.records import load_record
from transformer_lit.viz.story import (
    Story,
    Value,
    digits_of,
    finite,
    mean,
    number_text,
    panel,
    sentence_case,
)

MOST_RUNS, MOST_POINTS = 12, 3000
"""Lines that can be told apart, and points that a page bears."""


def curves(
    of: str | Mapping[Any, Iterable[Any]],
    *,
    measures: str | Sequence[str] = "value",
    x: str = "update",
) -> Story:
    """How trainings went.

    Args:
        of: the name of a record in results/; or for each run its points, a
            place on the x axis and then the measures.
        measures: what the points hold behind their place, one name or more.
        x: what the place is.

    Raises:
        ValueError: there is no such record, it holds no curve, the points do
            not have as many numbers as there are names, a number is not
            finite, or there is too much to show.
    """
    if isinstance(of, str):
        runs, measures = curves_of(of)
    else:
        measures = [measures] if isinstance(measures, str) else [*measures]
        runs = runs_of(of, measures)
    check_size(runs)
    places = [point[0] for points in runs.values() for point in points]
    whole = all(place.is_integer() for place in places)
    data: dict[str, Any] = {
        "x": x,
        "measures": measures,
        "places": 0 if whole else digits_of(places, 0),
        "digits": max(
            digits_of([p[n] for points in runs.values() for p in points], 4)
            for n in range(1, len(measures) + 1)
        ),
        "series": [{"name": n, "points": points} for n, points in runs.items()],
    }
    rows: list[list[Value]] = [
        [name, number_text(place, data["places"]), *values]
        for name, points in runs.items()
        for place, *values in points
    ]
    last = [points[-1][1] for points in runs.values()]
    return Story(
        "curves",
        "Learning curves",
        f"A line for each run: what was measured, against the {x}.",
        "Start the axis later, and small differences grow large.",
        last_words(measures[0], x, last, data["digits"]),
        ["run", x, *measures],
        rows,
        data["digits"],
        data,
        draw_curves(data["series"], measures[0], x),
    )


def runs_of(of: Any, measures: Sequence[str]) -> dict[str, Any]:
    """Runs as they are given, in plain numbers, each in order.

    Raises:
        ValueError: they are no runs, or their points are of another length.
    """
    if not isinstance(of, Mapping):
        raise ValueError(
            f"{type(of).__name__} is no runs: give {{name: points}}"
        )
    runs = {}
    for name, points in of.items():
        try:
            read = [[finite(v, str(name)) for v in point] for point in points]
        except TypeError:  # a point or a run is not a list
            read = []
        if not read or {len(p) for p in read} != {len(measures) + 1}:
            raise ValueError(
                f"{name}: each point needs a place and a value for each of "
                f"{[*measures]}; name others with measures=[...]"
            )
        runs[str(name)] = sorted(read, key=lambda point: point[0])
    return runs


def check_size(runs: Mapping[str, Sequence[Any]]) -> None:
    """Raise a ValueError if there is nothing, or more than can be read."""
    if not runs:
        raise ValueError("there is no run to show: give one, {name: points}")
    if len(runs) > MOST_RUNS:
        raise ValueError(
            f"{len(runs)} runs: more than {MOST_RUNS} cannot be told apart; "
            "show fewer"
        )
    if (count := sum(map(len, runs.values()))) > MOST_POINTS:
        raise ValueError(
            f"{count:,} points: a page bears {MOST_POINTS:,}; show every "
            "tenth, points[::10]"
        )


MEASURES = {"nll": "nats a token", "bleu": "BLEU"}
"""What a record's measures are called in full."""


def curves_of(name: str) -> tuple[dict[str, Any], list[str]]:
    """The runs of a record, and what was measured."""
    record = load_record(name)
    if "runs" in record and "curve" in record["runs"][0]:
        runs = {f"seed {r['seed']}": r["curve"] for r in record["runs"]}
        names = ["smoothed loss (nats)", "loss without smoothing (nats)"]
    elif "curve" in record:
        keys = [key for key in record["curve"][0] if key != "step"]
        points = [[p["step"], *(p[k] for k in keys)] for p in record["curve"]]
        runs, names = {name: points}, [MEASURES.get(k, k) for k in keys]
    else:
        raise ValueError(f"results/{name}.json holds no learning curve")
    return runs_of(runs, names), names


def last_words(
    measure: str, x: str, values: Sequence[float], digits: int
) -> str:
    """Where the curves end, in a sentence."""
    middle = number_text(mean(values), digits)
    text = f"{sentence_case(measure)} at the last {x}: {middle}"
    if len(values) > 1:
        spread = number_text(max(values) - min(values), digits)
        text += f", the mean of {len(values)} runs that differ by {spread}"
    return f"{text}."


def draw_curves(series: Sequence[dict[str, Any]], measure: str, x: str) -> Any:
    """A line for each run."""
    fig, ax = panel(3.0)
    for n, one in enumerate(series):
        places, values, *_ = zip(*one["points"], strict=True)
        dash = ["-", "--", "-.", ":"][(n + n // len(COLOURS)) % 4]
        mark = "o" if len(places) == 1 else None
        style = {"marker": mark, "label": one["name"]}
        colour = COLOURS[n % len(COLOURS)]
        ax.plot(places, values, dash, color=colour, **style)
    ax.set(xlabel=x, ylabel=measure)
    ax.legend(frameon=False)
    return fig
