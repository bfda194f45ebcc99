"""What is timed: sizes, shapes, precisions."""

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lit.batches import Batch, make_batch
from transformer_lit.config import BOS, EOS, PAD, UNK, TransformerConfig
from transformer_lit.hardware import training_flops

Lengths = list[list[tuple[int, int]]]
"""For each batch, for each of its pairs: source and target tokens."""

PRECISIONS = {
    "fp32": "fp32, torch's default route for products",
    "medium": 'fp32, torch.set_float32_matmul_precision("medium")',
    "bf16": "bf16 autocast over fp32 weights",
}


@dataclass(frozen=True)
class Size:
    """The size of the model that all build; the defaults are the base model,
    with one table for both languages and the output."""

    vocab_size: int = 37_000
    n_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    p_drop: float = 0.1

    def config(self) -> TransformerConfig:
        """The same as a configuration of ours."""
        return TransformerConfig(**dataclasses.asdict(self))


SIZES = {
    "base": Size(),
    "small": Size(4000, 2, 128, 512, 4),
    "tiny": Size(100, 1, 32, 64, 4),
}


@dataclass(frozen=True)
class Case:
    """One thing that is timed.

    Attributes:
        name: its name, without the precision.
        kind: "train" or "decode".
        lengths: of every sentence; decoding has one batch, and the target
            length is how many tokens it has to write.
        beam: hypotheses a sentence; 1: greedy search.
        precision: one of `PRECISIONS`.
        size: of the model.
        device: "cpu" or "cuda".
        threads: of the worker.
    """

    name: str
    kind: str
    lengths: Lengths
    beam: int = 1
    precision: str = "fp32"
    size: Size = SIZES["base"]
    device: str = "cpu"
    threads: int = 2

    @property
    def key(self) -> str:
        """What names it among the results."""
        return f"{self.name} {self.precision}"

    @property
    def tokens(self) -> int:
        """Target tokens of one pass over the batches, without padding."""
        return sum(tgt for batch in self.lengths for _, tgt in batch)

    def flops(self) -> float | None:
        """Products of one pass in training, padding not counted."""
        if self.kind != "train":
            return None
        config = self.size.config()
        return sum(
            training_flops(config, src, tgt, src_length=src, tgt_length=tgt)
            for batch in self.lengths
            for src, tgt in batch
        )

    def to_json(self) -> dict[str, Any]:
        """As a worker is told."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Case":
        """What `to_json` made."""
        return cls(**{**told, "size": Size(**told["size"])})


def draw(case: Case, length: int, rng: random.Random) -> list[int]:
    """Random ids of words: no special symbol is among them."""
    return [rng.randrange(UNK + 1, case.size.vocab_size) for _ in range(length)]


def training_batches(case: Case) -> list[Batch]:
    """The same batches in every worker."""
    rng = random.Random(0)
    device = torch.device(case.device)
    batches = []
    for lengths in case.lengths:
        pairs = [
            ([*draw(case, src - 1, rng), EOS], [*draw(case, tgt - 1, rng), EOS])
            for src, tgt in lengths
        ]
        batch = make_batch(pairs, pad_id=PAD, bos_id=BOS)
        src, tgt_in, tgt_out = (
            ids.to(device) for ids in (batch.src, batch.tgt_in, batch.tgt_out)
        )
        batches.append(Batch(src, tgt_in, tgt_out))
    return batches


def sources(case: Case) -> Tensor:
    """The sentences to translate [B, S]; no end token is among them."""
    rng = random.Random(0)
    [lengths] = case.lengths
    ids = [draw(case, src, rng) for src, _ in lengths]
    return torch.tensor(ids, device=case.device)
