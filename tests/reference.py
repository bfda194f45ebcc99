"""What the tests share: random models and sentences, torch's own layers with
our weights in them, and slow formulas that are right at a glance."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

import transformer_lit as tl
from transformer_lit.stacks import DecoderLayer, EncoderLayer, LayerNorm

DOUBLE = torch.float64
SEEDS = st.integers(0, 2**31 - 1)


# -- Comparing ---------------------------------------------------------------


def close(a: Tensor, b: Tensor, within: float = 1e-10) -> None:
    """Assert that two tensors are equal up to rounding."""
    torch.testing.assert_close(a, b, rtol=within, atol=within)


def grad(x: Tensor) -> Tensor:
    """A gradient that must be there."""
    assert x.grad is not None
    return x.grad


def slope(output: Tensor, seed: int = 0) -> None:
    """Send a random gradient back from an output, the same for each call."""
    torch.manual_seed(seed)
    # not randn_like, which fills a transposed tensor in another order
    (output * torch.randn(output.shape, dtype=output.dtype)).sum().backward()


def leaf(*shape: int) -> Tensor:
    """A random float64 tensor that collects a gradient."""
    return torch.randn(*shape, dtype=DOUBLE, requires_grad=True)


def twin(x: Tensor) -> Tensor:
    """The same values once more, to collect a gradient of their own."""
    return x.detach().clone().requires_grad_()


# -- Random models and sentences ---------------------------------------------


def shake(module: nn.Module, by: float = 0.3) -> nn.Module:
    """Move all parameters in float64: zero biases would hide mistakes."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by * torch.randn_like(parameter)
    return module


def build(config: tl.TransformerConfig, seed: int = 0) -> tl.Transformer:
    """A float64 model with every parameter at random, in eval mode."""
    torch.manual_seed(seed)
    model = tl.Transformer(config)
    shake(model)
    return model.eval()


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> tl.TransformerConfig:
    """Small models without dropout, all else at random.

    The special ids are drawn too: a 0 that stands for the padding anywhere
    in the code is then found out.
    """
    n_heads = draw(st.integers(1, 3))
    vocab_size = draw(st.integers(5, 9))
    pad_id, bos_id, eos_id = draw(st.permutations(range(vocab_size)))[:3]
    sizes = {
        "vocab_size": vocab_size,
        "n_layers": draw(st.integers(1, 2)),
        # a multiple of 2 for the sinusoids, of 4 at least for "released"
        "d_model": n_heads * draw(st.sampled_from([4, 6])),
        "d_ff": draw(st.integers(1, 9)),
        "n_heads": n_heads,
        "d_k": draw(st.none() | st.integers(1, 5)),
        "d_v": draw(st.none() | st.integers(1, 5)),
        "p_drop": 0.0,
        "pad_id": pad_id,
        "bos_id": bos_id,
        "eos_id": eos_id,
        "pre_norm": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "tie_embeddings": draw(st.booleans()),
        "scale_embeddings": draw(st.booleans()),
        "positions": draw(
            st.sampled_from(["sinusoidal", "released", "learned"])
        ),
        "max_len": 24,
    }
    return tl.TransformerConfig(**(sizes | fixed))


LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def sentences(
    config: tl.TransformerConfig, lengths: list[int], more_pads: int = 0
) -> Tensor:
    """Random real tokens in rows of these lengths, padded at the end."""
    width = max(lengths) + more_pads
    ids = torch.randint(config.vocab_size - 1, (len(lengths), width))
    ids += ids >= config.pad_id  # every id but the padding's
    for row, length in enumerate(lengths):
        ids[row, length:] = config.pad_id
    return ids


def more_pads(ids: Tensor, count: int, pad_id: int) -> Tensor:
    """The same sentences with more padding behind them."""
    return F.pad(ids, (0, count), value=pad_id)


# -- Slow formulas -----------------------------------------------------------


