"""Greedy search: the naive loop, the batch, the limit, the end."""

import math

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
from transformer_lit.decoding import (
    RoomyCache,
    best_continuations,
    fast_continuations,
    log_probs_of,
)
from transformer_lit.stacks import LayerCache


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


# -- Beam search -------------------------------------------------------------

ALPHAS = st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0])


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def next_log_probs(
    model: tl.Transformer, sentence: list[int], prefixes: list[list[int]]
) -> list[list[float]]:
    """The model run anew on whole prefixes of one length."""
    src = torch.tensor([sentence] * len(prefixes))
    bos = model.config.bos_id
    tgt_in = torch.tensor([[bos, *prefix] for prefix in prefixes])
    return model(src, tgt_in)[:, -1].log_softmax(-1).tolist()


def naive_beam(
    model: tl.Transformer, sentence: list[int], size: int, alpha: float, limit
) -> list[tuple[list[int], float, float]]:
    """The released code's search, without a cache, and never ending early."""
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, float, list[int]]] = []
    for length in range(1, max(limit, 1) + 1):
        prefixes = [tokens for _, tokens in alive]
        rows = next_log_probs(model, sentence, prefixes)
        longer = [
            (total + p, tokens, token)
            for (total, tokens), row in zip(alive, rows, strict=True)
            for token, p in enumerate(row)
        ]
        longer.sort(key=lambda one: -one[0])
        alive = []
        for total, tokens, token in longer[: 2 * size]:
            if token == model.config.eos_id:
                score = total / penalty(length, alpha)
                finished.append((score, total, tokens))
            else:
                alive.append((total, [*tokens, token]))
        alive = alive[:size]
    if not finished:
        last = penalty(max(limit, 1), alpha)
        finished = [(total / last, total, tokens) for total, tokens in alive]
    finished.sort(key=lambda one: -one[0])
    return [(tokens, p, score) for score, p, tokens in finished[:size]]


def agrees(
    found: list[tl.Hypothesis], want: list[tuple[list[int], float, float]]
) -> None:
    assert [one.tokens for one in found] == [tokens for tokens, _, _ in want]
    for one, (_, log_prob, score) in zip(found, want, strict=True):
        assert one.log_prob == pytest.approx(log_prob, abs=1e-9)
        assert one.score == pytest.approx(score, abs=1e-9)


@given(problems(), st.integers(1, 5), ALPHAS)
def test_beam_search_equals_the_same_search_that_never_stops_early(
    problem, size, alpha
):
    model, src, max_extra = problem
    found = tl.beam_search(
        model, src, beam_size=size, alpha=alpha, max_extra=max_extra
    )
    sentences = real(src, model.config.pad_id)
    for kept, sentence in zip(found, sentences, strict=True):
        limit = len(sentence) + max_extra
        agrees(kept, naive_beam(model, sentence, size, alpha, limit))


@given(problems(), st.integers(1, 5), ALPHAS, st.data())
def test_fewer_wanted_are_the_best_of_all(problem, size, alpha, data):
    model, src, max_extra = problem
    n_best = data.draw(st.integers(1, size))
    options = {"beam_size": size, "alpha": alpha, "max_extra": max_extra}
    every = tl.beam_search(model, src, **options)
    few = tl.beam_search(model, src, n_best=n_best, **options)
    for a, b in zip(few, every, strict=True):
        want = [(one.tokens, one.log_prob, one.score) for one in b[:n_best]]
        agrees(a, want)


def every_output(
    model: tl.Transformer, sentence: list[int], limit: int
) -> list[tuple[list[int], float]]:
    """All outputs that end within the limit, and their log-probabilities."""
    config = model.config
    outputs, grown = [], [([], 0.0)]
    for _ in range(limit):
        rows = next_log_probs(model, sentence, [tokens for tokens, _ in grown])
        longer = []
        for (tokens, total), row in zip(grown, rows, strict=True):
            outputs.append((tokens, total + row[config.eos_id]))
            longer += [
                ([*tokens, token], total + p)
                for token, p in enumerate(row)
                if token != config.eos_id
            ]
        grown = longer
    return outputs


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 1.0, 2.0])
@given(
    configs(vocab_size=6, pad_id=5, bos_id=0, eos_id=3),
    SEEDS,
    st.integers(1, 2),
    st.integers(1, 4),
)
def test_a_beam_that_drops_nothing_finds_all_in_order(
    alpha, config, seed, length, limit
):
    model = build(config, seed)
    src = sentences(config, [length])
    limit = max(limit, length)
    want = sorted(
        (
            (tokens, p, p / penalty(len(tokens) + 1, alpha))
            for tokens, p in every_output(model, src[0].tolist(), limit)
        ),
        key=lambda one: -one[2],
    )
    size = 3 * 5 ** (limit - 1)  # twice that are all continuations
    for n_best in (size, 3, 1):
        [found] = tl.beam_search(
            model,
            src,
            beam_size=size,
            alpha=alpha,
            max_extra=limit - length,
            n_best=n_best,
        )
        agrees(found, want[:n_best])


