"""Section 7 and after: each part that took the place of one of the paper's."""

import dataclasses
import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    DOUBLE,
    SEEDS,
    build,
    close,
    configs,
    leaf,
    naive_greedy,
    sentences,
    shake,
    slope,
    twin,
)
from torch import nn

import transformer_lit as tl
from transformer_lit import modern
from transformer_lit.attention import HeadMaps
from transformer_lit.config import BOS, PAD
from transformer_lit.embeddings import TokenEmbedding
from transformer_lit.modern import (
    SCHEMES,
    VARIANTS,
    AlibiAttention,
    Budget,
    DecoderOnly,
    EncoderOnly,
    GroupedQueryAttention,
    LocalAttention,
    ModernAttention,
    RMSNorm,
    RotaryAttention,
    SelfAttention,
    SilentAttention,
    SwiGLU,
    alibi_slopes,
    biased_attention,
    cache_bytes,
    rotate,
    swap,
    tiled_attention,
    with_positions,
)
from transformer_lit.stacks import LayerNorm

ROOT = Path(__file__).resolve().parents[1]
SMALL = tl.TransformerConfig(
    vocab_size=9, n_layers=2, d_model=16, d_ff=12, n_heads=4, p_drop=0.0
)
NAMES = st.sampled_from(list(VARIANTS))


def heads(B=2, H=2, T=5, S=7, K=4, V=3):
    """Random q, k, v in float64."""
    shapes = (B, H, T, K), (B, H, S, K), (B, H, S, V)
    return [leaf(*shape) for shape in shapes]


def some_mask(B, T, S):
    """Random, with rows that forbid everything."""
    mask = torch.rand(B, 1, T, S) < 0.6
    mask[0, :, 0] = False
    return mask


def attention(kind, d_model=8, n_heads=4, **options):
    """A self-attention in float64 with every weight at random."""
    return shake(kind(d_model, n_heads, **options))


# -- Replacing ---------------------------------------------------------------


def test_swap_replaces_what_it_is_asked_for_and_nothing_else():
    model = tl.Transformer(SMALL)
    before = dict(model.named_modules())
    swap(model, HeadMaps, SilentAttention.like, only="self_attention")
    for path, part in model.named_modules():
        if path.endswith("self_attention"):
            assert type(part) is SilentAttention
        elif "self_attention" not in path:
            assert part is before[path]


def test_swap_makes_a_tied_part_once():
    made = []

    def make(old):
        made.append(TokenEmbedding(9, 16))
        return made[-1]

    model = swap(tl.Transformer(SMALL), TokenEmbedding, make)
    assert len(made) == 1
    assert model.src_embedding is model.tgt_embedding is model.output is made[0]


def test_swap_says_when_there_is_nothing_to_replace():
    with pytest.raises(ValueError, match="no part of kind"):
        swap(tl.Transformer(SMALL), RMSNorm, RMSNorm.like)


def test_an_unknown_variant_is_refused_with_the_names_of_all():
    with pytest.raises(ValueError, match=r"'rope'.*'rotary'"):
        modern.build("rope", SMALL)
    with pytest.raises(ValueError, match=r"'rope'.*'rotary'"):
        with_positions(tl.Transformer(SMALL), "rope")


# -- Norms and feed-forward --------------------------------------------------


@given(SEEDS, st.integers(1, 9))
def test_rms_norm_is_torchs(seed, d_model):
    torch.manual_seed(seed)
    ours, theirs = RMSNorm(d_model), nn.RMSNorm(d_model, eps=1e-6)
    shake(ours)
    theirs.double().load_state_dict({"weight": ours.gain})
    x = leaf(3, d_model)
    y = twin(x)
    out, want = ours(x), theirs(y)
    close(out, want, 1e-12)
    slope(out), slope(want)
    close(x.grad, y.grad, 1e-10)


@given(configs(pre_norm=False), SEEDS)
def test_pre_norm_is_the_model_that_was_built_with_it(config, seed):
    torch.manual_seed(seed)
    ours = modern.pre_norm(tl.Transformer(config))
    shake(ours)
    theirs = tl.Transformer(dataclasses.replace(config, pre_norm=True))
    theirs.double().load_state_dict(ours.state_dict())
    src, tgt = sentences(config, [3, 5]), sentences(config, [4, 2])
    assert torch.equal(ours(src, tgt), theirs(src, tgt))
    assert ours.config == theirs.config


