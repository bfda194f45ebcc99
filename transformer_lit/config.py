"""3. Model architecture.

From book/03_0_architecture.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from dataclasses import dataclass
from typing import Any, Literal, Self

# 03_0_architecture: Symbols and their numbers
# The ids of padding, begin, end and unknown symbol, in every vocabulary.
PAD, BOS, EOS, UNK = 0, 1, 2, 3


# 03_0_architecture: The numbers that fix the model
@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a Transformer, the columns of Table 3.

    Attributes:
        vocab_size: W, symbols in the vocabulary.
        n_layers: N, layers in each of the two stacks.
        d_model: D, the width of every vector between sub-layers.
        d_ff: F, the inner width of the feed-forward networks.
        n_heads: H, the attention heads side by side.
        d_k: K, the width of one head's queries and keys; None: D / H.
        d_v: V, the width of one head's values; None: D / H.
        p_drop: the rate of dropout, section 5.4.
        pad_id, bos_id, eos_id: the ids of padding, begin and end.
    """

    vocab_size: int
    n_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    d_k: int | None = None
    d_v: int | None = None
    p_drop: float = 0.1
    pad_id: int = PAD
    bos_id: int = BOS
    eos_id: int = EOS

    @property
    def head_sizes(self) -> tuple[int, int]:
        """d_k and d_v, the widths of one head's keys and values."""
        share = self.d_model // self.n_heads
        return self.d_k or share, self.d_v or share


def check_sizes(sizes: Sizes) -> None:
    """Raise a ValueError that names the first impossible size or id."""
    for name in ("vocab_size", "n_layers", "d_model", "d_ff", "n_heads"):
        value = getattr(sizes, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={value!r} must be a positive integer")
    for name in ("d_k", "d_v"):
        value = getattr(sizes, name)
        if value is None and sizes.d_model % sizes.n_heads:
            raise ValueError(
                f"d_model={sizes.d_model} is not a multiple of "
                f"n_heads={sizes.n_heads}; change one of them or give {name}"
            )
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}={value!r} must be a positive integer")
    ids = (sizes.pad_id, sizes.bos_id, sizes.eos_id)
    fit = [type(i) is int and 0 <= i < sizes.vocab_size for i in ids]
    if len(set(ids)) < 3 or not all(fit):
        raise ValueError(
            f"pad_id, bos_id, eos_id = {ids} must be three different ids "
            f"below vocab_size={sizes.vocab_size}"
        )


# 03_0_architecture: Where one may depart from the paper
@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Sizes):
    """All that decides a Transformer; the defaults are the base model.

    The fields added to `Sizes` are the deviations from the paper that this
    package knows, listed in `DEVIATIONS`: each default is the paper's way,
    or, where the paper is silent, that of the code its authors released.

    Raises:
        ValueError: a model that cannot be built; the message names the field.
    """

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
        return cls(vocab_size=vocab_size, **OURS["tiny"])

    @classmethod
    def miniature(cls, vocab_size: int) -> Self:
        """Ours: the model of the `numbers` miniature."""
        return cls(vocab_size=vocab_size, **OURS["miniature"])

    @classmethod
    def table_3(cls, row: str, vocab_size: int) -> Self:
        """A row of Table 3 by its name in `TABLE_3`."""
        return cls(vocab_size=vocab_size, **table_3_row(row))


# Field: the section it departs from, and what its other values do.
DEVIATIONS: dict[str, tuple[str, str]] = {
    "pre_norm": ("3.1", "normalise before each sub-layer"),
    "layer_norm_eps": ("3.1", "another number under LayerNorm's root"),
    "attention_bias": ("3.2.2", "no biases in q, k, v and output maps"),
    "p_drop_attention": ("5.4", "drop attention weights as well"),
    "p_drop_relu": ("5.4", "drop inner feed-forward units as well"),
    "tie_embeddings": ("3.4", "three matrices for the three uses"),
    "scale_embeddings": ("3.4", "do not multiply by sqrt(d_model)"),
    "positions": ("3.5", "the released sinusoids, or learned"),
    "max_len": ("3.5", "another length of a learned table"),
}


def check_config(config: TransformerConfig) -> None:
    """Raise a ValueError that names the first impossible field."""
    check_sizes(config)
    for name in ("p_drop", "p_drop_attention", "p_drop_relu"):
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0.0 <= value < 1.0:
            raise ValueError(f"{name}={value!r} must lie in [0, 1)")
    eps = config.layer_norm_eps
    if not isinstance(eps, int | float) or not eps >= 0.0:
        raise ValueError(f"layer_norm_eps={eps!r} must be a number >= 0")
    check_positions(config)


def check_positions(config: TransformerConfig) -> None:
    """The rest of `check_config`: the position encodings."""
    if config.positions not in ("sinusoidal", "released", "learned"):
        raise ValueError(
            f"positions={config.positions!r} must be 'sinusoidal', "
            "'released' or 'learned'"
        )
    if type(config.max_len) is not int or config.max_len < 1:
        raise ValueError(
            f"max_len={config.max_len!r} must be a positive integer"
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
# What each row of Table 3 changes in the base model.
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


# Two smaller models that the paper does not have.
OURS: dict[str, dict[str, Any]] = {
    "tiny": {"n_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4},
    "miniature": {"n_layers": 2, "d_model": 32, "d_ff": 128, "n_heads": 4},
}


def table_3_row(row: str) -> dict[str, Any]:
    """What a row of `TABLE_3` changes in the base model.

    Raises:
        ValueError: there is no such row; the message lists them.
    """
    if row not in TABLE_3:
        raise ValueError(
            f"row={row!r} is not in Table 3; take one of {sorted(TABLE_3)}"
        )
    return TABLE_3[row]


__all__ = [
    "BOS",
    "DEVIATIONS",
    "EOS",
    "OURS",
    "PAD",
    "Sizes",
    "TABLE_3",
    "TransformerConfig",
    "UNK",
    "check_config",
    "check_positions",
    "check_sizes",
    "table_3_row",
]
