"""Section 5.4: what the smoothed loss asks for, and what it counts."""

import math
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from reference import DOUBLE, SEEDS, close, grad, leaf
from torch import Tensor

import transformer_lit as tl
from transformer_lit import loss as loss_module

CONVENTIONS = st.sampled_from(["others", "all"])


@st.composite
def problems(draw):
    """Logits, targets with some padding, pad_id, smoothing, convention."""
    B, T = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    W = draw(st.integers(2, 9))
    convention = draw(CONVENTIONS)
    # the target shall keep at least what each other token gets
    most = (W - 1) / W if convention == "others" else 0.99
    smoothing = draw(st.floats(0.0, 0.99 * most))
    pad_id = draw(st.integers(0, W - 1))
    torch.manual_seed(draw(SEEDS))
    targets = torch.randint(W, (B, T))
    return 3 * leaf(B, T, W), targets, pad_id, smoothing, convention


def asked_for(
    targets: Tensor, W: int, smoothing: float, convention: str
) -> Tensor:
    """The target distributions [B, T, W], written out."""
    q = torch.zeros(*targets.shape, W, dtype=DOUBLE)
    for b, row in enumerate(targets.tolist()):
        for t, target in enumerate(row):
            for w in range(W):
                if convention == "all":
                    share = smoothing / W
                    q[b, t, w] = share + (1 - smoothing) * (w == target)
                elif w == target:
                    q[b, t, w] = 1 - smoothing
                else:
                    q[b, t, w] = smoothing / (W - 1)
    return q


def implied(logits: Tensor, loss: Tensor) -> Tensor:
    """The distribution that a loss asks for: its gradient is p - q."""
    [slopes] = torch.autograd.grad(loss, logits)
    return logits.detach().softmax(-1) - slopes


def smoothed_loss(problem):
    """The loss of a problem, by the package."""
    logits, targets, pad_id, smoothing, convention = problem
    return tl.label_smoothed_loss(
        logits,
        targets,
        pad_id=pad_id,
        smoothing=smoothing,
        convention=convention,
    )


# -- What is asked for -------------------------------------------------------


@given(problems())
def test_the_implied_targets_are_those_of_the_convention(problem):
    logits, targets, pad_id, smoothing, convention = problem
    sums = smoothed_loss(problem)
    q = implied(logits, sums.loss)
    real = targets != pad_id
    want = asked_for(targets, logits.shape[-1], smoothing, convention)
    close(q[real], want[real], 1e-12)
    close(q[real].sum(-1), torch.ones(int(real.sum()), dtype=DOUBLE), 1e-12)


def test_the_default_is_a_tenth_over_the_others():
    logits, targets = leaf(1, 1, 11), torch.tensor([[4]])
    q = implied(logits, tl.label_smoothed_loss(logits, targets, pad_id=0).loss)[
        0, 0
    ]
    assert q[4].item() == pytest.approx(0.9)
    close(q[torch.arange(11) != 4], torch.full((10,), 0.01, dtype=DOUBLE))


@given(problems())
def test_padding_gets_no_gradient(problem):
    logits, targets, pad_id, *_ = problem
    sums = smoothed_loss(problem)
    [slopes] = torch.autograd.grad(sums.loss, logits)
    assert (slopes[targets == pad_id] == 0).all()


@given(problems())
def test_the_loss_is_the_cross_entropy_with_the_written_out_targets(problem):
    logits, targets, pad_id, smoothing, convention = problem
    sums = smoothed_loss(problem)
    q = asked_for(targets, logits.shape[-1], smoothing, convention)
    rows = -(q * logits.log_softmax(-1)).sum(-1)
    close(sums.loss, rows[targets != pad_id].sum())


# -- The floor ---------------------------------------------------------------


@given(problems())
def test_no_logits_go_below_the_entropy_of_the_targets(problem):
    logits, targets, pad_id, smoothing, convention = problem
    W = logits.shape[-1]
    q = asked_for(targets, W, smoothing, convention)[targets != pad_id]
    floor = torch.special.entr(q).sum()

    def loss(logits):
        return tl.label_smoothed_loss(
            logits,
            targets,
            pad_id=pad_id,
            smoothing=smoothing,
            convention=convention,
        ).loss

    assert loss(logits) >= floor - 1e-9
    if smoothing > 1e-6:  # otherwise the best logits are not finite
        best = asked_for(targets, W, smoothing, convention).log()
        best.requires_grad_()
        reached = loss(best)
        close(reached, floor, 1e-9)
        reached.backward()
        close(grad(best), torch.zeros_like(best), 1e-12)