def test_swiglu_is_its_formula():
    part = shake(SwiGLU(4, 6))
    x = torch.randn(2, 3, 4, dtype=DOUBLE)
    w_g, w_1, w_2 = (w.weight for w in (part.w_g, part.w_1, part.w_2))
    for b in range(2):
        for t in range(3):
            gates = [z / (1 + math.exp(-z)) for z in (w_g @ x[b, t]).tolist()]
            inner = torch.tensor(gates, dtype=DOUBLE) * (w_1 @ x[b, t])
            close(part(x)[b, t], w_2 @ inner, 1e-12)


def test_swiglu_takes_the_place_with_as_many_weights():
    old = modern.FeedForward(32, 96)
    new = SwiGLU.like(old)
    assert new.w_1.weight.shape == (64, 32)
    weights = sum(p.numel() for p in old.parameters() if p.dim() > 1)
    assert sum(p.numel() for p in new.parameters()) == weights


# -- Attention ---------------------------------------------------------------


@given(SEEDS, st.booleans())
def test_without_a_bias_it_is_the_papers_attention(seed, masked):
    torch.manual_seed(seed)
    q, k, v = heads()
    mask = some_mask(2, 5, 7) if masked else None
    for ours, paper in zip(
        biased_attention(q, k, v, mask),
        tl.scaled_dot_product(q, k, v, mask),
        strict=True,
    ):
        close(ours, paper, 1e-12)


@given(SEEDS)
def test_with_a_bias_it_is_torchs(seed):
    torch.manual_seed(seed)
    q, k, v = heads()
    bias = torch.randn(2, 5, 7, dtype=DOUBLE)
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    close(biased_attention(q, k, v, None, bias)[0], want, 1e-12)


@given(SEEDS)
def test_self_attention_with_nothing_replaced_is_multi_head_attention(seed):
    torch.manual_seed(seed)
    paper = attention(tl.MultiHeadAttention, d_k=3, d_v=5)
    ours = SelfAttention.like(paper)
    x, mask = torch.randn(2, 5, 8, dtype=DOUBLE), some_mask(2, 5, 5)
    close(ours(x, x, mask), paper(x, x, mask), 1e-12)
    maps, want = [], []
    ours.attend(x, *ours.keys_values(x), mask, maps)
    paper.attend(x, *paper.keys_values(x), mask, want)
    close(maps[0], want[0], 1e-12)


@given(SEEDS, st.integers(1, 6), st.integers(0, 900))
def test_rotate_multiplies_complex_numbers(seed, pairs, start):
    torch.manual_seed(seed)
    x = torch.randn(2, 5, 2 * pairs, dtype=DOUBLE)
    rates = 10000.0 ** (-torch.arange(pairs, dtype=DOUBLE) / pairs)
    angles = torch.arange(start, start + 5, dtype=DOUBLE)[:, None] * rates
    turned = torch.view_as_complex(x.unflatten(-1, (pairs, 2)))
    turned = turned * torch.polar(torch.ones_like(angles), angles)
    want = torch.view_as_real(turned).flatten(-2)
    close(rotate(x, start), want, 1e-11)  # angles reach 900


@given(SEEDS, st.sampled_from([RotaryAttention, AlibiAttention]))
def test_scores_depend_on_the_distance_alone(seed, kind):
    # Earlier positions that nobody attends to shift all others.
    torch.manual_seed(seed)
    part = attention(kind)
    x = torch.randn(1, 9, 8, dtype=DOUBLE)
    far = torch.cat([torch.randn(1, 4, 8, dtype=DOUBLE), x], dim=1)
    mask = torch.zeros(13, 13, dtype=torch.bool)
    mask[4:, 4:] = True
    close(part(far, far, mask)[:, 4:], part(x, x), 1e-10)
    moved = x.flip(1)  # but order counts
    assert (part(moved, moved).flip(1) - part(x, x)).abs().max() > 1e-6 or (
        kind is AlibiAttention  # which sees how far, not on which side
    )


def test_rotary_refuses_odd_heads():
    with pytest.raises(ValueError, match="d_k=3 must be even"):
        RotaryAttention(12, 4)


def test_alibi_slopes_are_those_of_its_authors():
    eight = [2.0**-h for h in range(1, 9)]
    close(alibi_slopes(8), torch.tensor(eight, dtype=DOUBLE), 1e-14)
    slopes, ratio = alibi_slopes(16), torch.full((15,), 2**-0.5, dtype=DOUBLE)
    close(slopes[1:] / slopes[:-1], ratio, 1e-14)
    close(slopes[[0, -1]], torch.tensor([2**-0.5, 2**-8], dtype=DOUBLE), 1e-14)


