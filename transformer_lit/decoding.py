"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lit.model import DecoderCache, Transformer
from transformer_lit.stacks import LayerCache


# 06_1_translation: Greedy search
@dataclass(frozen=True)
class Hypothesis:
    """One finished or cut-off output.

    Attributes:
        tokens: its ids, without BOS and EOS.
        log_prob: the sum of its tokens' log-probabilities, EOS's among them
            if it ended, in nats.
        score: what orders hypotheses, higher first.
    """

    tokens: list[int]
    log_prob: float
    score: float


class Written:
    """A hypothesis while it grows."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.log_prob = 0.0

    def add(self, token: int, log_prob: float, eos_id: int) -> None:
        """Add a token; EOS counts in the probability only."""
        self.log_prob += log_prob
        if token != eos_id:
            self.tokens.append(token)

    def hypothesis(self) -> Hypothesis:
        """What was written."""
        return Hypothesis(self.tokens, self.log_prob, self.log_prob)


def check_numbers(log_probs: list[float]) -> None:
    """Raise a ValueError if a log-probability is not a number."""
    if any(math.isnan(log_prob) for log_prob in log_probs):
        raise ValueError(
            "the model's probabilities are not numbers (NaN): its weights "
            "are damaged, or its training diverged"
        )


# 06_1_translation: Room for what is written
class Room:
    """Vectors [R, H, T, K] that grow by a position at a time.

    Args:
        first: of the first position [R, H, 1, K].
        steps: room for so many positions; it grows when it is full.
    """

    def __init__(self, first: Tensor, steps: int = 32) -> None:
        self.length, (R, H, _, K) = 0, first.shape
        self.here = first.new_empty(R, H, steps, K)
        self.there = torch.empty_like(self.here)

    def append(self, new: Tensor) -> Tensor:
        """Write vectors [R, H, 1, K] behind the others; return them all."""
        if self.length == self.here.shape[2]:
            self.here = torch.cat([self.here, self.here], dim=2)  # twice
            self.there = torch.empty_like(self.here)
        self.length += 1
        self.here[:, :, self.length - 1 : self.length] = new
        return self.here[:, :, : self.length]

    def reorder(self, rows: Tensor) -> Tensor:
        """Take these of the R rows, in this order."""
        if len(rows) != len(self.there):
            self.there = self.here.new_empty(len(rows), *self.here.shape[1:])
        used = self.there[:, :, : self.length]
        torch.index_select(self.here[:, :, : self.length], 0, rows, out=used)
        self.here, self.there = self.there, self.here
        return used


class RoomyCache(LayerCache):
    """A `LayerCache` whose past lies in two `Room`s, without gradients.

    What `past` was before a call of `reorder` is overwritten later.
    """

    rooms: tuple[Room, Room]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys [B, H, 1, K] and values [B, H, 1, V]; return them all."""
        if self.past is None:
            self.rooms = Room(k), Room(v)
        self.past = self.rooms[0].append(k), self.rooms[1].append(v)
        return self.past

    def reorder(self, rows: Tensor) -> None:
        """Keep the past of these targets, in this order; rows is int64."""
        if self.past is not None:
            self.past = self.rooms[0].reorder(rows), self.rooms[1].reorder(rows)


def open_cache(model: Transformer, src: Tensor) -> DecoderCache:
    """`model.start` for a search: the past grows in place."""
    cache = model.start(src)
    for i, layer in enumerate(cache.layers):
        k, v = layer.memory  # views, read at every step: once in order
        cache.layers[i] = RoomyCache((k.contiguous(), v.contiguous()))
    return cache


ROWS = 16
"""Of so many rows the softmax is taken at once."""


def log_probs_of(ids: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities of tokens [R, C], from logits [R, W]; fp32 at least."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return torch.cat(
        [
            rows.log_softmax(-1, wide).gather(1, some)
            for rows, some in zip(
                logits.split(ROWS), ids.split(ROWS), strict=True
            )
        ]
    )


