"""7 What survived.

From book/07_what_survived.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lit.attention import (
    HeadMaps,
    MultiHeadAttention,
    glorot,
    is_empty,
    merge_heads,
    split_heads,
)
from transformer_lit.batches import make_batch
from transformer_lit.config import BOS, PAD, TransformerConfig
from transformer_lit.decoding import greedy_search
from transformer_lit.feed_forward import FeedForward
from transformer_lit.loss import label_smoothed_loss
from transformer_lit.masks import causal_mask, padding_mask, target_mask
from transformer_lit.model import (
    Encoder,
    Transformer,
    position_encoding,
    token_embedding,
)
from transformer_lit.numbers import (
    NumberVocabulary,
    encode_pair,
    held_out_sample,
    number_batches,
)
from transformer_lit.optimizer import noam
from transformer_lit.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)
from transformer_lit.stacks import Dropout, EncoderLayer, LayerNorm, Residual

# 07_what_survived: One slot at a time
Model = TypeVar("Model", bound=nn.Module)


def swap(
    model: Model,
    kind: type[nn.Module] | tuple[type[nn.Module], ...],
    make: Callable[[Any], nn.Module],
    *,
    only: str = "",
) -> Model:
    """Put `make(part)` in the place of every part of a kind.

    Args:
        model: any assembly of this book's parts; it is changed in place.
        kind: the class of the parts to replace, or several.
        make: from the old part to the new one.
        only: replace only parts that are held under this name, such as
            "self_attention".

    Returns:
        The model.

    Raises:
        ValueError: the model has no such part.
    """
    made: dict[nn.Module, nn.Module] = {}  # from each old part to its new one
    for path, old in list(model.named_modules(remove_duplicate=False)):
        parent, _, name = path.rpartition(".")
        if isinstance(old, kind) and only in ("", name):
            if old not in made:
                made[old] = make(old)
            setattr(model.get_submodule(parent), name, made[old])
    if not made:
        raise ValueError(f"the model has no part of kind {kind} to replace")
    return model


# 07_what_survived: The norm: RMSNorm
class RMSNorm(nn.Module):
    """x / rms(x) times a gain: LayerNorm without its mean and its bias.

    Args:
        d_model: D, the width.
        eps: what keeps the root from zero; it stands under the root.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    @classmethod
    def like(cls, old: LayerNorm) -> Self:
        """An RMSNorm in a LayerNorm's place."""
        return cls(len(old.gain), old.eps).to(old.gain)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        mean_square = x.square().mean(-1, keepdim=True)
        return self.gain * x * torch.rsqrt(mean_square + self.eps)


# 07_what_survived: Its place: pre-norm
def pre_norm(model: Transformer) -> Transformer:
    """Move each norm from behind its sub-layer to the front of it, and give
    each stack a norm at its end."""
    config = dataclasses.replace(model.config, pre_norm=True)
    model.config = config
    for part in model.modules():
        if isinstance(part, Residual):
            part.pre_norm = True
    for stack in (model.encoder, model.decoder):
        stack.norm = LayerNorm(config.d_model, config.layer_norm_eps)
    return model


# 07_what_survived: The feed-forward network: a gate
class SwiGLU(nn.Module):
    """(silu(x W_g) * x W_1) W_2: a feed-forward sub-layer with gates.

    Args:
        d_model: D, the width of input and output.
        d_ff: F, the number of inner units.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_g = nn.Linear(d_model, d_ff, bias=False)
        self.w_1 = nn.Linear(d_model, d_ff, bias=False)
        self.w_2 = nn.Linear(d_ff, d_model, bias=False)
        for linear in (self.w_g, self.w_1, self.w_2):
            glorot(linear)

    @classmethod
    def like(cls, old: FeedForward) -> Self:
        """In place of a FeedForward, with two thirds of its units: three
        matrices then hold what two held."""
        d_ff, d_model = old.w_1.weight.shape
        return cls(d_model, max(1, 2 * d_ff // 3)).to(old.w_1.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D], each position by itself."""
        return self.w_2(F.silu(self.w_g(x)) * self.w_1(x))