@given(SEEDS, st.integers(1, 6))
def test_alibi_takes_slope_times_distance_from_the_scores(seed, T):
    torch.manual_seed(seed)
    part, S = attention(AlibiAttention), 6
    q, k, v = heads(H=4, T=T, S=S, K=2, V=2)
    _, weights = part.mix(q, k, v, None, None)
    bare = q @ k.transpose(-2, -1) / math.sqrt(2)
    for h, m in enumerate([2**-2, 2**-4, 2**-6, 2**-8]):
        for t in range(T):
            away = torch.tensor([abs(S - T + t - s) for s in range(S)])
            want = (bare[:, h, t] - m * away).softmax(-1)
            close(weights[:, h, t], want, 1e-12)


@given(SEEDS, st.sampled_from([1, 2, 4]))
def test_grouped_queries_are_torchs(seed, n_groups):
    torch.manual_seed(seed)
    part = attention(GroupedQueryAttention, n_groups=n_groups)
    x = torch.randn(2, 5, 8, dtype=DOUBLE)
    k, v = part.keys_values(x)
    assert k.shape == v.shape == (2, n_groups, 5, 2)
    q = part.w_q(x).unflatten(-1, (4, 2)).transpose(1, 2)
    sdpa = F.scaled_dot_product_attention
    mixed = sdpa(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
    close(part(x, x), part.w_o(mixed), 1e-12)


def test_as_many_groups_as_heads_are_multi_head_attention():
    paper = attention(tl.MultiHeadAttention)
    grouped = GroupedQueryAttention.like(paper, n_groups=4)
    x = torch.randn(2, 5, 8, dtype=DOUBLE)
    close(grouped(x, x), paper(x, x), 1e-12)


def test_a_group_takes_the_mean_of_its_heads():
    paper = attention(tl.MultiHeadAttention)
    grouped = GroupedQueryAttention.like(paper, n_groups=2)
    x = torch.randn(2, 5, 8, dtype=DOUBLE)
    for new, old in zip(
        grouped.keys_values(x), paper.keys_values(x), strict=True
    ):
        close(new[:, 0], (old[:, 0] + old[:, 1]) / 2, 1e-12)
        close(new[:, 1], (old[:, 2] + old[:, 3]) / 2, 1e-12)


@pytest.mark.parametrize("n_groups", [0, 3, 8])
def test_groups_must_divide_the_heads(n_groups):
    with pytest.raises(ValueError, match=f"n_groups={n_groups} must divide"):
        GroupedQueryAttention(8, 4, n_groups=n_groups)


@given(SEEDS, st.integers(1, 8))
def test_a_window_hides_what_is_further_away(seed, window):
    torch.manual_seed(seed)
    part = attention(LocalAttention, window=window)
    x, mask = torch.randn(2, 6, 8, dtype=DOUBLE), some_mask(2, 6, 6)
    near = [[abs(i - j) < window for j in range(6)] for i in range(6)]
    plain = SelfAttention.like(part)
    close(part(x, x), plain(x, x, torch.tensor(near)), 1e-12)
    close(part(x, x, mask), plain(x, x, mask & torch.tensor(near)), 1e-12)


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ValueError, match="window=0"):
        LocalAttention(8, 4, window=0)


@given(SEEDS)
def test_a_zero_key_is_that_of_torch(seed):
    torch.manual_seed(seed)
    part = attention(SilentAttention)
    theirs = nn.MultiheadAttention(
        8, 4, add_zero_attn=True, batch_first=True, dtype=DOUBLE
    )
    maps = (part.w_q, part.w_k, part.w_v)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
        theirs.out_proj.weight.copy_(part.w_o.weight)
        theirs.out_proj.bias.copy_(part.w_o.bias)
    x = torch.randn(2, 5, 8, dtype=DOUBLE)
    close(part(x, x), theirs(x, x, x)[0], 1e-12)


def test_a_zero_key_adds_one_to_the_denominator():
    part = attention(SilentAttention)
    q, k, v = heads(H=4, K=2, V=2)
    mask, bias = some_mask(2, 5, 7), torch.randn(5, 7, dtype=DOUBLE)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(2) + bias).exp() * mask
    want = scores / (1 + scores.sum(-1, keepdim=True))
    mixed, weights = part.mix(q, k, v, mask, bias)
    close(weights, want, 1e-12)
    close(mixed, want @ v, 1e-12)