@torch.inference_mode()
def greedy_search(
    model: Transformer, src: Tensor, *, max_extra: int = 50
) -> list[list[Hypothesis]]:
    """Take the most probable token each time, until the end token.

    Args:
        model: in eval mode, or dropout will disturb the output.
        src: source ids [B, S], int64.
        max_extra: a sentence of n ids gets at most n + max_extra, its EOS
            counted on both sides, and at least one.

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        ValueError: max_extra is negative, or the model's output is NaN.
    """
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative")
    config = model.config
    room = (src != config.pad_id).sum(1) + max_extra  # [B]
    found = [Written() for _ in src]
    cache = open_cache(model, src)
    rows = torch.arange(len(src), device=src.device)  # still being written
    ids = torch.full_like(rows, config.bos_id)
    while len(rows):
        logits = model.step(ids, cache)  # [R, W]
        ids = logits.argmax(-1)
        log_probs = log_probs_of(ids[:, None], logits)[:, 0]
        for row, token, log_prob in zip(
            rows.tolist(), ids.tolist(), log_probs.tolist(), strict=True
        ):
            found[row].add(token, log_prob, config.eos_id)
        length = cache.ids.shape[1]
        goes_on = (ids != config.eos_id) & (length < room[rows])
        if not goes_on.all():
            keep = goes_on.nonzero()[:, 0]
            cache.select(keep)
            rows, ids = rows[keep], ids[keep]
    check_numbers([written.log_prob for written in found])
    return [[written.hypothesis()] for written in found]


# 06_1_translation: Comparing lengths
def length_penalty(length: int, alpha: float) -> float:
    """What a log-probability is divided by, section 6.1.

    Args:
        length: the tokens of an output, its EOS counted.
        alpha: the exponent; 0 turns the penalty off.
    """
    return ((5 + length) / 6) ** alpha


# 06_1_translation: Outputs that have ended
class Kept:
    """The best finished outputs of one sentence.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.best: list[Hypothesis] = []

    @property
    def threshold(self) -> float:
        """The score that a new one has to exceed."""
        full = len(self.best) == self.size
        return self.best[-1].score if full else -math.inf

    def add(self, hypothesis: Hypothesis) -> None:
        """Put it in its place; among equals the earlier one stays ahead."""
        self.best.append(hypothesis)
        self.best.sort(key=lambda kept: -kept.score)
        del self.best[self.size :]


def best_continuations(
    log_probs: Tensor, logits: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The most probable of all outputs that are one token longer.

    Args:
        log_probs: of the outputs so far [B, A].
        logits: of their next tokens [B * A, W].
        count: C, how many for each sentence; if there are fewer, all.

    Returns:
        Log-probabilities, which of the A was continued, and by which token,
        each [B, C], the most probable first.
    """
    B, A = log_probs.shape
    longer = log_probs[..., None] + logits.log_softmax(-1).view(B, A, -1)
    W = longer.shape[2]
    best = longer.flatten(1).topk(min(count, A * W))
    return best.values, best.indices // W, best.indices % W


