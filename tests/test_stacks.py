"""Section 3.1: LayerNorm, the residual frame, the two kinds of layer, and
section 3.3's sub-layer inside them."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    DOUBLE,
    SEEDS,
    check_gradients,
    close,
    configs,
    decoder_layer_parts,
    encoder_layer_parts,
    grad,
    leaf,
    lend_weights,
    norm_parts,
    shake,
    slope,
    torch_sizes,
    twin,
)
from torch import nn

import transformer_lit as tl
from transformer_lit.model import attention, decoder_layer, feed_forward
from transformer_lit.stacks import (
    DecoderLayer,
    Dropout,
    EncoderLayer,
    LayerCache,
    LayerNorm,
    Residual,
    layer_norm,
)

SIZES = st.integers(1, 6)


# -- Dropout -----------------------------------------------------------------


@given(st.lists(SIZES, min_size=1, max_size=3), st.floats(0.01, 0.99), SEEDS)
def test_dropout_drops_or_enlarges_and_learns_of_what_is_left(shape, p, seed):
    torch.manual_seed(seed)
    x = leaf(*shape)
    y = Dropout(p)(x)
    assert y.shape == x.shape and y.dtype == x.dtype
    kept = (y != 0).double()
    # the rate is rounded to a multiple of 2^-16
    close(y, x * kept / (1 - p), 1e-2 * max(1, p / (1 - p)))
    slope = torch.randn_like(y)
    y.backward(slope)
    close(grad(x) * x.detach(), slope * y.detach(), 1e-12)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_right_in_every_lane(p):
    # Four decisions share one random number: each alone must have the rate,
    # and each pair of them be independent. Five standard errors are granted.
    torch.manual_seed(0)
    n = 200_000
    kept = (Dropout(p)(torch.ones(n, 4)) != 0).double()
    error = (p * (1 - p) / n) ** 0.5
    assert (kept.mean(0) - (1 - p)).abs().max() < 5 * error
    noise = (kept - (1 - p)) / (p * (1 - p)) ** 0.5
    together = noise.T @ noise / n
    assert (together - torch.eye(4)).abs().triu(1).max() < 5 / n**0.5


def test_the_mean_is_kept_to_the_rounding_of_the_rate():
    torch.manual_seed(0)
    y = Dropout(0.1)(torch.ones(1_000_000, dtype=DOUBLE))
    assert abs(y.mean() - 1) < 5 * (0.1 / 0.9 / 1e6) ** 0.5
    factor = y.max().item()
    assert factor == 65_536 / (65_536 - 6_554)
    assert abs(factor - 1 / 0.9) < 1e-5


@pytest.mark.parametrize("p", [0.0, 1e-9, 1 - 1e-9, 1.0])
def test_rates_at_either_end_are_left_to_torch(p):
    x = torch.ones(1000)
    torch.manual_seed(0)
    y = Dropout(p)(x)
    torch.manual_seed(0)
    assert torch.equal(y, nn.Dropout(p)(x))


def test_dropout_depends_on_the_seed_and_only_in_training():
    x = torch.ones(3, 7)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(Dropout(0.5)(x))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(Dropout(0.5).eval()(x), x)


def test_dropout_keeps_a_byte_a_component():
    kept = []
    x = torch.ones(64, 32, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.nbytes) or t, lambda t: t
    ):
        Dropout(0.1)(x)
    assert kept == [64 * 32]


def test_dropout_of_16_bits_and_of_turned_tensors():
    torch.manual_seed(0)
    x = torch.randn(6, 5).T
    y = Dropout(0.5)(x)
    assert torch.equal(y, torch.where(y == 0, 0.0, 2 * x))
    half = Dropout(0.5)(torch.ones(100, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16 and {*half.tolist()} == {0.0, 2.0}


# -- LayerNorm ---------------------------------------------------------------


@given(SIZES, SIZES, SIZES, st.sampled_from([1e-6, 1e-5, 0.1]), SEEDS)
def test_layer_norm_equals_torch_nn(B, T, D, eps, seed):
    torch.manual_seed(seed)
    ours = shake(LayerNorm(D, eps))
    theirs = nn.LayerNorm(D, eps, dtype=DOUBLE)
    parts = norm_parts(ours, theirs)
    lend_weights(parts, ours, theirs)
    x = leaf(B, T, D)
    their_x = twin(x)
    output, want = ours(x), theirs(their_x)
    close(output, want)
    slope(output)
    slope(want)
    close(grad(x), grad(their_x))
    check_gradients(parts)


@given(SIZES, SIZES, st.sampled_from([1e-6, 0.1]), SEEDS)
def test_the_formula_equals_the_fused_kernel(T, D, eps, seed):
    torch.manual_seed(seed)
    # Spread of about eps: there a misplaced eps weighs most.
    x = leaf(T, D)
    small = (x * math.sqrt(eps)).detach().requires_grad_()
    gain, bias = leaf(D), leaf(D)
    copies = twin(small), twin(gain), twin(bias)
    output = layer_norm(small, gain, bias, eps)
    want = F.layer_norm(copies[0], (D,), copies[1], copies[2], eps)
    close(output, want)
    slope(output)
    slope(want)
    for a, b in zip((small, gain, bias), copies, strict=True):
        close(grad(a), grad(b), 1e-9)


def test_the_variance_is_the_biased_one():
    # The example of a report against a well-known implementation, which
    # gave 1.5: mean 1/4, variance 3/16, (1 - 1/4) / sqrt(3/16) = sqrt(3).
    x = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=DOUBLE)
    one, zero = torch.ones(4, dtype=DOUBLE), torch.zeros(4, dtype=DOUBLE)
    assert layer_norm(x, one, zero, 0.0)[0].item() == pytest.approx(3**0.5)
    norm = LayerNorm(4, 0.0).double()
    assert norm(x)[0].item() == pytest.approx(3**0.5)


@given(st.floats(-100, 100), SIZES)
def test_a_constant_vector_gives_the_bias_and_no_nan(value, D):
    norm = shake(LayerNorm(D))
    # the mean of equal numbers may be off by a rounding, hence not exact
    x = torch.full((D,), value, dtype=DOUBLE)
    close(norm(x), norm.bias, 1e-8)
    close(layer_norm(x, norm.gain, norm.bias), norm.bias, 1e-8)


def test_layer_norm_starts_with_gain_one_and_bias_zero():
    norm = LayerNorm(7)
    assert norm.gain.tolist() == [1.0] * 7
    assert norm.bias.tolist() == [0.0] * 7
    assert norm.eps == 1e-6


# -- The residual frame ------------------------------------------------------


def test_post_norm_normalises_the_sum():
    frame = shake(Residual(6, 0.0))
    x, y = leaf(2, 3, 6), leaf(2, 3, 6)
    assert frame.enter(x) is x
    assert frame.leave(x, y).equal(frame.norm(x + y))


def test_pre_norm_normalises_on_entering_and_leaves_the_sum_alone():
    frame = shake(Residual(6, 0.0, pre_norm=True))
    x, y = leaf(2, 3, 6), leaf(2, 3, 6)
    assert frame.enter(x).equal(frame.norm(x))
    assert frame.leave(x, y).equal(x + y)


def test_dropout_is_applied_to_the_sub_layers_output_and_nothing_else():
    x, y = torch.randn(2, 3, 64), torch.ones(2, 3, 64)
    frame = Residual(64, 0.25, pre_norm=True)  # the bare sum comes out
    dropped = frame.leave(x, y) - x
    kept = dropped.abs() > 1e-5
    close(dropped[kept], torch.full_like(dropped[kept], 1 / 0.75), 1e-5)
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.1)
    frame.eval()
    assert frame.leave(x, y).equal(x + y)


def test_what_the_sub_layer_reads_is_not_dropped():
    x = torch.randn(2, 3, 8)
    assert Residual(8, 0.5).enter(x).equal(x)
    frame = Residual(8, 0.5, pre_norm=True)
    assert frame.enter(x).equal(frame.norm(x))


def test_post_norm_output_is_normalised_whatever_was_dropped():
    # Dropout behind the norm would leave neither mean 0 nor variance 1.
    frame = Residual(64, 0.5)
    x = frame.leave(torch.randn(5, 2, 64), torch.randn(5, 2, 64))
    close(x.mean(-1), torch.zeros(5, 2), 1e-5)
    close(x.var(-1, correction=0), torch.ones(5, 2), 1e-4)


# -- Layers ------------------------------------------------------------------


@st.composite
def layer_problems(draw):
    """A configuration that torch.nn can build too, and random lengths."""
    config = draw(configs(d_k=None, d_v=None))
    B, S, T = (draw(st.integers(1, 5)) for _ in range(3))
    src_lengths = [draw(st.integers(1, S)) for _ in range(B)]
    tgt_lengths = [draw(st.integers(1, T)) for _ in range(B)]
    torch.manual_seed(draw(SEEDS))
    src_real = torch.arange(S) < torch.tensor(src_lengths)[:, None]
    tgt_real = torch.arange(T) < torch.tensor(tgt_lengths)[:, None]
    return config, src_real, tgt_real


@given(layer_problems())
def test_an_encoder_layer_equals_torch_nn(problem):
    config, real, _ = problem
    ours = EncoderLayer(config, attention(config), feed_forward(config))
    shake(ours)
    theirs = nn.TransformerEncoderLayer(**torch_sizes(config), dtype=DOUBLE)
    parts = encoder_layer_parts(ours, theirs)
    lend_weights(parts, ours, theirs)
    x = leaf(*real.shape, config.d_model)
    their_x = twin(x)
    output = ours(x, real[:, None, None])
    want = theirs(their_x, src_key_padding_mask=~real)
    close(output, want)
    slope(output)
    slope(want)
    close(grad(x), grad(their_x))
    check_gradients(parts)


@given(layer_problems())
def test_a_decoder_layer_equals_torch_nn(problem):
    config, src_real, tgt_real = problem
    ours = DecoderLayer(
        config, attention(config), attention(config), feed_forward(config)
    )
    shake(ours)
    theirs = nn.TransformerDecoderLayer(**torch_sizes(config), dtype=DOUBLE)
    parts = decoder_layer_parts(ours, theirs)
    lend_weights(parts, ours, theirs)
    x = leaf(*tgt_real.shape, config.d_model)
    memory = leaf(*src_real.shape, config.d_model)
    their_x, their_memory = twin(x), twin(memory)
    causal = tl.causal_mask(x.shape[1])
    tgt_mask = tgt_real[:, None, None] & causal
    output = ours(x, memory, tgt_mask, src_real[:, None, None])
    want = theirs(
        their_x,
        their_memory,
        tgt_mask=~causal,
        tgt_key_padding_mask=~tgt_real,
        memory_key_padding_mask=~src_real,
    )
    close(output, want)
    slope(output)
    slope(want)
    close(grad(x), grad(their_x))
    close(grad(memory), grad(their_memory))
    check_gradients(parts)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_a_silent_sub_layer_leaves_only_its_norm(pre_norm):
    # A sub-layer whose last map is zero adds nothing: what remains of it is
    # its own normalisation, in its own place.
    config = tl.TransformerConfig(
        vocab_size=9, d_model=8, d_ff=5, n_heads=2, pre_norm=pre_norm
    )
    layer = DecoderLayer(
        config, attention(config), attention(config), feed_forward(config)
    )
    shake(layer).eval()
    silent = [
        layer.self_attention.w_o,
        layer.cross_attention.w_o,
        layer.feed_forward.w_2,
    ]
    for linear in silent:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    x, memory = leaf(2, 3, 8), leaf(2, 4, 8)
    want = x
    if not pre_norm:
        for frame in (layer.residual_1, layer.residual_2, layer.residual_3):
            want = frame.norm(want)
    close(layer(x, memory), want)


def test_without_masks_everything_is_seen():
    config = tl.TransformerConfig(vocab_size=9, d_model=8, d_ff=5, n_heads=2)
    layer = EncoderLayer(config, attention(config), feed_forward(config))
    shake(layer).eval()
    x = leaf(2, 3, 8)
    close(layer(x), layer(x, torch.ones(2, 1, 1, 3, dtype=torch.bool)))


# -- The cache ---------------------------------------------------------------


def test_the_cache_keeps_keys_and_values_in_order():
    k, v = leaf(3, 2, 5, 4), leaf(3, 2, 5, 6)
    cache = LayerCache((leaf(3, 2, 7, 4), leaf(3, 2, 7, 6)))
    for t in range(5):
        here = slice(t, t + 1)
        keys, values = cache.append(k[:, :, here], v[:, :, here])
        assert keys.equal(k[:, :, : t + 1])
        assert values.equal(v[:, :, : t + 1])


def test_select_takes_rows_of_all_that_the_cache_holds():
    memory, k, v = (leaf(3, 2, 4, 4) for _ in range(3))
    rows = torch.tensor([2, 0, 2, 1])
    targets = torch.tensor([0, 0, 2, 1])
    cache = LayerCache((memory, memory))
    cache.select(rows, targets)  # before the first token there is no past yet
    assert cache.past is None
    cache = LayerCache((memory, memory), past=(k, v))
    cache.select(rows, targets)
    assert cache.memory[0].equal(memory[rows])
    assert cache.memory[1].equal(memory[rows])
    assert cache.past[0].equal(k[targets])
    assert cache.past[1].equal(v[targets])


@pytest.mark.parametrize("A", [1, 3])
@pytest.mark.parametrize("normed", [False, True], ids=["post-norm", "pre-norm"])
def test_targets_of_one_sentence_read_its_memory_side_by_side(A, normed):
    config = tl.TransformerConfig(
        vocab_size=9, d_model=8, d_ff=5, n_heads=2, pre_norm=normed
    )
    layer = decoder_layer(config)
    shake(layer).eval()
    memory, seen = leaf(2, 5, 8), torch.rand(2, 1, 1, 5) > 0.3
    x = leaf(2 * A, 3, 8)  # three steps of A targets a sentence
    cache = layer.open_cache(memory)
    for t in range(3):
        found = layer(x[:, t : t + 1], memory, None, seen, cache=cache)
        each = memory.repeat_interleave(A, 0), seen.repeat_interleave(A, 0)
        causal = torch.ones(t + 1, t + 1, dtype=torch.bool).tril()
        want = layer(x[:, : t + 1], each[0], causal, each[1])
        close(found[:, 0], want[:, -1])


# -- Feed-forward ------------------------------------------------------------


@given(SIZES, SIZES, SIZES, SIZES, SEEDS)
def test_feed_forward_equals_two_convolutions_of_kernel_1(B, T, D, d_ff, seed):
    # Section 3.3's other way of saying it.
    torch.manual_seed(seed)
    ours = shake(tl.FeedForward(D, d_ff))
    inner = nn.Conv1d(D, d_ff, 1, dtype=DOUBLE)
    outer = nn.Conv1d(d_ff, D, 1, dtype=DOUBLE)
    pairs = [(ours.w_1, inner), (ours.w_2, outer)]
    with torch.no_grad():
        for linear, convolution in pairs:
            convolution.weight.copy_(linear.weight[..., None])
            convolution.bias.copy_(linear.bias)
    x = leaf(B, T, D)
    their_x = twin(x)
    output = ours(x)
    want = outer(inner(their_x.transpose(1, 2)).relu()).transpose(1, 2)
    close(output, want)
    slope(output)
    slope(want)
    close(grad(x), grad(their_x))
    for linear, convolution in pairs:
        close(grad(linear.weight), grad(convolution.weight)[..., 0])
        close(grad(linear.bias), grad(convolution.bias))


def test_feed_forward_is_equation_2():
    ours = shake(tl.FeedForward(4, 9))
    x = leaf(2, 3, 4)
    inner = x @ ours.w_1.weight.T + ours.w_1.bias
    inner = torch.maximum(inner, torch.zeros_like(inner))
    close(ours(x), inner @ ours.w_2.weight.T + ours.w_2.bias)


def test_feed_forward_starts_as_glorot_has_it():
    ours = tl.FeedForward(512, 2048)
    std = math.sqrt(2 / (512 + 2048))
    for linear in (ours.w_1, ours.w_2):
        assert linear.weight.std().item() == pytest.approx(std, rel=0.01)
        assert linear.weight.abs().max() <= math.sqrt(3) * std + 1e-7
        assert (linear.bias == 0).all()


def test_dropout_of_the_inner_units_is_off_unless_asked_for():
    x = torch.randn(2, 3, 8)
    paper = tl.FeedForward(8, 32).train()
    assert paper(x).equal(paper(x))
    other = tl.FeedForward(8, 32, p_drop=0.5).train()
    assert not other(x).equal(other(x))
    other.eval()
    assert other(x).equal(other(x))