# 07_what_survived: Attention with a middle that can be replaced
Maybe = Tensor | None
"""A tensor, or nothing."""

Mixed = tuple[Tensor, Tensor]
"""Mixed values [..., T, V] and weights [..., T, S]."""


def biased_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Maybe = None,
    bias: Maybe = None,
    *,
    p_drop: float = 0.0,
) -> Mixed:
    """`scaled_dot_product` with something added to the scores.

    Args:
        q, k, v, mask, p_drop: as in `scaled_dot_product`.
        bias: broadcastable to [..., T, S]; None: nothing is added.

    Returns:
        The mixed values [..., T, V] and the weights [..., T, S].
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [..., T, S]
    if bias is not None:
        scores = scores + bias
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    scores = scores.masked_fill(~(mask | is_empty(mask)), -torch.inf)
    weights = scores.softmax(-1).masked_fill(~mask, 0.0)
    weights = torch.dropout(weights, p_drop, train=p_drop > 0.0)
    return weights @ v, weights


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention whose middle, `mix`, can be replaced.

    The queries belong to the last T of the S positions of the keys: T is S
    for a whole sequence, 1 when one token is written behind others. With
    the `mix` that stands here it computes what `MultiHeadAttention` does.

    Args and errors are those of `MultiHeadAttention`.
    """

    @classmethod
    def like(cls, old: HeadMaps, **options: Any) -> Self:
        """One with the sizes and weights of an old attention; the options go
        to the constructor."""
        H = old.n_heads
        new = cls(
            old.w_o.out_features,
            H,
            d_k=old.w_q.out_features // H,
            d_v=old.w_o.in_features // H,
            bias=old.w_o.bias is not None,
            p_drop=old.p_drop,
            **options,
        ).to(old.w_q.weight)
        new.take(old)
        return new

    def take(self, old: HeadMaps) -> None:
        """Copy the weights of another attention."""
        self.load_state_dict(old.state_dict())

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """The mixed values and the weights; see `biased_attention`."""
        p_drop = self.p_drop if self.training else 0.0
        return biased_attention(q, k, v, mask, bias, p_drop=p_drop)

    def attend(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Maybe = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; arguments as in `MultiHeadAttention`."""
        q = split_heads(self.w_q(x), self.n_heads)
        mixed, weights = self.mix(q, k, v, mask, None)
        if maps is not None:
            maps.append(weights)
        return self.w_o(merge_heads(mixed))


# 07_what_survived: Rotary positions: turn query and key
def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Turn each pair of channels by the position times the pair's rate.

    Args:
        x: queries or keys [..., T, K], K even.
        start: the position of the first.

    Returns:
        [..., T, K], each vector as long as it was.
    """
    table = sinusoids(x.shape[-2], x.shape[-1], start=start).to(x)
    sin, cos = table[:, 0::2], table[:, 1::2]  # [T, K / 2]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = [even * cos - odd * sin, even * sin + odd * cos]
    return torch.stack(turned, -1).flatten(-2)


class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions: queries and keys are turned.

    Raises:
        ValueError: K is odd; besides those of `MultiHeadAttention`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        d_k = self.w_q.out_features // self.n_heads
        if d_k % 2:
            raise ValueError(f"d_k={d_k} must be even: channels turn in pairs")

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """Turn q [B, H, T, K] and k [B, H, S, K], then go on."""
        q = rotate(q, start=k.shape[-2] - q.shape[-2])
        return super().mix(q, rotate(k), v, mask, bias)


# 07_what_survived: ALiBi: a penalty for distance
def distances(q: Tensor, k: Tensor) -> Tensor:
    """How far each of the last T positions stands behind each of S: [T, S]."""
    T, S = q.shape[-2], k.shape[-2]
    steps = torch.arange(S, device=q.device)
    return steps[S - T :, None] - steps


def alibi_slopes(n_heads: int) -> Tensor:
    """2^(-8 h / H) for the heads h = 1 ... H: float64 [H]."""
    heads = torch.arange(1, n_heads + 1, dtype=torch.float64)
    return 2.0 ** (-8 * heads / n_heads)


class AlibiAttention(SelfAttention):
    """Self-attention with linear biases: a score loses slope * distance."""

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """Add the bias [H, T, S], then go on."""
        slopes = alibi_slopes(self.n_heads).to(q)[:, None, None]
        alibi = -slopes * distances(q, k).abs()
        bias = alibi if bias is None else bias + alibi
        return super().mix(q, k, v, mask, bias)


# 07_what_survived: A scheme for a whole model
class NoPositions(nn.Module):
    """Adds nothing to the embeddings."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x [B, T, D], whatever the position of its first."""
        return x


Scheme = tuple[Callable[[TransformerConfig], nn.Module], type[SelfAttention]]
"""What is added to the embeddings, and how self-attention reads."""

SCHEMES: dict[str, Scheme] = {
    "sinusoidal": (lambda c: SinusoidalPositions(c.d_model), SelfAttention),
    "learned": (
        lambda c: LearnedPositions(c.max_len, c.d_model),
        SelfAttention,
    ),
    "rotary": (lambda c: NoPositions(), RotaryAttention),
    "alibi": (lambda c: NoPositions(), AlibiAttention),
    "none": (lambda c: NoPositions(), SelfAttention),
}
"""Ways to tell a model where its tokens stand."""


def with_positions(model: Model, scheme: str) -> Model:
    """Give a model another way to know positions; its weights stay.

        model = with_positions(Transformer(config), "rotary")

    Args:
        model: a `Transformer`, or another assembly with a `config`; it is
            changed in place. Cross-attention has no positions of its own and
            stays as it is.
        scheme: a name in `SCHEMES`.

    Returns:
        The model, called as before: `model(src, tgt_in)`, `greedy_search`.

    Raises:
        ValueError: there is no such scheme; or, for rotary, K is odd.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme={scheme!r}: take one of {list(SCHEMES)}")
    config: Any = model.config
    added, attention = SCHEMES[scheme]
    kinds = (SinusoidalPositions, LearnedPositions, NoPositions)
    swap(model, kinds, lambda old: added(config))
    return swap(model, HeadMaps, attention.like, only="self_attention")


# 07_what_survived: Fewer keys and values
class GroupedQueryAttention(SelfAttention):
    """Self-attention in which several query heads share keys and values.

    Args:
        args, options: as for `MultiHeadAttention`.
        n_groups: G, the heads of keys and values; 1 is multi-query
            attention, H is multi-head attention.

    Raises:
        ValueError: H is not a multiple of G; besides those of
            `MultiHeadAttention`.
    """

    def __init__(self, *args: Any, n_groups: int, **options: Any) -> None:
        super().__init__(*args, **options)
        H, D = self.n_heads, self.w_q.in_features
        if n_groups < 1 or H % n_groups:
            raise ValueError(f"n_groups={n_groups} must divide the {H} heads")
        self.n_groups = n_groups
        bias = self.w_k.bias is not None
        self.w_k = nn.Linear(D, self.w_k.out_features // H * n_groups, bias)
        self.w_v = nn.Linear(D, self.w_v.out_features // H * n_groups, bias)
        for linear in (self.w_k, self.w_v):
            glorot(linear, gain=math.sqrt(0.5))

    def take(self, old: HeadMaps) -> None:
        """Copy the weights; the heads of a group become their mean."""
        weights, share = old.state_dict(), self.n_heads // self.n_groups
        for name in weights:
            if name.startswith(("w_k", "w_v")):
                heads = weights[name].unflatten(0, (self.n_groups, share, -1))
                weights[name] = heads.mean(1).flatten(0, 1)
        self.load_state_dict(weights)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] to keys [B, G, S, K] and values [B, G, S, V]."""
        k = split_heads(self.w_k(memory), self.n_groups)
        v = split_heads(self.w_v(memory), self.n_groups)
        return k, v

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """Lend each group's keys and values to its H / G heads, then go on."""
        share = self.n_heads // self.n_groups
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        return super().mix(q, k, v, mask, bias)


def cache_bytes(
    length: int,
    *,
    n_layers: int,
    n_groups: int,
    d_k: int,
    d_v: int | None = None,
    bytes_each: int = 2,
) -> int:
    """What the keys and values of one sequence take.

    Args:
        length: S, the positions.
        n_layers, n_groups: N and G, the heads of keys and values in each.
        d_k, d_v: K and V; None: V is K.
        bytes_each: of a number; 2 for bfloat16.
    """
    per_head = d_k + (d_k if d_v is None else d_v)
    return length * n_layers * n_groups * per_head * bytes_each


# 07_what_survived: Local attention, as the authors wished
class LocalAttention(SelfAttention):
    """Self-attention to positions less than `window` away.

    Raises:
        ValueError: window is below 1; besides those of `MultiHeadAttention`.
    """

    def __init__(self, *args: Any, window: int, **options: Any) -> None:
        super().__init__(*args, **options)
        if window < 1:
            raise ValueError(f"window={window} must be at least 1")
        self.window = window

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """Narrow the mask, then go on."""
        near = distances(q, k).abs() < self.window  # [T, S]
        return super().mix(q, k, v, near if mask is None else near & mask, bias)


# 07_what_survived: The same numbers in another order: flash attention
def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Maybe = None, *, tile: int = 128
) -> Tensor:
    """The mixed values of `scaled_dot_product`, a tile of keys at a time.

    Args:
        q, k, v: as in `scaled_dot_product`.
        mask: bool [..., T, S], or what broadcasts to it.
        tile: keys at a time; no more than [..., T, tile] scores are there
            at once.

    Returns:
        [..., T, V]; zeros for a query that may attend to nothing.
    """
    T, S = q.shape[-2], k.shape[-2]
    if mask is None:
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device)
    mask = mask.expand(*mask.shape[:-1], S)
    q = q / math.sqrt(q.shape[-1])
    lead = torch.broadcast_shapes(q.shape[:-1], mask.shape[:-1])
    top = q.new_full((*lead, 1), torch.finfo(q.dtype).min)  # running maximum
    total = q.new_zeros(*lead, 1)  # running sum of exponentials
    mixed = q.new_zeros(*lead, v.shape[-1])
    for start in range(0, S, tile):
        keys = slice(start, start + tile)
        allowed = mask[..., keys]
        scores = q @ k[..., keys, :].transpose(-2, -1)
        scores = scores.masked_fill(~allowed, -torch.inf)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = (scores - new_top).exp()
        shrink = (top - new_top).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        mixed = mixed * shrink + weights @ v[..., keys, :]
        top = new_top
    return mixed / total.where(total > 0, 1.0)


