"""Attention Is All You Need, executed.

    import transformer_lit as tl

The code is the book's: each module is written from the chapter that it names.
"""

# Written by tools/export.py. Edit the chapter instead.

from transformer_lit.attention import MultiHeadAttention, scaled_dot_product
from transformer_lit.config import BOS, EOS, PAD, UNK, TransformerConfig
from transformer_lit.corpus import CorpusConfig, prepare
from transformer_lit.decoding import Hypothesis, beam_search, greedy_search
from transformer_lit.embeddings import TokenEmbedding
from transformer_lit.feed_forward import FeedForward
from transformer_lit.loss import label_smoothed_loss
from transformer_lit.masks import causal_mask, padding_mask, target_mask
from transformer_lit.model import (
    Transformer,
    count_parameters,
    load_model,
    save_model,
)
from transformer_lit.optimizer import noam, noam_rate
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
    "beam_search",
    "causal_mask",
    "count_parameters",
    "exact_match",
    "fit",
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
