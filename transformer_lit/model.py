"""The whole model.

From book/03_6_transformer.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model as load_weights
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lit.attention import MultiHeadAttention
from transformer_lit.config import TransformerConfig
from transformer_lit.embeddings import TokenEmbedding
from transformer_lit.feed_forward import FeedForward
from transformer_lit.masks import padding_mask, target_mask
from transformer_lit.positions import LearnedPositions, SinusoidalPositions
from transformer_lit.stacks import (
    DecoderLayer,
    Dropout,
    EncoderLayer,
    LayerCache,
    LayerNorm,
)


# 03_6_transformer: From parts to stacks
def attention(config: TransformerConfig) -> MultiHeadAttention:
    """An attention sub-layer of the configuration's sizes."""
    d_k, d_v = config.head_sizes
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        d_k=d_k,
        d_v=d_v,
        bias=config.attention_bias,
        p_drop=config.p_drop_attention,
    )


def feed_forward(config: TransformerConfig) -> FeedForward:
    """A feed-forward sub-layer of the configuration's sizes."""
    return FeedForward(config.d_model, config.d_ff, config.p_drop_relu)


def final_norm(config: TransformerConfig) -> nn.Module:
    """Post-norm layers end normalised; a pre-norm stack needs one more."""
    if config.pre_norm:
        return LayerNorm(config.d_model, config.layer_norm_eps)
    return nn.Identity()


Maps = list[Tensor] | None
"""A list to which attention weights are appended; None: nobody asks."""


class Encoder(nn.Module):
    """N encoder layers, section 3.1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(config, attention(config), feed_forward(config))
            for _ in range(config.n_layers)
        )
        self.norm = final_norm(config)

    def forward(self, x: Tensor, src_mask: Tensor, maps: Maps = None) -> Tensor:
        """[B, S, D] -> [B, S, D]; arguments as in `EncoderLayer`."""
        for layer in self.layers:
            x = layer(x, src_mask, maps)
        return self.norm(x)


def decoder_layer(config: TransformerConfig) -> DecoderLayer:
    """A decoder layer of the configuration's sizes."""
    return DecoderLayer(
        config, attention(config), attention(config), feed_forward(config)
    )


class Decoder(nn.Module):
    """N decoder layers, section 3.1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            decoder_layer(config) for _ in range(config.n_layers)
        )
        self.norm = final_norm(config)

    def open_caches(self, memory: Tensor) -> list[LayerCache]:
        """One empty cache a layer over the encoder's output [B, S, D]."""
        layers: Any = self.layers
        return [layer.open_cache(memory) for layer in layers]

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None,
        src_mask: Tensor,
        *,
        caches: list[LayerCache] | None = None,
        maps: Maps = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; arguments as in `DecoderLayer`."""
        nothing: list[LayerCache | None] = [None] * len(self.layers)
        for layer, cache in zip(self.layers, caches or nothing, strict=True):
            x = layer(x, memory, tgt_mask, src_mask, cache=cache, maps=maps)
        return self.norm(x)


# 03_6_transformer: The model
Head = Callable[[Tensor, Tensor], Any]
"""From the decoder's outputs [B, T, D] and a matrix [W, D] to a result."""


def token_embedding(config: TransformerConfig) -> TokenEmbedding:
    """A token embedding of the configuration's sizes."""
    return TokenEmbedding(
        config.vocab_size, config.d_model, scale=config.scale_embeddings
    )


def position_encoding(config: TransformerConfig) -> nn.Module:
    """The position encoding that the configuration names."""
    if config.positions == "learned":
        return LearnedPositions(config.max_len, config.d_model)
    released = config.positions == "released"
    return SinusoidalPositions(config.d_model, released=released)


