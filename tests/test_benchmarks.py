"""The benchmark harness, with peers that are not real."""

import gzip
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import transformer_lit as tl
from benchmarks import bench, envs
from benchmarks import growth as growing
from benchmarks.bench import DOES, PEERS, groups, machine, run_all, save
from benchmarks.cases import PRECISIONS, SIZES, Case, sources, training_batches
from benchmarks.envs import LOCKS, ROOT, PeerError, python_of
from benchmarks.local import Local
from benchmarks.process import Process
from benchmarks.race import MOST, race
from benchmarks.report import OURS, ratios, rows_of, table
from benchmarks.shapes import all_cases, count_tokens, cut, real_lengths, rows
from benchmarks.worker import Worker
from transformer_lit import corpus

TINY = SIZES["tiny"]
SIZE = tl.count_parameters(TINY.config())
TRAIN = Case("t", "train", [[(5, 4), (3, 2)]], size=TINY, threads=1)
DECODE = Case("d", "decode", rows(2, 5, 7), size=TINY, threads=1)
FAKE_WORKER = """
import sys
from benchmarks.peer import Peer
from benchmarks.worker import serve

class Fake(Peer):
    def version(self):
        print("libraries talk")
        return "1.2"

    def updates(self, case):
        self.parameters = 12
        losses = iter(range(9, 0, -1))
        return lambda batch: float(next(losses))

    def decoder(self, case):
        return lambda src: [[0] * 7 for _ in src]

serve(Fake)
"""


@pytest.fixture
def process(tmp_path):
    """What starts a worker process of some code, and ends it."""
    started = []

    def start(code, limit=600.0):
        command = [sys.executable, "-c", code]
        started.append(Process(command, tmp_path / "log", 1, limit))
        return started[-1]

    yield start
    for one in started:
        one.close()


class Fake:
    """A worker that needs no time and tells whom it was asked."""

    def __init__(self, name, asked, **shown):
        self.name, self.asked = name, asked
        self.shown = {"pace": 2.0, "size": SIZE, "slope": -1, "length": 7}
        self.shown |= shown
        self.losses, self.open = 0, True

    def ask(self, request):
        do = request["do"]
        self.asked.append((self.name, do))
        if do == self.shown.get("breaks_at"):
            raise PeerError(f"cannot {do} {ROOT}/x")
        if do == "prepare":
            self.case = Case.from_json(request["case"])
            return {"version": "1"}
        if do == "peak":
            return {"flops": 1e6}
        n, losses = request["n"], []
        for _ in range(n if self.case.kind == "train" else 0):
            self.losses += self.shown["slope"]
            losses.append(self.losses)
        return {
            "seconds": self.shown["pace"] * n,
            "losses": losses,
            "lengths": [self.shown["length"]] * 2,
            "parameters": self.shown["size"],
            "peak_mb": 10.0,
        }

    def close(self):
        self.open = False


def starter(asked, **odd):
    """What starts fakes; `odd` tells how some of them differ."""
    made = {}

    def start(name):
        if odd.get(name) == "is not there":
            raise PeerError("no such package")
        made[name] = Fake(name, asked, **odd.get(name, {}))
        return made[name]

    start.made = made
    return start


# The worker and its process


def test_a_worker_process_answers_and_ends(process):
    worker = process(FAKE_WORKER)
    told = {"do": "prepare", "case": TRAIN.to_json()}
    assert worker.ask(told) == {"version": "1.2"}
    answer = worker.ask({"do": "step", "n": 3})
    assert answer.pop("seconds") > 0
    assert answer.pop("peak_mb") > 1
    assert answer == {"losses": [9, 8, 7], "lengths": [], "parameters": 12}
    assert worker.ask({"do": "peak"})["flops"] > 0
    with pytest.raises(PeerError, match="KeyError: 'dance'"):
        worker.ask({"do": "dance"})
    told["case"] = DECODE.to_json()
    assert worker.ask(told) == {"version": "1.2"}
    assert worker.ask({"do": "step", "n": 2})["lengths"] == [7, 7]
    worker.close()
    assert worker.process.returncode == 0


