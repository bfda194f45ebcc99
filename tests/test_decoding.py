"""Greedy search: the naive loop, the batch, the limit, the end."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    LENGTHS,
    SEEDS,
    build,
    configs,
    more_pads,
    naive_greedy,
    sentences,
)
from torch import Tensor

import transformer_lit as tl


@st.composite
def problems(draw, **fixed):
    """A model whose outputs end sooner or later, and sentences."""
    config = draw(configs(**fixed))
    model = build(config, draw(SEEDS))
    return model, sentences(config, draw(LENGTHS)), draw(st.integers(0, 9))


def greedy(
    model: tl.Transformer, src: Tensor, max_extra: int
) -> list[tl.Hypothesis]:
    """The one hypothesis of each sentence."""
    found = tl.greedy_search(model, src, max_extra=max_extra)
    assert [len(hypotheses) for hypotheses in found] == [1] * len(src)
    return [best for [best] in found]


def real(src: Tensor, pad_id: int) -> list[list[int]]:
    """The sentences without their padding."""
    return [[i for i in row if i != pad_id] for row in src.tolist()]


def script(model: tl.Transformer, wanted: list[list[int]], monkeypatch) -> None:
    """Make the model want these tokens, and then 3s, whatever it reads.

    The first source token tells which row it is, so that rows may be
    dropped.
    """

    def start(src):
        cache = real_start(src)
        cache.memory = src[:, :1, None].double()  # rows are selected with it
        return cache

    def step(ids, cache):
        at = cache.ids.shape[1]
        cache.ids = torch.cat([cache.ids, ids[:, None]], dim=1)
        logits = torch.zeros(len(ids), model.config.vocab_size)
        for i, which in enumerate(cache.memory[:, 0, 0].long().tolist()):
            line = [*wanted[which], 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
            logits[i, line[at]] = 5.0
        return logits

    real_start = model.start
    monkeypatch.setattr(model, "start", start)
    monkeypatch.setattr(model, "step", step)


# -- Against the slow and simple ---------------------------------------------


@given(problems())
def test_greedy_search_equals_the_naive_loop(problem):
    model, src, max_extra = problem
    found = greedy(model, src, max_extra)
    for best, sentence in zip(
        found, real(src, model.config.pad_id), strict=True
    ):
        tokens, log_prob = naive_greedy(model, sentence, max_extra)
        assert best.tokens == tokens
        assert best.log_prob == pytest.approx(log_prob, abs=1e-9)
        assert best.score == best.log_prob


@given(problems())
def test_a_batch_is_decoded_like_its_sentences_one_by_one(problem):
    model, src, max_extra = problem
    found = greedy(model, src, max_extra)
    for row, sentence in enumerate(real(src, model.config.pad_id)):
        [alone] = greedy(model, torch.tensor([sentence]), max_extra)
        assert found[row].tokens == alone.tokens
        assert found[row].log_prob == pytest.approx(alone.log_prob, abs=1e-9)


@given(problems(), st.integers(1, 5))
def test_more_padding_changes_no_hypothesis(problem, more):
    model, src, max_extra = problem
    wide = more_pads(src, more, model.config.pad_id)
    for a, b in zip(
        greedy(model, src, max_extra),
        greedy(model, wide, max_extra),
        strict=True,
    ):
        assert a.tokens == b.tokens
        assert a.log_prob == pytest.approx(b.log_prob, abs=1e-9)


@given(problems())
def test_the_reported_log_prob_is_the_teacher_forced_one(problem):
    model, src, max_extra = problem
    config = model.config
    for best, sentence in zip(
        greedy(model, src, max_extra), real(src, config.pad_id), strict=True
    ):
        said = list(best.tokens)
        if len(said) < len(sentence) + max_extra:  # it ended by itself
            said.append(config.eos_id)
        tgt_in = torch.tensor([[config.bos_id, *said[:-1]]])
        logits = model(torch.tensor([sentence]), tgt_in)[0]
        log_probs = logits.log_softmax(-1)
        want = sum(log_probs[t, token].item() for t, token in enumerate(said))
        assert best.log_prob == pytest.approx(want, abs=1e-9)


@given(problems(), st.integers(1, 9))
def test_more_room_only_continues(problem, more):
    # what comes later changes neither the tokens before nor their sum
    model, src, max_extra = problem
    short = greedy(model, src, max_extra)
    long = greedy(model, src, max_extra + more)
    for a, b in zip(short, long, strict=True):
        assert b.tokens[: len(a.tokens)] == a.tokens
        assert b.log_prob <= a.log_prob + 1e-12


# -- The end and the limit ---------------------------------------------------


@given(problems())
def test_nothing_is_said_behind_the_end_nor_beyond_the_limit(problem):
    model, src, max_extra = problem
    config = model.config
    for best, sentence in zip(
        greedy(model, src, max_extra), real(src, config.pad_id), strict=True
    ):
        assert config.eos_id not in best.tokens
        assert len(best.tokens) <= len(sentence) + max_extra


def test_the_problems_above_end_in_both_ways():
    # or they would not test what they say they test
    ends = set()
    for seed in range(20):
        config = tl.TransformerConfig(
            vocab_size=6, n_layers=1, d_model=8, n_heads=2
        )
        model = build(config, seed)
        src = sentences(config, [4, 2, 3])
        for best, limit in zip(greedy(model, src, 3), [7, 5, 6], strict=True):
            ends.add((len(best.tokens) < limit, len(best.tokens)))
    assert {ended for ended, _ in ends} == {True, False}
    assert len(ends) >= 5


def test_each_sentence_ends_in_its_own_time(monkeypatch):
    model = build(tl.TransformerConfig.miniature(9))
    end = tl.EOS
    wanted = [[], [], [], [5, 6, end], [end], [7, 8, 7, 8, end], [6, end]]
    script(model, wanted, monkeypatch)
    src = torch.tensor([[3, 2], [4, 2], [5, 2], [6, 2]])
    found = greedy(model, src, 9)
    assert [best.tokens for best in found] == [
        [5, 6],
        [],
        [7, 8, 7, 8],
        [6],
    ]
    # the end counts in the probability: n + 1 tokens of equal probability
    one = float(torch.tensor([5.0] + [0.0] * 8).log_softmax(0)[0])
    for best in found:
        want = (len(best.tokens) + 1) * one
        assert best.log_prob == pytest.approx(want, rel=1e-5)


def never_end(model):
    """Make the end token the least probable of all."""
    logits = model.output.logits

    def without_end(x):
        scores = logits(x)
        scores[..., model.config.eos_id] = -1e9
        return scores

    model.output.logits = without_end


@given(lengths=LENGTHS, max_extra=st.integers(0, 6))
def test_without_an_end_the_limit_is_the_input_and_max_extra(
    lengths, max_extra
):
    config = tl.TransformerConfig.miniature(9)
    model = build(config)
    never_end(model)
    src = sentences(config, lengths)
    found = greedy(model, src, max_extra)
    assert [len(best.tokens) for best in found] == [
        length + max_extra for length in lengths
    ]


def test_an_end_in_the_last_place_counts_as_an_end(monkeypatch):
    # room for 3: two tokens and the end are just in time, three tokens are
    # cut off, and the end behind them is not looked at
    model = build(tl.TransformerConfig.miniature(9))
    end = tl.EOS
    wanted = [[], [], [], [5, 6, end, 7], [5, 6, 7, end]]
    script(model, wanted, monkeypatch)
    in_time, cut_off = greedy(model, torch.tensor([[3, 2], [4, 2]]), 1)
    assert in_time.tokens == [5, 6]
    assert cut_off.tokens == [5, 6, 7]
    assert in_time.log_prob == pytest.approx(cut_off.log_prob)


def test_the_default_room_is_the_papers_50():
    config = tl.TransformerConfig.miniature(9)
    model = build(config)
    never_end(model)
    [[best]] = tl.greedy_search(model, sentences(config, [3]))
    assert len(best.tokens) == 53


def test_negative_room_is_refused():
    model = build(tl.TransformerConfig.miniature(9))
    with pytest.raises(ValueError, match="max_extra=-1"):
        tl.greedy_search(model, torch.tensor([[3, 2]]), max_extra=-1)


def test_a_sentence_of_padding_alone_ends_at_once():
    model = build(tl.TransformerConfig.miniature(9))
    [[best]] = tl.greedy_search(model, torch.zeros(1, 3).long(), max_extra=0)
    assert len(best.tokens) <= 1


def test_no_sentences_give_no_hypotheses():
    model = build(tl.TransformerConfig.miniature(9))
    assert tl.greedy_search(model, torch.empty(0, 3).long()) == []


def test_decoding_leaves_no_gradient_and_no_change():
    model = build(tl.TransformerConfig.miniature(9))
    before = {name: w.clone() for name, w in model.state_dict().items()}
    tl.greedy_search(model, torch.tensor([[3, 4, 2]]), max_extra=3)
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, weight in model.state_dict().items():
        assert weight.equal(before[name])


def test_a_hypothesis_is_a_frozen_record():
    hypothesis = tl.Hypothesis(tokens=[5], log_prob=-1.0, score=-1.0)
    with pytest.raises(AttributeError):
        hypothesis.score = 0.0
