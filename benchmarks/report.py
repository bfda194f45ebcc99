"""Medians and ratios of what was measured, as a table."""

from statistics import median
from typing import Any

from benchmarks.cases import PRECISIONS

Message = dict[str, Any]
OURS = "ours"
HEAD = "| | tokens/s | ours is faster by | peak MB | of GEMM peak | |"


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """How many times faster ours was, round by round."""
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def summary(name: str, case: Message, group: Message) -> Message:
    """The numbers of one row.

    Args:
        name: of the peer.
        case: `tokens` and `flops` of a pass.
        group: the race that it ran in.
    """
    row, ours = group["peers"][name], group["peers"].get(OURS, {})
    found: Message = {"name": name, "version": row["version"]}
    if "failed" in row:
        return {**found, "failed": row["failed"]}
    middle = median(row["seconds"])
    found |= {
        "tokens_per_second": case["tokens"] / middle,
        "peak_mb": row["peak_mb"],
        "of_peak": None,
        "ratio": None,
    }
    if case["flops"] and group["peak_flops"]:
        found["of_peak"] = case["flops"] / middle / group["peak_flops"]
    if name != OURS and "seconds" in ours:
        each = ratios(ours["seconds"], row["seconds"])
        found["ratio"] = [median(each), min(each), max(each)]
    return found


def pooled(groups: list[Message]) -> Message | None:
    """Our rows of all races of a case as one race."""
    rows = [group["peers"][OURS] for group in groups if OURS in group["peers"]]
    sound = [row for row in rows if "seconds" in row] or rows[:1]
    if not sound:
        return None
    row = dict(sound[-1])
    if "seconds" in row:
        row["seconds"] = [s for one in sound for s in one["seconds"]]
        row["peak_mb"] = max(one["peak_mb"] for one in sound)
    peak = max(group["peak_flops"] for group in groups)
    return {"peers": {OURS: row}, "peak_flops": peak}


def rows_of(case: Message) -> list[Message]:
    """All rows of a case, ours first."""
    groups: list[Message] = case["groups"]
    ours = pooled(groups)
    found = [summary(OURS, case, ours)] if ours else []
    for group in groups:
        found += [
            summary(name, case, group)
            for name in group["peers"]
            if name != OURS
        ]
    return found


def line(row: Message) -> str:
    """A row of the table."""
    name = f"{row['name']} {row['version']}".strip()
    if "failed" in row:
        return f"| {name} | | | | | {row['failed'].replace('|', '/')} |"
    faster = share = ""
    if row["ratio"]:
        middle, low, high = row["ratio"]
        faster = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    if row["of_peak"]:
        share = f"{row['of_peak']:.0%}"
    speed = f"{row['tokens_per_second']:,.0f}"
    return (
        f"| {name} | {speed} | {faster} | {row['peak_mb']:,.0f} | {share} | |"
    )


def table(record: Message) -> str:
    """Everything that was measured, in Markdown."""
    about = record["about"]
    parts = [
        ", ".join(f"{key} {value}" for key, value in about.items()),
        "\n".join(f"{name}: {what}" for name, what in PRECISIONS.items()),
        "Tokens are target tokens without padding; medians; in brackets the "
        "least and the most of the rounds. The GEMM peak is that of square "
        "products in the same precision, measured in the same minutes.",
    ]
    for key, case in record["cases"].items():
        lines = [f"## {key}", "", HEAD, "|---|---:|---:|---:|---:|---|"]
        parts.append("\n".join([*lines, *map(line, rows_of(case))]))
    return "\n\n".join(parts)
