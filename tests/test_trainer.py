"""Training as software: one update is one Adam step on the token mean."""

import copy
import itertools
import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import DOUBLE, build, close
from small_runs import files, small_corpus, small_run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import transformer_lit as tl
from transformer_lit.batches import Batch, make_batch
from transformer_lit.config import OURS, TABLE_3
from transformer_lit.corpus import CorpusConfig, EncodedSplit
from transformer_lit.numbers import NumberVocabulary, german, number_batches
from transformer_lit.trainer import (
    Progress,
    Run,
    RunConfig,
    TrainConfig,
    Trainer,
    accumulate,
    one_update,
    peak_rate,
    read_log,
    update_flops,
    updates,
    validate,
    validation_nll,
)

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
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


# -- One gradient, however it is cut -----------------------------------------


def gradient(model, parts, tokens, **options):
    """The gradient of an update in parts, as one vector."""
    model.train().zero_grad()
    accumulate(model, parts, tokens=tokens, pad_id=tl.PAD, **options)
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def rows(batch: Batch, chosen: list[int], number: int = 0) -> Batch:
    """Some of a batch's pairs."""
    ids = batch.src, batch.tgt_in, batch.tgt_out
    return Batch(*(one[chosen] for one in ids), number)


CUTS = [
    [[0, 1, 2]],
    [[0], [1, 2]],
    [[2, 0], [1]],
    [[1], [0, 2]],
    [[0], [1], [2]],
    [[2], [1], [0]],
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_an_update_cut_in_every_way_gives_one_gradient(cut):
    model, batch = build(CONFIG), ragged(0)
    tokens = int((batch.tgt_out != tl.PAD).sum())
    whole = gradient(model, [batch], tokens)
    parts = [rows(batch, chosen) for chosen in cut]
    close(gradient(model, parts, tokens), whole, 1e-12)


def test_masks_depend_on_seed_update_and_batch_alone():
    model = build(replace(CONFIG, p_drop=0.3))
    one, two = (rows(ragged(0), [i], number=i) for i in (0, 1))
    both = gradient(model, [one, two], 10, seed=(5, 7))
    torch.manual_seed(99)
    alone = [gradient(model, [part], 10, seed=(5, 7)) for part in (two, one)]
    close(alone[0] + alone[1], both, 1e-12)
    for seed in ((5, 8), (6, 7)):
        other = gradient(model, [one, two], 10, seed=seed)
        assert float((other - both).abs().max()) > 1e-4
    # and two equal batches of one update draw two masks
    same = rows(ragged(0), [0], number=1)
    first = gradient(model, [one], 10, seed=(5, 7))
    assert not torch.equal(gradient(model, [same], 10, seed=(5, 7)), first)


def test_the_sums_are_those_of_all_parts():
    model, batch = build(CONFIG), ragged(0)
    options = {"tokens": 3, "pad_id": tl.PAD}
    whole = accumulate(model, [batch], **options)
    parts = [rows(batch, [i]) for i in range(3)]
    close(accumulate(model, parts, **options), whole, 1e-12)
    assert whole[2] == (batch.tgt_out != tl.PAD).sum()


# -- A run as a file ---------------------------------------------------------

FILE = """
[corpus]
name = "numbers"

[model]
preset = "miniature"
p_drop = 0.2

[training]
steps = 10
factor = 2
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def test_a_file_becomes_a_run(file):
    run = RunConfig.load(file)
    assert run.corpus.name == "numbers"
    assert run.training == TrainConfig(steps=10, factor=2)
    want = tl.TransformerConfig.miniature(66)
    assert run.transformer(66) == replace(want, p_drop=0.2)


@pytest.mark.parametrize("preset", [*OURS, *TABLE_3])
def test_every_preset_has_its_name(file, preset):
    file.write_text(FILE.replace("miniature", preset))
    ours = {"tiny": tl.TransformerConfig.tiny(66)}
    ours["miniature"] = tl.TransformerConfig.miniature(66)
    want = ours.get(preset) or tl.TransformerConfig.table_3(preset, 66)
    assert RunConfig.load(file).transformer(66) == replace(want, p_drop=0.2)


def test_without_a_preset_the_model_is_the_base():
    run = RunConfig(
        corpus=CorpusConfig(name="numbers"),
        model={},
        training=TrainConfig(),
    )
    assert run.transformer(9) == tl.TransformerConfig.base(9)


WRONG = [
    ("name = ", "title = ", r"\[corpus\].*'title'.*vocab_size"),
    ('name = "numbers"', "", r"\[corpus\].*'name'"),
    ("p_drop = 0.2", "p_dorp = 0.2", r"\[model\].*'p_dorp'.*p_drop"),
    ("p_drop = 0.2", "p_drop = 1.0", r"\[model\].*p_drop=1.0"),
    ("p_drop = 0.2", "n_heads = 5", r"\[model\].*n_heads=5"),
    ("p_drop = 0.2", "vocab_size = 5", r"\[model\].*'vocab_size'.*corpus"),
    ("p_drop = 0.2", "pre_norm = 1", r"\[model\] pre_norm=1 must be bool"),
    ('"miniature"', '"small"', r"\[model\] preset='small'.*miniature"),
    ("steps = 10", "stesp = 10", r"\[training\].*'stesp'.*steps"),
    ("steps = 10", "steps = 0", r"\[training\] steps=0 .*at least 1"),
    ("steps = 10", "steps = 1.5", r"\[training\] steps=1.5 must be int"),
    ("steps = 10", 'steps = "10"', r"\[training\] steps='10' must be int"),
    ("steps = 10", "steps = true", r"\[training\] steps=True must be int"),
    ("factor = 2", "factor = -1", r"\[training\] factor=-1"),
    ("factor = 2", "seed = -1", r"\[training\] seed=-1"),
    ("factor = 2", 'compile = "no"', r"\[training\] compile='no'.*bool"),
    ("factor = 2", "smoothing = 1.0", r"\[training\] smoothing=1.0"),
    ("factor = 2", 'precision = "f8"', r"\[training\].*'f8'.*fp32, bf16"),
    ("factor = 2", "cooldown = 11", r"\[training\] cooldown=11 .*steps=10"),
    ("factor = 2", "save_every = 50", r"\[training\] save_every=50.*=100"),
    ("[training]", "[trainings]", r"\[corpus\], \[model\] and \[training\]"),
    ("[corpus]", "corpus = ", r"cannot read .*run.toml"),
    ("[corpus]\n", "", r"must have the tables"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    WRONG,
    ids=[
        wrong.strip("[]\n") or f"no {right[:9]!r}" for right, wrong, _ in WRONG
    ],
)
def test_what_cannot_be_is_told_in_one_line(file, right, wrong, message):
    assert right in FILE
    file.write_text(FILE.replace(right, wrong))
    with pytest.raises(ValueError, match=message) as caught:
        RunConfig.load(file)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_none_is_told(file):
    file.write_text("corpus = 1\nmodel = 2\ntraining = 3\n")
    with pytest.raises(ValueError, match=r"\[corpus\] must be a table"):
        RunConfig.load(file)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none.toml"):
        RunConfig.load(tmp_path / "none.toml")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=str)
def test_the_files_that_come_along_can_be_read(path):
    assert RunConfig.load(path).training.steps > 0


# -- The options of a run ----------------------------------------------------


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    return small_corpus(tmp_path / "text")


def losses(corpus, folder, p_drop=0.1, **recipe):
    """The losses of eight updates, one by one, and the weights after them."""
    standard = {"steps": 8, "log_every": 1, "valid_every": 8}
    run = small_run(corpus, **standard | recipe)
    run = replace(run, model={**run.model, "p_drop": p_drop})
    model = Trainer(run, folder).fit().model
    entries = read_log(folder / "log.jsonl")
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return [e["loss"] for e in entries if "loss" in e], weights


def test_recomputing_changes_no_bit(corpus, tmp_path):
    plain, weights = losses(corpus, tmp_path / "a")
    again, others = losses(corpus, tmp_path / "b", recompute=True)
    assert again == plain
    assert torch.equal(weights, others)


def test_recomputing_runs_each_layer_twice(corpus):
    run = Run(small_run(corpus, recompute=True))
    calls = []
    feed_forward = run.model.encoder.layers[0].feed_forward
    feed_forward.register_forward_hook(lambda *_: calls.append(1))
    one_update(run, next(updates(run)))
    rectangles = next(updates(run))
    assert len(calls) == 2 * len(rectangles)


def test_accumulation_changes_nothing(corpus, tmp_path):
    # The same updates, each pair by itself: in double precision, since Adam
    # divides the rounding of a bias of the keys by itself.
    torch.set_default_dtype(DOUBLE)
    try:
        runs = [Run(small_run(corpus)) for _ in range(2)]
    finally:
        torch.set_default_dtype(torch.float32)
    for run in runs:
        for module in run.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    todo = [*itertools.islice(updates(runs[0]), 5)]
    assert max(map(len, todo)) == 2
    for rectangles in todo:
        one_update(runs[0], rectangles)
        pairs = [pair[None] for pair in np.concatenate(rectangles)]
        one_update(runs[1], pairs)
    for p, q in zip(*(run.model.parameters() for run in runs), strict=True):
        close(p.detach(), q.detach(), 1e-9)


def test_a_run_cools_down_and_the_log_says_so(corpus, tmp_path):
    recipe = {"steps": 8, "log_every": 1, "valid_every": 8, "cooldown": 4}
    run = small_run(corpus, **recipe)
    trained = Trainer(run, tmp_path).fit()
    rates = [e["rate"] for e in read_log(tmp_path / "log.jsonl") if "rate" in e]
    shares = [1, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    want = [s * tl.noam_rate(i, 16, 10) for i, s in enumerate(shares, start=1)]
    assert rates == pytest.approx(want, rel=1e-12)
    assert trained.schedule.get_last_lr() == [0]


def test_bf16_trains_almost_the_same(corpus, tmp_path):
    plain, _ = losses(corpus, tmp_path / "a")
    half, _ = losses(corpus, tmp_path / "b", precision="bf16")
    assert half != plain
    for one, other in zip(half, plain, strict=True):
        assert one == pytest.approx(other, rel=2**-6)


def test_compiling_changes_almost_nothing(corpus, tmp_path, monkeypatch):
    # The compiler's own backend takes minutes; this one traces the model and
    # its backward pass in the same way, and leaves out the C++.
    plain, _ = losses(corpus, tmp_path / "a", p_drop=0.0, steps=4)
    compile_, asked = torch.nn.Module.compile, []

    def quick(module, **options):
        asked.append(options)
        compile_(module, **options, backend="aot_eager")

    monkeypatch.setattr(torch.nn.Module, "compile", quick)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    found, _ = losses(corpus, tmp_path / "b", p_drop=0.0, steps=4, compile=True)
    assert asked == [{"dynamic": True}]
    for one, other in zip(found, plain, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_without_a_compiler_a_line_says_so(corpus, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    run = Run(small_run(corpus, compile=True))
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "no C++ compiler" in message
    one_update(run, next(updates(run)))  # and it trains


def test_a_gradient_that_is_not_finite_changes_nothing(corpus):
    run = Run(small_run(corpus))
    todo = updates(run)
    one_update(run, next(todo))
    with torch.no_grad():
        run.model.src_embedding.weight[tl.EOS, 0] = torch.inf
    before = [p.clone() for p in run.model.parameters()]
    with pytest.raises(FloatingPointError, match="update 2: "):
        one_update(run, next(todo))
    assert run.step == run.schedule.last_epoch == 1
    for was, now in zip(before, run.model.parameters(), strict=True):
        assert torch.equal(was, now)


def test_tensorboard_is_asked_for_by_its_extra(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run = small_run(corpus, tensorboard=True)
    with pytest.raises(ValueError, match=r"transformer-lit\[tensorboard\]"):
        Trainer(run, tmp_path / "run")
    Trainer(small_run(corpus), tmp_path / "run")  # else it is not needed


def test_tensorboard_gets_what_the_log_gets(corpus, tmp_path, monkeypatch):
    seen = []

    class Writer:
        def __init__(self, folder):
            assert folder == tmp_path / "run" / "tensorboard"

        def add_scalar(self, name, value, step):
            seen.append((name, value, step))

        def flush(self):
            pass

    fake = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    losses(corpus, tmp_path / "run", tensorboard=True)
    for entry in read_log(tmp_path / "run" / "log.jsonl"):
        if "valid" in entry:
            want = "valid/bleu", entry["valid"]["bleu"], entry["step"]
        else:
            want = "train/nll", entry["nll"], entry["step"]
        assert want in seen
    assert all(isinstance(value, int | float) for _, value, _ in seen)


# -- The log -----------------------------------------------------------------


def test_the_operations_are_those_that_torch_counts(corpus):
    run = Run(small_run(corpus))
    rectangles = next(updates(run))
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),
    ):
        one_update(run, rectangles)
    assert update_flops(run, rectangles) == counter.get_total_flops()


def test_the_log_says_how_much_of_the_machine_is_used(corpus, tmp_path):
    folder = tmp_path / "run"
    losses(corpus, folder)
    peak = peak_rate(torch.device("cpu"), "fp32")
    for entry in read_log(folder / "log.jsonl"):
        if "valid" not in entry:
            assert 0 < entry["mfu"] < 1
            share = entry["flops_per_second"] / peak
            assert entry["mfu"] == pytest.approx(share, abs=1e-4)


def test_a_validation_is_that_of_its_sentences_one_by_one(corpus):
    run = Run(small_run(corpus))
    pairs = EncodedSplit(run.data, "valid")
    nll = tokens = 0
    for i in range(len(pairs)):
        batch = make_batch([pairs[i]], pad_id=tl.PAD, bos_id=tl.BOS)
        with torch.no_grad():
            logits = run.model.eval()(batch.src, batch.tgt_in)[0]
        log_probs = logits.log_softmax(-1)
        nll -= float(log_probs.gather(1, batch.tgt_out.T).sum())
        tokens += batch.tgt_out.numel()
    assert validation_nll(run, pairs) == pytest.approx(nll / tokens, rel=1e-5)
    run.model.train()  # dropout must not matter
    assert validation_nll(run, pairs) == pytest.approx(nll / tokens, rel=1e-5)


def test_a_validation_scores_the_models_own_translations(corpus):
    run = Run(small_run(corpus))
    with torch.no_grad():  # else an untrained model says always the same
        for parameter in run.model.parameters():
            parameter.add_(torch.randn_like(parameter))
    pairs, found = EncodedSplit(run.data, "valid"), []
    for i in range(len(pairs)):
        src = torch.tensor([pairs[i][0]])
        [[best]] = tl.greedy_search(run.model.eval(), src)
        found.append(run.vocabulary.text(best.tokens))
    assert len(set(found)) > 1
    (run.data / "valid.tgt").write_text("".join(f"{x}\n" for x in found))
    assert validate(run)["exact"] == 1.0
    wrong = [found[0], *("nothing like it" for _ in found[1:])]
    (run.data / "valid.tgt").write_text("".join(f"{x}\n" for x in wrong))
    assert validate(run)["exact"] == pytest.approx(1 / len(found))


def test_a_run_without_patience_left_is_over(corpus, tmp_path):
    # Without learning, no validation is better than the first. The last
    # state is saved though no checkpoint is due, and nothing more is done.
    run = small_run(
        corpus, factor=0.0, valid_every=2, save_every=50, patience=2, steps=99
    )
    assert Trainer(run, tmp_path / "run").fit().step == 6
    before = files(tmp_path / "run")
    assert "checkpoints/step-00000006/state.json" in before
    assert Trainer(run, tmp_path / "run").fit().step == 6
    assert files(tmp_path / "run") == before


def test_nothing_is_written_to_standard_error(corpus, tmp_path, capsys):
    losses(corpus, tmp_path / "run")
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out == ""
