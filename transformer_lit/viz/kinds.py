"""What each kind of small figure shows: its numbers, in words, in a table
and in a picture that stands by itself.

`figures.js` draws the same again when a control is moved. The sentences and
tables of both are the same at the start; a test compares them.
"""

import copy
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import torch
from torch import Tensor

from transformer_lit.decoding import (
    Hypothesis,
    best_continuations,
    check_numbers,
    length_penalty,
    open_beams,
)
from transformer_lit.figures import BLUE, FAINT, INK, ORANGE, new_figure
from transformer_lit.masks import causal_mask, padding_mask, target_mask
from transformer_lit.optimizer import noam_rate
from transformer_lit.pictures import (
    COLOURS,
    AttentionMap,
    token_text,
)
from transformer_lit.pictures import (
    KINDS as ATTENTION,
)
from transformer_lit.positions import sinusoids
from transformer_lit.records import load_record
from transformer_lit.translator import Translator

Value = str | int | float


def number_text(value: Value, digits: int) -> str:
    """A value as tables and sentences show it; as JavaScript rounds it."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    one = Decimal(1).scaleb(-digits)
    shown = Decimal(value).quantize(one, rounding=ROUND_HALF_UP)
    return f"{shown:,f}".replace("-", "−")


@dataclass(frozen=True)
class Story:
    """What a figure shows at the start.

    Attributes:
        kind: how `figures.js` calls it.
        title: its name.
        summary: what there is to see, computed from the data.
        head, rows: the table of values; the first column are names.
        digits: how many are shown behind the point.
        data: for `figures.js`, as JSON.
        figure: of matplotlib.
    """

    kind: str
    title: str
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
        with plt.rc_context(style):
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


# ---- heads ----

SCALE = 100_000
"""Weights are written as whole numbers of this part of 1."""
MOST_WEIGHTS, MOST_TOKENS = 60_000, 100
"""What a page bears and a reader can still read."""


def shades(weights: Tensor) -> list[list[int]]:
    """Weights [T, S] as whole numbers."""
    found: list[list[int]] = (weights.double() * SCALE).round().int().tolist()
    return found


def view_of(
    name: str,
    queries: Sequence[str],
    keys: Sequence[str],
    layers: Mapping[int, Mapping[int, Tensor]],
) -> dict[str, Any]:
    """One kind of attention on one sentence.

    Args:
        name: of the kind.
        queries, keys: T and S words.
        layers: weights [T, S] by layer and head, both counted from 1.

    Raises:
        ValueError: the words do not fit the weights, or those are none.
    """
    drawn = []
    for layer, heads in layers.items():
        of_layer = []
        for head, weights in heads.items():
            check_weights(weights, len(queries), len(keys))
            of_layer.append({"name": head, "weights": shades(weights)})
        drawn.append({"name": layer, "heads": of_layer})
    words = {"queries": [*queries], "keys": [*keys]}
    return {"name": name, **words, "layers": drawn}


def check_weights(weights: Tensor, T: int, S: int) -> None:
    """Raise a ValueError unless these are T queries' shares of S keys."""
    shape = [*weights.shape]
    if shape != [T, S]:
        raise ValueError(
            f"attention {shape} does not fit {T} tokens and {S} keys: give a "
            "token for each row, and with keys=[...] one for each column"
        )
    sums = weights.double().sum(-1)
    wrong = ((sums - 1).abs() > 0.01) & (sums != 0)  # 0: nowhere to look
    if wrong.any() or not sums.isfinite().all():
        raise ValueError(
            f"a row of the attention sums to {sums[sums.ne(1)][0]:.2f}, not to "
            "1: give weights behind the softmax, of model.eval(), a row for "
            "each query"
        )


def views_of_maps(maps: Iterable[AttentionMap]) -> list[dict[str, Any]]:
    """The views of this book's own maps, the kinds in the paper's order."""
    found: dict[str, dict[int, dict[int, Tensor]]] = {}
    words: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for one in maps:
        name, pair = one.name, (one.queries, one.keys)
        if words.setdefault(name.kind, pair) != pair:
            raise ValueError("maps of several sentences: show one at a time")
        heads = found.setdefault(name.kind, {}).setdefault(name.layer, {})
        heads[name.head] = one.weights
    order = [kind for kind in ATTENTION if kind in found]
    return [view_of(ATTENTION[k], *words[k], found[k]) for k in order]


