"""A run that was killed goes on as if nothing had happened."""

import json
import random
import time

import pytest
from small_runs import (
    contents,
    files,
    small_corpus,
    small_run,
    train,
    train_and_kill,
)

TIMES = {
    "tokens_per_second",
    "flops_per_second",
    "mfu",
    "seconds",
    "seconds_left",
    "memory_mb",
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    return small_corpus(tmp_path / "text")


def log(folder) -> list[dict]:
    """The log without what depends on the clock and the machine."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [
        {key: value for key, value in entry.items() if key not in TIMES}
        for entry in entries
    ]


@pytest.mark.parametrize(
    ("size", "form", "enough"),
    [(1, "whole", 20), (2, "whole", 20), (2, "sharded", 10)],
    ids=["alone", "two", "two in parts"],
)
def test_kill_9_at_a_random_moment_changes_not_one_bit(
    tmp_path, corpus, size, form, enough
):
    run, rng = small_run(corpus, checkpoint=form), random.Random(size)
    options = {"sharded": form == "sharded"}
    found = contents if form == "sharded" else files
    whole = tmp_path / "whole"
    start = time.perf_counter()
    train(run, whole, size, **options)
    most = 1.2 * (time.perf_counter() - start)
    kills = tries = 0
    while kills < enough:
        broken = tmp_path / f"broken-{tries}"
        kills += train_and_kill(run, broken, size, rng, most, **options)
        tries += 1
        assert found(broken / "checkpoints") == found(whole / "checkpoints")
        assert files(broken / "best") == files(whole / "best")
        assert log(broken) == log(whole)
