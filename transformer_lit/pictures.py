"""Appendix: attention in pictures.

From book/09_attention_pictures.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import base64
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transformer_lit.attention import MultiHeadAttention
from transformer_lit.config import BOS, EOS
from transformer_lit.figures import BLUE, GREEN, INK, ORANGE, new_figure
from transformer_lit.model import Transformer
from transformer_lit.numbers import (
    EINER,
    TENS,
    UNITS,
    ZEHNER,
    NumberVocabulary,
    english,
    german,
    split_german,
)
from transformer_lit.tokenizer import Subwords, Vocabulary
from transformer_lit.translator import Translator

# 09_attention_pictures: A map and its words
Kind = Literal["encoder", "decoder", "cross"]
"""Whose attention: the encoder's own, the decoder's own, or the decoder's
over the encoder's output."""

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
"""What section 3.2.3 calls them."""


@dataclass(frozen=True)
class HeadName:
    """Which head of a model.

    Attributes:
        kind: whose attention.
        layer, head: counted from 1, as layers are in the paper's captions.

    Raises:
        ValueError: there is no such kind, or a count is below 1.
    """

    kind: Kind
    layer: int
    head: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} is none of {[*KINDS]}")
        if min(self.layer, self.head) < 1:
            raise ValueError(
                f"layer={self.layer}, head={self.head}: both count from 1"
            )

    def __str__(self) -> str:
        return f"{KINDS[self.kind]}, layer {self.layer}, head {self.head}"