# 07_what_survived: Three descendants
class EncoderOnly(nn.Module):
    """Embedding, encoder, and the embedding again: a score for every token
    at every position, with a view of the whole sequence.

    Args:
        config: the sizes, N of them in the one stack.
    """

    mask = staticmethod(padding_mask)  # who may attend to whom

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = token_embedding(config)
        self.positions = position_encoding(config)
        self.dropout = Dropout(config.p_drop)
        self.encoder = Encoder(config)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids [B, S], int64, to logits [B, S, W]."""
        x = self.dropout(self.positions(self.embedding(ids)))
        x = self.encoder(x, self.mask(ids, self.config.pad_id))
        return self.embedding.logits(x)


Past = tuple[Tensor, Tensor]
"""Keys [B, H, S, K] and values [B, H, S, V] of the positions so far."""


def read_on(
    layer: EncoderLayer, x: Tensor, mask: Tensor, past: Past | None
) -> tuple[Tensor, Past]:
    """An `EncoderLayer` on new positions behind others that it has read.

    Args:
        layer: the layer.
        x: its input at the new positions [B, T, D].
        mask: bool [T, S], S positions in all.
        past: what it returned before; None: there is nothing before.

    Returns:
        The output [B, T, D], and the past that now ends at these positions.
    """
    h = layer.residual_1.enter(x)
    k, v = layer.self_attention.keys_values(h)
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    y = layer.self_attention.attend(h, k, v, mask)
    x = layer.residual_1.leave(x, y)
    h = layer.residual_2.enter(x)
    return layer.residual_2.leave(x, layer.feed_forward(h)), (k, v)


class DecoderOnly(EncoderOnly):
    """An `EncoderOnly` that may not look ahead: a language model."""

    mask = staticmethod(target_mask)

    def read(
        self, ids: Tensor, pasts: list[Past] | None = None
    ) -> tuple[Tensor, list[Past]]:
        """Logits [B, T, W] of new tokens [B, T] without padding, and the
        cache [N] to give to the next call."""
        start = pasts[0][0].shape[2] if pasts else 0
        x = self.dropout(self.positions(self.embedding(ids), start))
        mask = causal_mask(start + ids.shape[1], ids.device)[start:]
        layers: Any = self.encoder.layers
        before: list[Past | None] = [*pasts] if pasts else [None] * len(layers)
        found = []
        for layer, past in zip(layers, before, strict=True):
            x, new = read_on(layer, x, mask, past)
            found.append(new)
        return self.embedding.logits(self.encoder.norm(x)), found

    @torch.inference_mode()
    def write(self, ids: Tensor, count: int) -> Tensor:
        """Continue prompts [B, T] by the most probable tokens: [B, count]."""
        logits, pasts = self.read(ids)
        found = [logits[:, -1:].argmax(-1)]
        for _ in range(count - 1):
            logits, pasts = self.read(found[-1], pasts)
            found.append(logits.argmax(-1))
        return torch.cat(found, dim=1)


# 07_what_survived: Nothing to attend to
class SilentAttention(SelfAttention):
    """Self-attention with a key of zeros, whose value is zero, before the
    others: a head that finds nothing there can return almost nothing."""

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, bias: Maybe
    ) -> Mixed:
        """Add the zero key and value, then go on; weights [B, H, T, S]."""
        k, v = F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))
        if mask is not None:
            mask = F.pad(mask, (1, 0), value=True)
        if bias is not None:
            bias = F.pad(bias, (1, 0))
        mixed, weights = super().mix(q, k, v, mask, bias)
        return mixed, weights[..., 1:]


# 07_what_survived: One budget for all
class ModernAttention(RotaryAttention, GroupedQueryAttention):
    """Both: turned queries and keys, and keys that are shared."""


def rms_norm(model: Model) -> Model:
    """RMSNorm for every LayerNorm."""
    return swap(model, LayerNorm, RMSNorm.like)


def swiglu(model: Model) -> Model:
    """SwiGLU for every feed-forward sub-layer."""
    return swap(model, FeedForward, SwiGLU.like)


def self_attention(
    model: Model, kind: type[SelfAttention], **options: Any
) -> Model:
    """Another kind of attention for every self-attention."""
    return swap(
        model,
        HeadMaps,
        lambda old: kind.like(old, **options),
        only="self_attention",
    )


def modern(model: Transformer) -> Transformer:
    """What most decoder-only models of the years since have in common."""
    model = swiglu(rms_norm(pre_norm(with_positions(model, "none"))))
    groups = max(1, model.config.n_heads // 2)
    return self_attention(model, ModernAttention, n_groups=groups)


Variant = Callable[[Transformer], Transformer]
"""Changes a model of the paper in place and returns it."""

VARIANTS: dict[str, Variant] = {
    "paper": lambda model: model,
    "pre-norm": pre_norm,
    "RMSNorm": rms_norm,
    "SwiGLU": swiglu,
    "rotary": lambda model: with_positions(model, "rotary"),
    "ALiBi": lambda model: with_positions(model, "alibi"),
    "learned positions": lambda model: with_positions(model, "learned"),
    "no positions": lambda model: with_positions(model, "none"),
    "two groups": lambda model: self_attention(
        model, GroupedQueryAttention, n_groups=2
    ),
    "multi-query": lambda model: self_attention(
        model, GroupedQueryAttention, n_groups=1
    ),
    "window of 4": lambda model: self_attention(
        model, LocalAttention, window=4
    ),
    "zero key": lambda model: self_attention(model, SilentAttention),
    "all at once": modern,
}
"""What may be changed in the paper's model, by name; add your own."""