@given(problems(), st.integers(1, 5), ALPHAS)
def test_a_batch_is_searched_like_its_sentences_one_by_one(
    problem, size, alpha
):
    model, src, max_extra = problem
    options = {"beam_size": size, "alpha": alpha, "max_extra": max_extra}
    found = tl.beam_search(model, src, **options)
    for row, sentence in enumerate(real(src, model.config.pad_id)):
        [alone] = tl.beam_search(model, torch.tensor([sentence]), **options)
        want = [(one.tokens, one.log_prob, one.score) for one in alone]
        agrees(found[row], want)


@given(problems(), st.integers(1, 5), ALPHAS)
def test_every_reported_log_prob_is_the_teacher_forced_one(
    problem, size, alpha
):
    model, src, max_extra = problem
    config = model.config
    found = tl.beam_search(
        model, src, beam_size=size, alpha=alpha, max_extra=max_extra
    )
    for kept, sentence in zip(found, real(src, config.pad_id), strict=True):
        scores = [one.score for one in kept]
        assert scores == sorted(scores, reverse=True)
        for one in kept:
            said = list(one.tokens)
            if len(said) < len(sentence) + max_extra:  # it ended by itself
                said.append(config.eos_id)
            tgt_in = torch.tensor([[config.bos_id, *said[:-1]]])
            with torch.no_grad():
                logits = model(torch.tensor([sentence]), tgt_in)[0]
            log_probs = logits.log_softmax(-1)
            want = sum(
                log_probs[t, token].item() for t, token in enumerate(said)
            )
            assert one.log_prob == pytest.approx(want, abs=1e-9)
            want = one.log_prob / penalty(len(said), alpha)
            assert one.score == pytest.approx(want, abs=1e-9)


@given(problems())
def test_a_beam_of_one_without_penalty_walks_the_greedy_path(problem):
    # It may stop on the way, where the end token was the second best, and
    # then it is at least as probable as what greedy search returns.
    model, src, max_extra = problem
    greedily = greedy(model, src, max_extra)
    found = tl.beam_search(
        model, src, beam_size=1, alpha=0.0, max_extra=max_extra
    )
    sentences = real(src, model.config.pad_id)
    for a, [b], sentence in zip(greedily, found, sentences, strict=True):
        assert b.tokens == a.tokens[: len(b.tokens)]
        if len(a.tokens) < len(sentence) + max_extra:  # greedy search ended
            assert b.log_prob >= a.log_prob - 1e-12
        if b.tokens == a.tokens:
            assert b.log_prob == pytest.approx(a.log_prob, abs=1e-9)


def test_it_does_not_stop_at_the_first_end():
    # the first to end is beaten by a later one, with this exponent
    config = tl.TransformerConfig(
        vocab_size=6, n_layers=1, d_model=8, n_heads=2
    )
    later = 0
    for seed in range(30):
        model = build(config, seed)
        src = sentences(config, [3])
        want = naive_beam(model, src[0].tolist(), 4, 1.0, 8)
        [found] = tl.beam_search(model, src, alpha=1.0, max_extra=5, n_best=1)
        agrees(found, want[:1])
        later += len(want[0][0]) > 1
    assert later >= 5  # or the rule would not have been tried


def test_a_longer_output_may_win_after_all(monkeypatch):
    # ending at once has the probability 0.6; going on has 0.4, and then no
    # doubt at all: with alpha = 2 the six tokens win, and until the last of
    # them nothing but the bound speaks for them
    model = build(tl.TransformerConfig.miniature(9))
    step = model.step

    def scripted(ids, cache):
        step(ids, cache)
        logits = torch.full((len(ids), 9), -50.0, dtype=torch.float64)
        at = cache.ids.shape[1]
        if at == 1:
            logits[:, tl.EOS], logits[:, 4] = math.log(0.6), math.log(0.4)
        else:
            logits[:, tl.EOS if at == 6 else 4] = 0.0
        return logits

    monkeypatch.setattr(model, "step", scripted)
    src = torch.tensor([[3, 5, 2]])
    [[best]] = tl.beam_search(model, src, alpha=2.0, max_extra=8, n_best=1)
    assert best.tokens == [4] * 5
    assert best.score == pytest.approx(math.log(0.4) / penalty(6, 2.0))
    [[best]] = tl.beam_search(model, src, alpha=0.0, max_extra=8, n_best=1)
    assert best.tokens == []


def test_without_an_end_the_beam_returns_what_grew_up_to_the_limit():
    config = tl.TransformerConfig.miniature(9)
    model = build(config)
    never_end(model)
    found = tl.beam_search(model, sentences(config, [2, 4]), max_extra=3)
    for kept, limit in zip(found, [5, 7], strict=True):
        assert [len(one.tokens) for one in kept] == [limit] * 4
        assert all(config.eos_id not in one.tokens for one in kept)
        assert kept[0].score == pytest.approx(
            kept[0].log_prob / penalty(limit, 0.6)
        )