def stacked(attention: Any) -> Tensor:
    """Attention in any of the usual shapes as [N, H, T, S].

    Args:
        attention: [T, S], [H, T, S], [N, H, T, S] or, with a batch of one,
            [N, 1, H, T, S]; or a list with a tensor for each layer.

    Raises:
        ValueError: it has another shape, or the batch is larger.
    """
    if isinstance(attention, list | tuple):
        layers = [torch.as_tensor(layer).detach().cpu() for layer in attention]
        if len({layer.shape for layer in layers}) > 1:
            raise ValueError("layers of different shapes: show one at a time")
        attention = torch.stack(layers)
    weights = torch.as_tensor(attention).detach().cpu()
    if weights.dim() == 5 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if not 2 <= weights.dim() <= 4:
        raise ValueError(
            f"attention {[*weights.shape]}: give one sentence's, [layers, "
            "heads, queries, keys]; of a batch attention[:, 0]"
        )
    return weights[(None,) * (4 - weights.dim())]


def heads(
    tokens: Any,
    attention: Any = None,
    *,
    keys: Sequence[str] | None = None,
    name: str = "attention",
    kind: str | None = None,
    layer: int | None = None,
    word: str | None = None,
) -> Story:
    """Where attention heads look.

    Args:
        tokens: T words, one a row of the attention; or what
            `attention_maps` returns, and nothing else.
        attention: weights of any model, as `stacked` takes them.
        keys: S words, one a column; None: the tokens.
        name: what kind of attention it is.
        kind, layer, word: what is shown first: of this book's maps
            "encoder", "decoder" or "cross"; a layer, from 1; and a word.

    Raises:
        ValueError: words and weights do not fit, a row does not sum to 1,
            there is too much to show, or nothing of what is to come first.
    """
    if attention is None:
        maps = tokens.values() if isinstance(tokens, Mapping) else tokens
        views = views_of_maps(maps)
    else:
        weights = stacked(attention)
        layers = {
            n: dict(enumerate(of_layer, start=1))
            for n, of_layer in enumerate(weights, start=1)
        }
        views = [view_of(name, tokens, keys or tokens, layers)]
    check_size(views)
    names = [view["name"] for view in views]
    first = names.index(chosen(ATTENTION.get(kind or "", kind), names, "kind"))
    view = views[first]
    names = [one["name"] for one in view["layers"]]
    at = names.index(chosen(layer, names, "layer"))
    queries = view["queries"]
    t = -1 if word is None else queries.index(chosen(word, queries, "word"))
    shown = view["layers"][at]["heads"]
    summary, head, rows = told(view, at, t)
    start = {"view": first, "layer": at, "word": t}
    data = {"scale": SCALE, "views": views, "start": start}
    title = "Where the heads look"
    figure = draw_heads(view, shown, t)
    return Story("heads", title, summary, head, rows, 3, data, figure)


