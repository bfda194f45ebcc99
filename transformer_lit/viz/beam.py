"""The tree of a beam search."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_lit.decoding import (
    Hypothesis,
    best_continuations,
    check_numbers,
    greedy_search,
    length_penalty,
    open_beams,
)
from transformer_lit.figures import BLUE, FAINT, INK
from transformer_lit.pictures import token_text
from transformer_lit.translator import Translator
from transformer_lit.viz.story import (
    Story,
    Value,
    chosen,
    number_text,
    panel,
    rounded,
    shortened,
)

BEAMS = (1, 2, 3, 4, 6, 8)
ALPHAS = [n / 10 for n in range(21)]
"""The beam sizes and penalties that can be chosen."""
MOST_STEPS = 40
NO_WORD = "(no word)"
"""An output that ends at once."""


def beam(
    translator: Translator,
    text: str,
    *,
    beam_size: int = 3,
    alpha: float = 0.6,
) -> Story:
    """The tree of a beam search, section 6.1.

    Another sentence is another call: `show("beam", translator, "six")`.

    Args:
        translator: a model and its vocabulary, `Translator.load("numbers")`.
        text: what is translated.
        beam_size, alpha: what is shown first: one of `BEAMS` and `ALPHAS`.

    Raises:
        ValueError: there is no such choice, the text is none that the model
            reads, or no output has ended after 40 steps: it is too long for a
            tree.
    """
    if not isinstance(translator, Translator):
        raise ValueError(
            f"{translator!r} is no Translator: give one and then a text, "
            'Translator.load("numbers"), "six"'
        )
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{text!r} is no text: give what is to be translated")
    beam_size = chosen(beam_size, BEAMS, "beam_size")
    alpha = float(chosen(alpha, ALPHAS, "alpha"))
    model = copy.deepcopy(translator.model).cpu().double().eval()
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
        output = " ".join(words[i] for i in one.tokens) or NO_WORD
        rows.append([output, one.log_prob, str(length), penalty, one.score])
    [[greedy]] = greedy_search(model, src)
    same = greedy.tokens == found[0].tokens
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
        "greedy": greedy.tokens,
        "end": eos,
        "room": room,
        "start": start,
    }
    head = ["output", "log p", "length", "penalty", "score"]
    drawn = trees[beam_size][:steps]
    figure = draw_tree(drawn, beam_size, words, eos, found[0].tokens)
    return Story(
        "beam",
        f"A beam search: {text}",
        "Each column is a step: the likeliest continuations and their log p. "
        "Round ones grow on, square ones have ended, faint ones are dropped; "
        "the thick path leads to the best output.",
        'Widen the beam, raise alpha. In a notebook, show("beam", translator, '
        '"six") draws the tree of another sentence.',
        summary,
        head,
        rows,
        3,
        data,
        figure,
    )


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
            kept = grows or token == eos
            colour = BLUE if thick else INK if kept else FAINT
            ax.plot([x, n], [y, -line], color=colour, lw=2.5 if thick else 0.8)
            shape = "square" if token == eos else "round"
            box = {"boxstyle": shape, "fc": "white", "ec": colour}
            word = shortened(words[token], 12)
            label = f"{word} {number_text(log_prob, 1)}"
            style = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(n, -line, label, bbox=box, **style)
            if grows:
                growing.append((n, -line, tokens))
        ends = growing
    ax.set(xlim=(-0.1, len(tree) + 0.6), ylim=(0.6 - most, 0.6))
    ax.axis("off")
    return fig
