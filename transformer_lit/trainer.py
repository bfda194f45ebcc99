"""Training as software.

From book/10_training.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from collections.abc import Iterator
from dataclasses import dataclass

from transformer_lit.batches import Batch
from transformer_lit.loss import label_smoothed_loss
from transformer_lit.model import Transformer
from transformer_lit.numbers import english, german
from transformer_lit.optimizer import noam
from transformer_lit.translator import Translator


# 10_training: One update
@dataclass(frozen=True)
class Progress:
    """What one update did.

    Attributes:
        step: counted from 1.
        rate: the learning rate.
        loss: the smoothed objective, nats a token.
        nll: the true negative log-likelihood, nats a token.
    """

    step: int
    rate: float
    loss: float
    nll: float


def fit(
    model: Transformer,
    batches: Iterator[Batch],
    *,
    steps: int,
    warmup: int,
    smoothing: float = 0.1,
) -> Iterator[Progress]:
    """Train by the recipe of section 5, one update at a time.

    Args:
        model: is put into train mode before each update, and changed in
            place.
        batches: where the sentence pairs come from.
        steps: how many updates.
        warmup: of the schedule, section 5.3.
        smoothing: of the labels, section 5.4.

    Yields:
        What each update did.

    Raises:
        ValueError: the batches end before the updates do.
    """
    pad_id = model.config.pad_id
    adam, schedule = noam(model, warmup)
    for step in range(1, steps + 1):
        batch = next(batches, None)
        if batch is None:
            raise ValueError(f"the batches end before update {step} of {steps}")
        model.train()
        logits = model(batch.src, batch.tgt_in)
        sums = label_smoothed_loss(
            logits, batch.tgt_out, pad_id=pad_id, smoothing=smoothing
        )
        loss = sums.loss / sums.tokens
        adam.zero_grad()
        loss.backward()
        adam.step()
        rate = float(schedule.get_last_lr()[0])
        schedule.step()
        nll = sums.nll / sums.tokens
        yield Progress(step, rate, loss.item(), nll.item())


# 10_training: How good is it?
def exact_match(translator: Translator, numbers: list[int]) -> float:
    """The share of numbers whose German word comes out letter for letter.

    Args:
        translator: of number words.
        numbers: what to translate, each in 0 ... 999,999.
    """
    outputs = translator.translate([english(n) for n in numbers])
    pairs = zip(outputs, numbers, strict=True)
    return sum(word == german(n) for word, n in pairs) / len(numbers)


__all__ = [
    "Progress",
    "exact_match",
    "fit",
]
