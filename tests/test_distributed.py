"""The number of processes changes nothing but the time."""

import pytest
from safetensors.torch import load_file
from small_runs import small_corpus, small_run, train

from transformer_lit.batches import plan_epoch
from transformer_lit.corpus import EncodedSplit, prepare

# In double precision, so that rounding stays below Adam's eps: Adam divides a
# gradient by its size, and the gradient of a bias of the keys is nothing but
# rounding.
DOUBLE = {"double": True}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    return small_corpus(tmp_path / "text")


def weights(folder, step=20):
    """The weights after a step."""
    name = f"checkpoints/step-{step:08d}/weights.safetensors"
    return load_file(folder / name)


def largest_difference(one, other):
    assert one.keys() == other.keys()
    return max(float((one[k] - other[k]).abs().max()) for k in one)


def rectangle_counts(run):
    """How many batches each update of the first epoch has."""
    lengths = EncodedSplit(prepare(run.corpus), "train").lengths()
    recipe = run.training
    plan = plan_epoch(
        lengths,
        tokens=recipe.tokens,
        positions=recipe.positions,
        seed=recipe.seed,
        epoch=0,
    )
    return {len(rectangles) for rectangles in plan}


@pytest.mark.parametrize("sharded", [False, True], ids=["DDP", "FSDP2"])
def test_many_processes_train_what_one_trains(tmp_path, corpus, sharded):
    # Three batches an update: with two processes their counts differ, with
    # four one process has nothing; and the epoch's last update has fewer.
    run = small_run(corpus, steps=20, tokens=300)
    counts = rectangle_counts(run)
    assert 3 in counts and len(counts) == 2
    assert run.transformer(90).p_drop > 0  # dropout is the same, too
    train(run, tmp_path / "alone", **DOUBLE)
    alone = weights(tmp_path / "alone")
    start = weights(tmp_path / "alone", 16)
    assert largest_difference(alone, start) > 1e-3
    for size in (2, 4):
        folder = tmp_path / f"{size}"
        train(run, folder, size, sharded=sharded, **DOUBLE)
        assert largest_difference(weights(folder), alone) < 1e-9


def test_a_run_goes_on_with_another_number_of_processes(tmp_path, corpus):
    run = small_run(corpus, steps=20, tokens=300)
    train(run, tmp_path / "alone", **DOUBLE)
    folder = tmp_path / "changed"
    for steps, size, sharded in ((8, 2, False), (14, 2, True), (20, 1, False)):
        part = small_run(corpus, steps=steps, tokens=300)
        train(part, folder, size, sharded=sharded, **DOUBLE)
    alone = weights(tmp_path / "alone")
    assert largest_difference(weights(folder), alone) < 1e-9
