"""x-transformers' encoder and decoder, in the paper's post-norm form."""

# mypy: disable-error-code="import-not-found, import-untyped"
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import XTransformer

from benchmarks.cases import Size
from benchmarks.peer import SMOOTHING, Peer
from transformer_lit.batches import Batch
from transformer_lit.config import PAD


class Adapter(Peer):
    """Its wrapper has no label smoothing, so the loss is torch's."""

    package = "x-transformers"

    def model(self, size: Size) -> nn.Module:
        side = {
            "num_tokens": size.vocab_size,
            "max_seq_len": 128,
            "depth": size.n_layers,
            "heads": size.n_heads,
            "attn_dim_head": size.d_model // size.n_heads,
            "ff_mult": size.d_ff / size.d_model,
            "ff_custom_activation": nn.ReLU(),
            "pre_norm": False,
            "emb_dropout": size.p_drop,
            "layer_dropout": 0.0,
            "scaled_sinu_pos_emb": True,
        }
        options = {
            f"{name}_{key}": value
            for name in ("enc", "dec")
            for key, value in side.items()
        }
        model: Any = XTransformer(
            dim=size.d_model, tie_token_emb=True, pad_value=PAD, **options
        )
        decoder = model.decoder.net
        decoder.to_logits.weight = decoder.token_emb.emb.weight
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        whole: Any = model
        mask = batch.src != PAD
        memory = whole.encoder(batch.src, mask=mask, return_embeddings=True)
        logits = whole.decoder.net(
            batch.tgt_in, context=memory, context_mask=mask
        )
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch.tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
        )