def test_the_defaults_are_the_papers():
    import inspect

    parameters = inspect.signature(tl.beam_search).parameters
    defaults = {name: p.default for name, p in parameters.items()}
    assert defaults["beam_size"] == 4
    assert defaults["alpha"] == 0.6
    assert defaults["max_extra"] == 50


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("beam_size", 0),
        ("alpha", -0.1),
        ("alpha", 10.5),
        ("alpha", float("nan")),
        ("alpha", float("inf")),
        ("max_extra", -1),
        ("n_best", 0),
        ("n_best", 5),
    ],
)
def test_an_option_without_sense_is_refused(option, value):
    model = build(tl.TransformerConfig.miniature(9))
    with pytest.raises(ValueError, match=f"{option}={value}"):
        tl.beam_search(model, torch.tensor([[3, 2]]), **{option: value})


@pytest.mark.parametrize("search", [tl.greedy_search, tl.beam_search])
def test_a_model_that_gives_no_numbers_is_refused(search):
    model = build(tl.TransformerConfig.miniature(9))
    with torch.no_grad():
        model.output.weight[4, 0] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        search(model, torch.tensor([[3, 2], [5, 2]]), max_extra=2)


def test_no_sentences_give_no_beams():
    model = build(tl.TransformerConfig.miniature(9))
    assert tl.beam_search(model, torch.empty(0, 3).long()) == []


def test_a_sentence_of_padding_alone_ends_at_once_in_a_beam_too():
    model = build(tl.TransformerConfig.miniature(9))
    [found] = tl.beam_search(model, torch.zeros(1, 3).long(), max_extra=0)
    assert found
    assert all(len(one.tokens) <= 1 for one in found)


def test_the_length_penalty_rewards_length():
    from transformer_lit.decoding import length_penalty

    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(30, 0.0) == 1
    assert -2 / length_penalty(9, 0.6) > -2 / length_penalty(4, 0.6)


# -- The same, faster --------------------------------------------------------


@given(st.data(), SEEDS)
def test_a_roomy_cache_holds_what_the_plain_one_holds(data, seed):
    torch.manual_seed(seed)
    memory = torch.randn(3, 2, 4, 5), torch.randn(3, 2, 4, 6)
    plain, roomy = LayerCache(memory), RoomyCache(memory)
    rows = 3
    for _ in range(data.draw(st.sampled_from([1, 5, 40, 70]))):
        k, v = torch.randn(rows, 2, 1, 5), torch.randn(rows, 2, 1, 6)
        for a, b in zip(plain.append(k, v), roomy.append(k, v), strict=True):
            assert a.equal(b)
        turn = torch.randint(rows, (int(torch.randint(1, 6, ())),))
        if torch.rand(()) < 0.3:
            sentences = torch.randint(len(plain.memory[0]), (2,))
            for cache in (plain, roomy):
                cache.select(sentences, turn)
        else:
            plain.reorder(turn)
            roomy.reorder(turn)
        rows = len(turn)
        for a, b in zip(
            (*plain.past, *plain.memory),
            (*roomy.past, *roomy.memory),
            strict=True,
        ):
            assert a.equal(b)


def test_a_roomy_cache_does_not_copy_its_past_to_append():
    k = torch.randn(2, 1, 1, 4)
    cache = RoomyCache((k, k))
    places = {cache.append(k, k)[0].data_ptr() for _ in range(32)}
    assert len(places) == 1
    for _ in range(6):
        cache.reorder(torch.tensor([1, 0]))
        places.add(cache.past[0].data_ptr())
    assert len(places) == 2


@given(SEEDS, st.integers(1, 5), st.integers(1, 30), st.integers(1, 9))
def test_fast_continuations_are_the_best_of_the_whole_table(seed, A, W, count):
    torch.manual_seed(seed)
    B = int(torch.randint(1, 80, ()))
    log_probs = torch.randn(B, A, dtype=torch.float64)
    logits = 5 * torch.randn(B * A, W, dtype=torch.float64)
    logits[:, 0] = -math.inf  # a token that is never possible
    if W > 1:
        want = best_continuations(log_probs, logits, count)
        found = fast_continuations(log_probs, logits, count)
        torch.testing.assert_close(found[0], want[0], rtol=0, atol=1e-12)
        possible = want[0] > -math.inf  # the others tie
        for a, b in zip(found[1:], want[1:], strict=True):
            assert a[possible].equal(b[possible])


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 200])
def test_log_probs_of_tokens_are_those_of_the_softmax(rows):
    torch.manual_seed(0)
    logits = 50 * torch.randn(rows, 9, dtype=torch.float64)
    ids = torch.randint(9, (rows, 4))
    p = logits.exp() / logits.exp().sum(1, keepdim=True)
    found = log_probs_of(ids, logits)
    torch.testing.assert_close(found, p.log().gather(1, ids))
    half = logits.bfloat16()
    assert log_probs_of(ids, half).dtype == torch.float32
    assert log_probs_of(ids, half).equal(log_probs_of(ids, half.float()))
