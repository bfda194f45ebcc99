"""3. Model architecture.

From book/03_0_architecture.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass
from typing import Any, Literal, Self

# 03_0_architecture: Names for four tokens
PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Ids of the padding, begin, end and unknown tokens, in every vocabulary."""


# 03_0_architecture: The sizes, and every deviation by name
@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The sizes of a Transformer; the defaults are the paper's base model.

    The fields below the ids are the deviations from the paper that this
    package knows: each default is the paper's way, or, where the paper is
    silent, that of the code its authors released (section 3 and Table 3).

    Raises:
        ValueError: a size that cannot be built; the message names it.
    """

    vocab_size: int
    n_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    d_k: int | None = None  # None: d_model / n_heads
    d_v: int | None = None  # None: d_model / n_heads
    p_drop: float = 0.1
    pad_id: int = PAD
    bos_id: int = BOS
    eos_id: int = EOS
    pre_norm: bool = False
    layer_norm_eps: float = 1e-6
    attention_bias: bool = True
    p_drop_attention: float = 0.0
    p_drop_relu: float = 0.0
    tie_embeddings: bool = True
    scale_embeddings: bool = True
    positions: Literal["sinusoidal", "released", "learned"] = "sinusoidal"
    max_len: int = 1024  # of learned positions; sinusoids have no limit

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def head_sizes(self) -> tuple[int, int]:
        """d_k and d_v, the widths of one head's keys and values."""
        share = self.d_model // self.n_heads
        return self.d_k or share, self.d_v or share

    @classmethod
    def base(cls, vocab_size: int) -> Self:
        """The base model of Table 3."""
        return cls(vocab_size=vocab_size)

    @classmethod
    def big(cls, vocab_size: int) -> Self:
        """The big model of Table 3."""
        return cls.table_3("big", vocab_size)

    @classmethod
    def tiny(cls, vocab_size: int) -> Self:
        """Ours: a model that two CPU cores train on a small corpus."""
        return cls(
            vocab_size=vocab_size, n_layers=4, d_model=128, d_ff=256, n_heads=4
        )

    @classmethod
    def miniature(cls, vocab_size: int) -> Self:
        """Ours: the model of the `numbers` miniature."""
        return cls(
            vocab_size=vocab_size, n_layers=2, d_model=32, d_ff=128, n_heads=4
        )

    @classmethod
    def table_3(cls, row: str, vocab_size: int) -> Self:
        """A row of Table 3 by its name in `TABLE_3`."""
        if row not in TABLE_3:
            raise ValueError(
                f"row={row!r} is not in Table 3; take one of {sorted(TABLE_3)}"
            )
        return cls(vocab_size=vocab_size, **TABLE_3[row])


def check_config(config: TransformerConfig) -> None:
    """Raise a ValueError that names the first impossible field."""
    for name in ("vocab_size", "n_layers", "d_model", "d_ff", "n_heads"):
        value = getattr(config, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={value!r} must be a positive integer")
    for name in ("d_k", "d_v"):
        value = getattr(config, name)
        if value is None and config.d_model % config.n_heads:
            raise ValueError(
                f"d_model={config.d_model} is not a multiple of "
                f"n_heads={config.n_heads}; change one of them or give {name}"
            )
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}={value!r} must be a positive integer")
    for name in ("p_drop", "p_drop_attention", "p_drop_relu"):
        if not 0.0 <= getattr(config, name) < 1.0:
            value = getattr(config, name)
            raise ValueError(f"{name}={value!r} must lie in [0, 1)")
    check_vocabulary_and_positions(config)


def check_vocabulary_and_positions(config: TransformerConfig) -> None:
    """The rest of `check_config`: token ids and position encodings."""
    ids = (config.pad_id, config.bos_id, config.eos_id)
    if len(set(ids)) < 3 or not all(0 <= i < config.vocab_size for i in ids):
        raise ValueError(
            f"pad_id, bos_id, eos_id = {ids} must be three different ids "
            f"below vocab_size={config.vocab_size}"
        )
    if config.positions not in ("sinusoidal", "released", "learned"):
        raise ValueError(
            f"positions={config.positions!r} must be 'sinusoidal', "
            "'released' or 'learned'"
        )
    if config.positions != "learned" and config.d_model % 2:
        raise ValueError(
            f"d_model={config.d_model} must be even: sines and cosines "
            "come in pairs; or take positions='learned'"
        )
    if config.positions == "released" and config.d_model < 4:
        raise ValueError(
            f"d_model={config.d_model} is too small for the released "
            "positions; take at least 4"
        )


# 03_0_architecture: Table 3 as presets
TABLE_3: dict[str, dict[str, Any]] = {
    "base": {},
    "A.h1": {"n_heads": 1},
    "A.h4": {"n_heads": 4},
    "A.h16": {"n_heads": 16},
    "A.h32": {"n_heads": 32},
    "B.dk16": {"d_k": 16},
    "B.dk32": {"d_k": 32},
    "C.N2": {"n_layers": 2},
    "C.N4": {"n_layers": 4},
    "C.N8": {"n_layers": 8},
    "C.d256": {"d_model": 256},
    "C.d1024": {"d_model": 1024},
    "C.ff1024": {"d_ff": 1024},
    "C.ff4096": {"d_ff": 4096},
    "D.drop0": {"p_drop": 0.0},
    "D.drop2": {"p_drop": 0.2},
    "D.ls0": {},  # rows ls change the loss, not the model
    "D.ls2": {},
    "E.learned": {"positions": "learned"},
    "big": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "p_drop": 0.3},
}
"""What each row of Table 3 changes in the base model."""


DEVIATIONS: dict[str, tuple[str, str]] = {
    "pre_norm": ("3.1", "normalise before each sub-layer, not after the sum"),
    "layer_norm_eps": ("3.1", "the small number under LayerNorm's root"),
    "attention_bias": ("3.2.2", "leave out the biases of q, k, v and output"),
    "p_drop_attention": ("5.4", "drop attention weights as well"),
    "p_drop_relu": ("5.4", "drop the feed-forward's inner units as well"),
    "tie_embeddings": ("3.4", "give the three embedding uses three matrices"),
    "scale_embeddings": ("3.4", "do not multiply embeddings by sqrt(d_model)"),
    "positions": ("3.5", "the released code's sinusoids, or learned ones"),
    "max_len": ("3.5", "how many positions a learned table holds"),
}
"""Field: the section it departs from, and what another value does."""


__all__ = [
    "BOS",
    "DEVIATIONS",
    "EOS",
    "PAD",
    "TABLE_3",
    "TransformerConfig",
    "UNK",
    "check_config",
    "check_vocabulary_and_positions",
]
