"""MarianMTModel tuned by hand: attention, loss and Adam that suit a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.peer import SMOOTHING
from benchmarks.peers import marian
from transformer_lit.batches import Batch
from transformer_lit.config import PAD


class Adapter(marian.Adapter):
    """As its user could have it."""

    attention = "eager"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(
            self.output(model, batch).logits.flatten(0, 1),
            batch.tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
        )

    def optimizer(self, model: nn.Module) -> Optimizer:
        return torch.optim.Adam(
            model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