def sentence_case(name: str) -> str:
    """A name at the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def chosen(one: Any, among: Sequence[Any], what: str) -> Any:
    """What is to be shown first: `one`, or the first if it is None."""
    if not among:
        raise ValueError("no attention: there is nothing to show")
    if one is not None and one not in among:
        raise ValueError(f"{what}={one!r} is none of {[*among]}")
    return among[0] if one is None else one


def check_size(views: Sequence[dict[str, Any]]) -> None:
    """Raise a ValueError if it is more than can be read."""
    count = 0
    for view in views:
        T, S = len(view["queries"]), len(view["keys"])
        heads = sum(len(layer["heads"]) for layer in view["layers"])
        count += heads * T * S
        if max(T, S) > MOST_TOKENS:
            raise ValueError(
                f"{max(T, S)} tokens: more than {MOST_TOKENS} cannot be read; "
                "show a shorter sentence"
            )
    if count > MOST_WEIGHTS:
        raise ValueError(
            f"{count:,} weights: a page bears {MOST_WEIGHTS:,}; show fewer "
            "layers at a time, attention[:2]"
        )


def told(
    view: dict[str, Any], layer: int, t: int
) -> tuple[str, list[str], list[list[Value]]]:
    """Where the heads of a layer look, in words and as a table."""
    heads, keys = view["layers"][layer]["heads"], view["keys"]
    best = []
    for one in heads:
        rows = [t] if t >= 0 else range(len(view["queries"]))
        cells = [(r, s) for r in rows for s in range(len(keys))]
        r, s = max(cells, key=lambda at: one["weights"][at[0]][at[1]])
        weight = number_text(one["weights"][r][s] / SCALE, 2)
        begin = "" if t >= 0 else f"{view['queries'][r]} "
        best.append(f"of head {one['name']} {begin}to {keys[s]} {weight}")
    begin = f"From {view['queries'][t]} the" if t >= 0 else "The"
    summary = f"{sentence_case(view['name'])}, layer "
    summary += f"{view['layers'][layer]['name']}. {begin} strongest weight is "
    summary += f"{', '.join(best)}."
    table: list[list[Value]] = []
    if t >= 0:
        for one in heads:
            shares = [weight / SCALE for weight in one["weights"][t]]
            table.append([f"head {one['name']}", *shares])
        return summary, [f"from {view['queries'][t]}", *keys], table
    for r, query in enumerate(view["queries"]):
        columns = zip(*(one["weights"][r] for one in heads), strict=True)
        mean = [sum(column) / (len(heads) * SCALE) for column in columns]
        table.append([query, *mean])
    return summary, ["mean of the heads", *keys], table


def draw_heads(
    view: dict[str, Any], heads: Sequence[dict[str, Any]], t: int
) -> Any:
    """Lines from queries, left, to keys, right: one colour a head."""
    T, S = len(view["queries"]), len(view["keys"])
    fig, ax = panel(min(4.1, 0.24 * max(T, S) + 0.3))
    ax.set(xlim=(0, 7.2), ylim=(0.4 - max(T, S), 0.6))
    ax.axis("off")
    size = min(10, 250 / max(T, S))
    for r, word in enumerate(view["queries"]):
        style = {"ha": "right", "va": "center", "fontsize": size}
        weight = "bold" if r == t else "normal"
        ax.text(2.3, -r, word, weight=weight, **style)
    for s, word in enumerate(view["keys"]):
        ax.text(4.9, -s, word, ha="left", va="center", fontsize=size)
    for h, one in enumerate(heads):
        shift = 0.1 * ((len(heads) - 1) / 2 - h)  # the lines lie apart
        for r in [t] if t >= 0 else range(T):
            for s, whole in enumerate(one["weights"][r]):
                weight = whole / SCALE
                if weight > 0.05:
                    style = {"alpha": weight, "lw": 0.5 + 2.5 * weight}
                    colour = COLOURS[h % len(COLOURS)]
                    ends = [-r + shift, -s + shift]
                    ax.plot([2.4, 4.8], ends, color=colour, **style)
    return fig


# ---- masks ----

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
        source_padding, target_padding: how many of them are padding.
        causal: whether the decoder hides the future.

    Raises:
        ValueError: a sentence is empty or too long.
    """
    for words, pads in ((source, source_padding), (target, target_padding)):
        if not 0 <= pads < words <= LONGEST:
            raise ValueError(
                f"{words} tokens, {pads} of them padding: at least one must be "
                f"a word, and there is room for {LONGEST}"
            )
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
    summary = f"Each of the {target} target positions may read {words} of "
    summary += f"the {source} source positions. In its own sentence padding "
    summary += f"leaves {int(grids['target padding'].sum())} of {target**2} "
    summary += f"pairs, the causal mask {int(past.sum())}, both together "
    summary += f"{int(both.sum())}."
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
    title = "Padding and future, hidden"
    return Story("masks", title, summary, head, rows, 0, data, figure)


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


# ---- rotation ----


