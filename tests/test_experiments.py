"""The studies of section 6.2: their engine, their statistics, their parts."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import transformer_lit as tl
from transformer_lit import experiments
from transformer_lit.attention import split_heads
from transformer_lit.cli import main
from transformer_lit.config import TABLE_3, TransformerConfig
from transformer_lit.experiments import (
    BUILDERS,
    GROUPS,
    PATTERNS,
    STUDIES,
    TASKS,
    Contrast,
    Interval,
    Row,
    Study,
    Task,
    all_runs,
    bootstrap,
    cached,
    difference,
    findings,
    gold,
    head_accuracy,
    known_batches,
    measure,
    miniature,
    numbers_task,
    position_accuracy,
    probe,
    progress,
    rate,
    run_file,
    run_study,
    sample,
    scores,
    table3_rows,
    trained,
    verdict,
    without_head,
    word_count,
)
from transformer_lit.numbers import (
    NumberVocabulary,
    english,
    german,
    held_out_sample,
    is_held_out,
    number_batches,
    split_german,
    value,
)
from transformer_lit.records import load_record

TINY = {"n_layers": 1, "d_model": 16, "d_ff": 32, "n_heads": 2}
QUICK = Row(model=TINY, steps=2)
DATA = os.environ.get("TRANSFORMER_LIT_DATA")


def every(number):
    return True


def model_of(**fields):
    torch.manual_seed(0)
    config = TransformerConfig(vocab_size=66, **TINY | fields)
    return tl.Transformer(config).eval()


# -- Training ------------------------------------------------------------------


def test_a_run_is_that_of_fit():
    row = Row(model=TINY, steps=5, warmup=3, factor=1.0)
    batches = list(itertools.islice(known_batches(every, size=4, seed=1), 5))
    task = Task(66, iter(batches), lambda model: {})
    ours = trained(row, task, seed=7)
    torch.manual_seed(7)
    other = tl.Transformer(ours.config)
    for _ in tl.fit(other, iter(batches), steps=5, warmup=3):
        pass
    for one, two in zip(ours.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not ours.training


def test_the_smoothing_of_a_row_is_used():
    batches = list(itertools.islice(known_batches(every, size=4, seed=1), 2))
    weights = [
        trained(
            replace(QUICK, smoothing=smoothing),
            Task(66, iter(batches), lambda model: {}),
            seed=0,
        ).output.weight
        for smoothing in (0.0, 0.2)
    ]
    assert not torch.equal(*weights)


def test_without_a_ramp_the_rate_begins_at_its_peak():
    row = Row(model={}, warmup=10, factor=0.5)
    flat = replace(row, ramp=False)
    for step in range(1, 40):
        assert rate(row, step, 64) == tl.noam_rate(step, 64, 10, 0.5)
        peak = tl.noam_rate(10, 64, 10, 0.5)
        expected = peak if step <= 10 else rate(row, step, 64)
        assert rate(flat, step, 64) == expected


def test_the_stream_is_that_of_section_5_1():
    ours = known_batches(every, size=3, seed=2)
    other = number_batches(NumberVocabulary(), size=3, seed=2)
    for _ in range(3):
        one, two = next(ours), next(other)
        assert torch.equal(one.src, two.src)
        assert torch.equal(one.tgt_out, two.tgt_out)


def test_what_is_not_known_is_not_learned_from():
    vocabulary = NumberVocabulary()
    batches = known_batches(lambda n: word_count(n) <= 3, size=500, seed=0)
    src = next(batches).src
    assert src.shape[1] <= 4  # three words and the end
    words = {vocabulary.tokens[i] for i in src.flatten().tolist()}
    assert "hundred" in words


def test_a_sample_has_different_numbers_of_its_set():
    numbers = sample(is_held_out, 100)
    assert len(set(numbers)) == 100 and all(map(is_held_out, numbers))
    assert numbers == sample(is_held_out, 100)
    assert numbers != sample(is_held_out, 100, seed=1)


def test_exact_match_is_that_of_chapter_10():
    translator = tl.Translator.load("numbers")
    numbers = held_out_sample(30, seed=3)
    found = experiments.right(translator.model, numbers)
    assert found == tl.exact_match(translator, numbers) == 1.0
    damaged = model_of()
    assert experiments.right(damaged, numbers) == 0.0


def test_nll_is_cross_entropy_over_real_tokens():
    model = model_of()
    batches = list(itertools.islice(known_batches(every, size=5, seed=0), 2))
    total, tokens = 0.0, 0
    for batch in batches:
        logits = model(batch.src, batch.tgt_in).flatten(0, 1)
        targets = batch.tgt_out.flatten()
        total += F.cross_entropy(
            logits, targets, ignore_index=0, reduction="sum"
        ).item()
        tokens += int((targets != 0).sum())
    assert experiments.mean_nll(model, batches) == pytest.approx(total / tokens)


def test_a_measurement_repeats():
    assert measure(QUICK, 3, tested=5) == measure(QUICK, 3, tested=5)
    assert measure(QUICK, 3, tested=5) != measure(QUICK, 4, tested=5)


@pytest.mark.parametrize(
    "row", [Row(model={}, build="brick"), Row(model={}, task="poems")]
)
def test_an_unknown_name_is_refused_and_the_known_are_listed(row):
    with pytest.raises(ValueError, match=r"take one of (paper|numbers)"):
        measure(row, 0)


# -- Table 3 -------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE_3)
def test_a_row_is_shrunk_in_proportion(name):
    full = TransformerConfig.table_3(name, vocab_size=100)
    small = TransformerConfig(vocab_size=100, **miniature(name))
    assert small.n_layers * 2 == full.n_layers
    for width in ("d_model", "d_ff"):
        assert getattr(small, width) * 8 == getattr(full, width)
    assert [8 * w for w in small.head_sizes] == list(full.head_sizes)
    for same in ("n_heads", "p_drop", "positions", "tie_embeddings"):
        assert getattr(small, same) == getattr(full, same)


def test_what_the_model_does_not_know_of_a_row_stands_in_the_recipe():
    rows = table3_rows(task="multi30k", steps=10)
    assert set(rows) == set(TABLE_3)
    assert {row.task for row in rows.values()} == {"multi30k"}
    different = {k for k, row in rows.items() if row.smoothing != 0.1}
    assert different == {"D.ls0", "D.ls2"}
    assert [rows[k].smoothing for k in ("D.ls0", "D.ls2")] == [0.0, 0.2]
    assert rows["big"].steps == 30  # 300,000 against 100,000
    assert {row.steps for k, row in rows.items() if k != "big"} == {10}


def test_table_3_compares_every_row_with_the_base():
    contrasts = STUDIES["table3"].contrasts.values()
    rows = {c.row for c in contrasts if c.score == "exact"}
    assert rows == set(TABLE_3) - {"base"}
    assert {c.to_row for c in contrasts} == {"base"}


# -- Studies -------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole(name):
    study = STUDIES[name]
    assert study.question.endswith("?")
    assert study.hypothesis.endswith(".") and study.limits.endswith(".")
    assert study.seeds >= (3 if "multi30k" in name else 5)
    assert study.contrasts
    for contrast in study.contrasts.values():
        assert {contrast.row, contrast.to_row} <= set(study.rows)
        assert contrast.expected in (-1, 0, 1)
    runs = [run_file(row, 0, 1, Path()) for row in study.rows.values()]
    assert len(set(runs)) == len(runs)  # no two rows are the same
    json.dumps(asdict(study))


def test_every_study_has_a_group():
    assert set().union(*GROUPS.values()) == set(STUDIES)


def ready(study):
    """Skip where a study's data or its chapter is not there."""
    if study.rows[next(iter(study.rows))].task == "multi30k" and not DATA:
        pytest.skip("TRANSFORMER_LIT_DATA names no folder with multi30k")


