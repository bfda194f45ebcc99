"""fairseq's Transformer with its loss and search."""

# mypy: disable-error-code="import-not-found, import-untyped"
import dataclasses
from argparse import Namespace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Case, Size
from benchmarks.peer import ALPHA, SMOOTHING, Decode, Peer, stub
from transformer_lit.batches import Batch
from transformer_lit.config import BOS, EOS, PAD, UNK

# Its dataclasses have others as defaults, which Python takes since 3.11 only
# if they can be hashed.
plain = dataclasses.dataclass
dataclasses.dataclass = partial(plain, unsafe_hash=True)
try:
    stub("torch.utils.tensorboard", "tensorboardX")
    from fairseq.criterions.label_smoothed_cross_entropy import (
        LabelSmoothedCrossEntropyCriterion,
    )
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel
    from fairseq.sequence_generator import SequenceGenerator
finally:
    dataclasses.dataclass = plain


def dictionary(size: Size) -> Any:
    """Words without a meaning, special symbols with our ids."""
    found = Dictionary()
    for i in range(UNK + 1, size.vocab_size):
        found.add_symbol(f"w{i}")
    found.pad_index, found.bos_index = PAD, BOS
    found.eos_index, found.unk_index = EOS, UNK
    return found


class Adapter(Peer):
    """As it comes."""

    package = "fairseq"

    def model(self, size: Size) -> nn.Module:
        words = dictionary(size)
        task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
        options = Namespace(
            encoder_embed_dim=size.d_model,
            encoder_ffn_embed_dim=size.d_ff,
            encoder_layers=size.n_layers,
            encoder_attention_heads=size.n_heads,
            decoder_layers=size.n_layers,
            decoder_attention_heads=size.n_heads,
            dropout=size.p_drop,
            share_all_embeddings=True,
        )
        self.criterion = LabelSmoothedCrossEntropyCriterion(
            task, sentence_avg=False, label_smoothing=SMOOTHING
        )
        model: nn.Module = TransformerModel.build_model(options, task)
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens = int((batch.tgt_out != PAD).sum())
        sample = {
            "net_input": {
                "src_tokens": batch.src,
                "src_lengths": (batch.src != PAD).sum(1),
                "prev_output_tokens": batch.tgt_in,
            },
            "target": batch.tgt_out,
            "ntokens": tokens,
        }
        total, _, _ = self.criterion(model, sample)
        loss: Tensor = total / tokens
        return loss

    def decoder(self, case: Case) -> Decode:
        model = self.model(case.size).to(case.device).eval()
        steps = case.lengths[0][0][1]
        # Its limits do not count the end token, which it writes as the last.
        generator = SequenceGenerator(
            [model],
            dictionary(case.size),
            beam_size=case.beam,
            min_len=steps - 1,
            max_len_b=steps - 1,
            len_penalty=ALPHA,
        )

        def decode(src: Tensor) -> list[list[int]]:
            lengths = torch.full((len(src),), src.shape[1], device=src.device)
            told = {"src_tokens": src, "src_lengths": lengths}
            found = generator.generate([model], {"net_input": told})
            return [best["tokens"].tolist() for best, *_ in found]

        return decode
