"""Section 4: the costs of Table 1 by formula, against layers that really run."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lit.attention import MultiHeadAttention, scaled_dot_product
from transformer_lit.complexity import (
    Chain,
    Convolution,
    Recurrent,
    RestrictedAttention,
    RestrictedSelfAttention,
    SelfAttention,
    SeparableConvolution,
    behind,
    measure,
    moves,
)

HEADS = 2
WIDTHS = st.integers(2, 5)
CONVOLUTIONS = st.builds(Convolution, k=WIDTHS, dilated=st.booleans())
SEPARABLES = st.builds(SeparableConvolution, k=WIDTHS, dilated=st.booleans())
RESTRICTED = st.builds(
    RestrictedSelfAttention,
    n_heads=st.just(HEADS),
    r=st.integers(1, 4).map(lambda half: 2 * half + 1),
)
RECURRENT = st.sampled_from(["rnn", "gru", "lstm"]).map(Recurrent)
AT_ONCE = st.just(SelfAttention(HEADS)) | RESTRICTED | CONVOLUTIONS | SEPARABLES
LENGTHS = st.integers(1, 40)
D = 6


def hears(run, n, d=D):
    """Who influences whom, by the derivative of a real layer: bool [n, n]."""
    x = torch.randn(1, n, d)

    def parts(x):
        return run(x)[0].sum(-1)  # [n]

    influence = torch.autograd.functional.jacobian(parts, x)  # [n, 1, n, d]
    return (influence[:, 0] != 0).any(-1)


def stack(layer, depth):
    """So many real layers on top of each other."""
    layers = [layer.build(D, level) for level in range(depth)]

    def run(x):
        for each in layers:
            x = each(x)
        return x

    return run


# -- Products ----------------------------------------------------------------


@given(AT_ONCE | RECURRENT, LENGTHS, st.integers(1, 9))
def test_the_formulas_are_what_pytorch_counts(layer, n, half):
    d = HEADS * half
    assert measure(layer, n, d).products == layer.products(n, d).total


@pytest.mark.parametrize("n", [1, 7, 12])
@pytest.mark.parametrize(
    "layer", [Recurrent(), Recurrent("gru"), Convolution(4)], ids=str
)
def test_numbers_are_multiplied_as_often_as_shapes(layer, n):
    run = layer.build(D)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run(torch.randn(1, n, D))
    assert counter.get_total_flops() == 2 * layer.products(n, D).total


@given(LENGTHS, st.sampled_from([1, 2, 4, 8]))
def test_attention_mixes_by_scores_and_sums_whatever_the_heads(n, heads):
    q = torch.randn(1, heads, n, 16 // heads)
    with FlopCounterMode(display=False) as counter:
        scaled_dot_product(q, q, q)
    products = SelfAttention(heads).products(n, 16)
    assert counter.get_total_flops() == 2 * products.mixing
    maps = [
        p.numel()
        for p in MultiHeadAttention(16, heads, bias=False).parameters()
    ]
    assert products.maps == n * sum(maps)


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_state_meets_one_matrix_and_a_token_the_other(cell):
    weights = dict(cell(D, D).named_parameters())
    products = Recurrent(cell.__name__.lower()).products(9, D)
    assert products.mixing == 9 * weights["weight_hh_l0"].numel()
    assert products.maps == 9 * weights["weight_ih_l0"].numel()


@pytest.mark.parametrize("k", [2, 3, 7])
def test_a_convolution_has_as_many_products_as_weights_a_position(k):
    whole, by_itself = nn.Conv1d(D, D, k), nn.Conv1d(D, D, k, groups=D)
    assert Convolution(k).products(9, D) == (9 * whole.weight.numel(), 0)
    mixing, maps = SeparableConvolution(k).products(9, D)
    assert mixing == 9 * by_itself.weight.numel()
    assert maps == 9 * D * D


def test_the_widest_separable_convolution_is_attention_and_a_map():
    # The paper's own counts: n^2 d for the first and n d^2 for the second.
    n, d = 30, 512
    assert SeparableConvolution(n).products(n, d) == (n**2 * d, n * d**2)


@given(st.integers(1, 300), st.integers(1, 40).map(lambda x: 2 * x))
def test_n_below_d_depends_on_what_is_counted(n, d):
    attention = SelfAttention().products(n, d)
    rnn, gru, lstm = (
        Recurrent(cell).products(n, d) for cell in ("rnn", "gru", "lstm")
    )
    assert (attention.mixing < rnn.total) == (n < d)
    assert (attention.mixing < rnn.mixing) == (n < d / 2)
    assert (attention.mixing < lstm.total) == (n < 4 * d)
    assert (attention.total < lstm.total) == (n < 2 * d)
    assert (attention.total < gru.total) == (n < d)
    assert attention.total > rnn.total


# -- Waiting -----------------------------------------------------------------


@given(AT_ONCE, st.integers(2, 40))
def test_what_goes_at_once_has_a_chain_of_constant_length(layer, n):
    assert measure(layer, n, D).chain == measure(layer, n + 1, D).chain
    assert layer.sequential(n) == 1


@given(RECURRENT, LENGTHS)
def test_the_chain_of_a_recurrence_grows_with_its_steps(layer, n):
    chains = [measure(layer, m, D).chain for m in (1, 2, n)]
    links = chains[1] - chains[0]
    assert links > 0
    assert chains[2] - chains[0] == links * (layer.sequential(n) - 1)


def test_a_chain_is_the_longest_way_through():
    x = torch.ones(3)
    with Chain() as chain:
        sides = x.sin(), x.cos().exp()
        total = sides[0] + sides[1]
    assert chain.length == chain.ends[total] == 3
    with Chain() as chain:
        for _ in range(5):
            x.sin()  # side by side
    assert chain.length == 1


@given(st.integers(2, 12))
def test_so_many_sweeps_over_all_states_give_a_recurrence(n):
    # All states at once, again and again: sweep s gets s of them right, and
    # is as far as the tables of `reads` say.
    torch.manual_seed(n)
    rnn = nn.RNN(D, D, batch_first=True).double()
    x = torch.randn(1, n, D, dtype=torch.float64)
    w_x, w_h, b_x, b_h = rnn.parameters()

    def sweeps(x, count):
        x, h = x.double(), torch.zeros(1, n, D, dtype=torch.float64)
        for _ in range(count):
            before = nn.functional.pad(h, (0, 0, 1, 0))[:, :-1]
            h = torch.tanh(x @ w_x.T + b_x + before @ w_h.T + b_h)
        return h

    wanted, layer = rnn(x)[0], Recurrent()
    fewest = moves(layer, n)
    for count in range(1, n + 1):
        right = (sweeps(x, count) - wanted).abs().amax((0, 2)) < 1e-12
        assert right.tolist() == [t < count for t in range(n)]
        known = (fewest >= 0) & (fewest < count)
        assert torch.equal(hears(lambda x, c=count: sweeps(x, c), n), known)
    assert layer.sequential(n) == n


# -- Paths -------------------------------------------------------------------


@given(AT_ONCE | RECURRENT, st.integers(1, 60))
def test_path_lengths_are_those_of_brute_force(layer, n):
    fewest = moves(layer, n)
    assert fewest.max() == layer.path_length(n)
    looks_back = isinstance(layer, Recurrent | Convolution)
    everybody = behind(n) >= 0 if looks_back else behind(n).abs() >= 0
    assert torch.equal(fewest >= 0, everybody)


@given(AT_ONCE, st.integers(1, 9), st.integers(1, 3))
def test_the_tables_are_those_of_the_derivative(layer, n, depth):
    torch.manual_seed(0)
    fewest = moves(layer, n)
    known = (fewest >= 0) & (fewest <= depth)
    assert torch.equal(hears(stack(layer, depth), n), known)


@pytest.mark.parametrize(
    "layer, at_70, at_512",
    [
        (Convolution(3), 35, 256),
        (Convolution(5), 18, 128),
        (Convolution(3, dilated=True), 4, 6),
        (Convolution(5, dilated=True), 3, 4),
        (SelfAttention(), 1, 1),
        (Recurrent(), 69, 511),
    ],
    ids=str,
)
def test_path_lengths_by_hand(layer, at_70, at_512):
    assert layer.path_length(70) == at_70
    assert layer.path_length(512) == at_512


@pytest.mark.parametrize("k", [2, 3, 10])
def test_a_power_of_the_kernel_is_no_layer_too_many(k):
    # Logarithms of floats would be: log(125, 5) is above 3, say.
    for layers in range(1, 8):
        dilated = Convolution(k, dilated=True)
        assert dilated.path_length(k**layers) == layers
        assert dilated.path_length(k**layers + 1) == layers + 1


# -- Attention to a neighbourhood --------------------------------------------


@given(st.integers(1, 12), st.integers(0, 12))
def test_restricted_attention_is_attention_behind_a_mask(n, half):
    torch.manual_seed(n)
    restricted = RestrictedAttention(8, HEADS, 2 * half + 1).double()
    masked = MultiHeadAttention(8, HEADS).double()
    masked.load_state_dict(restricted.state_dict())
    x = torch.randn(2, n, 8, dtype=torch.float64, requires_grad=True)
    near = behind(n).abs() <= half
    outputs = restricted(x), masked(x, x, near)
    torch.testing.assert_close(*outputs)
    weight = torch.randn(2, n, 8, dtype=torch.float64)
    grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in outputs]
    torch.testing.assert_close(*grads)


# -- Bad input ---------------------------------------------------------------


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Convolution(1), "k=1 must be at least 2"),
        (lambda: SeparableConvolution(0), "k=0 must be at least 2"),
        (lambda: RestrictedSelfAttention(r=1), "r=1 must be at least 3"),
        (lambda: RestrictedSelfAttention(r=4), "r=4 must be odd"),
        (lambda: RestrictedAttention(8, 2, 4), "r=4 must be odd"),
        (lambda: RestrictedAttention(8, 2, -1), "r=-1 must be odd"),
        (lambda: RestrictedAttention(8, 3, 5), "n_heads=3"),
        (lambda: Recurrent("qrnn"), "cell='qrnn' must be in"),
    ],
)
def test_what_cannot_be_built_says_why(make, words):
    with pytest.raises(ValueError, match=words):
        make()
