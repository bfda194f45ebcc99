"""OpenNMT-py's Transformer, which is pre-norm, with its loss and search."""

# mypy: disable-error-code="import-not-found, import-untyped"
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Case, Size
from benchmarks.peer import ALPHA, SMOOTHING, Decode, Peer, stub
from transformer_lit.batches import Batch
from transformer_lit.config import PAD, UNK

stub("torch.utils.tensorboard", "spacy", "spacy.language", "spacy.tokens")
stub("ahocorasick", "rapidfuzz", "fasttext", "ctranslate2")

from onmt.model_builder import build_model  # noqa: E402
from onmt.opts import train_opts  # noqa: E402
from onmt.translate import GNMTGlobalScorer, Translator  # noqa: E402
from onmt.utils.loss import LossCompute  # noqa: E402
from onmt.utils.parse import ArgumentParser  # noqa: E402
from pyonmttok import Vocab  # noqa: E402

NEEDED = "-data none -src_vocab none -encoder_type transformer"
NEEDED += " -decoder_type transformer -position_encoding -param_init 0"
NEEDED += " -param_init_glorot -share_vocab -share_embeddings"
NEEDED += " -share_decoder_embeddings -attention_dropout 0 -add_qkvbias"


def options(size: Size) -> Any:
    """What its training program is told on the command line."""
    parser = ArgumentParser()
    train_opts(parser)
    found = parser.parse_args(
        [
            *NEEDED.split(),
            *f"-word_vec_size {size.d_model} -hidden_size {size.d_model}".split(),
            *f"-layers {size.n_layers} -heads {size.n_heads}".split(),
            *f"-transformer_ff {size.d_ff} -dropout {size.p_drop}".split(),
            *f"-label_smoothing {SMOOTHING}".split(),
        ]
    )
    ArgumentParser.update_model_opts(found)
    ArgumentParser.validate_model_opts(found)
    return found


def vocabularies(size: Size) -> dict[str, Any]:
    """One for both sides; special symbols first, in our order."""
    words = Vocab(["<blank>", "<s>", "</s>", "<unk>"])
    for i in range(UNK + 1, size.vocab_size):
        words.add_token(f"w{i}")
    return {"src": words, "tgt": words, "decoder_start_token": "<s>"}


class Adapter(Peer):
    """As it comes."""

    package = "OpenNMT-py"

    def model(self, size: Size) -> nn.Module:
        told, words = options(size), vocabularies(size)
        model: Any = build_model(told, told, words, None, -1)
        for layer in [
            *model.encoder.transformer,
            *model.decoder.transformer_layers,
        ]:
            layer.feed_forward.dropout_1.p = 0.0
        self.compute = LossCompute.from_opts(told, model, words["tgt"])
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        tgt = torch.cat([batch.tgt_in[:, :1], batch.tgt_out], dim=1)
        lengths = (batch.src != PAD).sum(1)
        told = {
            "src": batch.src[..., None],
            "srclen": lengths,
            "tgt": tgt[..., None],
        }
        output, attention = model(told["src"], told["tgt"], lengths)
        total, _ = self.compute(told, output, attention)
        loss: Tensor = total / (batch.tgt_out != PAD).sum()
        return loss

    def decoder(self, case: Case) -> Decode:
        model = self.model(case.size).to(case.device).eval()
        steps = case.lengths[0][0][1]
        translator = Translator(
            model,
            vocabularies(case.size),
            gpu=0 if case.device == "cuda" else -1,
            min_length=steps,
            max_length=steps,
            max_length_ratio=0,
            beam_size=case.beam,
            random_sampling_topk=1 if case.beam == 1 else 0,
            global_scorer=GNMTGlobalScorer(ALPHA, 0.0, "wu", "none"),
            dump_beam="",
            report_score=False,
        )

        def decode(src: Tensor) -> list[list[int]]:
            lengths = torch.full((len(src),), src.shape[1], device=src.device)
            told = {"src": src[..., None], "srclen": lengths}
            found = translator.translate_batch(told, False)["predictions"]
            return [best.tolist() for best, *_ in found]

        return decode
