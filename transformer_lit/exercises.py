"""Checking your own solutions.

From book/12_exercises.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


# 12_exercises: What there is to say about a difference
class WrongAnswerError(AssertionError):
    """Says in words what is wrong with an answer."""


def entry_difference(mine: Tensor, wanted: Tensor, within: float) -> str:
    """The first entry of a tensor that differs; empty if none does."""
    if wanted.is_floating_point():
        allowed = within * wanted.abs().max()
        wrong = ~((mine - wanted).abs() <= allowed)  # a nan is wrong as well
    else:
        wrong = mine != wanted
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    where = f"at {list(place)}: " if place else ""
    some = f" ({int(wrong.sum())} of {wrong.numel()} differ)" if place else ""
    got, right = mine[place].item(), wanted[place].item()
    if isinstance(right, float):
        return f"{where}{got:.9g}, expected {right:.9g}{some}"
    return f"{where}{got}, expected {right}{some}"


def difference(mine: Any, wanted: Any, within: float | None = None) -> str:
    """What is wrong with a value, in words; empty if it is right.

    Args:
        mine: the value to judge: a number, a tensor, or a sequence of them.
        wanted: the right one.
        within: how far a number may be off, as a share of the largest; None:
            half the digits of its type.
    """
    if isinstance(wanted, tuple):
        if not isinstance(mine, Sequence) or len(mine) != len(wanted):
            return f"{kind(mine)}, expected {len(wanted)} values"
        parts = zip(mine, wanted, strict=True)
        found = [difference(m, w, within) for m, w in parts]
        return "; ".join(f"value {i}: {f}" for i, f in enumerate(found) if f)
    if not isinstance(wanted, Tensor):  # a number
        if not isinstance(mine, Tensor | int | float) or size(mine) != 1:
            return f"{kind(mine)}, expected a number"
        mine = torch.tensor(float(mine), dtype=torch.float64)
        wanted = torch.tensor(float(wanted), dtype=torch.float64)
    if not isinstance(mine, Tensor):
        return f"{kind(mine)}, expected a tensor"
    mine = mine.detach()
    if mine.shape != wanted.shape:
        return f"shape {list(mine.shape)}, expected {list(wanted.shape)}"
    if mine.dtype != wanted.dtype:
        return f"{mine.dtype}, expected {wanted.dtype}"
    if within is None and wanted.is_floating_point():
        within = math.sqrt(torch.finfo(wanted.dtype).eps)
    return entry_difference(mine, wanted, within or 0.0)


def size(value: Any) -> int:
    """How many numbers a value holds."""
    return value.numel() if isinstance(value, Tensor) else 1


def kind(value: Any) -> str:
    """What something is, for a message."""
    return f"{value}" if value is None else f"a {type(value).__name__}"


# 12_exercises: Functions are tried out
@dataclass(frozen=True)
class Reference:
    """The right answer to an exercise.

    Attributes:
        answer: a value, or a function where there are inputs.
        inputs: makes the inputs that a function is tried on.
        within: as in `difference`.
    """

    answer: Any
    inputs: Callable[[], list[tuple[Any, ...]]] | None = None
    within: float | None = None


def show(value: Any) -> str:
    """An input, for a message."""
    if not isinstance(value, Tensor):
        return repr(value)
    if value.numel() > 8:
        return f"<{list(value.shape)}>"
    return str([round(x, 4) for x in value.flatten().tolist()])


def try_out(answer: Any, reference: Reference) -> str:
    """What is wrong with a function, on the first input where it is."""
    if not callable(answer):
        return f"{kind(answer)}, expected a function"
    inputs = reference.inputs() if reference.inputs else []
    for given in inputs:
        call = f"for ({', '.join(map(show, given))})"
        mine = [x.clone() if isinstance(x, Tensor) else x for x in given]
        try:
            value = answer(*mine)
        except Exception as error:
            return f"{call} it raised {type(error).__name__}: {error}"
        found = difference(value, reference.answer(*given), reference.within)
        if found:
            return f"{call} {found}"
        for before, after in zip(given, mine, strict=True):
            if isinstance(before, Tensor) and not before.equal(after):
                return f"{call} it changed its input"
    return ""


# 12_exercises: The references
def draws(*shapes: tuple[int, ...], seed: int = 0) -> tuple[Tensor, ...]:
    """Normal numbers in float64; the global generator is left alone."""
    rng = torch.Generator().manual_seed(seed)
    one = partial(torch.randn, generator=rng, dtype=torch.float64)
    return tuple(one(shape) for shape in shapes)


def window_mask(length: int, reach: int) -> Tensor:
    """Row i: True at i - reach, ..., i."""
    back = torch.arange(length)[:, None] - torch.arange(length)
    return (back >= 0) & (back <= reach)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Formula (1)."""
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def attention_gradients(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of q, k and v, by autograd."""
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attend(*leaves), leaves, grad)


def rms_norm(x: Tensor) -> Tensor:
    """Without mean and bias."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def larger_first(x: Tensor) -> Tensor:
    """[n, 2] -> [n, 2]: the larger of two, and 0."""
    return torch.stack([x.amax(-1), torch.zeros(len(x))], -1)


def bad_batch(beta2: float) -> float:
    """How far one bad batch moves a weight in all, in rates."""
    at_once = 0.1 / math.sqrt(1 - beta2)
    return at_once / (1 - 0.9 / math.sqrt(beta2))


def without_pad(target: int, W: int, eps: float) -> Tensor:
    """The smoothed target that gives the pad class, 0, nothing."""
    q = torch.full((W,), eps / (W - 2), dtype=torch.float64)
    q[target], q[0] = 1 - eps, 0.0
    return q


def numbers(*values: float) -> Callable[[], list[tuple[Any, ...]]]:
    """Inputs that are one number each."""
    return lambda: [(value,) for value in values]


def vectors() -> list[tuple[Any, ...]]:
    """Two vectors, each as it is, very small, and very large."""
    scales = (1, 1e-3, 1e3)
    return [(scale * x,) for x in draws((3,), (16,)) for scale in scales]


THREE = 0.005  # three digits are right
# The right answers, by the label of the exercise.
REFERENCES: dict[str, Reference] = {
    "ex-arch-1": Reference((1.31072, 118.4), within=THREE),
    "ex-stacks-3": Reference(rms_norm, vectors),
    "ex-stacks-4": Reference(math.exp(-0.5), within=THREE),
    "ex-attention-by-hand": Reference(13.75, within=THREE),
    "ex-attention-variance": Reference(
        lambda d_k: 2 * math.sqrt(d_k), numbers(1, 4, 64, 512)
    ),
}


REFERENCES |= {
    "ex-attention-window": Reference(
        window_mask, lambda: [(3, 0), (4, 1), (9, 2), (5, 9)]
    ),
    "ex-attention-gradients": Reference(
        attention_gradients,
        lambda: [
            draws((1, 2), (2, 2), (2, 1), (1, 1)),
            draws((4, 8), (5, 8), (5, 6), (4, 6)),
        ],
    ),
    "ex-attention-online": Reference(
        lambda q, k, v, block: attend(q[None], k, v)[0],
        lambda: [
            (*draws((2,), (4, 2), (4, 1)), 4),
            (*draws((2,), (4, 2), (4, 1)), 2),
            (*draws((8,), (50, 8), (50, 6)), 7),
            (1e4 * draws((8,))[0], *draws((50, 8), (50, 6), seed=1), 7),
        ],
    ),
    "ex-complexity-1": Reference(
        lambda n: (n - 1) / (2 * n), numbers(1, 2, 30, 500)
    ),
    "ex-complexity-3": Reference(3, within=0.0),
}


def pairs() -> list[tuple[Any, ...]]:
    """Inputs for `larger_first`."""
    grid = torch.arange(-2.0, 3.0)
    return [(torch.tensor([[1.0, 2.0]]),), (torch.cartesian_prod(grid, grid),)]


def undo_inputs() -> list[tuple[Any, ...]]:
    """What a smoothed model says, and by how much it was smoothed."""
    return [
        (torch.tensor([0.7, 0.3], dtype=torch.float64), 0.2),
        (draws((66,))[0].softmax(-1), 0.1 * 66 / 65),
    ]


REFERENCES |= {
    "ex-ffn-1": Reference(0.9431, within=THREE),
    "ex-ffn-2": Reference(larger_first, pairs),
    "ex-embeddings-1": Reference(
        (5.657, 1.0, 0.1768, 1 / 3, 16 / 17, 4.661), within=THREE
    ),
    "ex-positions-1": Reference(58, within=0.0),
    "ex-model-3": Reference(4.9152, within=THREE),
    "ex-optimizer-1": Reference((1 / 4, 1 / 2, 1 / 3), within=THREE),
    "ex-optimizer-2": Reference(bad_batch, numbers(0.98, 0.999)),
    "ex-regularization-1": Reference(
        lambda p: p / (1 - p), numbers(0.0, 0.1, 0.3, 0.5)
    ),
    "ex-regularization-3": Reference(
        without_pad, lambda: [(3, 5, 0.1), (7, 11, 0.2)]
    ),
    "ex-regularization-4": Reference(
        lambda p, eps: (p - eps / len(p)) / (1 - eps), undo_inputs
    ),
}


def linear_states(a: Tensor, b: Tensor) -> Tensor:
    """h_t = a_t h_(t-1) + b_t from h_0 = 0, one after the other; [n, D]."""
    states = [torch.zeros_like(b[0])]
    for a_t, b_t in zip(a, b, strict=True):
        states.append(a_t * states[-1] + b_t)
    return torch.stack(states[1:])


def masked_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Formula (1) for the keys that may be seen, row by row; mask [T, S]."""
    rows = zip(q, mask, strict=True)
    return torch.cat([attend(x[None], k[may], v[may]) for x, may in rows])


REFERENCES |= {
    "ex-intro-1": Reference(8, within=0.0),
    "ex-intro-3": Reference(
        linear_states,
        lambda: [
            draws((n, D), (n, D)) for n, D in ((1, 1), (2, 1), (7, 3), (16, 3))
        ],
    ),
    "ex-model-1": Reference(86_208, within=THREE),
    "ex-data-1": Reference((65, 64), within=0.0),
    "ex-hardware-1": Reference(20.58, within=THREE),
    "ex-translation-1": Reference(0.6, within=THREE),
    "ex-translation-3": Reference(0.4937, within=THREE),
}


REFERENCES |= {
    "ex-variations-1": Reference((20, 50), within=THREE),
    "ex-variations-2": Reference(1.5835, within=THREE),
    "ex-parsing-1": Reference(lambda n: 3 * n - 2, numbers(2, 3, 40)),
    "ex-modern-1": Reference((20, 80, 640), within=0.0),
    "ex-mistakes-1": Reference(
        masked_attend,
        lambda: [
            (*draws((2, 2), (2, 2), (2, 1)), window_mask(2, 2)),
            (*draws((6, 8), (6, 8), (6, 5)), window_mask(6, 6)),
            (*draws((6, 8), (6, 8), (6, 5), seed=1), window_mask(6, 1)),
        ],
    ),
    "ex-launch-1": Reference(
        lambda batches, processes: (
            batches / (math.ceil(batches / processes) * processes)
        ),
        lambda: [(8, 8), (10, 8), (1, 4), (33, 16)],
    ),
    "ex-launch-2": Reference(4, within=0.0),
    "ex-inconsistencies-1": Reference((1.985, 2.095), within=0.001),
}


def masked_mean(x: Tensor, real: Tensor) -> Tensor:
    """[B, T, D] and [B, T] bool -> [B, D]: the mean over the real tokens."""
    total = torch.where(real[..., None], x, 0).sum(1)
    return total / real.sum(1, keepdim=True).clamp(min=1)


def masked_inputs() -> list[tuple[Any, ...]]:
    """No padding, some, infinities behind it, and nothing else."""
    [x] = draws((2, 3, 4))
    some = torch.tensor([[True, True, False], [True, False, False]])
    none = torch.tensor([[False] * 3, [True] * 3])
    hidden = torch.where(some[..., None], x, math.inf)
    whole = torch.ones(1, 3, dtype=torch.bool)
    return [
        (x[:1, :, :1], whole),
        (x, some),
        (hidden, some),
        (x, none),
    ]


def sentence_log_prob(logits: Tensor, ids: Tensor) -> Tensor:
    """[B, T, W] and [B, T] -> [B]: the log-probability of the real tokens."""
    found = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return (found * (ids != 0)).sum(-1)


def sentences() -> list[tuple[Any, ...]]:
    """Logits and ids; 0 is padding."""
    one, two = draws((1, 2, 3), (2, 4, 7))
    ids = torch.tensor([[3, 6, 2, 0], [1, 2, 0, 0]])
    return [(one, torch.tensor([[1, 2]])), (two, ids), (two + 1e3, ids)]


def scores() -> list[tuple[Any, ...]]:
    """A vector, a matrix, and a vector with entries in the ten thousands."""
    small, matrix, large = draws((2,), (3, 4), (3,))
    return [(small,), (matrix,), (1e4 * large,)]


REFERENCES |= {
    "ex-check-1": Reference(lambda x: x.softmax(-1), scores),
    "ex-check-2": Reference(masked_mean, masked_inputs),
    "ex-check-3": Reference(sentence_log_prob, sentences),
}


# 12_exercises: The check
def check_solution(exercise: str, answer: Any) -> None:
    """Compare an answer to an exercise with a reference, and say what differs.

    Args:
        exercise: the label of the exercise, such as "ex-attention-window".
        answer: the reader's value or function. A function may be a module.

    Raises:
        WrongAnswerError: it is not right; the message says on which input, at
            which place, and by how much.
        ValueError: there is no reference for this exercise.
    """
    if exercise not in REFERENCES:
        raise ValueError(
            f"exercise={exercise!r} cannot be checked; these can: "
            f"{', '.join(REFERENCES)}"
        )
    reference = REFERENCES[exercise]
    if isinstance(answer, nn.Module):
        answer = answer.eval()
    if reference.inputs is None:
        found = difference(answer, reference.answer, reference.within)
    else:
        found = try_out(answer, reference)
    if found:
        raise WrongAnswerError(f"{exercise}: {found}")
    print(f"{exercise}: right")


__all__ = [
    "REFERENCES",
    "Reference",
    "THREE",
    "WrongAnswerError",
    "attend",
    "attention_gradients",
    "bad_batch",
    "check_solution",
    "difference",
    "draws",
    "entry_difference",
    "kind",
    "larger_first",
    "linear_states",
    "masked_attend",
    "masked_inputs",
    "masked_mean",
    "numbers",
    "pairs",
    "rms_norm",
    "scores",
    "sentence_log_prob",
    "sentences",
    "show",
    "size",
    "try_out",
    "undo_inputs",
    "vectors",
    "window_mask",
    "without_pad",
]
