"""Section 5.2: operations and bytes by formula, against those of real passes."""

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import transformer_lit as tl
from transformer_lit import hardware
from transformer_lit.attention import (
    MultiHeadAttention,
    fused_attention,
    merge_heads,
    split_heads,
)
from transformer_lit.hardware import (
    DEVICES,
    ROUTE,
    Device,
    Memory,
    forward_flops,
    forward_parts,
    gain_of_route,
    logits_bytes,
    memory_bytes,
    plan,
    route,
    this_machine,
    training_flops,
    training_time,
)

BASE = tl.TransformerConfig.base(37_000)
BIG = tl.TransformerConfig.big(37_000)
PAPER = {
    "base": (BASE, 100_000, 12 * 3600, 3.3e18),
    "big": (BIG, 300_000, 3.5 * 86_400, 2.3e19),
}
papers = pytest.mark.parametrize("name", PAPER)
DIMS = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))


@st.composite
def configs(draw):
    """Small models of any sizes, and with any option that adds a tensor."""
    heads = draw(st.integers(1, 4))
    return tl.TransformerConfig(
        vocab_size=draw(st.integers(4, 60)),
        n_layers=draw(st.integers(1, 3)),
        d_model=2 * draw(st.integers(1, 12)),
        d_ff=draw(st.integers(1, 40)),
        n_heads=heads,
        d_k=draw(st.integers(1, 7)),
        d_v=draw(st.integers(1, 7)),
        pre_norm=draw(st.booleans()),
        tie_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
    )


def batch(config, B, S, T):
    """A model in train mode, source and target ids without padding."""
    model = tl.Transformer(config).train()
    src, tgt = (torch.randint(1, config.vocab_size, (B, n)) for n in (S, T))
    return model, src, tgt


def plain(model, src, tgt):
    """Logits by the plain formula of attention."""
    return model.decode(tgt, model.encode(src, maps=[]), src=src, maps=[])


def ours(count, config, B, S, T, **options):
    return count(config, B * S, B * T, src_length=S, tgt_length=T, **options)


# -- Operations --------------------------------------------------------------


@given(configs(), DIMS)
def test_forward_flops_equal_what_torch_counts(config, shape):
    model, src, tgt = batch(config, *shape)
    with FlopCounterMode(display=False) as counter:
        plain(model, src, tgt)
    assert counter.get_total_flops() == ours(forward_flops, config, *shape)


@given(configs(), DIMS)
def test_training_flops_equal_what_torch_counts(config, shape):
    model, src, tgt = batch(config, *shape)
    with FlopCounterMode(display=False) as counter:
        logits = plain(model, src, tgt)
        tl.label_smoothed_loss(logits, tgt, pad_id=0).loss.backward()
    total = counter.get_total_flops()
    assert total == ours(training_flops, config, *shape)
    assert total == 3 * ours(forward_flops, config, *shape)


@pytest.mark.parametrize("config", [BASE, BIG], ids=["base", "big"])
def test_flops_of_the_papers_models_equal_what_torch_counts(config):
    shape = 833, 30, 28
    with torch.device("meta"):
        model = tl.Transformer(config)
        src, tgt = (torch.ones(833, n, dtype=torch.int64) for n in (30, 28))
    with FlopCounterMode(display=False) as counter:
        plain(model, src, tgt).sum().backward()
    assert counter.get_total_flops() == ours(training_flops, config, *shape)


@given(configs(), DIMS)
def test_recomputing_adds_the_layers_once_more(config, shape):
    model, src, tgt = batch(config, *shape)
    keep = {"use_reentrant": False, "maps": []}
    with FlopCounterMode(display=False) as counter:
        memory, x = model.src_embedding(src), model.tgt_embedding(tgt)
        for layer in model.encoder.layers:
            memory = checkpoint(layer, memory, **keep)
        for layer in model.decoder.layers:
            x = checkpoint(layer, x, memory, **keep)
        model.output.logits(x).sum().backward()
    want = ours(training_flops, config, *shape, recompute=True)
    assert counter.get_total_flops() == want


def test_the_parts_are_those_of_the_formula():
    config = tl.TransformerConfig(
        vocab_size=7, n_layers=2, d_model=4, d_ff=3, n_heads=5, d_k=2, d_v=3
    )
    parts = forward_parts(config, 6, 10, src_length=3, tgt_length=5)
    assert parts == {
        "maps": 2 * 2 * 4 * 25 * (3 * 6 + 3 * 10),
        "scores": 2 * 2 * 25 * (6 * 3 + 10 * 5 + 10 * 3),
        "feed-forward": 2 * 2 * 2 * 4 * 3 * 16,
        "vocabulary": 2 * 10 * 4 * 7,
    }


# -- The paper's numbers -----------------------------------------------------