@pytest.mark.parametrize(
    ("code", "limit", "reason"),
    [
        ("raise SystemExit('Error: no luck\\nbye')", 600, "Error: no luck"),
        ("import os; os.kill(os.getpid(), 9)", 600, "signal 9"),
        ("import time; time.sleep(60)", 1, "slower than 1 s"),
    ],
)
def test_a_process_that_does_not_answer_tells_why(process, code, limit, reason):
    worker = process(code, limit)
    with pytest.raises(PeerError, match=reason):
        worker.ask({"do": "peak"})


def test_ours_and_torch_learn_the_same_numbers_and_get_the_same_batches(
    monkeypatch,
):
    monkeypatch.setattr("benchmarks.race.TURN", 0)
    found = race([OURS, "torch_nn"], Local, TRAIN, rounds=9)
    for row in found["peers"].values():
        assert row["parameters"] == SIZE
        assert row["losses"][0] > row["losses"][-1]
    first, second = training_batches(TRAIN), training_batches(TRAIN)
    assert first[0].src.equal(second[0].src)
    assert first[0].src.shape == (2, 5)
    assert (first[0].tgt_out != tl.PAD).sum() == TRAIN.tokens


@pytest.mark.parametrize("beam", [1, 4])
def test_ours_writes_as_many_tokens_as_it_is_told(beam):
    case = replace(DECODE, beam=beam, precision="bf16")
    assert tl.EOS not in sources(case)
    worker = Local(OURS)
    worker.ask({"do": "prepare", "case": case.to_json()})
    assert worker.ask({"do": "step", "n": 1})["lengths"] == [7, 7]


def test_a_local_worker_fails_like_a_process():
    with pytest.raises(PeerError, match="No module named"):
        Local("nobody").ask({"do": "prepare", "case": TRAIN.to_json()})


def test_the_route_of_products_is_the_cases(monkeypatch):
    routes = []
    monkeypatch.setattr(
        "torch.set_float32_matmul_precision", lambda one: routes.append(one)
    )
    for precision in PRECISIONS:
        case = replace(DECODE, precision=precision)
        Local(OURS).ask({"do": "prepare", "case": case.to_json()})
    assert routes == ["highest", "medium", "highest"]


def test_a_pass_goes_over_all_batches_and_has_their_mean_loss():
    class Counts:
        parameters = 3

        def version(self):
            return "0"

        def updates(self, case):
            return lambda batch: float(batch.src.shape[1])

    worker = Worker(Counts)
    case = replace(TRAIN, lengths=[[(5, 4)], [(9, 4)]])
    worker.answer({"do": "prepare", "case": case.to_json()})
    assert worker.answer({"do": "step", "n": 2})["losses"] == [7.0, 7.0]


# The race


def test_workers_take_turns():
    asked = []
    start = starter(asked)
    race(["a", "b"], start, TRAIN, rounds=3)
    warm = [(n, do) for n in "ab" for do in ("prepare", "step", "step")]
    turns = [("a", "step"), ("b", "step")] * 3
    assert asked == [*warm, ("a", "peak"), *turns, ("a", "peak")]
    assert not any(worker.open for worker in start.made.values())


def test_seconds_are_of_a_pass_and_short_passes_are_repeated():
    start = starter(
        [], slow={"pace": 2.0}, quick={"pace": 0.3}, none={"pace": 0}
    )
    found = race(["slow", "quick", "none"], start, TRAIN, rounds=2)["peers"]
    assert found["slow"]["seconds"] == [2.0, 2.0]
    assert found["quick"]["seconds"] == pytest.approx([0.3, 0.3])
    assert len(found["slow"]["losses"]) == 2 + 2 * 1
    assert len(found["quick"]["losses"]) == 2 + 2 * 4
    assert len(found["none"]["losses"]) == 2 + 2 * MOST