def position(
    pos: int, channel: int, d_model: int, *, released: bool = False
) -> float:
    """Section 3.5, one number at a time, with Python's own arithmetic."""
    half = d_model // 2
    if released:  # all sines, then all cosines; the last rate is 1 / 10000
        pair, odd = channel % half, channel >= half
        angle = pos / 10000 ** (pair / (half - 1))
    else:
        pair, odd = channel // 2, channel % 2 == 1
        angle = pos / 10000 ** (2 * pair / d_model)
    return math.cos(angle) if odd else math.sin(angle)


@torch.no_grad()
def naive_greedy(
    model: tl.Transformer, sentence: list[int], max_extra: int
) -> tuple[list[int], float]:
    """Greedy search that runs the model anew on the whole prefix."""
    config = model.config
    src = torch.tensor([sentence])
    tokens: list[int] = []
    log_prob = 0.0
    for _ in range(len(sentence) + max_extra):
        tgt_in = torch.tensor([[config.bos_id, *tokens]])
        log_probs = model(src, tgt_in)[0, -1].log_softmax(-1)
        token = int(log_probs.argmax())
        log_prob += float(log_probs[token])
        if token == config.eos_id:
            break
        tokens.append(token)
    return tokens, log_prob


# -- torch.nn with our weights in it -----------------------------------------

Part = tuple[Tensor | None, Tensor, slice]
"""A parameter of ours (None: left out, that is zero), the one of torch.nn
that holds it, and which of its rows."""
WHOLE = slice(None)


def linear_parts(ours: nn.Linear, theirs: nn.Linear) -> list[Part]:
    return [
        (ours.weight, theirs.weight, WHOLE),
        (ours.bias, theirs.bias, WHOLE),
    ]


def norm_parts(ours: LayerNorm, theirs: nn.LayerNorm) -> list[Part]:
    return [(ours.gain, theirs.weight, WHOLE), (ours.bias, theirs.bias, WHOLE)]


def attention_parts(
    ours: tl.MultiHeadAttention, theirs: nn.MultiheadAttention
) -> list[Part]:
    """torch keeps the q, k and v maps one above the other."""
    D = theirs.embed_dim
    parts = linear_parts(ours.w_o, theirs.out_proj)
    for i, linear in enumerate((ours.w_q, ours.w_k, ours.w_v)):
        rows = slice(i * D, (i + 1) * D)
        parts.append((linear.weight, theirs.in_proj_weight, rows))
        parts.append((linear.bias, theirs.in_proj_bias, rows))
    return parts


def encoder_layer_parts(
    ours: EncoderLayer, theirs: nn.TransformerEncoderLayer
) -> list[Part]:
    return [
        *attention_parts(ours.self_attention, theirs.self_attn),
        *linear_parts(ours.feed_forward.w_1, theirs.linear1),
        *linear_parts(ours.feed_forward.w_2, theirs.linear2),
        *norm_parts(ours.residual_1.norm, theirs.norm1),
        *norm_parts(ours.residual_2.norm, theirs.norm2),
    ]


def decoder_layer_parts(
    ours: DecoderLayer, theirs: nn.TransformerDecoderLayer
) -> list[Part]:
    return [
        *attention_parts(ours.self_attention, theirs.self_attn),
        *attention_parts(ours.cross_attention, theirs.multihead_attn),
        *linear_parts(ours.feed_forward.w_1, theirs.linear1),
        *linear_parts(ours.feed_forward.w_2, theirs.linear2),
        *norm_parts(ours.residual_1.norm, theirs.norm1),
        *norm_parts(ours.residual_2.norm, theirs.norm2),
        *norm_parts(ours.residual_3.norm, theirs.norm3),
    ]


