"""Section 5.3: formula (3), and Adam as the paper sets it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import build, grad

import transformer_lit as tl

STEPS = st.integers(1, 10**6)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (1_000, 1.7469e-4),
        (4_000, 6.9877e-4),
        (10_000, 4.4194e-4),
        (100_000, 1.3975e-4),
    ],
)
def test_the_rate_of_the_base_model(step, rate):
    assert tl.noam_rate(step, 512) == pytest.approx(rate, rel=1e-4)


@given(STEPS, st.integers(1, 4096), st.integers(1, 20_000), st.floats(0.1, 9))
def test_the_rate_is_formula_3(step, d_model, warmup, factor):
    want = min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
    want *= factor / math.sqrt(d_model)
    rate = tl.noam_rate(step, d_model, warmup, factor)
    assert rate == pytest.approx(want, rel=1e-12)


@given(st.integers(2, 5000))
def test_the_rate_peaks_when_the_warm_up_ends(warmup):
    peak = tl.noam_rate(warmup, 512, warmup)
    assert peak == pytest.approx((512 * warmup) ** -0.5)
    assert tl.noam_rate(warmup - 1, 512, warmup) < peak
    assert tl.noam_rate(warmup + 1, 512, warmup) < peak
    # linear before, an inverse root behind
    assert tl.noam_rate(1, 512, warmup) == pytest.approx(peak / warmup)
    assert tl.noam_rate(4 * warmup, 512, warmup) == pytest.approx(peak / 2)


@pytest.mark.parametrize(("step", "warmup"), [(0, 9), (-1, 9), (5, 0)])
def test_steps_are_counted_from_1(step, warmup):
    with pytest.raises(ValueError, match=f"step={step}.*warmup={warmup}"):
        tl.noam_rate(step, 512, warmup)


def test_adam_is_the_papers():
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    adam, _ = tl.noam(model)
    assert isinstance(adam, torch.optim.Adam)
    [group] = adam.param_groups
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    assert group["weight_decay"] == 0
    assert not group["amsgrad"]
    assert not group["maximize"]
    # every parameter once, though one matrix has three uses
    assert [id(p) for p in group["params"]] == [
        id(p) for p in model.parameters()
    ]


def test_no_warm_up_is_refused():
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    with pytest.raises(ValueError, match="warmup=0"):
        tl.noam(model, 0)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_scheduler_gives_formula_3_at_every_step(factor):
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    adam, schedule = tl.noam(model, warmup=10, factor=factor)
    for step in range(1, 41):
        rate = adam.param_groups[0]["lr"]  # what adam.step() will use
        want = tl.noam_rate(step, 32, 10, factor)
        assert rate == pytest.approx(want, rel=1e-12)
        assert schedule.get_last_lr() == [rate]
        adam.step()
        schedule.step()


def test_the_defaults_are_4000_steps_and_factor_1():
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    adam, _ = tl.noam(model)
    want = 32**-0.5 * 4000**-1.5
    assert adam.param_groups[0]["lr"] == pytest.approx(want, rel=1e-12)


def test_an_update_is_adams_formula():
    # Three updates by hand, from the gradients that torch took.
    config = tl.TransformerConfig(
        vocab_size=7, n_layers=1, d_model=4, d_ff=3, n_heads=2, p_drop=0.0
    )
    model = build(config).train()
    adam, schedule = tl.noam(model, warmup=2)
    src, tgt = torch.tensor([[3, 4, 2]]), torch.tensor([[1, 5, 6]])
    want = [p.detach().clone() for p in model.parameters()]
    means = [torch.zeros_like(p) for p in want]
    squares = [torch.zeros_like(p) for p in want]
    for step in range(1, 4):
        adam.zero_grad()
        model(src, tgt).log_softmax(-1)[..., 5].sum().backward()
        slopes = [grad(p).clone() for p in model.parameters()]
        adam.step()
        schedule.step()
        rate = 4**-0.5 * min(step**-0.5, step * 2**-1.5)
        for i, slope in enumerate(slopes):
            means[i] = 0.9 * means[i] + 0.1 * slope
            squares[i] = 0.98 * squares[i] + 0.02 * slope**2
            mean = means[i] / (1 - 0.9**step)
            root = (squares[i] / (1 - 0.98**step)).sqrt()
            want[i] = want[i] - rate * mean / (root + 1e-9)
        for p, value in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.detach(), value, rtol=0, atol=1e-9)


# -- The cool-down: ours ------------------------------------------------------


@given(st.integers(1, 500), st.data())
def test_a_cooled_rate_falls_along_a_line_to_zero(steps, data):
    cooldown = data.draw(st.integers(1, steps))
    shares = [tl.cooled(step, steps, cooldown) for step in range(1, steps + 2)]
    before, line = shares[: -cooldown - 1], shares[-cooldown - 1 :]
    assert before == [1.0] * (steps - cooldown)
    want = [(cooldown - i) / cooldown for i in range(cooldown + 1)]
    assert line == pytest.approx(want)
    assert tl.cooled(steps + 9, steps, cooldown) == 0


@given(STEPS, STEPS)
def test_without_a_cool_down_the_rate_is_the_papers(step, steps):
    assert tl.cooled(step, steps, 0) == 1


@pytest.mark.parametrize("cooldown", [-1, 11])
def test_an_impossible_cool_down_is_refused(cooldown):
    with pytest.raises(ValueError, match=f"cooldown={cooldown}.*steps=10"):
        tl.cooled(1, 10, cooldown)


def test_the_scheduler_cools():
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    adam, schedule = tl.noam(model, warmup=4, steps=12, cooldown=5)
    for step in range(1, 13):
        want = tl.noam_rate(step, 32, 4) * tl.cooled(step, 12, 5)
        assert adam.param_groups[0]["lr"] == pytest.approx(want, rel=1e-12)
        adam.step()
        schedule.step()
