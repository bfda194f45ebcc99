"""Attention Is All You Need, executed.

    import transformer_lit as tl

The code is the book's: each module is written from the chapter that it names.
"""

# Written by tools/export.py. Edit the chapter instead.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_lit.attention import MultiHeadAttention, scaled_dot_product
    from transformer_lit.config import BOS, EOS, PAD, UNK, TransformerConfig
    from transformer_lit.corpus import CorpusConfig, prepare
    from transformer_lit.decoding import Hypothesis, beam_search, greedy_search
    from transformer_lit.embeddings import TokenEmbedding
    from transformer_lit.exercises import check_solution
    from transformer_lit.feed_forward import FeedForward
    from transformer_lit.hardware import fast_matmul
    from transformer_lit.loss import fused_loss, label_smoothed_loss
    from transformer_lit.masks import causal_mask, padding_mask, target_mask
    from transformer_lit.model import (
        Transformer,
        count_parameters,
        load_model,
        save_model,
    )
    from transformer_lit.optimizer import cooled, noam, noam_rate
    from transformer_lit.pictures import attention_maps
    from transformer_lit.positions import sinusoids
    from transformer_lit.tokenizer import Subwords
    from transformer_lit.trainer import (
        RunConfig,
        TrainConfig,
        Trainer,
        exact_match,
        fit,
    )
    from transformer_lit.translator import Translator

__version__ = "0.1.0"

HOMES = {
    "BOS": "config",
    "CorpusConfig": "corpus",
    "EOS": "config",
    "FeedForward": "feed_forward",
    "Hypothesis": "decoding",
    "MultiHeadAttention": "attention",
    "PAD": "config",
    "RunConfig": "trainer",
    "Subwords": "tokenizer",
    "TokenEmbedding": "embeddings",
    "TrainConfig": "trainer",
    "Trainer": "trainer",
    "Transformer": "model",
    "TransformerConfig": "config",
    "Translator": "translator",
    "UNK": "config",
    "attention_maps": "pictures",
    "beam_search": "decoding",
    "causal_mask": "masks",
    "check_solution": "exercises",
    "cooled": "optimizer",
    "count_parameters": "model",
    "exact_match": "trainer",
    "fast_matmul": "hardware",
    "fit": "trainer",
    "fused_loss": "loss",
    "greedy_search": "decoding",
    "label_smoothed_loss": "loss",
    "load_model": "model",
    "noam": "optimizer",
    "noam_rate": "optimizer",
    "padding_mask": "masks",
    "prepare": "corpus",
    "save_model": "model",
    "scaled_dot_product": "attention",
    "sinusoids": "positions",
    "target_mask": "masks",
}
"""The module in which each name of the top level is at home."""
PARTS = ("viz",)
"""Packages within this one."""


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first asked for."""
    if name in PARTS:
        return import_module(f"transformer_lit.{name}")
    if name not in HOMES:
        raise AttributeError(f"transformer_lit has no {name!r}")
    return getattr(import_module(f"transformer_lit.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The names of the top level."""
    return [*globals(), *HOMES, *PARTS]


__all__ = [
    "BOS",
    "CorpusConfig",
    "EOS",
    "FeedForward",
    "Hypothesis",
    "MultiHeadAttention",
    "PAD",
    "RunConfig",
    "Subwords",
    "TokenEmbedding",
    "TrainConfig",
    "Trainer",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "UNK",
    "attention_maps",
    "beam_search",
    "causal_mask",
    "check_solution",
    "cooled",
    "count_parameters",
    "exact_match",
    "fast_matmul",
    "fit",
    "fused_loss",
    "greedy_search",
    "label_smoothed_loss",
    "load_model",
    "noam",
    "noam_rate",
    "padding_mask",
    "prepare",
    "save_model",
    "scaled_dot_product",
    "sinusoids",
    "target_mask",
]