class TorchTransformer(nn.Module):
    """Figure 1 from torch.nn's layers; only the sums below are by hand."""

    def __init__(self, config: tl.TransformerConfig) -> None:
        super().__init__()
        self.config = config
        W, D = config.vocab_size, config.d_model
        self.src_embedding = nn.Embedding(W, D)
        self.tgt_embedding = self.output = self.src_embedding
        if not config.tie_embeddings:
            self.tgt_embedding = nn.Embedding(W, D)
            self.output = nn.Embedding(W, D)
        if config.positions == "learned":
            self.src_positions = nn.Embedding(config.max_len, D)
            self.tgt_positions = nn.Embedding(config.max_len, D)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**torch_sizes(config)),
            config.n_layers,
            torch_final_norm(config),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**torch_sizes(config)),
            config.n_layers,
            torch_final_norm(config),
        )

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_pads = src == self.config.pad_id
        causal = torch.ones(tgt_in.shape[1], tgt_in.shape[1]).triu(1).bool()
        memory = self.encoder(
            self.read(src, self.src_embedding, "src_positions"),
            src_key_padding_mask=src_pads,
        )
        x = self.decoder(
            self.read(tgt_in, self.tgt_embedding, "tgt_positions"),
            memory,
            tgt_mask=causal,
            tgt_key_padding_mask=tgt_in == self.config.pad_id,
            memory_key_padding_mask=src_pads,
        )
        return x @ self.output.weight.T

    def read(self, ids: Tensor, embedding: nn.Embedding, name: str) -> Tensor:
        D, length = self.config.d_model, ids.shape[1]
        scale = D**0.5 if self.config.scale_embeddings else 1.0
        if self.config.positions == "learned":
            where = getattr(self, name).weight[:length]
        else:
            released = self.config.positions == "released"
            where = torch.tensor(
                [
                    [position(t, c, D, released=released) for c in range(D)]
                    for t in range(length)
                ],
                dtype=DOUBLE,
            )
        return embedding(ids) * scale + where

    def parts(self, ours: tl.Transformer) -> list[Part]:
        """Which parameter of ours is which of these."""
        parts = [(ours.src_embedding.weight, self.src_embedding.weight, WHOLE)]
        if not self.config.tie_embeddings:
            for name in ("tgt_embedding", "output"):
                a, b = getattr(ours, name), getattr(self, name)
                parts.append((a.weight, b.weight, WHOLE))
        if self.config.positions == "learned":
            for name in ("src_positions", "tgt_positions"):
                a, b = getattr(ours, name), getattr(self, name)
                parts.append((a.weight, b.weight, WHOLE))
        for a, b in zip(ours.encoder.layers, self.encoder.layers, strict=True):
            parts += encoder_layer_parts(a, b)
        for a, b in zip(ours.decoder.layers, self.decoder.layers, strict=True):
            parts += decoder_layer_parts(a, b)
        if self.config.pre_norm:
            parts += norm_parts(ours.encoder.norm, self.encoder.norm)
            parts += norm_parts(ours.decoder.norm, self.decoder.norm)
        return parts


def torch_sizes(config: tl.TransformerConfig) -> dict[str, Any]:
    """The options of torch.nn's layers that build the same thing."""
    return {
        "d_model": config.d_model,
        "nhead": config.n_heads,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "layer_norm_eps": config.layer_norm_eps,
        "norm_first": config.pre_norm,
        "batch_first": True,
    }


def torch_final_norm(config: tl.TransformerConfig) -> nn.LayerNorm | None:
    if config.pre_norm:
        return nn.LayerNorm(config.d_model, config.layer_norm_eps)
    return None


def lend_weights(parts: list[Part], ours: nn.Module, theirs: nn.Module) -> None:
    """Copy our weights into torch's module, and miss none of either."""
    with torch.no_grad():
        for a, b, rows in parts:
            b[rows] = 0.0 if a is None else a
    given = {a for a, _, _ in parts if a is not None}
    assert given == set(ours.parameters())
    assert {b for _, b, _ in parts} == set(theirs.parameters())
    filled = sum(b[rows].numel() for _, b, rows in parts)
    assert filled == sum(b.numel() for b in theirs.parameters())


def check_gradients(parts: Iterable[Part], within: float = 1e-10) -> None:
    """Each of our gradients equals its part of torch's."""
    for a, b, rows in parts:
        if a is not None:
            close(grad(a), grad(b)[rows], within)