@given(SEEDS, st.integers(1, 9), st.booleans())
def test_tiles_make_the_same_attention(seed, tile, masked):
    torch.manual_seed(seed)
    ours, whole = heads(), []
    with torch.no_grad():
        ours[0] *= 30  # scores of several hundred
        ours[1] *= 30
    whole = [twin(x) for x in ours]
    mask = some_mask(2, 5, 7) if masked else None
    out = tiled_attention(*ours, mask, tile=tile)
    want = tl.scaled_dot_product(*whole, mask)[0]
    close(out, want, 1e-10)
    slope(out), slope(want)
    for one, other in zip(ours, whole, strict=True):
        close(one.grad, other.grad, 1e-8)


def test_a_mask_of_one_column_is_enough_for_tiles():
    q, k, v = heads()
    mask = torch.tensor([True, False, True, True, False])[:, None]
    want = tl.scaled_dot_product(q, k, v, mask)[0]
    close(tiled_attention(q, k, v, mask, tile=3), want)


# -- Whole models ------------------------------------------------------------


@given(NAMES, SEEDS)
def test_a_variant_writes_token_by_token_what_it_writes_at_once(name, seed):
    torch.manual_seed(seed)
    model = shake(modern.build(name, SMALL)).eval()
    src = sentences(SMALL, [3, 6, 1], more_pads=2)
    found = tl.greedy_search(model, src, max_extra=4)
    for row, [hypothesis] in zip(src, found, strict=True):
        sentence = row[row != PAD].tolist()
        tokens, log_prob = naive_greedy(model, sentence, max_extra=4)
        assert hypothesis.tokens == tokens
        assert abs(hypothesis.log_prob - log_prob) < 1e-8


@given(NAMES, SEEDS)
def test_a_variant_never_looks_ahead(name, seed):
    torch.manual_seed(seed)
    model = shake(modern.build(name, SMALL)).eval()
    src, tgt = sentences(SMALL, [5, 3]), sentences(SMALL, [6, 6])
    other = tgt.clone()
    other[:, 4] = (other[:, 4] + 1).clamp(max=8)
    other[:, 4][other[:, 4] == tgt[:, 4]] = 1
    before, after = model(src, tgt), model(src, other)
    close(before[:, :4], after[:, :4], 1e-12)
    assert (before[:, 4] - after[:, 4]).abs().max() > 1e-8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_positions_change_and_weights_stay(scheme):
    model = build(SMALL)
    kept = {name: p.clone() for name, p in model.named_parameters()}
    src, tgt = sentences(SMALL, [5, 3]), sentences(SMALL, [4, 6])
    before = model(src, tgt)
    changed = with_positions(model, scheme)
    assert changed is model
    for name, p in model.named_parameters():
        if "positions" not in name:
            assert torch.equal(p, kept[name])
    same = torch.allclose(model(src, tgt), before, rtol=0, atol=1e-10)
    assert same == (scheme == "sinusoidal")
    with_positions(model, "sinusoidal")  # and back
    close(model(src, tgt), before)


def test_without_positions_an_encoder_reads_a_bag():
    model = with_positions(build(SMALL), "none")
    src = torch.tensor([[4, 5, 6, 7]])
    close(model.encode(src).flip(1), model.encode(src.flip(1)))
    rotary = with_positions(build(SMALL), "rotary")
    there, back = rotary.encode(src).flip(1), rotary.encode(src.flip(1))
    assert (there - back).abs().max() > 1e-6


def test_the_modern_attention_turns_and_shares():
    old = attention(GroupedQueryAttention, n_groups=2)
    both = ModernAttention(8, 4, n_groups=2).double()
    both.load_state_dict(old.state_dict())
    x = torch.randn(2, 5, 8, dtype=DOUBLE)
    k, v = both.keys_values(x)
    q = both.w_q(x).unflatten(-1, (4, 2)).transpose(1, 2)
    sdpa = F.scaled_dot_product_attention
    mixed = sdpa(rotate(q), rotate(k), v, enable_gqa=True)
    close(both(x, x), both.w_o(mixed.transpose(1, 2).flatten(2)), 1e-12)


# -- Three assemblies --------------------------------------------------------