class EncoderDecoder(nn.Module):
    """The model of Figure 1, for whole sentences; see `Transformer`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.src_embedding = token_embedding(config)
        self.tgt_embedding = self.output = self.src_embedding
        if not config.tie_embeddings:
            self.tgt_embedding = token_embedding(config)
            self.output = token_embedding(config)
        self.src_positions = position_encoding(config)
        self.tgt_positions = position_encoding(config)
        self.dropout = Dropout(config.p_drop)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(
        self, src: Tensor, tgt_in: Tensor, *, head: Head = F.linear
    ) -> Any:
        """Source [B, S] and shifted target [B, T] to logits [B, T, W].

        Args:
            src, tgt_in: token ids, int64.
            head: what to make of the decoder's outputs [B, T, D] and the
                output matrix [W, D], instead of logits.
        """
        memory = self.encode(src)
        return head(self.hidden(tgt_in, memory, src=src), self.output.weight)

    def encode(self, src: Tensor, *, maps: Maps = None) -> Tensor:
        """Source ids [B, S] to the memory [B, S, D].

        Args:
            src: source ids.
            maps: if given, each layer's attention weights are appended.
        """
        src_mask = padding_mask(src, self.config.pad_id)
        x = self.dropout(self.src_positions(self.src_embedding(src)))
        return self.encoder(x, src_mask, maps)

    def decode(
        self, tgt_in: Tensor, memory: Tensor, *, src: Tensor, maps: Maps = None
    ) -> Tensor:
        """Shifted target ids [B, T] and the memory to logits [B, T, W].

        Args:
            tgt_in: the target behind its begin token.
            memory: what `encode` returned.
            src: the source ids; they tell which of the memory is padding.
            maps: if given, each layer's self and cross weights are appended.
        """
        x = self.hidden(tgt_in, memory, src=src, maps=maps)
        return self.output.logits(x)

    def hidden(
        self, tgt_in: Tensor, memory: Tensor, *, src: Tensor, maps: Maps = None
    ) -> Tensor:
        """What the decoder gives, [B, T, D]; arguments as in `decode`."""
        tgt_mask = target_mask(tgt_in, self.config.pad_id)
        src_mask = padding_mask(src, self.config.pad_id)
        x = self.dropout(self.tgt_positions(self.tgt_embedding(tgt_in)))
        return self.decoder(x, memory, tgt_mask, src_mask, maps=maps)


# 03_6_transformer: Writing one token at a time
@dataclass
class DecoderCache:
    """What the decoder remembers between two calls of `Transformer.step`.

    Attributes:
        memory: the encoder's output [B, S, D].
        src_mask: bool [B, 1, 1, S].
        layers: one `LayerCache` a layer.
        ids: the target so far [B, T], int64; or the A targets of each
            sentence, side by side, [B * A, T].
    """

    memory: Tensor
    src_mask: Tensor
    layers: list[LayerCache]
    ids: Tensor

    def reorder(self, rows: Tensor) -> None:
        """Keep these targets, in this order; rows is int64 [B * A]."""
        for layer in self.layers:
            layer.reorder(rows)
        self.ids = self.ids[rows]

    def select(self, rows: Tensor, targets: Tensor | None = None) -> None:
        """Keep these sentences, in this order, and these targets.

        Args:
            rows: int64 [B].
            targets: int64 [B * A]; None: one a sentence, `rows`.
        """
        targets = rows if targets is None else targets
        for layer in self.layers:
            layer.select(rows, targets)
        self.memory = self.memory[rows]
        self.src_mask = self.src_mask[rows]
        self.ids = self.ids[targets]


class Transformer(EncoderDecoder):
    """The model of Figure 1, for whole sentences and token by token.

    Args:
        config: sizes and deviations.

    Token ids are int64; padding is found by `config.pad_id` and never
    changes the outputs of real tokens.
    """

    def start(self, src: Tensor) -> DecoderCache:
        """Encode source ids [B, S] and open a cache for `step`."""
        memory = self.encode(src)
        return DecoderCache(
            memory,
            src_mask=padding_mask(src, self.config.pad_id),
            layers=self.decoder.open_caches(memory),
            ids=src.new_empty(len(src), 0),
        )

    def step(self, ids: Tensor, cache: DecoderCache) -> Tensor:
        """Append one token [B] to each target; logits of the next, [B, W]."""
        start = cache.ids.shape[1]
        cache.ids = torch.cat([cache.ids, ids[:, None]], dim=1)
        mask = padding_mask(cache.ids, self.config.pad_id)
        tgt_mask = None if mask.all() else mask  # padding is a rare target
        x = self.tgt_embedding(ids[:, None])
        x = self.dropout(self.tgt_positions(x, start))
        x = self.decoder(
            x, cache.memory, tgt_mask, cache.src_mask, caches=cache.layers
        )
        return self.output.logits(x[:, 0])


# 03_6_transformer: Third witness: the count
def count_parameters(config: TransformerConfig) -> int:
    """How many numbers `Transformer(config)` learns, by formula."""
    D, F, H = config.d_model, config.d_ff, config.n_heads
    K, V = config.head_sizes
    attention = 2 * D * H * K + 2 * D * H * V
    if config.attention_bias:
        attention += 2 * H * K + H * V + D
    feed_forward = 2 * D * F + F + D
    norm = 2 * D
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    matrices = 1 if config.tie_embeddings else 3
    total = matrices * config.vocab_size * D
    total += config.n_layers * (encoder_layer + decoder_layer)
    if config.pre_norm:
        total += 2 * norm
    if config.positions == "learned":
        total += 2 * config.max_len * D
    return total


# 03_6_transformer: To a file and back
def save_model(model: Transformer, folder: str | Path, **about: object) -> None:
    """Write `weights.safetensors` and `config.json` into a folder.

    A file appears only when it is complete; nothing is pickled.

    Args:
        model: what to save.
        folder: where; it is made if it is missing.
        about: further JSON values for `config.json`, beside the sizes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model": dataclasses.asdict(model.config), **about}
    config_part = folder / "config.json.part"
    config_part.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    weights_part = folder / "weights.safetensors.part"
    save_file(dict(model.named_parameters()), weights_part)
    # safetensors writes a file for its owner alone: share it like the other.
    shutil.copymode(config_part, weights_part)
    os.replace(weights_part, folder / "weights.safetensors")
    os.replace(config_part, folder / "config.json")