# 06_1_translation: The same, faster
def fast_continuations(
    log_probs: Tensor, logits: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`best_continuations` without a table of all continuations."""
    B = len(log_probs)
    tokens = logits.topk(min(count, logits.shape[1])).indices  # [B * A, C]
    longer = log_probs.reshape(-1, 1) + log_probs_of(tokens, logits)
    best = longer.view(B, -1).topk(min(count, longer.numel() // B))
    ids = tokens.view(B, -1).gather(1, best.indices)
    return best.values, best.indices // longer.shape[1], ids


@dataclass
class Beams:
    """The outputs that still grow: A of them for each of B sentences.

    Attributes:
        cache: of B sentences and B * A targets; those of one sentence lie
            side by side.
        ids: the last token of each output [B, A].
        log_probs: the sums so far [B, A], the best first.
        sentences: which sentences of the input these B are.
    """

    cache: DecoderCache
    ids: Tensor
    log_probs: Tensor
    sentences: list[int]

    def text(self, row: int, output: int) -> list[int]:
        """The tokens of an output that the model has read, without BOS."""
        A = self.ids.shape[1]
        return self.cache.ids[row * A + output, 1:].tolist()

    def follow(self, parents: Tensor, ids: Tensor, log_probs: Tensor) -> None:
        """Continue the outputs `parents` by the tokens `ids`, each [B, A]."""
        B, A = self.ids.shape
        first = A * torch.arange(B, device=ids.device)  # row of each sentence
        self.cache.reorder((first[:, None] + parents).flatten())
        self.ids, self.log_probs = ids, log_probs

    def keep(self, rows: list[int]) -> None:
        """Go on with these of the B sentences only."""
        chosen = torch.tensor(rows, dtype=torch.int64, device=self.ids.device)
        A = self.ids.shape[1]
        outputs = torch.arange(A, device=self.ids.device)
        self.cache.select(chosen, (A * chosen[:, None] + outputs).flatten())
        self.ids, self.log_probs = self.ids[chosen], self.log_probs[chosen]
        self.sentences = [self.sentences[row] for row in rows]


def open_beams(model: Transformer, src: Tensor) -> Beams:
    """One empty output for each source sentence [B, S]."""
    cache = open_cache(model, src)
    ids = src.new_full((len(src), 1), model.config.bos_id)
    dtype = torch.promote_types(cache.memory.dtype, torch.float32)
    log_probs = torch.zeros(len(src), 1, dtype=dtype, device=src.device)
    return Beams(cache, ids, log_probs, list(range(len(src))))


def advance(
    model: Transformer, beams: Beams, found: list[Kept], size: int, alpha: float
) -> int:
    """Make every output one token longer; what ends goes to `found`.

    Returns:
        The length now, EOS counted.
    """
    logits = model.step(beams.ids.flatten(), beams.cache)
    length = beams.cache.ids.shape[1]
    log_probs, parents, ids = fast_continuations(
        beams.log_probs, logits, 2 * size
    )
    ends = ids == model.config.eos_id
    for row, parent, log_prob in zip(
        ends.nonzero()[:, 0].tolist(),
        parents[ends].tolist(),
        log_probs[ends].tolist(),
        strict=True,
    ):
        kept = found[beams.sentences[row]]
        score = log_prob / length_penalty(length, alpha)
        if score > kept.threshold:
            kept.add(Hypothesis(beams.text(row, parent), log_prob, score))
    most = beams.ids.shape[1] * (logits.shape[1] - 1)  # that do not end
    growing = log_probs.masked_fill(ends, -torch.inf).topk(min(size, most))
    at = growing.indices
    beams.follow(parents.gather(1, at), ids.gather(1, at), growing.values)
    return length


# 06_1_translation: When to stop
def check_search(
    beam_size: int, alpha: float, max_extra: int, n_best: int | None
) -> None:
    """Raise a ValueError for an option that makes no sense."""
    if beam_size < 1:
        raise ValueError(f"beam_size={beam_size} must be at least 1")
    if not 0 <= alpha <= 10:
        raise ValueError(
            f"alpha={alpha} must be a number from 0 to 10: below, the search "
            "cannot know when to stop"
        )
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative")
    if n_best is not None and not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best={n_best} must be from 1 to beam_size={beam_size}"
        )


def cut_off(beams: Beams, row: int, kept: Kept, penalty: float) -> None:
    """Nothing of a sentence has ended at its limit: take what there is."""
    for output, log_prob in enumerate(beams.log_probs[row].tolist()):
        tokens = [*beams.text(row, output), int(beams.ids[row, output])]
        kept.add(Hypothesis(tokens, log_prob, log_prob / penalty))


@torch.inference_mode()
def beam_search(
    model: Transformer,
    src: Tensor,
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int | None = None,
) -> list[list[Hypothesis]]:
    """Search as in section 6.1, by the rules of the released code.

    Args:
        model: in eval mode, or dropout will disturb the output.
        src: source ids [B, S], int64.
        beam_size: k, how many outputs grow at a time.
        alpha: the exponent of the length penalty, not negative.
        max_extra: a sentence of n ids gets at most n + max_extra, its EOS
            counted on both sides, and at least one.
        n_best: how many finished outputs are wanted; None: beam_size. Fewer
            are found sooner, and they are the same.

    Returns:
        For each sentence its best outputs, the best first. There are fewer
        than n_best if fewer ended, and unfinished ones if none ended.

    Raises:
        ValueError: an option makes no sense, or the model's output is NaN.
    """
    check_search(beam_size, alpha, max_extra, n_best)
    room = ((src != model.config.pad_id).sum(1) + max_extra).tolist()
    found = [Kept(n_best or beam_size) for _ in room]
    beams = open_beams(model, src)
    while beams.sentences:
        length = advance(model, beams, found, beam_size, alpha)
        best, going_on = beams.log_probs[:, 0].tolist(), []
        check_numbers(best)
        for row, sentence in enumerate(beams.sentences):
            kept, penalty = found[sentence], length_penalty(length, alpha)
            bound = best[row] / length_penalty(room[sentence], alpha)
            if length < room[sentence]:
                if bound > kept.threshold:
                    going_on.append(row)
            elif not kept.best:
                cut_off(beams, row, kept, penalty)
        if len(going_on) < len(beams.sentences):
            beams.keep(going_on)
    return [kept.best for kept in found]


__all__ = [
    "Beams",
    "Hypothesis",
    "Kept",
    "ROWS",
    "Room",
    "RoomyCache",
    "Written",
    "advance",
    "beam_search",
    "best_continuations",
    "check_numbers",
    "check_search",
    "cut_off",
    "fast_continuations",
    "greedy_search",
    "length_penalty",
    "log_probs_of",
    "open_beams",
    "open_cache",
]