@papers
def test_table_2_is_time_times_gpus_times_rate(name):
    _, _, seconds, printed = PAPER[name]
    device = DEVICES["p100x8"]
    cost = seconds * device.count * device.peak["fp32"]
    assert f"{cost:.1e}" == f"{printed:.1e}"


@pytest.mark.parametrize(
    ("vocabulary", "name", "flops"),
    [
        (37_000, "base", 9.53e12),
        (40_960, "base", 9.84e12),
        (37_000, "big", 32.3e12),
        (40_960, "big", 32.9e12),
    ],
)
def test_a_step_of_the_paper_costs(vocabulary, name, flops):
    config = replace(PAPER[name][0], vocab_size=vocabulary)
    found = training_flops(config, 25e3, 25e3, src_length=30, tgt_length=30)
    assert found == pytest.approx(flops, rel=2e-3)


@papers
def test_the_papers_machine_takes_the_papers_time(name):
    config, steps, seconds, printed = PAPER[name]
    settings = {"steps": steps, "tokens": 25_000, "device": DEVICES["p100x8"]}
    found = training_time(config, **settings)
    assert found == pytest.approx(seconds, rel=0.05)
    assert 0.5 < found / steps / {"base": 0.4, "big": 1.0}[name] < 1.2
    # at full use of what Table 2 books, the work takes its share of the time
    share = training_time(config, **settings, utilisation=1) / seconds
    assert share == pytest.approx({"base": 0.29, "big": 0.42}[name], abs=0.01)
    flops = plan(config, settings["device"], steps=steps, tokens=25_000).flops
    assert flops / printed == pytest.approx(share, rel=0.02)


# -- Bytes -------------------------------------------------------------------


def kept_bytes(config, B, S, T, precision="fp32", fused=False, loss=False):
    """What a real forward pass keeps, parameters apart, and its logits."""
    model, src, tgt = batch(config, B, S, T)
    parameters = {id(p.untyped_storage()) for p in model.parameters()}
    storages = {}

    def note(x):
        storages[id(x.untyped_storage())] = x.untyped_storage()
        return x

    def attend(self, x, k, v, mask=None, maps=None):
        q = split_heads(self.w_q(x), self.n_heads)
        return self.w_o(merge_heads(fused_attention(q, k, v, mask)))

    way = attend if fused else MultiHeadAttention.attend
    with (
        patch.object(MultiHeadAttention, "attend", way),
        torch.autocast("cpu", torch.bfloat16, precision == "bf16"),
        saved_tensors_hooks(note, lambda x: x),
    ):
        logits = plain(model, src, tgt)
        if loss:
            tl.label_smoothed_loss(logits, tgt, pad_id=0)
        else:
            logits.log_softmax(-1, torch.float32)
    kept = [s.nbytes() for i, s in storages.items() if i not in parameters]
    return sum(kept) + logits.nbytes


def formula(config, B, S, T, **options):
    """The same by `memory_bytes`."""
    memory = memory_bytes(
        config,
        src_tokens=B * S,
        tgt_tokens=B * T,
        src_length=S,
        tgt_length=T,
        **options,
    )
    copies = memory.weights - 4 * tl.count_parameters(config)
    return copies + memory.activations + memory.logits


def logits_kept(config, B, T, precision):
    """What the fused loss has and the plain one has not."""
    found = {
        fused: logits_bytes(
            config, B * T, fused=fused, size=hardware.BYTES[precision]
        )
        for fused in (True, False)
    }
    return found[True] - found[False]