def build(variant: str, config: TransformerConfig) -> Transformer:
    """A model of the paper with one thing changed.

    Args:
        variant: a name in `VARIANTS`.
        config: the sizes.

    Raises:
        ValueError: there is no such variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant!r}: take one of {list(VARIANTS)}")
    return VARIANTS[variant](Transformer(config))


@dataclass(frozen=True)
class Budget:
    """What each variant is given.

    Attributes:
        n_layers: N, of the miniature.
        batch_size: B, pairs in a batch.
        steps, warmup: updates, and how many of them the rate rises.
        tested: so many numbers that no variant was trained on.
    """

    n_layers: int = 2
    batch_size: int = 64
    steps: int = 1500
    warmup: int = 500
    tested: int = 2000


def train(model: Transformer, budget: Budget, seed: int) -> None:
    """Train on number words by the recipe of section 5."""
    vocabulary = NumberVocabulary()
    batches = number_batches(vocabulary, size=budget.batch_size, seed=seed)
    adam, schedule = noam(model, budget.warmup)
    model.train()
    for batch in islice(batches, budget.steps):
        logits = model(batch.src, batch.tgt_in)
        sums = label_smoothed_loss(logits, batch.tgt_out, pad_id=PAD)
        adam.zero_grad()
        (sums.loss / sums.tokens).backward()
        adam.step()
        schedule.step()


@cache
def held_out_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    """Source and target of numbers that no variant was trained on."""
    vocabulary = NumberVocabulary()
    return [encode_pair(vocabulary, n) for n in held_out_sample(count, 0)]


@torch.inference_mode()
def evaluate(model: Transformer, tested: int) -> tuple[float, float]:
    """On numbers never trained on: the negative log-likelihood, nats a
    token, and the share that greedy search gets exactly right."""
    pairs, nll, tokens, right = held_out_pairs(tested), 0.0, 0, 0
    model.eval()
    for start in range(0, tested, 500):
        part = pairs[start : start + 500]
        batch = make_batch(part, pad_id=PAD, bos_id=BOS)
        logits = model(batch.src, batch.tgt_in)
        sums = label_smoothed_loss(logits, batch.tgt_out, pad_id=PAD)
        nll, tokens = nll + float(sums.nll), tokens + int(sums.tokens)
        found = greedy_search(model, batch.src, max_extra=10)
        for (_, tgt), [hypothesis] in zip(part, found, strict=True):
            right += hypothesis.tokens == tgt[:-1]
    return nll / tokens, right / tested


def trial(variant: str, budget: Budget, seed: int = 0) -> dict[str, Any]:
    """Train one variant and test it; the same seed gives each variant the
    same batches, and the same weights where it has weights of that shape."""
    torch.manual_seed(seed)
    config = TransformerConfig.miniature(len(NumberVocabulary()))
    config = dataclasses.replace(config, n_layers=budget.n_layers)
    model = build(variant, config)
    train(model, budget, seed)
    nll, exact_match = evaluate(model, budget.tested)
    return {
        "variant": variant,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "nll": nll,
        "exact_match": exact_match,
    }


__all__ = [
    "AlibiAttention",
    "Budget",
    "DecoderOnly",
    "EncoderOnly",
    "GroupedQueryAttention",
    "LocalAttention",
    "Maybe",
    "Mixed",
    "Model",
    "ModernAttention",
    "NoPositions",
    "Past",
    "RMSNorm",
    "RotaryAttention",
    "SCHEMES",
    "Scheme",
    "SelfAttention",
    "SilentAttention",
    "SwiGLU",
    "VARIANTS",
    "Variant",
    "alibi_slopes",
    "biased_attention",
    "build",
    "cache_bytes",
    "distances",
    "evaluate",
    "held_out_pairs",
    "modern",
    "pre_norm",
    "read_on",
    "rms_norm",
    "rotate",
    "self_attention",
    "swap",
    "swiglu",
    "tiled_attention",
    "train",
    "trial",
    "with_positions",
]