@pytest.mark.parametrize(("W", "floor"), [(37_000, 1.3769), (40_960, 1.3871)])
def test_the_floor_at_the_papers_vocabularies(W, floor):
    # -0.9 ln 0.9 - 0.1 ln(0.1 / (W - 1)) nats a token; the released code
    # subtracted 1.387 at 40,960.
    best = torch.full((1, 1, W), 0.1 / (W - 1), dtype=DOUBLE)
    best[0, 0, 5] = 0.9
    sums = tl.label_smoothed_loss(
        best.log(), torch.tensor([[5]]), pad_id=0, smoothing=0.1
    )
    assert sums.loss.item() == pytest.approx(floor, abs=1e-4)
    # and the perplexity that the paper reports is the true one, not this
    assert sums.nll.item() == pytest.approx(-math.log(0.9))


# -- What is counted ---------------------------------------------------------


@given(problems())
def test_nll_is_the_true_one_whatever_the_smoothing(problem):
    logits, targets, pad_id, smoothing, _ = problem
    sums = smoothed_loss(problem)
    log_probs = logits.detach().log_softmax(-1)
    want = -sum(
        float(log_probs[b, t, target])
        for b, row in enumerate(targets.tolist())
        for t, target in enumerate(row)
        if target != pad_id
    )
    close(sums.nll, torch.tensor(want, dtype=DOUBLE))
    assert not sums.nll.requires_grad
    if smoothing == 0.0:
        close(sums.loss, sums.nll)


@given(problems())
def test_all_three_are_sums_over_the_real_tokens(problem):
    logits, targets, pad_id, smoothing, convention = problem

    def sums(rows):
        part = tl.label_smoothed_loss(
            logits[rows],
            targets[rows],
            pad_id=pad_id,
            smoothing=smoothing,
            convention=convention,
        )
        return part.loss, part.nll, part.tokens

    rows = [sums(slice(b, b + 1)) for b in range(len(targets))]
    for whole, parts in zip(
        sums(slice(None)), zip(*rows, strict=True), strict=True
    ):
        close(whole, sum(parts))
    tokens = sums(slice(None))[2]
    assert tokens.dtype == torch.int64
    assert tokens.item() == (targets != pad_id).sum()


@given(problems(), st.integers(1, 4))
def test_more_padding_changes_nothing(problem, more):
    logits, targets, pad_id, smoothing, convention = problem
    options = {
        "pad_id": pad_id,
        "smoothing": smoothing,
        "convention": convention,
    }
    a = tl.label_smoothed_loss(logits, targets, **options)
    B, _, W = logits.shape
    b = tl.label_smoothed_loss(
        torch.cat([logits, 100 * leaf(B, more, W)], dim=1),
        torch.cat([targets, torch.full((B, more), pad_id)], dim=1),
        **options,
    )
    close(a.loss, b.loss)
    close(a.nll, b.nll)
    assert a.tokens == b.tokens


def test_a_batch_of_padding_sums_to_zero():
    logits = leaf(2, 3, 5)
    sums = tl.label_smoothed_loss(
        logits, torch.full((2, 3), 4), pad_id=4, smoothing=0.1
    )
    assert (sums.loss, sums.nll, sums.tokens) == (0, 0, 0)
    sums.loss.backward()
    assert (grad(logits) == 0).all()


def test_a_sentence_may_come_without_a_batch_axis():
    logits, targets = leaf(3, 5), torch.tensor([1, 2, 0])
    a = tl.label_smoothed_loss(logits, targets, pad_id=0)
    b = tl.label_smoothed_loss(logits[None], targets[None], pad_id=0)
    assert a.loss == b.loss
    assert a.tokens == 2


# -- Errors ------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("convention", ["others", "all"])
def test_smoothing_outside_its_range_is_refused(smoothing, convention):
    with pytest.raises(ValueError, match="smoothing="):
        tl.label_smoothed_loss(
            torch.zeros(1, 2, 9),
            torch.ones(1, 2, dtype=torch.int64),
            pad_id=0,
            smoothing=smoothing,
            convention=convention,
        )


