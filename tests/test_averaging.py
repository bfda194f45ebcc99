"""Averaged checkpoints: the mean by hand, ties, and which are taken."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import SEEDS, build, configs
from safetensors.torch import load_file

import transformer_lit as tl
from transformer_lit.averaging import (
    average,
    average_checkpoints,
    best_checkpoints,
    last_checkpoints,
)

SMALL = {"vocab_size": 6, "n_layers": 1, "d_model": 8, "n_heads": 2}


def small(seed, **changes):
    return build(tl.TransformerConfig(**(SMALL | changes)), seed).float()


def make_run(folder, steps, **changes):
    """A run's folder with a checkpoint of its own for each step."""
    for step in steps:
        place = folder / "checkpoints" / f"step-{step:08d}"
        tl.save_model(small(step, **changes), place)
    return folder


def write_log(run, entries):
    lines = [json.dumps(entry) + "\n" for entry in entries]
    (run / "log.jsonl").write_text("".join(lines))


def steps_of(folders):
    return [int(folder.name.removeprefix("step-")) for folder in folders]


@given(configs(), st.lists(SEEDS, min_size=1, max_size=4))
def test_the_average_is_the_mean_by_hand(tmp_path_factory, config, seeds):
    folder = tmp_path_factory.mktemp("parts")
    models = [build(config, seed).float() for seed in seeds]
    for i, model in enumerate(models):
        tl.save_model(model, folder / str(i))
    mean = average_checkpoints([folder / str(i) for i in range(len(seeds))])
    every = [dict(model.named_parameters()) for model in models]
    assert mean.keys() == every[0].keys()
    for name, found in mean.items():
        want = sum(one[name].detach().double() for one in every) / len(every)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, want.float(), rtol=0, atol=0)


def test_the_sum_is_kept_in_double_precision(tmp_path):
    # in float32 the small one would be lost beside the large ones
    model = small(0)
    for i, value in enumerate((2.0**25, 1.0, -(2.0**25), 1.0)):
        with torch.no_grad():
            model.output.weight.fill_(value)
        tl.save_model(model, tmp_path / str(i))
    mean = average_checkpoints([tmp_path / str(i) for i in range(4)])
    assert mean["src_embedding.weight"].eq(0.5).all()


@pytest.mark.parametrize("tied", [True, False])
def test_ties_survive_and_nothing_else_is_tied(tmp_path, tied):
    run = make_run(tmp_path, (1, 2), tie_embeddings=tied)
    average(last_checkpoints(run, 2), run / "averaged")
    model = tl.load_model(run / "averaged")
    assert (model.output.weight is model.src_embedding.weight) == tied
    a, b = small(1, tie_embeddings=tied), small(2, tie_embeddings=tied)
    for name in ("src_embedding", "tgt_embedding", "output"):
        want = getattr(a, name).weight + getattr(b, name).weight
        torch.testing.assert_close(getattr(model, name).weight, want / 2)


def test_the_average_is_a_model_folder_of_the_same_size(tmp_path):
    run = make_run(tmp_path, (1, 2))
    for folder in last_checkpoints(run, 2):
        (folder / "tokenizer.model").write_bytes(b"pieces")
        (folder / "vocabulary.json").write_text("{}")
        (folder / "optimizer.safetensors").write_bytes(b"more")
    average(last_checkpoints(run, 2), run / "averaged")
    names = {path.name for path in (run / "averaged").iterdir()}
    assert names == {
        "config.json",
        "weights.safetensors",
        "tokenizer.model",
        "vocabulary.json",
    }
    assert (run / "averaged" / "tokenizer.model").read_bytes() == b"pieces"
    config = json.loads((run / "averaged" / "config.json").read_text())
    assert config["averaged"] == ["step-00000001", "step-00000002"]
    old = load_file(last_checkpoints(run, 1)[0] / "weights.safetensors")
    new = load_file(run / "averaged" / "weights.safetensors")
    assert old.keys() == new.keys()


def test_different_configurations_are_refused(tmp_path):
    tl.save_model(small(0), tmp_path / "a")
    tl.save_model(small(0, d_ff=9), tmp_path / "b")
    with pytest.raises(ValueError, match="another configuration") as caught:
        average_checkpoints([tmp_path / "a", tmp_path / "b"])
    assert "\n" not in str(caught.value)


def test_no_folder_and_no_model_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no checkpoints to average"):
        average_checkpoints([])
    with pytest.raises(ValueError, match="holds no model"):
        average_checkpoints([tmp_path])


def test_the_last_are_the_newest_oldest_first(tmp_path):
    run = make_run(tmp_path, (900, 1000, 10000))
    (run / "checkpoints" / "step-00020000").mkdir()  # never completed
    (run / "checkpoints" / "part-00030000").mkdir()
    foreign = run / "checkpoints" / "step-copy"
    tl.save_model(small(0), foreign)  # somebody put it there
    assert steps_of(last_checkpoints(run, 2)) == [1000, 10000]
    assert steps_of(last_checkpoints(run, 3)) == [900, 1000, 10000]


def test_the_best_have_the_least_validation_loss(tmp_path):
    run = make_run(tmp_path, (100, 200, 300, 400))
    write_log(
        run,
        [
            {"step": 50, "valid": {"nll": 0.1, "bleu": 9.0}},  # not kept
            {"step": 100, "valid": {"nll": 2.0, "bleu": 1.0}},
            {"step": 150, "loss": 0.5},
            {"step": 200, "valid": {"nll": 1.0, "bleu": 1.0}},
            {"step": 300, "valid": {"nll": 3.0, "bleu": 9.0}},
            {"step": 400, "valid": {"nll": float("nan"), "bleu": 0.0}},
        ],
    )
    assert steps_of(best_checkpoints(run, 2)) == [200, 100]
    assert steps_of(best_checkpoints(run, 3)) == [200, 100, 300]
    with pytest.raises(ValueError, match="3 found, 4 asked for"):
        best_checkpoints(run, 4)
    with (run / "log.jsonl").open("a") as log:  # a crash cut this off
        log.write('{"step": 400, "valid": {"nl')
    assert steps_of(best_checkpoints(run, 1)) == [200]


@pytest.mark.parametrize("choose", [last_checkpoints, best_checkpoints])
def test_too_few_are_named(tmp_path, choose):
    run = make_run(tmp_path, (1, 2))
    write_log(run, [{"step": s, "valid": {"nll": 1.0}} for s in (1, 2)])
    with pytest.raises(ValueError, match="2 found, 3 asked for") as caught:
        choose(run, 3)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="n=0"):
        choose(run, 0)


def test_a_run_without_a_log_is_named(tmp_path):
    run = make_run(tmp_path, (1,))
    with pytest.raises(ValueError, match=r"log\.jsonl is missing"):
        best_checkpoints(run, 1)