def place_of(word: str, words: Sequence[str]) -> int:
    """Where a word stands, or a ValueError unless it stands there once."""
    if (count := list(words).count(word)) != 1:
        raise ValueError(f"{word!r} stands {count} times in {list(words)}")
    return list(words).index(word)


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one head on one sentence, with the words they link.

    Attributes:
        name: which head.
        weights: [T, S]; row t says how query t divides its attention.
        queries: T words, one a row.
        keys: S words, one a column.

    Raises:
        ValueError: words and weights do not fit, a row does not sum to 1,
            the rows and columns of an encoder are not the same words, or a
            word in a decoder looks at a later one.
    """

    name: HeadName
    weights: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        T, S = len(self.queries), len(self.keys)
        shape = list(self.weights.shape)
        if shape != [T, S]:
            raise ValueError(f"weights {shape}, but {T} queries and {S} keys")
        if (self.weights.sum(-1) - 1).abs().max() > 1e-3:
            raise ValueError("a row does not sum to 1: is it transposed?")
        if self.name.kind == "encoder" and self.queries != self.keys:
            raise ValueError("in an encoder queries and keys are one sentence")
        if self.name.kind == "decoder" and self.weights.triu(1).any():
            raise ValueError("in a decoder no word looks at a later one")

    def weight(self, query: str, key: str) -> float:
        """What a query gives to a key; each must stand there just once."""
        t, s = place_of(query, self.queries), place_of(key, self.keys)
        return float(self.weights[t, s])


# 09_attention_pictures: What a token is called
def token_text(vocabulary: Vocabulary, token: int) -> str:
    """A token as one would write it; what continues a word has a hyphen.

    Raises:
        ValueError: it is a vocabulary of another kind.
    """
    if token in (BOS, EOS):
        return "(begin)" if token == BOS else "(end)"
    if isinstance(vocabulary, NumberVocabulary):
        return vocabulary.tokens[token]
    if not isinstance(vocabulary, Subwords):
        raise ValueError(f"{type(vocabulary).__name__} is no vocabulary")
    piece = str(vocabulary.pieces.id_to_piece(token))
    if piece.startswith("\u2581"):  # the mark of a word's beginning
        return piece[1:]
    return f"-{piece}" if piece.isalpha() else piece  # a comma has no hyphen


def token_texts(vocabulary: Vocabulary, ids: list[int]) -> tuple[str, ...]:
    """The tokens of a sentence, each as `token_text` gives it."""
    return tuple(token_text(vocabulary, token) for token in ids)


# 09_attention_pictures: All maps of a sentence
Maps = dict[HeadName, AttentionMap]
"""The maps of one sentence, by head."""


def maps_of_layer(
    kind: Kind,
    layer: int,
    weights: Tensor,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
) -> Maps:
    """The maps of one layer's heads.

    Args:
        kind, layer: of `HeadName`.
        weights: [1, H, T, S].
        queries, keys: T and S words.
    """
    found: Maps = {}
    for h, of_head in enumerate(weights[0], start=1):  # [T, S]
        name = HeadName(kind, layer, h)
        found[name] = AttentionMap(name, of_head, queries, keys)
    return found


def attention_maps(
    translator: Translator, text: str, translation: str | None = None
) -> Maps:
    """Where every head of a model looks while it translates a text.

    A row of the decoder's maps is labelled by the word that is written
    there, which the model has not seen yet.

    Args:
        translator: a model in eval mode and its vocabulary.
        text: what is read.
        translation: what is written; None: what the model would write.

    Raises:
        ValueError: the text is nothing that the model reads.
    """
    if translation is None:
        [translation] = translator.translate([text], beam_size=1)
    model, vocabulary = translator.model, translator.vocabulary
    src, tgt = translator.prepare(text), vocabulary.tgt_ids(translation)
    tgt_in = [BOS, *tgt[:-1]]
    own: list[Tensor] = []  # the encoder's, one a layer
    both: list[Tensor] = []  # two a layer: the decoder's own, then cross
    with torch.no_grad():
        source = torch.tensor([src])
        memory = model.encode(source, maps=own)
        model.decode(torch.tensor([tgt_in]), memory, src=source, maps=both)
    read = token_texts(vocabulary, src)
    seen = token_texts(vocabulary, tgt_in)
    written = token_texts(vocabulary, tgt)
    found: Maps = {}
    for i in range(model.config.n_layers):
        found |= maps_of_layer("encoder", i + 1, own[i], read, read)
        found |= maps_of_layer("decoder", i + 1, both[2 * i], written, seen)
        found |= maps_of_layer("cross", i + 1, both[2 * i + 1], written, read)
    return found


# 09_attention_pictures: How the paper drew them
class Picture:
    """A figure and its alternative text, made of the same numbers.

    Jupyter shows the figure and stores the text with it.

    Args:
        figure: of matplotlib.
        alt: what there is to see, for those who do not see it.
    """

    def __init__(self, figure: Any, alt: str) -> None:
        import matplotlib.pyplot as plt

        plt.close(figure)  # otherwise a notebook shows it twice
        self.figure, self.alt = figure, alt

    def _repr_mimebundle_(self, **options: Any) -> tuple[Any, Any]:
        """What Jupyter asks for."""
        png = io.BytesIO()
        self.figure.savefig(png, format="png", dpi=200)
        image = base64.b64encode(png.getvalue()).decode()
        data = {"image/png": image, "text/plain": self.alt}
        return data, {"image/png": {"alt": self.alt}}


def strongest(one: AttentionMap, t: int) -> str:
    """Which key gets the largest weight of row t, and how much."""
    s = int(one.weights[t].argmax())
    return f"{one.keys[s]} {one.weights[t, s]:.2f}"


def strongest_lines(one: AttentionMap, rows: Sequence[int]) -> str:
    """Where each of some rows of a map looks most, in words."""
    return ", ".join(f"{one.queries[t]} to {strongest(one, t)}" for t in rows)


COLOURS = (BLUE, ORANGE, GREEN, "#b0508a", "#8c564b", "#5e3c99", "#8a6d00", INK)
"""One a head; after the eighth they begin again. All are dark, since a line
is drawn as pale as its weight is small."""

QUIET = "#666666"
"""Of what is not in question, and of titles."""


def colour_of(name: HeadName) -> str:
    """A head's colour."""
    return COLOURS[(name.head - 1) % len(COLOURS)]


def word_page(width: float, lines: int, title: str) -> tuple[Any, Any]:
    """A figure for columns of words: x in inches, y = 0, -1, ... a line
    each, y = 1 for what stands above and the title below."""
    fig, ax = new_figure(width, 0.26 * (lines + 2.2))
    fig.set_layout_engine("none")
    ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(-0.6 - lines, 1.6))
    ax.axis("off")
    ax.set_title(title, y=0, pad=5, color=QUIET, fontsize=10)
    return fig, ax