@given(configs(), SEEDS)
def test_an_encoder_only_is_the_encoder_of_the_transformer(config, seed):
    torch.manual_seed(seed)
    model = tl.Transformer(config)
    shake(model).eval()
    alone = EncoderOnly(config).double().eval()
    alone.embedding = model.src_embedding
    alone.positions = model.src_positions
    alone.encoder = model.encoder
    src = sentences(config, [5, 2, 3])
    want = model.src_embedding.logits(model.encode(src))
    close(alone(src), want, 1e-12)


@given(SEEDS, st.sampled_from(list(SCHEMES)))
def test_a_decoder_only_reads_on_as_if_it_had_read_all(seed, scheme):
    torch.manual_seed(seed)
    model = shake(with_positions(DecoderOnly(SMALL), scheme)).eval()
    ids = sentences(SMALL, [8, 8])
    whole = model(ids)
    logits, pasts = model.read(ids[:, :3])
    close(logits, whole[:, :3])
    for start, end in ((3, 4), (4, 8)):
        logits, pasts = model.read(ids[:, start:end], pasts)
        close(logits, whole[:, start:end])
    other = ids.clone()
    other[:, 5:] = BOS
    close(model(other)[:, :5], whole[:, :5])


def test_a_decoder_only_writes_the_most_probable_token():
    model = shake(DecoderOnly(SMALL)).eval()
    ids = sentences(SMALL, [4, 4])
    found = model.write(ids, 5)
    assert found.shape == (2, 5)
    for _ in range(5):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(ids[:, 4:], found)


@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_the_bytes_of_a_cache_are_counted(n_groups):
    model = modern.self_attention(
        DecoderOnly(SMALL), GroupedQueryAttention, n_groups=n_groups
    )
    _, pasts = model.read(sentences(SMALL, [7]))
    found = sum(k.nbytes + v.nbytes for k, v in pasts)
    assert found == cache_bytes(
        7, n_layers=2, n_groups=n_groups, d_k=4, bytes_each=4
    )
    assert cache_bytes(3, n_layers=2, n_groups=1, d_k=4, d_v=6) == 3 * 2 * 20


# -- The same budget for all -------------------------------------------------


def test_a_trial_is_repeatable_and_learns():
    short = Budget(n_layers=1, batch_size=8, steps=2, warmup=40, tested=20)
    first, again = (modern.trial("rotary", short, seed=3) for _ in range(2))
    assert first == again
    longer = modern.trial("rotary", dataclasses.replace(short, steps=40), 3)
    assert longer["nll"] < first["nll"] - 0.5
    assert longer["parameters"] == first["parameters"]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_starts_from_the_weights_of_the_paper(name):
    models = []
    for variant in ("paper", name):
        torch.manual_seed(0)
        models.append(dict(modern.build(variant, SMALL).named_parameters()))
    paper, changed = models
    shared = [p for p in changed if p in paper]
    assert len(shared) >= 0.8 * len(changed)
    for path in shared:
        if changed[path].shape == paper[path].shape:
            assert torch.equal(changed[path], paper[path]), path


def test_layer_norm_of_a_centred_vector_is_rms_norm():
    x = torch.randn(5, 8, dtype=DOUBLE)
    x = x - x.mean(-1, keepdim=True)
    close(RMSNorm(8).double()(x), LayerNorm(8).double()(x))


def test_the_long_comparison_goes_on_where_it_was_stopped(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(
        "compare", ROOT / "tools" / "modern.py"
    )
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    ran = []

    def trial(variant, budget, seed):
        ran.append((variant, seed))
        if len(ran) == 4:
            raise KeyboardInterrupt
        return {"variant": variant, "seed": seed, "nll": 1.0}

    monkeypatch.setattr(tool, "trial", trial)
    monkeypatch.setattr(tool, "RECORD", tmp_path / "modern.json")
    monkeypatch.setattr(tool.sys, "argv", ["modern", "paper", "rotary"])
    with pytest.raises(KeyboardInterrupt):
        tool.main()
    tool.main()
    names = [(name, seed) for seed in (0, 1, 2) for name in ("paper", "rotary")]
    assert ran == names[:4] + names[3:]  # the fourth was interrupted
    record = json.loads((tmp_path / "modern.json").read_text())
    assert [(t["variant"], t["seed"]) for t in record["trials"]] == names
    monkeypatch.setattr(tool, "BUDGET", Budget(steps=7))
    assert tool.trials() == []  # another budget is another comparison
