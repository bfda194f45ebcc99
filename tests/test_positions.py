"""Section 3.5: the sinusoids, on any length, in any dtype."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import DOUBLE, SEEDS, close, grad, leaf, position, slope

import transformer_lit as tl
from transformer_lit.positions import LearnedPositions, SinusoidalPositions

EVEN = st.integers(2, 24).map(lambda pairs: 2 * pairs)
KINDS = st.booleans()


def rates(d_model: int, released: bool) -> list[float]:
    """Radians a position, pair by pair."""
    last = d_model // 2 - 1 if released else d_model // 2
    return [10000 ** (-pair / last) for pair in range(d_model // 2)]


# -- The formula -------------------------------------------------------------


@given(st.integers(0, 12), EVEN, st.integers(0, 3000), KINDS)
def test_sinusoids_are_the_formula_element_by_element(
    length, d_model, start, released
):
    table = tl.sinusoids(length, d_model, start=start, released=released)
    assert table.dtype == DOUBLE
    assert table.shape == (length, d_model)
    for t in range(length):
        for c in range(d_model):
            want = position(start + t, c, d_model, released=released)
            # 1e-16 of the angle, which reaches 3000
            assert abs(table[t, c].item() - want) < 2e-12


def test_position_0_is_all_sines_0_and_cosines_1():
    assert tl.sinusoids(1, 6)[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert tl.sinusoids(1, 6, released=True)[0].tolist() == [0, 0, 0, 1, 1, 1]


@given(EVEN, st.integers(0, 500), st.integers(0, 500), KINDS)
def test_a_step_ahead_is_a_rotation(d_model, pos, ahead, released):
    # Section 3.5: PE(pos + k) is a linear function of PE(pos). It turns each
    # pair (sine, cosine) by k times its rate.
    def pairs(start):
        row = tl.sinusoids(1, d_model, start=start, released=released)[0]
        if released:
            return row.view(2, -1).T.tolist()
        return row.view(-1, 2).tolist()

    here, there = pairs(pos), pairs(pos + ahead)
    for rate, (sin, cos), ahead_pair in zip(
        rates(d_model, released), here, there, strict=True
    ):
        turn = ahead * rate
        s, c = math.sin(turn), math.cos(turn)
        assert abs(ahead_pair[0] - (c * sin + s * cos)) < 1e-12
        assert abs(ahead_pair[1] - (c * cos - s * sin)) < 1e-12


@pytest.mark.parametrize("d_model", [4, 32, 512])
def test_the_released_ladder_reaches_exactly_10000_times_2_pi(d_model):
    # The wavelength of the slowest pair, from its angle after one position.
    def slowest(released):
        row = tl.sinusoids(2, d_model, released=released)[1]
        half = d_model // 2
        sin = row[half - 1] if released else row[-2]
        return 2 * math.pi / math.asin(sin.item())

    whole = 10000 * 2 * math.pi
    assert slowest(True) == pytest.approx(whole, rel=1e-12)
    printed = 10000 ** ((d_model - 2) / d_model) * 2 * math.pi
    assert slowest(False) == pytest.approx(printed, rel=1e-12)
    assert printed < whole


@given(EVEN, st.integers(0, 99), st.integers(1, 9), KINDS)
def test_start_cuts_out_of_one_and_the_same_table(
    d_model, start, length, released
):
    whole = tl.sinusoids(start + length, d_model, released=released)
    part = tl.sinusoids(length, d_model, start=start, released=released)
    assert part.equal(whole[start:])


@pytest.mark.parametrize(
    ("d_model", "released"), [(5, False), (5, True), (2, True)]
)
def test_widths_without_pairs_are_refused(d_model, released):
    with pytest.raises(ValueError, match=f"d_model={d_model}"):
        tl.sinusoids(3, d_model, released=released)


# -- The module --------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 200)),
        min_size=1,
        max_size=4,
    ),
    EVEN,
    KINDS,
    SEEDS,
)
def test_any_length_comes_on_demand_in_any_order(
    asked, d_model, released, seed
):
    torch.manual_seed(seed)
    module = SinusoidalPositions(d_model, released=released)
    for start, length in asked:
        x = torch.randn(2, length, d_model, dtype=DOUBLE)
        want = tl.sinusoids(length, d_model, start=start, released=released)
        close(module(x, start), x + want, 1e-12)


def test_a_length_far_beyond_the_first_is_no_trouble():
    module = SinusoidalPositions(8)
    module(torch.zeros(1, 3, 8))
    x = module(torch.zeros(1, 5001, 8, dtype=DOUBLE))
    assert x[0, 5000, 1].item() == pytest.approx(math.cos(5000), abs=1e-10)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, DOUBLE]
)
def test_the_table_is_rounded_once_from_float64(dtype):
    # Computed in half precision, position 300 would be off by whole turns.
    x = torch.zeros(1, 400, 16, dtype=dtype)
    output = SinusoidalPositions(16)(x)
    assert output.dtype == dtype
    assert output[0].equal(tl.sinusoids(400, 16).to(dtype))


def test_a_cast_there_and_back_loses_nothing():
    module = SinusoidalPositions(16)
    want = tl.sinusoids(400, 16)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, DOUBLE):
        module.to(dtype)
        output = module(torch.zeros(1, 400, 16, dtype=dtype))
        assert output.dtype == dtype
        assert output[0].equal(want.to(dtype))
    model = tl.Transformer(tl.TransformerConfig.miniature(9)).eval()
    ids = torch.arange(8)[None]
    before = model.src_positions(torch.zeros(1, 400, 32))
    model.half()
    assert model(ids, ids).dtype == torch.float16
    model.float()
    assert model.src_positions(torch.zeros(1, 400, 32)).equal(before)
    assert model(ids, ids).dtype == torch.float32


def test_the_table_is_no_part_of_the_state():
    module = SinusoidalPositions(8)
    module(torch.zeros(1, 3, 8))
    assert not module.state_dict()
    assert not list(module.parameters())


def test_a_table_made_while_decoding_can_be_trained_with():
    # greedy_search runs in inference mode, whose tensors autograd refuses
    # to save.
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    src = torch.arange(3, 8)[None]
    tl.greedy_search(model.eval(), src, max_extra=0)
    for each in (model, copy.deepcopy(model)):
        each.train()(src, src).sum().backward()
        assert grad(each.src_embedding.weight).isfinite().all()


def test_the_input_is_not_changed_and_its_gradient_passes():
    module = SinusoidalPositions(8)
    x = leaf(2, 3, 8)
    before = x.detach().clone()
    slope(module(x))
    assert x.equal(before)
    torch.manual_seed(0)
    close(grad(x), torch.randn(2, 3, 8, dtype=DOUBLE))


# -- Learned positions, row (E) ----------------------------------------------


@given(st.integers(1, 9), st.integers(1, 9), SEEDS)
def test_learned_positions_add_their_rows(max_len, d_model, seed):
    torch.manual_seed(seed)
    module = LearnedPositions(max_len, d_model).double()
    for start in range(max_len):
        x = torch.randn(2, max_len - start, d_model, dtype=DOUBLE)
        assert module(x, start).equal(x + module.weight[start:])


def test_learned_positions_start_like_the_embedding():
    std = LearnedPositions(1000, 64).weight.std().item()
    assert std == pytest.approx(64**-0.5, rel=0.02)


@pytest.mark.parametrize(("start", "length"), [(0, 6), (5, 1), (3, 4)])
def test_beyond_the_learned_table_an_error_names_the_position(start, length):
    module = LearnedPositions(5, 4)
    with pytest.raises(ValueError, match="max_len") as error:
        module(torch.zeros(1, length, 4), start)
    assert f"position {start + length - 1} " in str(error.value)
    assert " 5 learned" in str(error.value)
    module(torch.zeros(1, 5, 4))  # up to the end it is well


def test_each_side_has_learned_positions_of_its_own():
    config = tl.TransformerConfig(
        vocab_size=9, n_layers=1, d_model=6, n_heads=2, positions="learned"
    )
    model = tl.Transformer(config)
    a, b = model.src_positions.weight, model.tgt_positions.weight
    assert a is not b
    assert not a.equal(b)
    assert a.shape == (1024, 6)