def draw_words(
    ax: Any, x: float, words: Sequence[str], side: str, bold: int | None = None
) -> None:
    """A column of words, aligned at x; if one is bold, the others are grey."""
    for t, word in enumerate(words):
        weight = "bold" if t == bold else "normal"
        colour = INK if bold in (None, t) else QUIET
        style = {"ha": side, "color": colour, "weight": weight}
        ax.text(x, -t, word, va="center", fontsize=12, **style)


def draw_lines(
    ax: Any,
    ends: tuple[float, float],
    one: AttentionMap,
    rows: Sequence[int],
    shift: float = 0.0,
) -> None:
    """A line for each weight, as dark and as broad as it is large.

    Args:
        ax: what to draw on.
        ends: x of the query's end of the lines and of the key's.
        one: the map.
        rows: the queries whose lines are drawn.
        shift: how far above its key a line ends.
    """
    style = {"color": colour_of(one.name), "solid_capstyle": "round"}
    for t in rows:
        for s, weight in enumerate(one.weights[t].tolist()):
            if weight > 0.01:
                w, width = min(weight, 1.0), 0.5 + 2.5 * weight
                ax.plot(ends, (-t, shift - s), alpha=w, lw=width, **style)


def check_alike(maps: Sequence[AttentionMap]) -> AttentionMap:
    """The first of several maps.

    Raises:
        ValueError: they are not of one kind and over the same words.
    """
    kinds = {(one.name.kind, one.queries, one.keys) for one in maps}
    if len(kinds) != 1:
        raise ValueError(f"{len(kinds)} sentences or kinds in one picture")
    return maps[0]


def draw_word(maps: Sequence[AttentionMap], word: str) -> Picture:
    """Where one word looks, in several heads: the paper's Figure 3.

    Raises:
        ValueError: the maps are not of one kind and over the same words, or
            the word does not stand there just once.
    """
    first = check_alike(maps)
    t = place_of(word, first.queries)
    title = f"{KINDS[first.name.kind]}, layer {first.name.layer}"
    fig, ax = word_page(4.2, max(len(first.queries), len(first.keys)), title)
    draw_words(ax, 1.2, first.queries, "right", bold=t)
    step = 0.15  # from one head's column to the next one's
    for h, one in enumerate(maps):
        x, colour = 2.4 + h * step, colour_of(one.name)
        shift = 0.1 * ((len(maps) - 1) / 2 - h)  # the lines lie apart
        draw_lines(ax, (1.27, 2.33), one, [t], shift)
        for s, weight in enumerate(one.weights[t].tolist()):
            ax.barh(
                -s, 0.13, 0.74, x, color=colour, alpha=weight, align="center"
            )
        style = {"ha": "center", "va": "center", "color": colour, "size": 10}
        ax.text(x + step / 2, 1, one.name.head, weight="bold", **style)
    draw_words(ax, 2.46 + len(maps) * step, first.keys, "left")
    ax.text(2.3, 1, "head", ha="right", va="center", color=QUIET, fontsize=10)
    lines = [f"of head {m.name.head} to {strongest(m, t)}" for m in maps]
    alt = f"Lines from the word {word} to the words it looks at, in {title}. "
    return Picture(fig, f"{alt}The strongest line {', '.join(lines)}.")


# 09_attention_pictures: A long dependency
Example = tuple[str, str, str]
"""A sentence, a word of it that looks, and a word that it may look at."""


def mean_weight(
    translator: Translator, examples: Sequence[Example]
) -> dict[HeadName, float]:
    """How much of its attention each encoder head gives to the word in
    question, on average.

    Args:
        translator: a model in eval mode and its vocabulary.
        examples: at least one; each word stands in its sentence just once.

    Raises:
        ValueError: a word does not, or there is no example.
    """
    if not examples:
        raise ValueError("no examples: there is no mean of nothing")
    total: dict[HeadName, float] = {}
    for text, query, key in examples:
        for name, one in attention_maps(translator, text, "").items():
            if name.kind == "encoder":
                weight = one.weight(query, key) / len(examples)
                total[name] = total.get(name, 0.0) + weight
    return total


