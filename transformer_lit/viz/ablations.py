"""What each change of a model did: a line for each variant, a dot for each
run."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_lit.figures import BLUE, FAINT, INK, ORANGE
from transformer_lit.records import load_record
from transformer_lit.viz.story import (
    Story,
    Value,
    chosen,
    digits_of,
    finite,
    mean,
    number_text,
    panel,
    sentence_case,
    shortened,
)

Scores = Mapping[str, Mapping[str, Any]]
"""For each variant of a model its scores by name, one for each run."""
MOST_VARIANTS = 30
"""Lines for which there is room."""


def ablations(of: str | Scores, *, base: str | None = None) -> Story:
    """What changes of a model did, a dot for each run.

    Args:
        of: the name of a record in results/, or the scores themselves,
            {variant: {score: [values]}}.
        base: the variant that the others are compared with; None: the first.

    Raises:
        ValueError: there is no such record or variant, a score is not finite,
            or there is nothing or too much to show.
    """
    measures = measures_of(scores_of(of) if isinstance(of, str) else of)
    if not measures:
        raise ValueError(NO_SCORE)
    name, variants = measures[0]["name"], measures[0]["variants"]
    names = [one["name"] for one in variants]
    if len(names) > MOST_VARIANTS:
        raise ValueError(
            f"{len(names)} variants: there is room for {MOST_VARIANTS}; show "
            "fewer"
        )
    at = names.index(chosen(base, names, "base"))
    digits = max(
        digits_of([v for one in part["variants"] for v in one["values"]], 4)
        for part in measures
    )
    summary, rows = compared(name, variants, at, digits)
    start = {"measure": 0, "base": at}
    return Story(
        "ablations",
        "What each change did",
        "A dot for each run, a stroke for the mean of a variant. The upright "
        "line is the mean of the one that the others are compared with.",
        "Compare with another variant"
        + (", or choose another score." if len(measures) > 1 else "."),
        summary,
        ["variant", "mean", "difference", "least", "most", "runs"],
        rows,
        digits,
        {"measures": measures, "digits": digits, "start": start},
        draw_ablations(variants, name, at),
    )


NO_SCORE = "no score to show: give {variant: {score: [values]}}"


def measures_of(scores: Any) -> list[dict[str, Any]]:
    """The scores by name, each with the variants that have it, in plain
    numbers.

    Raises:
        ValueError: they are no scores.
    """
    if not isinstance(scores, Mapping):
        raise ValueError(NO_SCORE)
    found: dict[str, list[dict[str, Any]]] = {}
    for variant, by_name in scores.items():
        if not isinstance(by_name, Mapping):
            raise ValueError(f"{variant}: {NO_SCORE}")
        for measure, values in by_name.items():
            runs = values if hasattr(values, "__len__") else [values]
            read = [finite(v, f"{variant}, {measure}") for v in runs]
            if read:
                one = {"name": str(variant), "values": read}
                found.setdefault(str(measure), []).append(one)
    return [{"name": name, "variants": one} for name, one in found.items()]


def scores_of(name: str) -> Scores:
    """The scores in a record of `transformer-lit experiment`, or in that of
    the modern parts.

    Raises:
        ValueError: there is no such record, or it compares nothing.
    """
    record, found = load_record(name), dict[str, dict[str, list[float]]]()
    for run in record.get("runs", record.get("trials", [])):
        if "row" in run:
            variant, scores = run["row"], run["scores"]
        elif "variant" in run:
            variant = run["variant"]
            scores = {key: run[key] for key in ("exact_match", "nll")}
        else:
            continue
        for key, value in scores.items():
            found.setdefault(variant, {}).setdefault(key, []).append(value)
    if not found:
        raise ValueError(f"results/{name}.json compares no variants")
    return found


def compared(
    measure: str, variants: Sequence[dict[str, Any]], at: int, digits: int
) -> tuple[str, list[list[Value]]]:
    """How the variants differ from one of them, in words and as a table."""
    base = variants[at]
    level, rows = mean(base["values"]), list[list[Value]]()
    for one in variants:
        values, middle = one["values"], mean(one["values"])
        row: list[Value] = [one["name"], middle, middle - level]
        rows.append([*row, min(values), max(values), str(len(values))])
    summary = f"{sentence_case(measure)} of {base['name']}: "
    summary += number_text(level, digits)
    if len(base["values"]) > 1:
        spread = max(base["values"]) - min(base["values"])
        summary += f" on average; its {len(base['values'])} runs "
        apart = f"differ by {number_text(spread, digits)}"
        summary += apart if spread else "are equal"
    others = [row for n, row in enumerate(rows) if n != at]
    if others:
        far, _, gap, *_ = max(others, key=lambda row: abs(float(row[2])))
        size = number_text(abs(float(gap)), digits)
        way = "above" if float(gap) > 0 else "below"
        summary += f". Furthest from it is {far}"
        summary += f": {size} {way}" if gap else ", which equals it"
    return f"{summary}.", rows


def draw_ablations(
    variants: Sequence[dict[str, Any]], measure: str, at: int
) -> Any:
    """A line for each variant, with its runs."""
    fig, ax = panel(min(4.1, 0.7 + 0.24 * len(variants)))
    ax.axvline(mean(variants[at]["values"]), color=FAINT)
    for y, one in enumerate(variants):
        values, colour = one["values"], ORANGE if y == at else BLUE
        ax.plot(values, [-y] * len(values), "o", color=colour, alpha=0.7)
        ax.plot(mean(values), -y, "|", color=INK, markersize=12)
    names = [shortened(one["name"], 40) for one in variants]
    ax.set_yticks([-y for y in range(len(names))], names)
    ax.set(xlabel=measure, ylim=(0.6 - len(names), 0.6))
    ax.grid(visible=False, axis="y")
    return fig
