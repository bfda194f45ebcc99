"""Attention heads: lines from words to what they look at."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import bidirectional, category

import torch
from torch import Tensor

from transformer_lit.pictures import COLOURS
from transformer_lit.pictures import KINDS as ATTENTION
from transformer_lit.viz.story import (
    Story,
    Value,
    chosen,
    number_text,
    panel,
    sentence_case,
    shortened,
)

SCALE = 100_000
"""Weights are written as whole numbers of this part of 1."""
MOST_WEIGHTS, MOST_TOKENS = 60_000, 100
"""What a page bears and a reader can still read."""

# ---- What is given ----


def heads(
    tokens: Any,
    attention: Any = None,
    *,
    keys: Any = None,
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
        views = views_of_maps(tokens)
    else:
        weights = stacked(attention)
        check_size([weights])
        queries = words_of(tokens)
        columns = queries if keys is None else words_of(keys)
        layers = {
            n: dict(enumerate(of_layer, start=1))
            for n, of_layer in enumerate(weights, start=1)
        }
        views = [view_of(name, queries, columns, layers)]
    names = [view["name"] for view in views]
    first = names.index(chosen(ATTENTION.get(kind or "", kind), names, "kind"))
    view = views[first]
    names = [one["name"] for one in view["layers"]]
    at = names.index(chosen(layer, names, "layer"))
    queries = view["queries"]
    t = -1
    if word is not None:
        t = queries.index(chosen(visible(word), queries, "word"))
    shown = view["layers"][at]["heads"]
    summary, head, rows = told(view, at, t)
    start = {"view": first, "layer": at, "word": t}
    return Story(
        "heads",
        "Where the heads look",
        "A line leads from a word, left, to one it looks at, right: the wider "
        "and fuller, the more weight. Each head has its colour.",
        "Point at a word, or tap it, to see what it alone looks at; tick heads "
        "off; draw squares instead, a row for each word, the mean of the heads.",
        summary,
        head,
        rows,
        3,
        {"scale": SCALE, "views": views, "start": start},
        draw_heads(view, shown, t),
    )


def visible(word: Any) -> str:
    """A token as it can be read: blanks and line breaks have a sign, and
    what is written from right to left does not turn round what follows."""
    text = "".join(
        ascii(c)[1:-1] if category(c) in ("Cc", "Cs") else c for c in str(word)
    )
    text = text if text.strip() else "␣" * max(1, len(text))
    turned = any(bidirectional(c) in RIGHT_TO_LEFT for c in text)
    return f"\u2068{text}\u2069" if turned else text


RIGHT_TO_LEFT = ("R", "AL", "RLE", "RLO", "RLI")
"""Letters of Hebrew, Arabic and the like, and the signs that turn others."""


def words_of(tokens: Any) -> list[str]:
    """Tokens as they can be read; those that are numbers, as numbers.

    Raises:
        ValueError: it is one text, or no list.
    """
    if isinstance(tokens, str):
        raise ValueError(
            "the tokens are one text: give a list of words, text.split()"
        )
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if not isinstance(tokens, Iterable):
        raise ValueError(f"tokens={tokens!r} is no list of words")
    return [visible(word) for word in tokens]


def tensor_of(given: Any) -> Tensor:
    """Numbers in a tensor, an array or lists of such, as one tensor."""
    nested = isinstance(given, list | tuple) and given
    if not nested or isinstance(given[0], int | float):
        return torch.as_tensor(given).detach().cpu()
    parts = [tensor_of(one) for one in given]
    if len({part.shape for part in parts}) > 1:
        raise ValueError("parts of different shapes: show one layer at a time")
    return torch.stack(parts)


def stacked(attention: Any) -> Tensor:
    """Attention in any of the usual shapes as [N, H, T, S].

    Args:
        attention: [T, S], [H, T, S], [N, H, T, S] or, with a batch of one,
            [N, 1, H, T, S]; a tensor, an array, or a list with one for each
            layer.

    Raises:
        ValueError: it has another shape, the batch is larger, or it holds no
            numbers.
    """
    try:
        weights = tensor_of(attention)
    except (TypeError, RuntimeError):
        raise ValueError(NOT_GIVEN) from None
    if weights.dim() == 5 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if not 2 <= weights.dim() <= 4 or weights.is_complex():
        raise ValueError(
            f"attention {[*weights.shape]}: give one sentence's, [layers, "
            "heads, queries, keys]; of a batch attention[:, 0]"
        )
    return weights[(None,) * (4 - weights.dim())]


NOT_GIVEN = (
    "this is no attention: give the words and the weights, or what "
    "attention_maps returns; a model of transformers has to be loaded with "
    'attn_implementation="eager" and called with output_attentions=True'
)


def check_size(weights: Sequence[Tensor]) -> None:
    """Raise a ValueError if there is nothing, or more than can be read."""
    longest = max((max(one.shape[-2:]) for one in weights), default=0)
    count = sum(one.numel() for one in weights)
    if not count:
        raise ValueError("no attention: there is nothing to show")
    if longest > MOST_TOKENS:
        raise ValueError(
            f"{longest} tokens: more than {MOST_TOKENS} cannot be read; "
            "show a shorter sentence"
        )
    if count > MOST_WEIGHTS:
        raise ValueError(
            f"{count:,} weights: a page bears {MOST_WEIGHTS:,}; show fewer "
            "layers at a time, attention[:2]"
        )


def check_weights(weights: Tensor, T: int, S: int) -> None:
    """Raise a ValueError unless these are T queries' shares of S keys."""
    shape = [*weights.shape]
    if shape != [T, S]:
        raise ValueError(
            f"attention {shape} does not fit {T} tokens and {S} keys: give a "
            "token for each row, and with keys=[...] one for each column"
        )
    sums = weights.double().sum(-1)
    right = (sums - 1).abs() <= 0.01  # bfloat16 sums no better
    right |= (weights == 0).all(-1)  # nowhere to look
    right &= (weights >= 0).all(-1)
    if not right.all():
        row = int(right.int().argmin())
        raise ValueError(
            f"row {row + 1} of the attention sums to {sums[row]:.2f} and its "
            f"least weight is {weights[row].min():.2f}: give weights behind "
            "the softmax, of model.eval(), a row for each query"
        )