def draw_shades(ax: Any, one: AttentionMap) -> None:
    """A map as a grid of squares, the darker the larger the weight."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = ["white", colour_of(one.name)]
    shades = LinearSegmentedColormap.from_list("shades", ends)
    ax.imshow(one.weights.numpy(), cmap=shades, vmin=0, vmax=1, aspect="auto")
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set(visible=True, color=QUIET, linewidth=0.5)


def draw_matrix(one: AttentionMap, gold: Sequence[int | None] = ()) -> Picture:
    """One map as a grid, its words at the sides.

    Args:
        one: the map.
        gold: the right column of each row, which gets a ring; see `aligned`.
    """
    T, S = one.weights.shape
    fig, ax = new_figure(0.3 * S + 1.7, 0.27 * T + 1.3)
    draw_shades(ax, one)
    style = {"rotation": 55, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(range(S), one.keys, fontsize=11, **style)
    ax.set_yticks(range(T), one.queries, fontsize=11)
    ax.xaxis.tick_top()
    edges = {"color": "#e6e6e6", "linewidth": 0.5}
    ax.hlines([t + 0.5 for t in range(T - 1)], -0.5, S - 0.5, **edges)
    ax.vlines([s + 0.5 for s in range(S - 1)], -0.5, T - 0.5, **edges)
    ax.set_xlabel(str(one.name), color=QUIET, fontsize=10)
    for t, s in enumerate(gold):
        if s is not None:
            ax.plot(s, t, "wo", markeredgecolor=INK, markersize=9)
    alt = f"A grid of {T} rows and {S} columns, {one.name}. The darkest "
    alt += f"squares: {strongest_lines(one, range(T))}."
    if gold:
        hits = aligned(one, gold)
        alt += f" In {sum(hits)} of {len(hits)} rows with a ring it is there."
    return Picture(fig, alt)


# 09_attention_pictures: Whose name is it?
def draw_beside(
    left: AttentionMap, right: AttentionMap, word: str | None = None
) -> Picture:
    """Two heads, the queries in the middle and their keys on both sides.

    Args:
        left, right: the maps.
        word: draw only where this word looks; None: where every word does.

    Raises:
        ValueError: the maps are not of one kind and over the same words, or
            the word does not stand there just once.
    """
    check_alike([left, right])
    T = len(left.queries)
    bold = None if word is None else place_of(word, left.queries)
    rows = [*range(T)] if bold is None else [bold]
    half = 0.1 + 0.05 * max(map(len, left.queries))  # of the middle column
    fig, ax = word_page(4.6, max(T, len(left.keys)), KINDS[left.name.kind])
    draw_words(ax, 2.3, left.queries, "center", bold)
    sides = []
    for one, side, away in ((left, "right", -1), (right, "left", 1)):
        inner, outer = 2.3 + away * half, 2.3 + away * (half + 0.75)
        draw_lines(ax, (inner, outer), one, rows)
        draw_words(ax, outer + away * 0.07, one.keys, side)
        style = {"ha": side, "va": "center", "color": colour_of(one.name)}
        label = f"layer {one.name.layer}, head {one.name.head}"
        ax.text(outer, 1, label, fontsize=10, **style)
        sides.append(f"of {label}: {strongest_lines(one, rows)}")
    alt = "Words in the middle, with lines to what they look at on both "
    alt += f"sides, in {KINDS[left.name.kind]}. The strongest lines "
    return Picture(fig, f"{alt}{'; '.join(sides)}.")


# 09_attention_pictures: Heads that do different things
def draw_grid(maps: Sequence[AttentionMap]) -> Picture:
    """Every head of one kind in small: a row of squares for each layer.

    Raises:
        ValueError: the maps are not of one kind and over the same words.
    """
    first = check_alike(maps)
    layers = sorted({one.name.layer for one in maps})
    heads = sorted({one.name.head for one in maps})
    size = (4.6, 0.55 + 0.75 * len(layers))
    table = {"nrows": len(layers), "ncols": len(heads), "squeeze": False}
    fig, axes = new_figure(*size, **table)
    for one in maps:
        row, column = layers.index(one.name.layer), heads.index(one.name.head)
        ax = axes[row, column]
        draw_shades(ax, one)
        ax.set(xticks=[], yticks=[])
        if column == 0:
            ax.set_ylabel(f"layer {one.name.layer}", fontsize=9)
        if row == 0:
            ax.set_title(f"head {one.name.head}", fontsize=9)
    fig.supxlabel(KINDS[first.name.kind], color=QUIET, fontsize=10)
    alt = f"A small square for each head of {KINDS[first.name.kind]}, on the "
    alt += f"words {' '.join(first.keys)}. Of all attention the last word gets "
    shares = []
    for n in layers:
        to_last = [m.weights[:, -1].mean() for m in maps if m.name.layer == n]
        shares.append(f"{torch.stack(to_last).mean():.2f} in layer {n}")
    return Picture(fig, f"{alt}{', '.join(shares)}.")


# 09_attention_pictures: Where the answer is known
ENGLISH_OF = {
    **dict(zip(EINER, UNITS, strict=True)),
    **dict(zip(ZEHNER.split(), TENS, strict=True)),
    **{"ein": "one", "hundert": "hundred", "tausend": "thousand"},
}
"""The English word of each German piece but "und"."""


def gold_alignment(number: int) -> list[int | None]:
    """For each German piece of a number, the place of its English word.

    None: it has none, as "und".

    Raises:
        ValueError: the number is not in 0 ... 999,999.
    """
    words, seen = english(number).split(), Counter[str]()
    found: list[int | None] = []
    for piece in split_german(german(number)):
        word = ENGLISH_OF.get(piece, "")
        places = [s for s, other in enumerate(words) if other == word]
        found.append(places[seen[word]] if places else None)
        seen[word] += 1
    return found


def aligned(one: AttentionMap, gold: Sequence[int | None]) -> list[bool]:
    """Whether each row's largest weight lies where it should.

    Args:
        one: a map whose first rows are those of the gold alignment.
        gold: the right column of each row; None: the row is not asked.

    Raises:
        ValueError: there are more gold rows than rows, or a column that the
            map does not have.
    """
    asked = [(t, s) for t, s in enumerate(gold) if s is not None]
    T, S = one.weights.shape
    if len(gold) > T or any(not 0 <= s < S for _, s in asked):
        raise ValueError(f"the alignment does not fit a map of {T} by {S}")
    return [int(one.weights[t].argmax()) == s for t, s in asked]


# 09_attention_pictures: Take a head away
def attention_of(model: Transformer, name: HeadName) -> MultiHeadAttention:
    """The sub-layer that a head belongs to.

    Raises:
        ValueError: the model has no such head.
    """
    N, H = model.config.n_layers, model.config.n_heads
    if name.layer > N or name.head > H:
        raise ValueError(f"no {name}: there are {N} layers of {H} heads")
    stack = model.encoder if name.kind == "encoder" else model.decoder
    layer: Any = stack.layers[name.layer - 1]
    cross = name.kind == "cross"
    found = layer.cross_attention if cross else layer.self_attention
    assert isinstance(found, MultiHeadAttention)
    return found


def silence(
    columns: slice,
) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor]]:
    """A hook that sets columns of a module's input to zero."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        x = inputs[0].clone()
        x[..., columns] = 0.0
        return (x,)

    return hook


@contextmanager
def without_heads(
    model: Transformer, names: Sequence[HeadName]
) -> Iterator[None]:
    """Inside `with` these heads contribute nothing; after it they are back.

    Raises:
        ValueError: the model has no such head.
    """
    with ExitStack() as hooks:
        for name in names:
            attention = attention_of(model, name)
            V = attention.w_o.in_features // attention.n_heads
            columns = slice((name.head - 1) * V, name.head * V)
            hook = attention.w_o.register_forward_pre_hook(silence(columns))
            hooks.enter_context(hook)
        yield


__all__ = [
    "AttentionMap",
    "COLOURS",
    "ENGLISH_OF",
    "Example",
    "HeadName",
    "KINDS",
    "Kind",
    "Maps",
    "Picture",
    "QUIET",
    "aligned",
    "attention_maps",
    "attention_of",
    "check_alike",
    "colour_of",
    "draw_beside",
    "draw_grid",
    "draw_lines",
    "draw_matrix",
    "draw_shades",
    "draw_word",
    "draw_words",
    "gold_alignment",
    "maps_of_layer",
    "mean_weight",
    "place_of",
    "silence",
    "strongest",
    "strongest_lines",
    "token_text",
    "token_texts",
    "without_heads",
    "word_page",
]