def stored_dtype(weights_file: Path) -> torch.dtype:
    """The type of the numbers in a file: 16 bits, to keep a model small."""
    with safe_open(weights_file, framework="pt") as file:
        [name, *_] = file.keys()
        dtype: torch.dtype = file.get_tensor(name).dtype
        return dtype


def one_line(error: Exception) -> str:
    """An error in at most one line."""
    return shorten(f"{type(error).__name__}: {error}", 160)


def load_model(folder: str | Path) -> Transformer:
    """Read what `save_model` wrote; the model comes in eval mode.

    Raises:
        ValueError: the folder holds no model, or not a sound one; the
            message is one line and names the file.
    """
    config_file = Path(folder) / "config.json"
    weights_file = Path(folder) / "weights.safetensors"
    for file in (config_file, weights_file):
        if not file.is_file():
            raise ValueError(
                f"{folder} holds no model: {file.name} is missing; give a "
                "folder that save_model wrote"
            )
    try:
        about = json.loads(config_file.read_text("utf-8"))
        model = Transformer(TransformerConfig(**about["model"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{config_file} is damaged ({one_line(error)}); copy or train the "
            "model again"
        ) from None
    try:
        load_weights(model.to(stored_dtype(weights_file)), str(weights_file))
    except (RuntimeError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"{weights_file} is damaged or belongs to another config.json "
            f"({one_line(error)}); copy or train the model again"
        ) from None
    return model.float().eval()


__all__ = [
    "Decoder",
    "DecoderCache",
    "Encoder",
    "EncoderDecoder",
    "Head",
    "Maps",
    "Transformer",
    "attention",
    "count_parameters",
    "decoder_layer",
    "feed_forward",
    "final_norm",
    "load_model",
    "one_line",
    "position_encoding",
    "save_model",
    "stored_dtype",
    "token_embedding",
]
