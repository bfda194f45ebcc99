"""The number of processes changes nothing but the time."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_runs import contents, files, small_corpus, small_run, train

import transformer_lit as tl
from transformer_lit.averaging import average, last_checkpoints
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


def in_parts(corpus, steps, form="sharded"):
    """A run whose checkpoints are written in parts."""
    return small_run(corpus, steps=steps, tokens=300, checkpoint=form)


def shards(folder, step):
    """The files with a process's part of what Adam remembers."""
    place = folder / "checkpoints" / f"step-{step:08d}"
    return sorted(place.glob("shard-*.safetensors"))


def test_a_checkpoint_in_parts_holds_what_a_whole_one_holds(tmp_path, corpus):
    for form in ("whole", "sharded"):
        folder = tmp_path / form
        train(in_parts(corpus, 8, form), folder, 2, sharded=True)
    parts, whole = tmp_path / "sharded", tmp_path / "whole"
    assert largest_difference(weights(parts, 8), weights(whole, 8)) == 0
    assert not shards(whole, 8)
    sizes = [
        sum(tensor.numel() for tensor in load_file(file).values())
        for file in shards(parts, 8)
    ]
    assert len(sizes) == 2 and max(sizes) < 0.52 * sum(sizes)
    endings = {Path(name).suffix for name in files(parts)}
    assert endings == {".json", ".jsonl", ".model", ".safetensors"}  # no pickle
    # What is in the parts is the same, too: one process goes on from each.
    for folder in (parts, whole):
        train(in_parts(corpus, 12), folder, 1)
    last = [
        files(folder / "checkpoints/step-00000012") for folder in (parts, whole)
    ]
    assert last[0] == last[1] and "optimizer.safetensors" in last[0]


def test_a_run_in_parts_goes_on_with_any_number_of_processes(tmp_path, corpus):
    train(small_run(corpus, steps=20, tokens=300), tmp_path / "alone", **DOUBLE)
    folder = tmp_path / "changed"
    for steps, size, sharded, form in (
        (4, 4, True, "sharded"),
        (8, 2, True, "sharded"),
        (10, 2, False, "sharded"),
        (12, 1, False, "sharded"),  # one process has no parts
        (16, 3, True, "sharded"),
        (20, 2, True, "whole"),
    ):
        run = in_parts(corpus, steps, form)
        train(run, folder, size, sharded=sharded, **DOUBLE)
        written = size if size > 1 and form == "sharded" else 0
        assert len(shards(folder, steps)) == written
    alone = weights(tmp_path / "alone")
    assert largest_difference(weights(folder), alone) < 1e-9


def test_a_damaged_part_is_found_and_the_one_before_is_taken(
    tmp_path, corpus, capfd
):
    run, folder = in_parts(corpus, 8), tmp_path / "run"
    train(run, folder, 2, sharded=True)
    before = contents(folder / "checkpoints")
    damaged = shards(folder, 8)[1]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    train(run, folder, 2, sharded=True)
    said = capfd.readouterr().err
    message = f"{damaged} is missing or damaged: "
    assert said.count(message) == said.count("\n") == 2  # of each process
    assert contents(folder / "checkpoints") == before


def test_nothing_is_left_of_a_part_that_was_not_finished(tmp_path, corpus):
    # Four processes were killed as they wrote; two write the same step again.
    part = tmp_path / "run" / "checkpoints" / "part-00000008"
    part.mkdir(parents=True)
    left = part / "shard-00004-model-00001-of-00001.safetensors"
    left.write_bytes(b"half a part")
    train(in_parts(corpus, 8), tmp_path / "run", 2, sharded=True)
    names = [file.name for file in shards(tmp_path / "run", 8)]
    assert len(names) == 2 and left.name not in names
    assert not part.exists()


def test_a_checkpoint_in_parts_is_a_model(tmp_path, corpus):
    train(in_parts(corpus, 8), tmp_path / "run", 2, sharded=True)
    newest = tmp_path / "run/checkpoints/step-00000008"
    assert len(tl.Translator.load(newest).translate(["one"])) == 1
    average(last_checkpoints(tmp_path / "run", 3), tmp_path / "mean")
    mean = load_file(tmp_path / "mean/weights.safetensors")
    three = [weights(tmp_path / "run", step) for step in (4, 6, 8)]
    for name, value in mean.items():
        by_hand = sum(one[name].double() for one in three) / 3
        assert (value - by_hand).abs().max() < 1e-7