SMALL = tl.TransformerConfig(
    vocab_size=101, n_layers=2, d_model=48, d_ff=80, n_heads=4
)
MODELS = {
    "plain": SMALL,
    "pre-norm": replace(SMALL, pre_norm=True),
    "no dropout": replace(SMALL, p_drop=0.0),
    "all dropout": replace(SMALL, p_drop_attention=0.1, p_drop_relu=0.1),
    "wide heads": replace(SMALL, d_k=40, d_v=7),
    "40 wide": replace(SMALL, d_k=40, d_v=40),  # fused only if K = V
    "deep": replace(SMALL, n_layers=5, vocab_size=20),
    "learned": replace(SMALL, positions="learned"),
    # hardly anything but the residual path
    "thin": replace(
        SMALL, n_layers=1, d_ff=8, d_k=1, d_v=1, p_drop=0.0, vocab_size=20
    ),
}
SHAPES = [(6, 7, 9), (2, 50, 40), (1, 90, 3)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_the_kept_bytes_are_those_of_the_formula(model, shape, precision):
    config = MODELS[model]
    measured = kept_bytes(config, *shape, precision)
    found = formula(config, *shape, precision=precision, fused=False)
    assert found == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model", ["plain", "pre-norm", "deep", "40 wide"])
def test_the_fused_kernel_keeps_no_weights(model, shape, precision):
    # Its masks become numbers, T x S for each row: more is left out.
    config = MODELS[model]
    measured = kept_bytes(config, *shape, precision, fused=True)
    found = formula(config, *shape, precision=precision, fused=True)
    B, _, T = shape
    found -= logits_kept(config, B, T, precision)  # measured with all logits
    assert found == pytest.approx(measured, rel=0.05)
    assert found < measured


def test_the_fused_loss_keeps_what_the_formula_says():
    B, T, D, W = 3, 50, 8, 500
    x, weight = torch.randn(B, T, D), torch.randn(W, D)
    x.requires_grad_(), weight.requires_grad_()
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        tl.fused_loss(x, weight, torch.ones(B, T).long(), pad_id=0)
    config = replace(SMALL, d_model=D, vocab_size=W)
    rows = B * T  # which are real, a byte each
    found = logits_bytes(config, B * T, fused=True, size=4)
    assert found == sum(kept) - rows + 8 * B * T * W
    # and beyond a slice no logits are added
    more = logits_bytes(config, 1e6, fused=True, size=4)
    even_more = logits_bytes(config, 1e6 + 1, fused=True, size=4)
    assert even_more - more == 4 * D


def test_the_real_loss_keeps_what_the_formula_says():
    config = replace(SMALL, vocab_size=2_000)
    measured = kept_bytes(config, 4, 9, 11, loss=True)
    found = formula(config, 4, 9, 11, fused=False)
    assert found == pytest.approx(measured, rel=0.03)


def test_the_state_is_16_bytes_a_parameter():
    shape = {"src_tokens": 30, "tgt_tokens": 30}
    shape |= {"src_length": 30, "tgt_length": 30}
    P = tl.count_parameters(BASE)
    memory = memory_bytes(BASE, **shape)
    assert memory.weights == memory.gradients == 4 * P
    assert memory.optimizer == 8 * P
    parts = [memory.activations, memory.logits]
    assert memory.total == 16 * P + sum(parts)
    assert memory_bytes(BASE, **shape, optimizer="sgd").optimizer == 0
    half = memory_bytes(BASE, **shape, precision="bf16")
    matrices = [p for p in tl.Transformer(SMALL).parameters() if p.dim() == 2]
    assert hardware.matrix_entries(SMALL) == sum(p.numel() for p in matrices)
    assert half.weights == 4 * P + 2 * hardware.matrix_entries(BASE)
    # as torch has it
    model = tl.Transformer(SMALL)
    adam, _ = tl.noam(model)
    model(torch.ones(1, 2).long(), torch.ones(1, 2).long()).sum().backward()
    adam.step()
    state = [x for s in adam.state.values() for x in s.values() if x.dim()]
    assert sum(x.nbytes for x in state) == 8 * tl.count_parameters(SMALL)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputing_keeps_inputs_and_one_layer(precision):
    options = {"precision": precision, "fused": True}
    small = memory_bytes(
        replace(BASE, n_layers=1),
        src_tokens=300,
        tgt_tokens=200,
        src_length=30,
        tgt_length=20,
        **options,
    )
    found = memory_bytes(
        BASE,
        src_tokens=300,
        tgt_tokens=200,
        src_length=30,
        tgt_length=20,
        recompute=True,
        **options,
    )
    inputs = 6 * 500 * 512 * 4
    assert found.activations == small.activations + inputs
    assert found.logits == small.logits


# -- Plans -------------------------------------------------------------------


def test_a_plan_puts_the_pieces_together():
    device = Device(
        "two", {"fp32": 1e12, "bf16": 4e12}, 8e9, count=2, price=1.5
    )
    found = plan(BASE, device, steps=10, tokens=8000, length=20, accumulate=4)
    flops = 10 * training_flops(BASE, 8000, 8000, src_length=20, tgt_length=20)
    assert found.flops == flops
    assert found.parameters == tl.count_parameters(BASE)
    assert found.tokens_per_process == 1000
    assert found.hours * 3600 == pytest.approx(flops / (0.4 * 2 * 4e12))
    assert found.price == pytest.approx(found.hours * 2 * 1.5)
    assert found.memory == memory_bytes(
        BASE,
        src_tokens=1000,
        tgt_tokens=1000,
        src_length=20,
        tgt_length=20,
        precision="bf16",
    )
    assert found.fits
    assert not replace(found, device=replace(device, memory=1e9)).fits


def test_a_plan_without_a_price_has_none():
    found = plan(BASE, DEVICES["p100x8"], steps=1, tokens=25_000)
    assert found.price is None
    assert found.memory.weights == 4 * tl.count_parameters(BASE)  # fp32


def test_recomputing_takes_longer_and_needs_less():
    options = {"steps": 10, "tokens": 25_000}
    usual = plan(BIG, DEVICES["h200x1"], **options)
    thrifty = plan(BIG, DEVICES["h200x1"], **options, recompute=True)
    assert 1.2 < thrifty.hours / usual.hours < 4 / 3
    assert thrifty.memory.total < usual.memory.total
    assert thrifty.flops / usual.flops == thrifty.hours / usual.hours


def test_this_machine_is_measured():
    device = this_machine()
    assert device.count == 1
    assert device.price is None
    assert set(device.peak) == {"fp32", "bf16"}
    assert all(math.isfinite(p) and p > 0 for p in device.peak.values())
    assert device.memory > 1e8


def test_the_rate_counts_two_operations_a_multiply_add():
    # a clock that moves a hundredth of a second each time it is read
    ticks = iter(range(10**6))
    with patch.object(hardware.time, "perf_counter", lambda: next(ticks) / 100):
        rate = hardware.product_rate(torch.float32, size=50)
    assert rate == pytest.approx(2 * 50**3 / 0.01)


# -- Refusals ----------------------------------------------------------------

TOKENS = {"src_tokens": 9, "tgt_tokens": 9, "src_length": 3, "tgt_length": 3}
RUN = {"steps": 9, "tokens": 9, "device": DEVICES["p100x8"]}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "9", None])
def test_a_count_that_is_not_above_0_is_refused(name, value):
    for count in (forward_flops, training_flops, memory_bytes):
        with pytest.raises(ValueError, match=rf"^{name}=.*above 0") as error:
            count(BASE, **(TOKENS | {name: value}))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"tokens": -1}, "tokens=-1"),
        ({"length": 0}, "length=0"),
        ({"utilisation": 0}, r"utilisation=0 .*\(0, 1\]"),
        ({"utilisation": 1.5}, "utilisation=1.5"),
        ({"utilisation": math.nan}, "utilisation=nan"),
        ({"precision": "bf16"}, "precision='bf16'.*'fp32'.*8 x P100"),
    ],
)
def test_a_time_that_cannot_be_told_is_refused(changed, message):
    with pytest.raises(ValueError, match=message) as error:
        training_time(BASE, **(RUN | changed))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"precision": "fp8"}, "precision='fp8'.*'fp32', 'bf16'"),
        ({"optimizer": "lion"}, "optimizer='lion'.*'adam' or 'sgd'"),
    ],
)
def test_an_unknown_name_is_refused(changed, message):
    with pytest.raises(ValueError, match=message) as error:
        memory_bytes(BASE, **TOKENS, **changed)
    assert "\n" not in str(error.value)


