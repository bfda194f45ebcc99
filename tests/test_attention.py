"""Section 3.2: the formula, the fused kernel, heads, torch.nn's module."""

import ast
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    DOUBLE,
    SEEDS,
    attention_parts,
    check_gradients,
    close,
    grad,
    leaf,
    lend_weights,
    shake,
    slope,
    twin,
)
from torch import Tensor, nn

import transformer_lit as tl
from transformer_lit.attention import (
    fused_attention,
    merge_heads,
    split_heads,
)

SIZES = st.integers(1, 5)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Equation 1 for one head, one query and one key at a time."""
    rows = []
    for query, allowed in zip(q, mask, strict=True):
        seen = [s for s in range(len(k)) if allowed[s]]
        scores = [float(query @ k[s]) / math.sqrt(len(query)) for s in seen]
        total = sum(math.exp(score) for score in scores)
        row = torch.zeros_like(v[0])
        for s, score in zip(seen, scores, strict=True):
            row = row + math.exp(score) / total * v[s]
        rows.append(row)
    return torch.stack(rows)


@st.composite
def problems(draw):
    """q, k, v with two leading axes and a mask, some of its rows empty."""
    B, H, T, S, K, V = (draw(SIZES) for _ in range(6))
    torch.manual_seed(draw(SEEDS))
    mask = torch.rand(B, 1, T, S) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    return leaf(B, H, T, K), leaf(B, H, S, K), leaf(B, H, S, V), mask


# -- The formula -------------------------------------------------------------


@given(problems())
def test_attention_is_equation_1_query_by_query(problem):
    q, k, v, mask = (x.detach() for x in problem)
    mixed, _ = tl.scaled_dot_product(q, k, v, mask)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            want = by_hand(q[b, h], k[b, h], v[b, h], mask[b, 0])
            close(mixed[b, h], want)


@given(problems())
def test_weights_are_a_distribution_over_the_keys_that_may_be_seen(problem):
    q, k, v, mask = problem
    mixed, weights = tl.scaled_dot_product(q, k, v, mask)
    mask = mask.expand_as(weights)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    close(weights.sum(-1), mask.any(-1).to(DOUBLE))
    close(weights @ v, mixed)


@given(problems(), st.booleans())
def test_the_fused_path_equals_the_formula(problem, masked):
    q, k, v, mask = problem
    mask = mask if masked else None
    copies = twin(q), twin(k), twin(v)
    plain, _ = tl.scaled_dot_product(q, k, v, mask)
    fused = fused_attention(*copies, mask)
    close(fused, plain)
    slope(plain)
    slope(fused)
    for a, b in zip((q, k, v), copies, strict=True):
        close(grad(b), grad(a))


@given(problems())
def test_a_mask_that_allows_everything_is_no_mask(problem):
    q, k, v, mask = problem
    every = torch.ones_like(mask)
    for path in (lambda *x: tl.scaled_dot_product(*x)[0], fused_attention):
        close(path(q, k, v, every), path(q, k, v))


@pytest.mark.parametrize("path", ["plain", "fused"])
@given(problems(), st.integers(0, 4))
def test_a_query_with_nothing_to_attend_to_gives_zeros(path, problem, row):
    q, k, v, mask = problem
    mask[0, :, row % mask.shape[2]] = False
    if path == "plain":
        mixed, weights = tl.scaled_dot_product(q, k, v, mask)
        assert (weights[~mask.expand_as(weights)] == 0).all()
    else:
        mixed = fused_attention(q, k, v, mask)
    empty = ~mask.any(-1).expand(mixed.shape[:3])
    assert empty.any()
    assert (mixed[empty] == 0).all()
    slope(mixed)
    for x in (q, k, v):  # NaN here would spoil every weight of a model
        assert grad(x).isfinite().all()
    assert (grad(q)[empty] == 0).all()


@given(problems())
def test_what_the_mask_hides_changes_nothing(problem):
    q, k, v, mask = (x.detach() for x in problem)
    hidden = ~mask.any(2, keepdim=True).transpose(-2, -1)  # from all queries
    wild_k = torch.where(hidden, 100.0, k)
    wild_v = torch.where(hidden, -1000.0, v)
    for path in (lambda *x: tl.scaled_dot_product(*x)[0], fused_attention):
        close(path(q, wild_k, wild_v, mask), path(q, k, v, mask))


def test_large_scores_do_not_overflow():
    q = torch.full((1, 1, 1, 4), 1e3)
    k = torch.stack([torch.ones(4), -torch.ones(4)])[None, None] * 1e3
    v = torch.tensor([[1.0], [2.0]])[None, None]
    mixed, weights = tl.scaled_dot_product(q, k, v)
    assert weights.flatten().tolist() == [1.0, 0.0]
    assert mixed.item() == 1.0


# -- Heads -------------------------------------------------------------------


@given(SIZES, SIZES, SIZES, SIZES)
def test_head_h_takes_the_h_th_columns(B, S, H, K):
    x = torch.randn(B, S, H * K)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, S, K)
    for h in range(H):
        assert heads[:, h].equal(x[:, :, h * K : (h + 1) * K])


@given(SIZES, SIZES, SIZES, SIZES)
def test_merging_is_the_inverse_of_splitting(B, S, H, K):
    x = torch.randn(B, S, H * K)
    assert merge_heads(split_heads(x, H)).equal(x)


@st.composite
def layers(draw, **options):
    """A multi-head attention, and inputs for it."""
    B, T, S, H, share = (draw(SIZES) for _ in range(5))
    torch.manual_seed(draw(SEEDS))
    D = H * share
    ours = tl.MultiHeadAttention(D, H, bias=draw(st.booleans()), **options)
    shake(ours)
    lengths = torch.tensor([draw(st.integers(1, S)) for _ in range(B)])
    real = torch.arange(S) < lengths[:, None]  # [B, S]
    return ours, leaf(B, T, D), leaf(B, S, D), real


@given(layers(), st.booleans())
def test_multi_head_attention_equals_torch_nn(layer, plain):
    ours, x, memory, real = layer
    theirs = nn.MultiheadAttention(
        x.shape[-1], ours.n_heads, batch_first=True, dtype=DOUBLE
    )
    parts = attention_parts(ours, theirs)
    lend_weights(parts, ours, theirs)
    their_x, their_memory = twin(x), twin(memory)
    maps: list[Tensor] | None = [] if plain else None
    k, v = ours.keys_values(memory)
    output = ours.attend(x, k, v, real[:, None, None], maps)
    want, want_weights = theirs(
        their_x,
        their_memory,
        their_memory,
        key_padding_mask=~real,
        average_attn_weights=False,
    )
    close(output, want)
    if plain:
        close(maps[0], want_weights)
    slope(output)
    slope(want)
    close(grad(x), grad(their_x))
    close(grad(memory), grad(their_memory))
    check_gradients(parts)


@given(layers())
def test_forward_is_keys_values_then_attend(layer):
    ours, x, memory, real = layer
    mask = real[:, None, None]
    want = ours.attend(x, *ours.keys_values(memory), mask)
    assert ours(x, memory, mask).equal(want)


@given(SIZES, SIZES, SIZES, SIZES, SEEDS)
def test_heads_of_any_width_are_h_attentions_side_by_side(D, H, K, V, seed):
    torch.manual_seed(seed)
    ours = tl.MultiHeadAttention(D, H, d_k=K, d_v=V)
    shake(ours)
    x, memory = leaf(2, 3, D), leaf(2, 4, D)
    heads = []
    for h in range(H):
        keys, values = slice(h * K, (h + 1) * K), slice(h * V, (h + 1) * V)
        q = x @ ours.w_q.weight[keys].T + ours.w_q.bias[keys]
        k = memory @ ours.w_k.weight[keys].T + ours.w_k.bias[keys]
        v = memory @ ours.w_v.weight[values].T + ours.w_v.bias[values]
        weights = (q @ k.transpose(1, 2) / math.sqrt(K)).softmax(-1)
        heads.append(weights @ v)
    close(ours(x, memory), ours.w_o(torch.cat(heads, dim=-1)))


def test_the_order_of_the_keys_does_not_matter():
    ours = shake(tl.MultiHeadAttention(8, 2))
    x, memory = leaf(2, 3, 8), leaf(2, 5, 8)
    close(ours(x, memory[:, torch.randperm(5)]), ours(x, memory))


def test_widths_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"d_model=10.*n_heads=4"):
        tl.MultiHeadAttention(10, 4)
    with pytest.raises(ValueError, match="d_k and d_v"):
        tl.MultiHeadAttention(10, 4, d_k=3)
    layer = tl.MultiHeadAttention(10, 4, d_k=3, d_v=2)
    assert layer.w_q.weight.shape == (12, 10)
    assert layer.w_o.weight.shape == (10, 8)


# -- Initialisation ----------------------------------------------------------


def test_queries_keys_and_values_start_at_a_thirty_second():
    # One map to 3 D columns, as the released code had, has Glorot's standard
    # deviation sqrt(2 / (D + 3 D)) = 1 / 32 at D = 512. Gain sqrt(1/2) on
    # three separate maps gives the same.
    layer = tl.MultiHeadAttention(512, 8)
    for linear in (layer.w_q, layer.w_k, layer.w_v):
        assert linear.weight.std().item() == pytest.approx(1 / 32, rel=0.01)
        # uniform: nothing lies beyond sqrt(3) standard deviations
        assert linear.weight.abs().max() <= math.sqrt(3) / 32 + 1e-7
        assert (linear.bias == 0).all()


def test_the_output_map_starts_as_glorot_has_it():
    layer = tl.MultiHeadAttention(512, 8)
    std = math.sqrt(2 / (512 + 512))
    assert layer.w_o.weight.std().item() == pytest.approx(std, rel=0.01)
    assert layer.w_o.weight.abs().max() <= math.sqrt(3) * std + 1e-7
    assert (layer.w_o.bias == 0).all()


# -- Dropout on the weights (not the paper's) --------------------------------


@pytest.mark.parametrize("path", ["plain", "fused"])
def test_dropout_falls_on_the_weights(path):
    # v is the identity: the mixed values are the weights themselves.
    S = 64
    q, k = torch.randn(2, 1, 1, S, 8)
    v = torch.eye(S)[None, None]
    _, whole = tl.scaled_dot_product(q, k, v)
    if path == "plain":
        mixed, weights = tl.scaled_dot_product(q, k, v, p_drop=0.25)
        close(mixed, weights, 1e-6)
    else:
        weights = fused_attention(q, k, v, p_drop=0.25)
    kept = weights != 0
    close(weights[kept], whole[kept] / 0.75, 1e-5)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("plain", [True, False])
def test_weights_are_dropped_in_train_mode_only(plain):
    torch.manual_seed(1)
    layer = tl.MultiHeadAttention(8, 2, p_drop=0.5).eval()
    x = torch.randn(4, 6, 8)

    def read():
        return layer.attend(
            x, *layer.keys_values(x), maps=[] if plain else None
        )

    assert read().equal(read())
    layer.train()
    assert not read().equal(read())
    layer.p_drop = 0.0
    close(read(), layer.eval()(x, x), 1e-5)


def test_nothing_but_dropout_reads_whether_it_is_training():
    # A mask that depends on the mode once let an evaluation see the future.
    package = Path(tl.__file__).parent
    found = []
    for path in sorted(package.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        # A run's configuration has a table [training]: these read that.
        of_a_run = path.stem in ("trainer", "train", "distributed")
        for node in ast.walk(ast.parse(source)):
            names = (ast.Attribute, "attr"), (ast.Constant, "value")
            if any(
                isinstance(node, kind) and getattr(node, field) == "training"
                for kind, field in names
            ):
                owner = getattr(node, "value", None)
                of_a_model = isinstance(owner, ast.AST) and ast.unparse(
                    owner
                ) in ("self", "model", "layer", "self.model")
                if of_a_run and not of_a_model:
                    continue
                line = source.splitlines()[node.lineno - 1].strip()
                found.append((path.name, line))
    assert found == [
        ("attention.py", "p_drop = self.p_drop if self.training else 0.0"),
        ("modern.py", "p_drop = self.p_drop if self.training else 0.0"),
        ("stacks.py", "draws = self.training and 0 < dropped < LEVELS"),
    ]
