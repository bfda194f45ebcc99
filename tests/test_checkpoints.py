"""Checkpoints: damage is found, other recipes are refused, nothing is lost."""

import json
import math
import re

import pytest
import torch
from small_runs import files, small_corpus, small_run

import transformer_lit as tl
from transformer_lit.checkpoints import (
    checkpoint_folders,
    newest_checkpoint,
    read_state,
)
from transformer_lit.tokenizer import load_vocabulary
from transformer_lit.trainer import Trainer, read_log


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    return small_corpus(tmp_path / "text")


@pytest.fixture
def run(corpus):
    return small_run(corpus, steps=8, valid_every=4)


@pytest.fixture
def folder(run, tmp_path):
    Trainer(run, tmp_path / "run").fit()
    return tmp_path / "run"


NAMES = [
    "config.json",
    "optimizer.safetensors",
    "state.json",
    "tokenizer.model",
    "vocabulary.json",
    "weights.safetensors",
]


def test_a_checkpoint_is_a_models_folder_without_pickle(folder):
    assert [f.name for f in checkpoint_folders(folder)] == [
        "step-00000004",
        "step-00000006",
        "step-00000008",
    ]
    newest, state = newest_checkpoint(folder)
    assert state["step"] == 8
    assert sorted(path.name for path in newest.iterdir()) == NAMES
    model, vocabulary = tl.load_model(newest), load_vocabulary(newest)
    assert model.config.vocab_size == len(vocabulary)
    for name in files(folder):
        content = (folder / name).read_bytes()
        assert not content.startswith((b"\x80", b"PK"))  # pickle, zip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["a flipped bit", "cut off", "missing"])
def test_damage_is_found_and_the_one_before_is_taken(
    run, folder, capsys, name, damage
):
    whole = files(folder)
    file = folder / "checkpoints" / "step-00000008" / name
    content = bytearray(file.read_bytes())
    if damage == "a flipped bit":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "cut off":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    newest, _ = newest_checkpoint(folder)
    assert newest.name == "step-00000006"
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and name in message
    Trainer(run, folder).fit()  # and goes on from there, to the same end
    again = files(folder)
    for path in whole:
        if not path.endswith("log.jsonl"):
            assert again[path] == whole[path], path


def test_a_checkpoint_has_one_of_two_forms(corpus):
    with pytest.raises(ValueError, match="checkpoint='half' must be "):
        small_run(corpus, checkpoint="half")


def test_every_flipped_bit_of_a_state_is_found(folder):
    file = folder / "checkpoints" / "step-00000008" / "state.json"
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        try:
            state = read_state(file.parent)
        except ValueError as error:
            assert "damaged" in str(error)
        else:  # white space may change, and nothing else
            assert json.loads(content)["step"] == state["step"]
            assert bytes(changed).split() == content.split() or (
                json.loads(changed) == json.loads(content)
            )


def test_a_folder_of_only_damaged_checkpoints_starts_anew(run, folder, capsys):
    for one in checkpoint_folders(folder):
        (one / "weights.safetensors").write_bytes(b"")
    assert newest_checkpoint(folder) is None
    assert capsys.readouterr().err.count("\n") == 3


def test_another_recipe_does_not_go_on_with_a_run(corpus, folder):
    whole = files(folder)
    for changes in (
        {"warmup": 11},
        {"seed": 1},
        {"tokens": 100},
        {"positions": 50},  # another cut makes other updates of an epoch
    ):
        other = small_run(corpus, steps=8, valid_every=4, **changes)
        [(name, value)] = changes.items()
        with pytest.raises(ValueError, match=f"training.{name}=.*not {value}"):
            Trainer(other, folder).fit()
    assert files(folder) == whole


def test_more_updates_go_on_and_equal_a_longer_run(corpus, folder, tmp_path):
    longer = small_run(corpus, steps=14, valid_every=4)
    Trainer(longer, folder).fit()
    Trainer(longer, tmp_path / "at once").fit()
    name = "checkpoints/step-00000014/weights.safetensors"
    assert files(folder)[name] == files(tmp_path / "at once")[name]


def test_a_finished_run_is_left_as_it_is(run, folder):
    whole = files(folder)
    Trainer(run, folder).fit()
    assert files(folder) == whole


def test_a_gradient_that_is_not_finite_stops_the_run(run, folder, corpus):
    longer = small_run(corpus, steps=14, valid_every=4)
    trainer = Trainer(longer, folder)
    step = trainer.run.adam.step

    def poison():
        step()
        if trainer.run.schedule.last_epoch == 9:
            with torch.no_grad():
                trainer.run.model.src_embedding.weight[5] = math.nan

    trainer.run.adam.step = poison
    with pytest.raises(FloatingPointError) as caught:
        trainer.fit()
    message = str(caught.value)
    assert re.search(r"update 11: .* \d+ pairs are \[\d+", message)
    assert message.endswith("step-00000010")
    assert "\n" not in message


def test_the_log_tells_what_a_run_did(folder, run):
    entries = read_log(folder / "log.jsonl")
    training = [entry for entry in entries if "valid" not in entry]
    judged = [entry for entry in entries if "valid" in entry]
    assert [entry["step"] for entry in training] == [2, 4, 6, 8]
    assert [entry["step"] for entry in judged] == [4, 8]
    for entry in training:
        assert entry["perplexity"] == pytest.approx(math.exp(entry["nll"]))
        assert entry["nll"] != entry["loss"]
        rate = tl.noam_rate(entry["step"], 16, run.training.warmup)
        assert entry["rate"] == pytest.approx(rate)
        for name in ("gradient_norm", "tokens_per_second", "memory_mb"):
            assert entry[name] > 0
    assert [entry["seconds_left"] for entry in training][-1] == 0
    for entry in judged:
        found = entry["valid"]
        assert found["perplexity"] == pytest.approx(math.exp(found["nll"]))
        assert found["signature"].startswith("nrefs:1|case:mixed")


def test_patience_stops_a_run_that_gets_no_better(corpus, tmp_path):
    # Without learning, no validation is better than the first.
    run = small_run(corpus, factor=0.0, valid_every=2, patience=3, steps=100)
    assert Trainer(run, tmp_path / "run").fit().step == 8


def test_a_log_line_that_was_cut_off_is_left_out(folder):
    file = folder / "log.jsonl"
    entries = read_log(file)
    with file.open("a") as log:
        log.write('{"step": 9, "lo')
    assert read_log(file) == entries


def test_what_a_kill_at_the_very_end_left_of_the_oldest_goes(run, folder):
    whole = files(folder)
    half = folder / "checkpoints" / "step-00000002"
    half.mkdir()
    (half / "config.json").write_text("{}")
    Trainer(run, folder).fit()
    assert files(folder) == whole