def rotation(
    *, d_model: int = 16, pair: int = 1, position: int = 3, offset: int = 4
) -> Story:
    """To move on is to turn: PE(p + k) from PE(p), section 3.5.

    Args:
        d_model: D, even.
        pair: i, which sine and cosine, from 0 to D / 2 - 1.
        position: p, from 0 to 100.
        offset: k, from 0 to 100.

    Raises:
        ValueError: one of them lies outside.
    """
    table = sinusoids(position + offset + 1, d_model)  # checks d_model
    for name, value, most in (
        ("pair", pair, d_model // 2 - 1),
        ("position", position, 100),
        ("offset", offset, 100),
    ):
        if not 0 <= value <= most:
            raise ValueError(f"{name}={value} must be from 0 to {most}")
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
    title = "To move on is to turn"
    return Story("rotation", title, summary, head, rows, 4, data, figure)


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


# ---- softmax ----

WIDTHS = [2**n for n in range(10)]
"""The d_k of the table, 1 to 512."""


def softmax(
    *, keys: int = 10, draws: int = 500, seed: int = 0, d_k: int = 64
) -> Story:
    """What a softmax becomes as heads grow wider, section 3.2.1.

    Queries and keys have components of mean 0 and variance 1.

    Args:
        keys: n, among how many a query chooses.
        draws: queries, each with keys of its own.
        seed: of the random numbers.
        d_k: what is shown first, one of `WIDTHS`.

    Raises:
        ValueError: there is no such width, or nothing to choose from.
    """
    if d_k not in WIDTHS:
        raise ValueError(f"d_k={d_k} is none of {WIDTHS}")
    if not 2 <= keys <= 20 or draws < 2:
        raise ValueError(
            f"keys={keys} must be from 2 to 20, and draws={draws} at least 2"
        )
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
    summary += f"{number_text(scaled, 2)} with it; the sum of p(1 − p), "
    summary += "through which it learns, "
    summary += f"{number_text(widths[at]['slope'][0], 2)} and "
    summary += f"{number_text(widths[at]['slope'][1], 2)}."
    data = {"widths": widths, "start": {"width": at, "scaled": False}}
    title = "A softmax saturates, unless it is scaled"
    figure = draw_softmax(widths, at)
    return Story("softmax", title, summary, head, rows, 3, data, figure)


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


def rounded(value: Tensor | float) -> float:
    """To ten digits, so that it is the same number on every machine."""
    return float(f"{float(value):.10g}")


def draw_softmax(widths: Sequence[dict[str, Any]], at: int) -> Any:
    """One query's weights, and the mean of the largest over all widths."""
    fig, (left, right) = panel(2.9, ncols=2)
    scores = torch.tensor(widths[at]["scores"], dtype=torch.float64)
    places = range(1, len(scores) + 1)
    left.bar(places, scores.softmax(-1).tolist(), color=ORANGE)
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


# ---- rate ----

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
    for name, value, least, most in (
        ("warmup", warmup, 100, 20_000),
        ("step", step, 1, 40_000),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name}={value} must be from {least} to {most}")
    peak, here = (noam_rate(s, d_model, warmup) for s in (warmup, step))
    summary = f"For width {d_model} and a warm-up of {warmup:,} steps the rate "
    summary += f"rises to {number_text(1e3 * peak, 3)} thousandths at step "
    summary += f"{warmup:,}. At step {step:,} it is "
    summary += f"{number_text(1e3 * here, 3)}, "
    summary += f"{number_text(100 * here / peak, 0)} % of the peak."
    rows: list[list[Value]] = []
    for part in (0.25, 0.5, 1, 2, 4, 16):
        s = round(part * warmup)
        rows.append([f"{s:,}", 1e3 * noam_rate(s, d_model, warmup)])
    rows.append([f"{step:,} (chosen)", 1e3 * here])
    head = ["step", "rate, in thousandths"]
    start = {"width": d_model, "warmup": warmup, "step": step}
    fig, ax = panel(2.9)
    steps = range(1, 40_001, 100)
    curve = [1e3 * noam_rate(s, d_model, warmup) for s in steps]
    ax.plot(steps, curve, color=BLUE)
    ax.plot(warmup, 1e3 * peak, "o", color=BLUE)
    ax.plot(step, 1e3 * here, "s", color=ORANGE)
    ax.set(xlabel="step", ylabel="rate, in thousandths", xlim=(0, 40_000))
    ax.set_ylim(bottom=0)
    title = "The rate rises in a line and falls as a root"
    return Story("rate", title, summary, head, rows, 4, {"start": start}, fig)


# ---- beam ----

BEAMS = (1, 2, 3, 4, 6, 8)
ALPHAS = [n / 10 for n in range(21)]
"""The beam sizes and penalties that can be chosen."""
MOST_STEPS = 40


def beam(
    translator: Translator,
    text: str,
    *,
    beam_size: int = 3,
    alpha: float = 0.6,
) -> Story:
    """The tree of a beam search, section 6.1.

    Args:
        translator: a model and its vocabulary.
        text: what is translated.
        beam_size, alpha: what is shown first: one of `BEAMS` and `ALPHAS`.

    Raises:
        ValueError: there is no such choice, or no output has ended after 40
            steps: the text is too long for a tree.
    """
    chosen(beam_size, BEAMS, "beam_size")
    chosen(alpha, ALPHAS, "alpha")
    model = copy.deepcopy(translator.model).double().eval()
    src = torch.tensor([translator.prepare(text)])
    room = src.shape[1] + 50  # as in `beam_search`
    trees = {size: grow(model, src, size, room) for size in BEAMS}
    used = {
        token
        for tree in trees.values()
        for step in tree
        for _, token, _ in step
    }
    words = {i: token_text(translator.vocabulary, i) for i in sorted(used)}
    eos = model.config.eos_id
    found, steps = replay(trees[beam_size], beam_size, alpha, room, eos)
    rows: list[list[Value]] = []
    for one in found:
        length = len(one.tokens) + 1
        penalty = length_penalty(length, alpha)
        output = " ".join(words[i] for i in one.tokens)
        rows.append([output, one.log_prob, str(length), penalty, one.score])
    greedy, _ = replay(trees[1], 1, alpha, room, eos)
    same = greedy[0].tokens == found[0].tokens
    summary = f"With a beam of {beam_size} and alpha {number_text(alpha, 1)} "
    summary += f"the search stops after {steps} steps. Best: {rows[0][0]}, "
    summary += f"log p {number_text(found[0].log_prob, 3)}, score "
    summary += f"{number_text(found[0].score, 3)}. Greedy search finds "
    summary += f"{'the same' if same else 'another output'}."
    start = {"size": BEAMS.index(beam_size), "alpha": alpha}
    data = {
        "trees": [trees[size] for size in BEAMS],
        "sizes": BEAMS,
        "words": words,
        "end": eos,
        "room": room,
        "start": start,
    }
    head = ["output", "log p", "length", "penalty", "score"]
    drawn = trees[beam_size][:steps]
    figure = draw_tree(drawn, beam_size, words, eos, found[0].tokens)
    title = f"A beam search: {text}"
    return Story("beam", title, summary, head, rows, 3, data, figure)


Tree = list[list[tuple[int, int, float]]]
"""For each step its 2k continuations, the best first: which of the growing
outputs was continued, by which token, and the log-probability then."""


@torch.inference_mode()
def grow(model: Any, src: Tensor, size: int, room: int) -> Tree:
    """The steps of a search, until it stops for every alpha.

    Which outputs grow does not depend on alpha; only when it stops does.
    """
    beams, tree = open_beams(model, src), Tree()
    eos = model.config.eos_id
    while any(goes_on(tree, size, alpha, room, eos) for alpha in ALPHAS):
        if len(tree) == MOST_STEPS:
            raise ValueError(
                f"no end after {MOST_STEPS} steps: the text is too long for a "
                "tree; take a shorter one"
            )
        logits = model.step(beams.ids.flatten(), beams.cache)
        log_probs, parents, ids = best_continuations(
            beams.log_probs, logits, 2 * size
        )
        check_numbers(log_probs[0].tolist())
        going = (ids[0] != eos).nonzero()[:size, 0]
        step = zip(parents[0], ids[0], log_probs[0], strict=True)
        tree.append([(int(p), int(i), rounded(x)) for p, i, x in step])
        beams.follow(*(part[:, going] for part in (parents, ids, log_probs)))
    return tree


def goes_on(tree: Tree, size: int, alpha: float, room: int, eos: int) -> bool:
    """Whether a search with this alpha needs a step more than the tree."""
    return replay(tree, size, alpha, room, eos)[1] > len(tree)


def replay(
    tree: Tree, size: int, alpha: float, room: int, eos: int
) -> tuple[list[Hypothesis], int]:
    """What has ended when a search for the best output stops.

    Returns:
        The outputs, the best first, and after how many steps it stops, by
        the rule of `beam_search`; one more than there are if it does not.
    """
    ended: list[Hypothesis] = []
    growing = [list[int]()]
    for length, step in enumerate(tree, start=1):
        longer: list[list[int]] = []
        probs: list[float] = []
        for parent, token, log_prob in step:
            if token == eos:
                score = log_prob / length_penalty(length, alpha)
                ended.append(Hypothesis(growing[parent], log_prob, score))
            elif len(longer) < size:
                longer.append([*growing[parent], token])
                probs.append(log_prob)
        growing = longer
        ended.sort(key=lambda one: -one.score)
        bound = probs[0] / length_penalty(room, alpha)
        if ended and bound <= ended[0].score:
            return ended, length
    return ended, len(tree) + 1


def draw_tree(
    tree: Tree,
    size: int,
    words: Mapping[int, str],
    eos: int,
    best: Sequence[int],
) -> Any:
    """The tree from left to right; the best path is thick."""
    most = max(len(step) for step in tree)
    fig, ax = panel(min(4.1, 0.36 * most + 0.4))
    ends: list[tuple[float, float, list[int]]] = [(0, 0, [])]
    path = [*best, eos]
    for n, step in enumerate(tree, start=1):
        growing: list[tuple[float, float, list[int]]] = []
        for line, (parent, token, log_prob) in enumerate(step):
            x, y, begun = ends[parent]
            tokens = [*begun, token]
            thick = tokens == path[: len(tokens)]
            grows = token != eos and len(growing) < size
            colour = BLUE if thick else INK if grows else FAINT
            ax.plot([x, n], [y, -line], color=colour, lw=2.5 if thick else 0.8)
            shape = "square" if token == eos else "round"
            box = {"boxstyle": shape, "fc": "white", "ec": colour}
            label = f"{words[token]} {number_text(log_prob, 1)}"
            style = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(n, -line, label, bbox=box, **style)
            if grows:
                growing.append((n, -line, tokens))
        ends = growing
    ax.set(xlim=(-0.1, len(tree) + 0.6), ylim=(0.6 - most, 0.6))
    ax.axis("off")
    return fig


# ---- curves ----


def curves(
    of: str | Mapping[str, Sequence[Sequence[float]]],
    *,
    measures: Sequence[str] = ("value",),
    x: str = "update",
) -> Story:
    """How trainings went.

    Args:
        of: the name of a record in results/; or for each run its points, a
            place on the x axis and then the measures.
        measures: what the points hold behind their place.
        x: what the place is.

    Raises:
        ValueError: there is no such record, it holds no curve, or the points
            do not have as many numbers as there are names.
    """
    if isinstance(of, str):
        runs, measures = curves_of(of)
    else:
        runs = {name: [[*point] for point in of[name]] for name in of}
    if not runs:
        raise ValueError("there is no run to show: give one, {name: points}")
    for name, points in runs.items():
        if not points or {len(p) for p in points} != {len(measures) + 1}:
            raise ValueError(
                f"{name}: each point needs a place and a value for each of "
                f"{[*measures]}; name others with measures=[...]"
            )
    last = [points[-1] for points in runs.values()]
    summary = last_words(measures[0], x, [p[:2] for p in last])
    head = ["run", x, *measures]
    rows: list[list[Value]] = [
        [name, number_text(place, 4 * (place % 1 > 0)), *map(float, values)]
        for name, points in runs.items()
        for place, *values in points
    ]
    series = [{"name": name, "points": points} for name, points in runs.items()]
    data = {"x": x, "measures": [*measures], "series": series}
    figure = draw_curves(series, measures[0], x)
    title = "Learning curves"
    return Story("curves", title, summary, head, rows, 4, data, figure)


MEASURES = {"nll": "nats a token", "bleu": "BLEU"}
"""What a record's measures are called in full."""


def curves_of(name: str) -> tuple[dict[str, list[Any]], list[str]]:
    """The runs of a record, and what was measured."""
    record = load_record(name)
    if "runs" in record and "curve" in record["runs"][0]:
        runs = {f"seed {r['seed']}": r["curve"] for r in record["runs"]}
        return runs, ["smoothed loss (nats)", "loss without smoothing (nats)"]
    if "curve" not in record:
        raise ValueError(f"results/{name}.json holds no learning curve")
    names = [key for key in record["curve"][0] if key != "step"]
    points = [[p["step"], *(p[n] for n in names)] for p in record["curve"]]
    return {name: points}, [MEASURES.get(n, n) for n in names]


def last_words(measure: str, x: str, ends: Sequence[Sequence[float]]) -> str:
    """Where the curves end, in a sentence."""
    values = [value for _, value in ends]
    mean = number_text(sum(values) / len(values), 4)
    text = f"{sentence_case(measure)} at the last {x}: {mean}"
    if len(values) > 1:
        spread = number_text(max(values) - min(values), 4)
        text += f", the mean of {len(values)} runs that differ by {spread}"
    return f"{text}."


def draw_curves(series: Sequence[dict[str, Any]], measure: str, x: str) -> Any:
    """A line for each run."""
    fig, ax = panel(3.0)
    for n, one in enumerate(series):
        places, values = (
            [p[0] for p in one["points"]],
            [p[1] for p in one["points"]],
        )
        style = {"color": COLOURS[n % len(COLOURS)], "label": one["name"]}
        ax.plot(places, values, ["-", "--", "-.", ":"][n % 4], **style)
    ax.set(xlabel=x, ylabel=measure)
    ax.legend(frameon=False)
    return fig


# ---- ablations ----

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""For each variant of a model its scores by name, one for each seed."""


def ablations(of: str | Scores, *, base: str | None = None) -> Story:
    """What changes of a model did, a dot for each seed.

    Args:
        of: the name of a record in results/, or the scores themselves.
        base: the variant that the others are compared with; None: the first.

    Raises:
        ValueError: there is no such record or variant, or nothing to show.
    """
    scores = scores_of(of) if isinstance(of, str) else of
    measures: list[dict[str, Any]] = [
        {
            "name": measure,
            "variants": [
                {"name": name, "values": [*map(float, found[measure])]}
                for name, found in scores.items()
                if found.get(measure)
            ],
        }
        for measure in dict.fromkeys(m for one in scores.values() for m in one)
    ]
    variants = measures[0]["variants"] if measures else []
    if not variants:
        raise ValueError("no score to show: give {variant: {score: [values]}}")
    names = [one["name"] for one in variants]
    at = names.index(chosen(base, names, "base"))
    summary, rows = compared(measures[0]["name"], variants, at)
    head = ["variant", "mean", "difference", "least", "most", "runs"]
    start = {"measure": 0, "base": at}
    data = {"measures": measures, "start": start}
    title = "What each change did"
    figure = draw_ablations(variants, measures[0]["name"], at)
    return Story("ablations", title, summary, head, rows, 4, data, figure)


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


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def compared(
    measure: str, variants: Sequence[dict[str, Any]], at: int
) -> tuple[str, list[list[Value]]]:
    """How the variants differ from one of them, in words and as a table."""
    base = variants[at]
    level, rows = mean(base["values"]), list[list[Value]]()
    for one in variants:
        values, middle = one["values"], mean(one["values"])
        row: list[Value] = [one["name"], middle, middle - level]
        rows.append([*row, min(values), max(values), str(len(values))])
    summary = f"{sentence_case(measure)} of {base['name']}: "
    summary += f"{number_text(level, 4)} on average, its seeds differ by "
    spread = max(base["values"]) - min(base["values"])
    summary += f"{number_text(spread, 4)}."
    others = [row for n, row in enumerate(rows) if n != at]
    if others:
        name, _, gap, *_ = max(others, key=lambda row: abs(float(row[2])))
        summary += f" Furthest from it is {name}: {number_text(gap, 4)}."
    return summary, rows


def draw_ablations(
    variants: Sequence[dict[str, Any]], measure: str, at: int
) -> Any:
    """A line for each variant, with its seeds."""
    fig, ax = panel(min(4.1, 0.7 + 0.24 * len(variants)))
    ax.axvline(mean(variants[at]["values"]), color=FAINT)
    for y, one in enumerate(variants):
        values, colour = one["values"], ORANGE if y == at else BLUE
        ax.plot(values, [-y] * len(values), "o", color=colour, alpha=0.7)
        ax.plot(mean(values), -y, "|", color=INK, markersize=12)
    names = [one["name"] for one in variants]
    ax.set_yticks([-y for y in range(len(names))], names)
    ax.set(xlabel=measure, ylim=(0.6 - len(names), 0.6))
    ax.grid(visible=False, axis="y")
    return fig


KINDS: dict[str, Callable[..., Story]] = {
    "heads": heads,
    "masks": masks,
    "rotation": rotation,
    "softmax": softmax,
    "rate": rate,
    "beam": beam,
    "curves": curves,
    "ablations": ablations,
}
"""Every kind of figure: what makes its story."""
