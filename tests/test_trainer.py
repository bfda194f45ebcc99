"""Training as software: one update is one Adam step on the token mean."""

import copy
import itertools

import pytest
import torch
from reference import DOUBLE, build, close

import transformer_lit as tl
from transformer_lit.batches import Batch, make_batch
from transformer_lit.numbers import NumberVocabulary, german, number_batches
from transformer_lit.trainer import Progress

CONFIG = tl.TransformerConfig(
    vocab_size=9, n_layers=1, d_model=8, d_ff=6, n_heads=2, p_drop=0.0
)


def ragged(seed: int) -> Batch:
    """Sentences of very different lengths: much padding on both sides."""
    torch.manual_seed(seed)
    pairs = [
        (torch.randint(3, 9, (s,)).tolist(), torch.randint(3, 9, (t,)).tolist())
        for s, t in [(1, 8), (7, 1), (3, 2)]
    ]
    pairs = [([*src, tl.EOS], [*tgt, tl.EOS]) for src, tgt in pairs]
    return make_batch(pairs, pad_id=tl.PAD, bos_id=tl.BOS)


def by_hand(model: tl.Transformer, batches: list[Batch]) -> list[list[float]]:
    """The same training with torch's own loss, one sentence at a time."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    W = model.config.vocab_size
    curve = []
    for step, batch in enumerate(batches, start=1):
        rate = 8**-0.5 * min(step**-0.5, step * 3**-1.5)
        adam.param_groups[0]["lr"] = rate
        loss = nll = torch.zeros((), dtype=DOUBLE)
        tokens = 0
        for src, tgt_in, tgt_out in zip(
            batch.src, batch.tgt_in, batch.tgt_out, strict=True
        ):
            real = tgt_out != tl.PAD
            logits = model(src[src != tl.PAD][None], tgt_in[real][None])[0]
            log_probs = logits.log_softmax(-1)
            here = log_probs.gather(1, tgt_out[real][:, None])[:, 0]
            others = log_probs.sum(1) - here
            loss = loss - (0.8 * here + 0.2 / (W - 1) * others).sum()
            nll = nll - here.sum()
            tokens += int(real.sum())
        adam.zero_grad()
        (loss / tokens).backward()
        adam.step()
        curve.append([rate, loss.item() / tokens, nll.item() / tokens])
    return curve


def test_training_equals_the_same_by_hand():
    model = build(CONFIG)
    other = copy.deepcopy(model)
    batches = [ragged(seed) for seed in range(4)]
    told = list(tl.fit(model, iter(batches), steps=4, warmup=3, smoothing=0.2))
    want = by_hand(other, batches)
    assert [progress.step for progress in told] == [1, 2, 3, 4]
    for progress, (rate, loss, nll) in zip(told, want, strict=True):
        assert progress.rate == pytest.approx(rate, rel=1e-12)
        assert progress.loss == pytest.approx(loss, rel=1e-9)
        assert progress.nll == pytest.approx(nll, rel=1e-9)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        close(a.detach(), b.detach(), 1e-8)


def test_more_padding_trains_the_same():
    model = build(CONFIG)
    other = copy.deepcopy(model)
    batch = ragged(0)
    wide = Batch(
        *(
            torch.nn.functional.pad(ids, (0, 5), value=tl.PAD)
            for ids in (batch.src, batch.tgt_in, batch.tgt_out)
        )
    )
    [a] = tl.fit(model, iter([batch]), steps=1, warmup=3)
    [b] = tl.fit(other, iter([wide]), steps=1, warmup=3)
    assert a.loss == pytest.approx(b.loss, rel=1e-12)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        close(p.detach(), q.detach(), 1e-8)


def test_an_update_happens_when_it_is_asked_for():
    # fit is lazy: whoever stops early has trained that much and no more
    model = build(CONFIG)
    before = copy.deepcopy(model.state_dict())
    taken = []

    def batches():
        for seed in itertools.count():
            taken.append(seed)
            yield ragged(seed)

    training = tl.fit(model, batches(), steps=100, warmup=3)
    assert not taken
    next(training)
    assert taken == [0]
    assert any(
        not weight.equal(before[name])
        for name, weight in model.state_dict().items()
    )


def test_training_drops_and_the_mode_stays():
    config = tl.TransformerConfig(
        vocab_size=9, n_layers=1, d_model=8, n_heads=2, p_drop=0.3
    )
    model = tl.Transformer(config).eval()
    seen = []
    model.dropout.register_forward_hook(
        lambda module, inputs, output: seen.append((output == 0).any().item())
    )
    list(tl.fit(model, iter([ragged(0)]), steps=1, warmup=3))
    assert model.training
    assert any(seen)


def test_a_test_between_two_updates_does_not_switch_dropout_off():
    model = build(CONFIG)
    for progress in tl.fit(model, iter([ragged(0)] * 2), steps=2, warmup=3):
        assert model.training, progress
        model.eval()


def test_batches_that_end_too_early_are_named():
    run = tl.fit(build(CONFIG), iter([ragged(0)]), steps=2, warmup=3)
    assert next(run).step == 1
    with pytest.raises(ValueError, match="before update 2 of 2"):
        next(run)


def test_the_default_smoothing_is_the_papers_tenth():
    a, b, c = (build(CONFIG) for _ in range(3))
    [default] = tl.fit(a, iter([ragged(0)]), steps=1, warmup=3)
    [tenth] = tl.fit(b, iter([ragged(0)]), steps=1, warmup=3, smoothing=0.1)
    [none] = tl.fit(c, iter([ragged(0)]), steps=1, warmup=3, smoothing=0.0)
    assert default == tenth
    assert none.loss == pytest.approx(none.nll)
    assert none.nll == pytest.approx(default.nll)


def test_it_learns_a_few_numbers_by_heart():
    # One batch over and over, until greedy search says it back.
    torch.manual_seed(1)
    vocabulary = NumberVocabulary()
    model = tl.Transformer(tl.TransformerConfig.miniature(len(vocabulary)))
    batch = next(number_batches(vocabulary, size=8, seed=0))
    told = list(tl.fit(model, itertools.repeat(batch), steps=150, warmup=60))
    assert told[-1].nll < 0.5 * told[0].nll
    assert told[-1].loss < told[0].loss
    model.eval()
    found = tl.greedy_search(model, batch.src)
    right = sum(
        best.tokens == [i for i in tgt if i not in (tl.PAD, tl.EOS)]
        for [best], tgt in zip(found, batch.tgt_out.tolist(), strict=True)
    )
    assert right == 8


def test_progress_is_a_frozen_record():
    progress = Progress(step=1, rate=0.1, loss=2.0, nll=1.0)
    with pytest.raises(AttributeError):
        progress.step = 2


class Parrot:
    """A translator that is right on even numbers only."""

    def translate(self, texts):
        from transformer_lit.numbers import read_number

        numbers = [read_number(text) for text in texts]
        return [german(n) if n % 2 == 0 else "null" for n in numbers]


@pytest.mark.parametrize(
    ("numbers", "share"),
    [([2, 4], 1.0), ([1, 3], 0.0), ([1, 2, 3, 4], 0.5), ([1, 2, 3], 1 / 3)],
)
def test_exact_match_is_the_share_of_right_words(numbers, share):
    assert tl.exact_match(Parrot(), numbers) == pytest.approx(share)