# ---- What is shown ----


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
    for layer, of_layer in layers.items():
        found = []
        for head, weights in of_layer.items():
            check_weights(weights, len(queries), len(keys))
            found.append({"name": head, "weights": shades(weights)})
        drawn.append({"name": layer, "heads": found})
    words = {"queries": [*queries], "keys": [*keys]}
    return {"name": name, **words, "layers": drawn}


def shades(weights: Tensor) -> list[list[int]]:
    """Weights [T, S] as whole numbers."""
    found: list[list[int]] = (weights.double() * SCALE).round().int().tolist()
    return found


def views_of_maps(maps: Any) -> list[dict[str, Any]]:
    """The views of this book's own maps, the kinds in the paper's order."""
    maps = maps.values() if isinstance(maps, Mapping) else maps
    if not isinstance(maps, Iterable):
        raise ValueError(NOT_GIVEN)
    maps = [*maps]
    # Not isinstance: chapter 9 makes a class of its own, and it is the same.
    if not all(hasattr(one, "weights") for one in maps):
        raise ValueError(NOT_GIVEN)
    check_size([one.weights for one in maps])
    found: dict[str, dict[int, dict[int, Tensor]]] = {}
    words: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for one in maps:
        name, pair = one.name, (one.queries, one.keys)
        if words.setdefault(name.kind, pair) != pair:
            raise ValueError("maps of several sentences: show one at a time")
        of_layer = found.setdefault(name.kind, {}).setdefault(name.layer, {})
        of_layer[name.head] = one.weights
    order = [kind for kind in ATTENTION if kind in found]
    return [view_of(ATTENTION[k], *words[k], found[k]) for k in order]


def named(words: Sequence[str]) -> list[str]:
    """The words of a sentence for another one; which stand there more than
    once have their place behind them."""
    return [
        word if words.count(word) == 1 else f"{word} ({place})"
        for place, word in enumerate(words, start=1)
    ]


def told(
    view: dict[str, Any], layer: int, t: int
) -> tuple[str, list[str], list[list[Value]]]:
    """Where the heads of a layer look, in words and as a table."""
    heads = view["layers"][layer]["heads"]
    queries, keys = named(view["queries"]), named(view["keys"])
    rows = [t] if t >= 0 else range(len(queries))
    cells = [(r, s) for r in rows for s in range(len(keys))]
    best = []
    for one in heads:
        weights = one["weights"]
        r, s = max(cells, key=lambda at: one["weights"][at[0]][at[1]])
        weight = number_text(weights[r][s] / SCALE, 2)
        begin = "" if t >= 0 else f"from {queries[r]} "
        link = f"{begin}to {keys[s]}, {weight}" if weights[r][s] else "nowhere"
        best.append(f"in head {one['name']} {link}")
    summary = f"{sentence_case(view['name'])}, layer "
    summary += f"{view['layers'][layer]['name']}. The strongest weight"
    summary += f" of {queries[t]}" if t >= 0 else ""
    summary += f" goes {'; '.join(best)}."
    table: list[list[Value]] = []
    if t >= 0:
        for one in heads:
            shares = [weight / SCALE for weight in one["weights"][t]]
            table.append([f"head {one['name']}", *shares])
        return summary, [f"from {queries[t]}", *keys], table
    for r, query in enumerate(queries):
        columns = zip(*(one["weights"][r] for one in heads), strict=True)
        mean = [sum(column) / (len(heads) * SCALE) for column in columns]
        table.append([query, *mean])
    return summary, ["mean of the heads", *keys], table


def draw_heads(
    view: dict[str, Any], heads: Sequence[dict[str, Any]], t: int
) -> Any:
    """Lines from queries, left, to keys, right: one colour a head."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    queries = [shortened(word, 24) for word in view["queries"]]
    keys = [shortened(word, 24) for word in view["keys"]]
    T, S = len(queries), len(keys)
    fig, ax = panel(min(4.1, 0.24 * max(T, S) + 0.3))
    ax.set(xlim=(0, 7.2), ylim=(0.4 - max(T, S), 0.6))
    ax.axis("off")
    size = min(10, 250 / max(T, S))
    for r, word in enumerate(queries):
        style = {"ha": "right", "va": "center", "fontsize": size}
        weight = "bold" if r == t else "normal"
        ax.text(2.3, -r, word, weight=weight, **style)
    for s, word in enumerate(keys):
        ax.text(4.9, -s, word, ha="left", va="center", fontsize=size)
    for h, one in enumerate(heads):
        shift = 0.1 * ((len(heads) - 1) / 2 - h)  # the lines lie apart
        colour = COLOURS[h % len(COLOURS)]
        links = [
            (r, s, min(1, whole / SCALE))
            for r in ([t] if t >= 0 else range(T))
            for s, whole in enumerate(one["weights"][r])
            if whole > 0.05 * SCALE
        ]
        lines = LineCollection(
            [((2.4, shift - r), (4.8, shift - s)) for r, s, _ in links],
            colors=[to_rgba(colour, weight) for *_, weight in links],
            linewidths=[0.5 + 2.5 * weight for *_, weight in links],
        )
        ax.add_collection(lines)
    return fig
