"""Section 3.4: one matrix, three uses, sqrt(d_model)."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    DOUBLE,
    LENGTHS,
    SEEDS,
    build,
    close,
    configs,
    grad,
    sentences,
    shake,
    slope,
)

import transformer_lit as tl


def uses(model: tl.Transformer) -> list[torch.nn.Parameter]:
    """The matrix of the source, of the target and of the output."""
    return [
        model.src_embedding.weight,
        model.tgt_embedding.weight,
        model.output.weight,
    ]


def storages(model: tl.Transformer) -> int:
    """How many pieces of memory the three uses occupy."""
    return len({matrix.data_ptr() for matrix in uses(model)})


# -- The matrix --------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), SEEDS)
def test_reading_takes_rows_times_the_root_of_d(W, D, scale, seed):
    torch.manual_seed(seed)
    embedding = shake(tl.TokenEmbedding(W, D, scale=scale))
    ids = torch.randint(W, (2, 3))
    factor = math.sqrt(D) if scale else 1.0
    x = embedding(ids)
    assert x.shape == (2, 3, D)
    for b in range(2):
        for t in range(3):
            close(x[b, t], embedding.weight[ids[b, t]] * factor)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), SEEDS)
def test_logits_are_inner_products_without_scale_or_bias(W, D, scale, seed):
    torch.manual_seed(seed)
    embedding = shake(tl.TokenEmbedding(W, D, scale=scale))
    x = torch.randn(2, 3, D, dtype=DOUBLE)
    logits = embedding.logits(x)
    assert logits.shape == (2, 3, W)
    for w in range(W):
        close(logits[..., w], (x * embedding.weight[w]).sum(-1))
    assert len(list(embedding.parameters())) == 1


def test_the_matrix_starts_normal_with_variance_one_over_d():
    embedding = tl.TokenEmbedding(1000, 512)
    weight = embedding.weight.detach()
    assert weight.std().item() == pytest.approx(512**-0.5, rel=0.01)
    assert weight.mean().item() == pytest.approx(0.0, abs=2e-4)
    # normal, not uniform: 4.55 % lie beyond two standard deviations
    beyond = (weight.abs() > 2 * 512**-0.5).double().mean().item()
    assert beyond == pytest.approx(0.0455, abs=0.002)
    # what is read has unit size then
    read = embedding(torch.arange(1000)).square().mean().item()
    assert read == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("ids", [[0, 7], [-1, 0]])
def test_an_id_outside_the_vocabulary_is_named(ids):
    embedding = tl.TokenEmbedding(7, 4)
    with pytest.raises(ValueError, match=f"from {ids[0]} to {ids[1]}.* 7 "):
        embedding(torch.tensor([ids]))


# -- Tying -------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_tied_is_one_storage_after_everything_and_untied_is_three(
    tied, tmp_path
):
    config = tl.TransformerConfig(
        vocab_size=9, n_layers=1, d_model=8, n_heads=2, tie_embeddings=tied
    )
    model = tl.Transformer(config)
    tl.save_model(model, tmp_path)
    for each in (
        model,
        copy.deepcopy(model),
        tl.load_model(tmp_path),
        copy.deepcopy(model).to(DOUBLE),
        copy.deepcopy(model).half().float(),
        copy.deepcopy(model).to("meta").to_empty(device="cpu"),
    ):
        assert storages(each) == (1 if tied else 3)
        assert len({id(matrix) for matrix in uses(each)}) == storages(each)
        assert sum(p.numel() for p in each.parameters()) == (
            tl.count_parameters(config)
        )


@given(configs(tie_embeddings=True), LENGTHS, LENGTHS, SEEDS)
def test_the_tied_gradient_is_the_sum_of_three_uses(
    config, src_lengths, tgt_lengths, seed
):
    tied = build(config, seed)
    names = {
        field: getattr(config, field)
        for field in config.__dataclass_fields__
        if field != "tie_embeddings"
    }
    untied = build(tl.TransformerConfig(**names, tie_embeddings=False))
    weights = tied.state_dict()
    assert weights.keys() == untied.state_dict().keys()
    untied.load_state_dict(weights)
    assert storages(untied) == 3
    rows = min(len(src_lengths), len(tgt_lengths))
    src = sentences(config, src_lengths[:rows])
    tgt_in = sentences(config, tgt_lengths[:rows])
    a, b = tied(src, tgt_in), untied(src, tgt_in)
    assert a.equal(b)
    slope(a)
    slope(b)
    total = sum(grad(matrix) for matrix in uses(untied))
    close(grad(uses(tied)[0]), total, 1e-12)


@given(configs(tie_embeddings=False), SEEDS)
def test_untied_matrices_are_drawn_apart_and_used_each_in_its_place(
    config, seed
):
    torch.manual_seed(seed)
    model = tl.Transformer(config).double().eval()
    first, second, third = uses(model)
    assert not first.equal(second)
    assert not second.equal(third)
    src = sentences(config, [3, 2])
    tgt_in = sentences(config, [2, 4])
    with torch.no_grad():  # each use must move what it should, and only that
        before = model(src, tgt_in)
        memory = model.encode(src)
        first += 1.0 + torch.rand_like(first)
        assert not model.encode(src).equal(memory)
        assert model.decode(tgt_in, memory, src=src).equal(before)
        third *= 2.0
        close(model.decode(tgt_in, memory, src=src), 2.0 * before)
        second += 1.0 + torch.rand_like(second)
        after = model.decode(tgt_in, memory, src=src)
        assert not torch.allclose(after, 2.0 * before)
