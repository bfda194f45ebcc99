"""torch.nn.Transformer, with embeddings, positions and output around it."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.cases import Size
from benchmarks.peer import SMOOTHING, Peer
from transformer_lit.batches import Batch
from transformer_lit.config import PAD
from transformer_lit.positions import sinusoids


class Model(nn.Module):
    """torch.nn.Transformer between one table for all three uses."""

    positions: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.d_model = size.d_model
        self.table = nn.Embedding(size.vocab_size, size.d_model)
        nn.init.normal_(self.table.weight, std=size.d_model**-0.5)
        positions = sinusoids(128, size.d_model).float()
        self.register_buffer("positions", positions, persistent=False)
        self.dropout = nn.Dropout(size.p_drop)
        self.layers = nn.Transformer(
            size.d_model,
            size.n_heads,
            size.n_layers,
            size.n_layers,
            size.d_ff,
            size.p_drop,
            batch_first=True,
        )
        # The paper has no norm at the end of a stack, and neither drops
        # attention weights nor inner units.
        self.layers.encoder.norm = self.layers.decoder.norm = None
        for layer in self.layers.modules():
            if isinstance(layer, nn.MultiheadAttention):
                layer.dropout = 0.0
            elif isinstance(
                layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
            ):
                layer.dropout = nn.Identity()  # type: ignore[assignment]

    def embed(self, ids: Tensor) -> Tensor:
        """Ids [B, T] to vectors [B, T, D]."""
        x = math.sqrt(self.d_model) * self.table(ids)
        found: Tensor = self.dropout(x + self.positions[: ids.shape[1]])
        return found

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [B, T, W]."""
        T = tgt_in.shape[1]
        shape = torch.ones(T, T, dtype=torch.bool, device=src.device)
        padding = src == PAD
        x = self.layers(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=shape.triu(1),
            src_key_padding_mask=padding,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return x @ self.table.weight.T


class Adapter(Peer):
    """PyTorch's own."""

    def model(self, size: Size) -> nn.Module:
        return Model(size)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch.src, batch.tgt_in)
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch.tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
        )
