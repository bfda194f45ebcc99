"""JoeyNMT's Transformer with its loss."""

# mypy: disable-error-code="import-not-found, import-untyped"
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from benchmarks.cases import Size
from benchmarks.peer import SMOOTHING, Peer, stub
from transformer_lit.batches import Batch
from transformer_lit.config import BOS, EOS, PAD, UNK

stub("torch.utils.tensorboard", "subword_nmt", "plotly", "plotly.express")

from joeynmt.model import build_model  # noqa: E402
from joeynmt.vocabulary import Vocabulary  # noqa: E402

SPECIALS = SimpleNamespace(
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    unk_token="<unk>",
    sep_token=None,
    pad_id=PAD,
    bos_id=BOS,
    eos_id=EOS,
    unk_id=UNK,
    lang_tags=[],
)


class OurOrder(Vocabulary):  # type: ignore[misc]
    """Special symbols as ours; theirs searches the list for every token."""

    def add_tokens(self, tokens: list[str]) -> None:
        specials = ["<pad>", "<s>", "</s>", "<unk>"]
        words = [token for token in tokens if token not in specials]
        self._itos = specials + words
        self._stoi = {token: i for i, token in enumerate(self._itos)}


class Adapter(Peer):
    """As it comes, without dropout inside attention and feed-forward."""

    package = "joeynmt"

    def model(self, size: Size) -> nn.Module:
        words = [f"w{i}" for i in range(UNK + 1, size.vocab_size)]
        vocabulary = OurOrder(words, SPECIALS)
        side = {
            "type": "transformer",
            "num_layers": size.n_layers,
            "num_heads": size.n_heads,
            "hidden_size": size.d_model,
            "ff_size": size.d_ff,
            "dropout": size.p_drop,
            "layer_norm": "post",
            "embeddings": {"embedding_dim": size.d_model, "scale": True},
        }
        config = {
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "encoder": side,
            "decoder": side,
        }
        model: Any = build_model(config, vocabulary, vocabulary)
        model.loss_function = ("crossentropy", SMOOTHING)
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            layer.feed_forward.pwff_layer[2].p = 0.0
        for module in model.modules():
            if type(module).__name__ == "MultiHeadedAttention":
                module.dropout.p = 0.0
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        real = batch.tgt_out != PAD
        total, *_ = model(
            return_type="loss",
            src=batch.src,
            src_length=(batch.src != PAD).sum(1),
            src_mask=(batch.src != PAD)[:, None],
            trg_input=batch.tgt_in,
            trg=batch.tgt_out,
            trg_mask=real[:, None],
        )
        loss: Tensor = total / real.sum()
        return loss