@pytest.mark.parametrize("name", STUDIES)
def test_a_cell_of_a_study_gives_its_scores_and_those_of_the_record(
    name, tmp_path
):
    study = STUDIES[name]
    ready(study)
    found = probe(study, tmp_path)
    row = next(iter(study.rows))
    for contrast in study.contrasts.values():
        if contrast.row == row:
            assert contrast.score in found
        if contrast.to_row == row:
            assert contrast.to_score in found
    assert all(np.isfinite(value) for value in found.values())
    record = load_record(name)
    about = json.loads(json.dumps(asdict(study)))
    assert {k: record[k] for k in about} == about
    assert found["nll"] == pytest.approx(record["probe"]["nll"], rel=1e-3)
    assert {(run["row"], run["seed"]) for run in record["runs"]} == set(
        itertools.product(study.rows, range(study.seeds))
    )


# -- The engine ----------------------------------------------------------------


@pytest.fixture
def study(monkeypatch):
    """A small study, in the list of all."""
    rows = {"base": QUICK, "longer": replace(QUICK, steps=3)}
    found = Study(
        question="Does it run?",
        hypothesis="It does.",
        limits="All else.",
        rows=rows,
        contrasts={"longer": Contrast("longer", "nll", "base", "nll", -1)},
        seeds=2,
    )
    monkeypatch.setitem(STUDIES, "small", found)
    return found


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    first = cached(QUICK, 0, 5, tmp_path)
    monkeypatch.setattr(experiments, "measure", None)
    assert cached(QUICK, 0, 5, tmp_path) == first
    assert [p.suffix for p in tmp_path.iterdir()] == [".json"]