def test_a_target_below_the_others_is_refused():
    # three tokens: at 0.7 the target would get 0.3, the others 0.35 each
    logits, targets = torch.zeros(1, 1, 3), torch.tensor([[1]])
    with pytest.raises(ValueError, match="other 2 tokens"):
        tl.label_smoothed_loss(logits, targets, pad_id=0, smoothing=0.7)
    # where all get the same it is the last that is allowed
    logits = leaf(1, 1, 2)
    sums = tl.label_smoothed_loss(logits, targets, pad_id=0, smoothing=0.5)
    close(implied(logits, sums.loss), torch.full((1, 1, 2), 0.5, dtype=DOUBLE))


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (2,), (2, 3, 1)])
def test_shapes_that_do_not_agree_are_named(shape):
    with pytest.raises(ValueError, match=r"\[2, 3, 9\]") as error:
        tl.label_smoothed_loss(
            torch.zeros(2, 3, 9),
            torch.zeros(shape, dtype=torch.int64),
            pad_id=0,
        )
    assert str(list(shape)) in str(error.value)


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="convention='other'"):
        tl.label_smoothed_loss(
            torch.zeros(1, 1, 9),
            torch.tensor([[1]]),
            pad_id=0,
            convention="other",
        )


# -- The fused loss ----------------------------------------------------------


@given(problems(), st.integers(1, 4), st.integers(1, 7))
def test_the_fused_loss_equals_the_loss_of_the_logits(problem, D, rows):
    logits, targets, pad_id, smoothing, convention = problem
    B, T, W = logits.shape
    x, weight = leaf(B, T, D), leaf(W, D)
    options = {
        "pad_id": pad_id,
        "smoothing": smoothing,
        "convention": convention,
    }
    with patch.object(loss_module, "LOGITS", rows * W):
        found = tl.fused_loss(x, weight, targets, **options)
    want = tl.label_smoothed_loss(x @ weight.T, targets, **options)
    assert found.tokens == want.tokens
    assert not found.nll.requires_grad
    close(found.loss, want.loss, 1e-12)
    close(found.nll, want.nll, 1e-12)
    # with a factor, as training has it
    gradients = torch.autograd.grad(found.loss * 0.3, (x, weight))
    others = torch.autograd.grad(want.loss * 0.3, (x, weight))
    for one, other in zip(gradients, others, strict=True):
        close(one, other, 1e-12)


def test_the_fused_loss_under_autocast_is_as_exact_as_the_plain_one():
    torch.manual_seed(0)
    x, weight = torch.randn(4, 9, 16), torch.randn(50, 16)
    targets = torch.randint(1, 50, (4, 9))
    exact, plain, fused = (
        [t.to(dtype).requires_grad_() for t in (x, weight)]
        for dtype in (DOUBLE, torch.float32, torch.float32)
    )
    losses = [
        tl.label_smoothed_loss(exact[0] @ exact[1].T, targets, pad_id=0).loss
    ]
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(*plain)
        assert logits.dtype == torch.bfloat16
        losses.append(tl.label_smoothed_loss(logits, targets, pad_id=0).loss)
        losses.append(tl.fused_loss(*fused, targets, pad_id=0).loss)
    assert all(loss.dtype != torch.bfloat16 for loss in losses)
    for loss in losses:
        loss.backward()
    for i in range(2):
        error = [
            (leaves[i].grad.double() - exact[i].grad).norm()
            for leaves in (plain, fused)
        ]
        assert fused[i].grad.dtype == torch.float32
        assert 0 < error[1] < 2 * error[0]


def test_the_fused_loss_of_padding_alone_is_zero_with_zero_gradients():
    x, weight = leaf(2, 3, 4), leaf(5, 4)
    sums = tl.fused_loss(x, weight, torch.zeros(2, 3).long(), pad_id=0)
    assert sums.loss == sums.nll == sums.tokens == 0
    sums.loss.backward()
    assert x.grad.abs().max() == weight.grad.abs().max() == 0


def test_the_fused_loss_keeps_no_logits():
    # 64 rows of 1,000 logits would be 64,000 numbers.
    kept = []
    x, weight = leaf(8, 8, 4), leaf(1000, 4)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t
    ):
        tl.fused_loss(x, weight, torch.ones(8, 8).long(), pad_id=0)
    assert sum(kept) <= 64 * 4 + 1000 * 4 + 64


def test_the_fused_loss_refuses_what_does_not_fit():
    x, weight = leaf(2, 3, 4), leaf(5, 4)
    with pytest.raises(ValueError, match=r"\[2, 3, 4\].*\[2, 4\]"):
        tl.fused_loss(x, weight, torch.ones(2, 4).long(), pad_id=0)
    targets = torch.ones(2, 3).long()
    with pytest.raises(ValueError, match=r"smoothing=1\.5"):
        tl.fused_loss(x, weight, targets, pad_id=0, smoothing=1.5)