def test_a_plan_for_nobody_is_refused():
    nobody = replace(DEVICES["p100x8"], count=0)
    with pytest.raises(ValueError, match="count=0"):
        plan(BASE, nobody, steps=1, tokens=9)
    with pytest.raises(ValueError, match="accumulate=0"):
        plan(BASE, DEVICES["p100x8"], steps=1, tokens=9, accumulate=0)


def test_memory_is_a_sum():
    assert Memory(1, 2, 3, 4, 5).total == 15


# -- The route of a product --------------------------------------------------


class Rounding(torch.overrides.TorchFunctionMode):
    """As on a processor with units for bf16: the other route rounds."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.matmul and ROUTE.fp32_precision == "bf16":
            args = [x.bfloat16().float() for x in args]
        return func(*args, **(kwargs or {}))


def test_a_route_that_rounds_is_not_taken():
    assert gain_of_route(64) > 0
    with Rounding():
        assert gain_of_route(64) == 0


def test_without_onednn_there_is_one_route(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert gain_of_route(64) == 0


@pytest.mark.parametrize(("gain", "taken"), [(2.5, 1), (1.2, 0), (0.0, 0)])
@pytest.mark.parametrize("before", ["none", "ieee"])
def test_the_faster_route_is_taken_for_a_while(
    monkeypatch, gain, taken, before
):
    widths = []
    monkeypatch.setattr(
        hardware, "gain_of_route", lambda width: widths.append(width) or gain
    )
    at_first = ROUTE.fp32_precision
    with route(before):
        with tl.fast_matmul(96) as told:
            assert told == (gain if taken else 1)
            assert ROUTE.fp32_precision == ("bf16" if taken else before)
        assert ROUTE.fp32_precision == before and widths == [96]
        with pytest.raises(KeyError), tl.fast_matmul():
            raise KeyError
        assert ROUTE.fp32_precision == before
    assert ROUTE.fp32_precision == at_first


def test_a_product_is_as_precise_by_either_route():
    torch.manual_seed(0)
    for size in (5, 64, 300):
        a, b = torch.randn(2, size, size)
        exact = a.double() @ b.double()
        usual = (a @ b - exact).abs().max()
        with tl.fast_matmul(size):
            assert (a @ b - exact).abs().max() <= 2 * usual
