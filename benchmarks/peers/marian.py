"""Hugging Face's MarianMTModel with the loss of its Trainer."""

# mypy: disable-error-code="import-not-found, import-untyped"
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, MarianConfig
from transformers.trainer_pt_utils import LabelSmoother

from benchmarks.cases import Case, Size
from benchmarks.peer import ALPHA, SMOOTHING, Decode, Peer
from transformer_lit.batches import Batch
from transformer_lit.config import BOS, EOS, PAD


class Adapter(Peer):
    """As it comes."""

    package = "transformers"
    attention = "sdpa"

    def model(self, size: Size) -> nn.Module:
        config = MarianConfig(
            vocab_size=size.vocab_size,
            d_model=size.d_model,
            encoder_layers=size.n_layers,
            decoder_layers=size.n_layers,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            encoder_attention_heads=size.n_heads,
            decoder_attention_heads=size.n_heads,
            dropout=size.p_drop,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
        model: nn.Module = AutoModelForSeq2SeqLM.from_config(
            config, attn_implementation=self.attention
        )
        return model

    def output(self, model: nn.Module, batch: Batch) -> Any:
        """What the model says, the logits among it."""
        return model(
            input_ids=batch.src,
            attention_mask=(batch.src != PAD).long(),
            decoder_input_ids=batch.tgt_in,
            use_cache=False,
        )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        smoother = LabelSmoother(SMOOTHING, PAD)
        loss: Tensor = smoother(self.output(model, batch), batch.tgt_out)
        return loss

    def decoder(self, case: Case) -> Decode:
        model: Any = self.model(case.size).to(case.device).eval()
        steps = case.lengths[0][0][1]

        def decode(src: Tensor) -> list[list[int]]:
            ids = model.generate(
                input_ids=src,
                attention_mask=torch.ones_like(src),
                num_beams=case.beam,
                length_penalty=ALPHA,
                do_sample=False,
                min_new_tokens=steps,
                max_new_tokens=steps,
            )
            rows: list[list[int]] = ids[:, 1:].tolist()  # without the start
            return rows

        return decode