@pytest.mark.parametrize(
    ("case", "odd", "reason"),
    [
        (TRAIN, "is not there", "no such package"),
        (TRAIN, {"breaks_at": "prepare"}, "cannot prepare ./x"),
        (TRAIN, {"breaks_at": "step"}, "cannot step ./x"),
        (TRAIN, {"slope": 1}, "loss does not fall: 1, 4"),
        (TRAIN, {"slope": float("nan")}, "loss does not fall: nan, nan"),
        (TRAIN, {"size": SIZE // 2}, "learns"),
        (DECODE, {"length": 8}, "outputs are [8] tokens long"),
    ],
)
def test_a_broken_peer_is_a_row_and_the_others_go_on(case, odd, reason):
    start = starter([], bad=odd)
    found = race(["bad", "good"], start, case, rounds=2)
    assert reason in found["peers"]["bad"]["failed"]
    assert "seconds" not in found["peers"]["bad"]
    assert len(found["peers"]["good"]["seconds"]) == 2
    assert found["peak_flops"] > 0
    assert not any(worker.open for worker in start.made.values())


# The record


def test_ratios_are_taken_round_by_round():
    assert ratios([1.0, 2.0], [3.0, 4.0]) == [3.0, 2.0]
    group = {
        "peers": {
            OURS: {"version": "1", "seconds": [1, 2, 4], "peak_mb": 5},
            "b": {"version": "2", "seconds": [3, 8, 6], "peak_mb": 6},
            "c": {"version": "", "failed": "no | luck"},
        },
        "peak_flops": 100.0,
    }
    ours = {"version": "1", "seconds": [3, 3, 9], "peak_mb": 7}
    other = {"peers": {OURS: ours}, "peak_flops": 60.0}
    case = {"tokens": 12, "flops": 60.0, "groups": [group, other]}
    mine, theirs, _ = rows_of(case)
    assert mine["tokens_per_second"] == 12 / 3  # the median of all six
    assert (mine["ratio"], mine["peak_mb"]) == (None, 7)
    assert mine["of_peak"] == 60 / 3 / 100
    assert theirs["tokens_per_second"] == 12 / 6
    assert theirs["ratio"] == [3.0, 1.5, 4.0]
    assert theirs["of_peak"] == 60 / 6 / 100
    text = table({"about": {"cpu": "X"}, "cases": {"t fp32": case}})
    assert "| ours 1 | 4 |  | 7 | 20% | |" in text
    assert "| b 2 | 2 | 3.00 (1.50 to 4.00) | 6 | 10% | |" in text
    assert "| c | | | | | no / luck |" in text


def test_a_failure_of_ours_leaves_the_others_times():
    bad = {"version": "1", "failed": "oh"}
    good = {"version": "2", "seconds": [1.0], "peak_mb": 6}
    group = {"peers": {OURS: bad, "b": good}, "peak_flops": 0.0}
    case = {"tokens": 12, "flops": None, "groups": [group]}
    mine, theirs = rows_of(case)
    assert mine["failed"] == "oh"
    assert (theirs["ratio"], theirs["of_peak"]) == (None, None)
    assert theirs["tokens_per_second"] == 12


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run two cases into a record; what was asked of whom, and the record."""
    monkeypatch.setattr(
        bench, "DOES", {"train": ["a", "b", "c"], "decode": ["a", "c"]}
    )
    path = tmp_path / "results" / "bench.json"

    def call(odd=None, about="here", **options):
        asked = []
        start = starter(asked, **(odd or {}))
        settings = {"rounds": 2, "together": 2, **options}
        run_all(
            path,
            {"machine": about},
            [TRAIN, DECODE],
            ["a", "b", "c"],
            start,
            **settings,
        )
        prepared = [name for name, do in asked if do == "prepare"]
        return prepared, json.loads(path.read_text())

    call.path = path
    return call


def test_ours_is_in_every_race_and_everything_is_recorded(run):
    prepared, record = run()
    assert prepared == [OURS, "a", "b", OURS, "c", OURS, "a", "c"]
    assert list(record["cases"]) == ["t fp32", "d fp32"]
    names = [row["name"] for row in rows_of(record["cases"]["t fp32"])]
    assert names == [OURS, "a", "b", "c"]
    for case in record["cases"].values():
        assert case["summary"] == rows_of(case)
    assert record["cases"]["t fp32"]["flops"] == TRAIN.flops()
    assert record["cases"]["d fp32"]["flops"] is None
    assert not list(run.path.parent.glob("*.part"))


def test_an_interrupted_run_goes_on(run, monkeypatch):
    original, calls = bench.race, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(bench, "race", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    prepared, record = run()
    assert prepared == [OURS, "c", OURS, "a", "c"]
    assert len(record["cases"]["t fp32"]["groups"]) == 2
    prepared, again = run()
    assert (prepared, again) == ([], record)


def test_a_peer_can_be_measured_again(run):
    _, record = run(odd={"c": "is not there"})
    assert "failed" in rows_of(record["cases"]["t fp32"])[-1]
    assert run(odd={"c": "is not there"})[0] == []
    prepared, record = run(again=("c",))
    assert prepared == [OURS, "c", OURS, "c"]
    assert "failed" not in rows_of(record["cases"]["t fp32"])[-1]
    names = [row["name"] for row in rows_of(record["cases"]["d fp32"])]
    assert names == [OURS, "a", "c"]


def test_ours_measured_again_is_everything_again(run):
    run()
    assert run(again=(OURS,))[0] == [OURS, "a", "b", OURS, "c", OURS, "a", "c"]


def test_another_machine_is_refused(run):
    run()
    with pytest.raises(
        ValueError, match=r"another machine \('here', now 'x'\)"
    ):
        run(about="x")


def test_a_record_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "bench.json"
    save(path, {"a": 1})
    with pytest.raises(TypeError):
        save(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}


def test_groups_are_few_and_alike():
    assert groups([], 3) == []
    assert groups([*"abcdefg"], 5) == [[*"abcd"], [*"efg"]]
    assert groups([*"abc"], 1) == [["a"], ["b"], ["c"]]


def test_the_machine_is_named():
    assert {"cpu", "cores", "python", "torch"} <= set(machine("cpu"))


# Shapes


def test_the_cost_of_a_step_is_the_products_without_padding():
    _, cases = all_cases()
    flops = {case.name: case.flops() for case in cases}
    assert round(flops["train 32x28"] / 1e9) == 341
    assert round(flops["train 8x100"] / 1e9) == 311
    assert flops["beam 64"] is None


def test_cases_are_told_as_json():
    for case in all_cases()[1]:
        told = Case.from_json(json.loads(json.dumps(case.to_json())))
        assert (told.key, told.tokens) == (case.key, case.tokens)
        assert told.flops() == case.flops()


def test_batches_are_full():
    assert cut([(1, 3), (9, 4), (1, 5), (1, 1)], 7) == [[(1, 3), (9, 4)]]


def test_lengths_come_from_text_that_is_there(tmp_path):
    folder = tmp_path / "multi30k" / "raw"
    folder.mkdir(parents=True)
    text = "Two men, walking.\n\nA\u2028b " + "x " * 200 + "\n"
    (folder / "train.en.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "train.de").write_text("Zwei.\n\nx\n")
    assert count_tokens(folder / "train.en") == [6, 1, 203]
    origin, pairs = real_lengths(str(tmp_path))
    assert (origin, pairs) == ("multi30k/raw/train.en/de", [(6, 3), (1, 1)])


def test_lengths_are_drawn_where_there_is_no_text(tmp_path, monkeypatch):
    for folder in (None, str(tmp_path)):
        origin, pairs = real_lengths(folder)
        assert origin == "drawn at random"
        assert len(pairs) == 3000
        assert pairs == real_lengths(None)[1]
    monkeypatch.delenv("TRANSFORMER_LIT_DATA", raising=False)
    origin, cases = all_cases()
    mixed, alike = (
        next(case for case in cases if case.name == f"train text {name}")
        for name in ("mixed", "sorted")
    )
    for case in (mixed, alike):
        assert len(case.lengths) == 3
        assert 2400 < case.tokens <= 2700
    ragged = [max(b)[1] - min(b)[1] for b in alike.lengths]
    assert max(ragged) < min(max(b)[1] - min(b)[1] for b in mixed.lengths)


# Environments


def test_every_peer_has_an_adapter_and_a_lock():
    folder = ROOT / "benchmarks" / "peers"
    adapters = {path.stem for path in folder.glob("[a-z]*.py")}
    assert adapters == set(PEERS)
    locks = {path.stem for path in LOCKS.glob("*.txt")}
    assert locks == set(PEERS.values()) - {""}
    assert {name for names in DOES.values() for name in names} == set(PEERS)
    for path in LOCKS.glob("*.txt"):
        assert all("==" in line for line in path.read_text().splitlines())


def test_an_environment_is_made_once_for_a_lock(tmp_path, monkeypatch):
    commands = []

    def run(command, log):
        commands.append(command)
        if "venv" in command:
            (tmp_path / "envs/x/lib/python3/site-packages").mkdir(parents=True)
        elif "bad" in (tmp_path / "x.txt").read_text():
            raise PeerError("no bad")

    monkeypatch.setattr(envs, "run", run)
    monkeypatch.setattr(envs, "ENVS", tmp_path / "envs")
    monkeypatch.setattr(envs, "LOCKS", tmp_path)
    assert str(python_of("")) == sys.executable
    (tmp_path / "x.txt").write_text("good==1\n")
    python = python_of("x")
    assert python == tmp_path / "envs" / "x" / "bin" / "python"
    assert "--no-deps" in commands[1]
    [shared] = python.parents[1].glob("lib/python3/site-packages/ours.pth")
    assert "site-packages" in shared.read_text()
    assert (python_of("x"), len(commands)) == (python, 2)
    (tmp_path / "x.txt").write_text("bad==1\n")
    for _ in range(2):
        with pytest.raises(PeerError, match="no bad"):
            python_of("x")
    assert len(commands) == 6


def test_a_command_that_fails_says_its_error(tmp_path):
    code = "print('ERROR: No x==1'); print('notice: a new pip'); exit(1)"
    with pytest.raises(PeerError, match=r"^ERROR: No x==1$"):
        envs.run([sys.executable, "-c", code], tmp_path / "log")


def test_environments_are_not_in_git():
    command = ["git", "-C", str(ROOT), "ls-files", "benchmarks/.envs"]
    assert subprocess.check_output(command) == b""


# -- Growth ------------------------------------------------------------------


@pytest.mark.parametrize("series", growing.SERIES)
def test_every_series_grows_what_it_names(series, monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "SHARD", corpus.SHARD)  # it is changed
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path))
    few = {"preparing: pairs": (300, 600)}.get(series, (2, 4))
    if series.startswith("opening"):
        few = (1200, 2400)
    works = []
    for size in few:
        (folder := tmp_path / str(size)).mkdir()
        works.append(growing.work_of(series, size, folder))
    for work, _ in works:
        work()
    counted = [flops for _, flops in works]
    if series.startswith(("preparing", "opening")):
        assert counted == [None, None]
    else:
        assert 0 < counted[0] < counted[1]


def test_a_point_leaves_no_file_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    [series] = [name for name in growing.SERIES if name.startswith("opening")]
    point = growing.measure(series, 1200, torch.get_num_threads(), 1)
    assert point["size"] == 1200
    assert not list(tmp_path.iterdir())


def test_growth_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    asked = []

    def measure(series, size, threads, rounds):
        asked.append((series, size))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"size": size, "seconds": 1.0, "bytes": 0, "flops": None}

    monkeypatch.setattr(growing, "measure", measure)
    monkeypatch.setattr(growing, "SERIES", {"a": [1, 2], "b: c": [3, 4]})
    monkeypatch.setattr(
        growing, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1)
    )
    out = tmp_path / "growth.json"
    with pytest.raises(KeyboardInterrupt):
        growing.growth(out=out)
    assert growing.growth(out=out) == 0
    assert asked == [("a", 1), ("a", 2), ("b: c", 3), ("b: c", 3), ("b: c", 4)]
    record = json.loads(out.read_text())
    sizes = {k: [p["size"] for p in v] for k, v in record["series"].items()}
    assert sizes == {"a": [1, 2], "b: c": [3, 4]}
    assert growing.growth(series=("b",), out=out) == 0 and len(asked) == 5


def test_a_point_is_measured_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(growing, "SERIES", {"attention, fused": [4]})
    out = tmp_path / "growth.json"
    assert growing.growth(threads=1, rounds=1, out=out) == 0
    [point] = json.loads(out.read_text())["series"]["attention, fused"]
    assert point["seconds"] > 0 and point["bytes"] >= 0
    assert point["flops"] == 3 * 2 * 2 * 8 * 64 * 4**2