def test_another_run_has_another_name():
    runs = [
        (QUICK, 0, 5),
        (QUICK, 1, 5),
        (QUICK, 0, 6),
        (replace(QUICK, ramp=False), 0, 5),
        (replace(QUICK, model=TINY | {"p_drop": 0.0}), 0, 5),
    ]
    files = {run_file(*run, Path()) for run in runs}
    assert len(files) == len(runs)


def test_a_run_that_was_cut_off_leaves_nothing(tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        cached(QUICK, 0, 5, tmp_path)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys
from pathlib import Path
from transformer_lit.experiments import Row, Study, run_study

rows = {"base": Row(model=%r, steps=2)}
study = Study(
    question="", hypothesis="", limits="", rows=rows, contrasts={}, seeds=10**4
)
run_study(study, Path(sys.argv[1]), tested=5)
"""


def counted_runs(monkeypatch):
    """Every run from now on, as it is made: updates, seed, size of the test."""
    calls = []

    def counted(row, seed, tested):
        calls.append((row.steps, seed, tested))
        return measure(row, seed, tested)

    monkeypatch.setattr(experiments, "measure", counted)
    return calls


def test_what_was_finished_before_a_kill_is_not_run_again(
    study, tmp_path, monkeypatch
):
    whole = run_study(study, tmp_path / "whole", tested=5)
    folder, code = tmp_path / "killed", KILLED % TINY
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    wanted = [run_file(QUICK, seed, 5, folder) for seed in range(study.seeds)]
    try:
        patience = time.monotonic() + 120
        while not all(file.exists() for file in wanted):
            assert child.poll() is None and time.monotonic() < patience
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    calls = counted_runs(monkeypatch)
    again = run_study(study, folder, tested=5)
    # The probe, which has three updates, and the row that the child lacks.
    assert calls == [(3, 0, 20), (3, 0, 5), (3, 1, 5)]
    for one, two in zip(whole["runs"], again["runs"], strict=True):
        assert one["scores"] == pytest.approx(two["scores"], rel=1e-5)
        assert (one["row"], one["seed"]) == (two["row"], two["seed"])


def test_a_run_that_was_lost_is_run_again(study, tmp_path, monkeypatch):
    whole = run_study(study, tmp_path, tested=5)
    run_file(study.rows["longer"], 1, 5, tmp_path).unlink()
    calls = counted_runs(monkeypatch)
    again = run_study(study, tmp_path, tested=5)
    assert calls == [(3, 0, 20), (3, 1, 5)]  # the probe, the lost run
    for one, two in zip(whole["runs"], again["runs"], strict=True):
        assert one["scores"] == two["scores"]


@pytest.mark.parametrize("changed", ["nll", "name"])
def test_runs_of_another_code_are_not_mixed_in(
    study, tmp_path, monkeypatch, changed
):
    run_study(study, tmp_path, tested=5)

    def other(row, seed, tested):
        found = measure(row, seed, tested)
        if changed == "nll":
            return found | {"nll": found["nll"] * 1.01}
        return found | {"another": 0.0}

    monkeypatch.setattr(experiments, "measure", other)
    with pytest.raises(ValueError, match="the code has changed") as error:
        run_study(study, tmp_path, tested=5)
    assert f"delete {tmp_path}" in str(error.value)


def test_the_time_left_is_that_of_the_updates_left(tmp_path, monkeypatch):
    clock = [0.0]

    def slow(row, seed, tested):
        clock[0] += 60 * row.steps  # a minute for an update
        return {"nll": 1.0}

    monkeypatch.setattr(experiments, "measure", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    rows = [replace(QUICK, steps=steps) for steps in (1, 2, 7)]
    lines = progress([(row, 0, 5, tmp_path) for row in rows], processes=1)
    assert list(lines) == [
        "3 runs to do; the first will tell how long it takes",
        "run 1 of 3, about 9 min left",
        "run 2 of 3, about 7 min left",
        "run 3 of 3, about 0 min left",
    ]


def test_processes_give_what_one_gives(tmp_path):
    runs = [(QUICK, seed, 5, tmp_path) for seed in range(2)]
    done = list(all_runs(runs, processes=2))
    assert len(done) == 2 and all(run in runs for run in done)
    for run in runs:
        expected = measure(*run[:3])
        assert run_file(*run).exists()
        assert cached(*run)["scores"] == pytest.approx(expected, rel=1e-5)


def test_a_run_that_fails_ends_the_study(tmp_path):
    wrong = replace(QUICK, model={**TINY, "n_heads": 3})
    for processes in (1, 2):
        with pytest.raises(ValueError, match="n_heads=3"):
            list(all_runs([(wrong, 0, 5, tmp_path)], processes))


def test_the_command_writes_a_record(study, tmp_path, capsys):
    options = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    arguments = ["experiment", "small", "--processes", "1", *options]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    record = json.loads((tmp_path / "small.json").read_text())
    lines = out.splitlines()
    assert lines[0] == "small: Does it run?"
    assert lines[1].startswith("4 runs to do")
    assert [line.split(",")[0] for line in lines[2:6]] == [
        f"run {number} of 4" for number in range(1, 5)
    ]
    assert lines[6:] == findings(record)
    assert len(record["runs"]) == 4
    assert record["rows"]["longer"]["steps"] == 3


def test_the_command_names_the_studies(capsys):
    assert main(["experiment", "alchemy"]) == 2
    err = capsys.readouterr().err
    assert (
        "'alchemy'" in err and "table3" in err and "desk," in f"{err.strip()},"
    )
    assert len(err.splitlines()) == 1


def test_a_group_leaves_out_what_has_no_data(
    study, tmp_path, monkeypatch, capsys
):
    def missing(seed, tested):
        raise ValueError("no such corpus;\nget it")

    gone = replace(study, rows={"base": replace(QUICK, task="missing")})
    monkeypatch.setitem(TASKS, "missing", missing)
    monkeypatch.setitem(STUDIES, "gone", gone)
    monkeypatch.setitem(GROUPS, "both", ["gone", "small"])
    options = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert main(["experiment", "both", "--processes", "1", *options]) == 2
    err = capsys.readouterr().err
    assert err == "gone is left out: no such corpus; get it\n"
    assert [p.name for p in tmp_path.glob("*.json")] == ["small.json"]


# -- Statistics ----------------------------------------------------------------


def test_the_bootstrap_by_enumeration():
    values = [0.3, -1.0, 2.5, 0.9]
    every_draw = itertools.product(values, repeat=4)  # 256, all alike
    means = np.sort([np.mean(draw) for draw in every_draw])
    found = bootstrap(values, draws=100_000)
    assert found.mean == pytest.approx(np.mean(values))
    # A quantile of the draws may be off by some of their equal means.
    for edge, share in ((found.low, 0.025), (found.high, 0.975)):
        near = np.quantile(means, [share - 0.004, share + 0.004])
        assert near[0] <= edge <= near[1]


def test_the_bootstrap_of_two_values_by_enumeration():
    # Means of two draws from {0, 1}: 0, 1/2, 1/2, 1 with a quarter each.
    assert bootstrap([0.0, 1.0], level=0.8)[1:] == (0.0, 1.0)
    assert bootstrap([0.0, 1.0], level=0.4)[1:] == (0.5, 0.5)
    assert bootstrap([2.0, 2.0]) == Interval(2.0, 2.0, 2.0)


def record_of(one, two):
    """A record of two rows with these scores, its runs in disorder."""
    runs = [
        {"row": row, "seed": seed, "scores": {"exact": value}}
        for row, values in (("one", one), ("two", two))
        for seed, value in enumerate(values)
    ]
    random.Random(0).shuffle(runs)
    return {"runs": runs}


def test_differences_are_paired_by_seed():
    record = record_of([0.1, 0.5, 0.9], [0.0, 0.4, 0.8])
    assert scores(record, "one", "exact") == [0.1, 0.5, 0.9]
    found = difference(record, Contrast("one", "exact", "two", "exact", 1))
    # The spread between seeds is gone: each difference is 0.1.
    assert found == pytest.approx((0.1, 0.1, 0.1))
    assert found.sign == 1


def test_a_seed_that_is_missing_is_an_error():
    record = record_of([0.1, 0.5], [0.0])
    with pytest.raises(ValueError):
        difference(record, Contrast("one", "exact", "two", "exact", 1))


@pytest.mark.parametrize(
    ("low", "high", "expected", "words"),
    [
        (0.1, 0.2, 1, "as expected"),
        (-0.2, -0.1, -1, "as expected"),
        (0.1, 0.2, -1, "the opposite"),
        (-0.1, 0.1, 1, "undecided"),
        (-0.1, 0.1, 0, "no difference seen"),
        (0.1, 0.2, 0, "unexpected"),
    ],
)
def test_verdicts(low, high, expected, words):
    assert verdict(Interval(0.0, low, high), expected) == words


# -- The parts of the desk -----------------------------------------------------


def test_without_the_scale_scores_are_plain_dot_products():
    config = TransformerConfig(vocab_size=66, **TINY, d_k=16)
    torch.manual_seed(0)
    model = BUILDERS["unscaled"](config).eval()
    attention = model.encoder.layers[0].self_attention
    x = torch.randn(2, 5, 16)
    q, k, v = (
        split_heads(F.linear(x, w.weight, w.bias), 2)
        for w in (attention.w_q, attention.w_k, attention.w_v)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    expected = attention.w_o(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, x), expected)
    torch.manual_seed(0)
    scaled = tl.Transformer(config)
    for one, two in zip(model.parameters(), scaled.parameters(), strict=True):
        assert torch.equal(one, two)  # the same start, but for the scale


def test_without_positions_an_encoder_reads_a_bag_of_words():
    config = TransformerConfig(vocab_size=66, **TINY)
    ids = torch.tensor([[5, 9, 7, 2]])
    order = torch.tensor([2, 0, 3, 1])
    model = BUILDERS["none"](config).eval()
    memory = model.encode(ids)
    torch.testing.assert_close(model.encode(ids[:, order]), memory[:, order])
    told = tl.Transformer(config).eval()
    assert not torch.allclose(
        told.encode(ids[:, order]), told.encode(ids)[:, order]
    )


def test_gold_links_every_word_to_its_piece():
    for number in [*range(200), *held_out_sample(300, seed=0)]:
        words, pieces = english(number).split(), split_german(german(number))
        links = gold(number)
        assert sorted(s for _, s in links) == list(range(len(words)))
        unlinked = set(range(len(pieces))) - {t for t, _ in links}
        assert all(pieces[t] == "und" for t in unlinked)


def test_gold_by_hand():
    # two hundred twenty two thousand two
    # zwei hundert zwei und zwanzig tausend zwei
    assert gold(222_002) == [(0, 0), (1, 1), (2, 3), (4, 2), (5, 4), (6, 5)]


def test_head_accuracy_is_that_of_loops():
    model, numbers = model_of(n_layers=2), [21, 345_678, 7]
    vocabulary = NumberVocabulary()
    hits, total = Counter(), 0
    for number in numbers:
        src, tgt = experiments.encode_pair(vocabulary, number)
        maps = []
        src_ids = torch.tensor([src])
        memory = model.encode(src_ids)
        tgt_in = torch.tensor([[tl.BOS, *tgt[:-1]]])
        model.decode(tgt_in, memory, src=src_ids, maps=maps)
        for t, s in gold(number):
            total += 1
            for layer in range(2):
                for head in range(2):
                    row = maps[2 * layer + 1][0, head, t].tolist()
                    hits[layer, head] += row.index(max(row)) == s
    found = head_accuracy(model, numbers)
    for place, count in hits.items():
        assert found[place].item() == pytest.approx(count / total)


def test_position_guesses_the_most_frequent_place():
    # Of 21 and 22 both links cross; 100 and 200 are read in order.
    assert position_accuracy([21, 100], [22, 200]) == 1.0
    # No number of that shape was seen.
    assert position_accuracy([100], [22]) == 0.0


def test_a_head_taken_away_is_columns_of_w_o_taken_away():
    model = model_of(n_layers=2)
    batch = next(known_batches(every, size=3, seed=0))
    before = model(batch.src, batch.tgt_in)
    with without_head(model, layer=1, head=0):
        found = model(batch.src, batch.tgt_in)
    assert torch.equal(model(batch.src, batch.tgt_in), before)
    with torch.no_grad():
        model.decoder.layers[1].cross_attention.w_o.weight[:, :8] = 0.0
    torch.testing.assert_close(found, model(batch.src, batch.tgt_in))
    assert not torch.allclose(found, before)


def test_patterns_by_their_words():
    for number in sample(every, 3000):
        pieces = split_german(german(number))
        thousands, _, rest = english(number).rpartition("thousand")
        words = f"{thousands}|{rest}"
        fits = {
            "seventy three": "seventy three" in words,
            "seventy thousand": "seventy" in thousands,
            "und twice": pieces.count("und") == 2,
        }
        for name, belongs in PATTERNS.items():
            assert belongs(number) == fits[name], (name, number)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_held_out_is_not_learned_from(name):
    vocabulary, seen = NumberVocabulary(), Counter()
    for batch in itertools.islice(TASKS[f"no {name}"](0, 5).batches, 20):
        for ids in batch.src.tolist():
            number = value(vocabulary.decode(ids))
            seen.update(k for k, fits in PATTERNS.items() if fits(number))
    assert seen[name] == 0
    assert all(seen[other] for other in set(PATTERNS) - {name})


def test_the_length_study_learns_short_numbers_only():
    task = TASKS["length"](0, 5)
    for batch in itertools.islice(task.batches, 20):
        assert batch.src.shape[1] <= 7  # six words and the end
    found = task.score(model_of())
    assert set(found) == {
        "up to six",
        "longer",
        "seven",
        "eight",
        "nine",
        "nll",
    }


def test_numbers_are_scored_on_what_was_held_out():
    task = numbers_task(0, 5)
    assert task.vocab_size == len(NumberVocabulary())
    assert set(task.score(model_of())) == {"exact", "nll"}
