"""Planning a run, starting it with torchrun, and killing it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import small_corpus

from transformer_lit.corpus import CorpusConfig
from transformer_lit.hardware import DEVICES, plan
from transformer_lit.model import count_parameters
from transformer_lit.train import (
    calibrated,
    guarded,
    main,
    passes_of,
    plan_lines,
    plan_run,
)
from transformer_lit.trainer import (
    RunConfig,
    TrainConfig,
)

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
PAPER = [path for path in CONFIGS if path.stem.startswith("wmt14")]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


# -- The files of the runs ---------------------------------------------------


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_papers_runs_are_the_papers(path):
    run = RunConfig.load(path)
    _, _, target, row = path.stem.split("_")
    big, french = row == "big", target == "fr"
    sizes = run.transformer(run.corpus.vocab_size)
    standard = run.transformer(run.corpus.vocab_size).table_3(
        row, 32_000 if french else 37_000
    )
    p_drop = {(True, False): 0.3}.get((big, french), 0.1)
    assert sizes == replace(standard, p_drop=p_drop)
    corpus = run.corpus
    assert (corpus.name, corpus.src, corpus.tgt) == ("wmt14", "en", target)
    recipe = run.training
    assert recipe.steps == (300_000 if big else 100_000)
    assert (recipe.warmup, recipe.factor, recipe.smoothing) == (4000, 1.0, 0.1)
    assert recipe.tokens == 25_000
    assert passes_of(recipe) == (8, 3125)  # one batch for each of 8 GPUs
    # a checkpoint every ten minutes, at the paper's own seconds an update
    seconds = 3.5 * 86_400 / 300_000 if big else 12 * 3600 / 100_000
    assert recipe.save_every == pytest.approx(600 / seconds, rel=0.02)
    assert recipe.keep >= (20 if big else 5)


def test_the_miniatures_file_is_the_miniature():
    run = RunConfig.load(ROOT / "configs" / "numbers.toml")
    assert count_parameters(run.transformer(66)) == 61_504


# -- The plan ----------------------------------------------------------------


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_dry_run_of_every_file_needs_no_corpus(path, capsys, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", "/nowhere")
    # what is measured here is tested below
    monkeypatch.setattr(
        "transformer_lit.train.seconds_of_parts", lambda *_: (0.5, 0.01)
    )
    assert main([str(path), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    run = RunConfig.load(path)
    sizes = run.transformer(run.corpus.vocab_size)
    assert f"{count_parameters(sizes):,}" in out
    for name in ("8 x P100", "8 x H100", "1 x H200", "this machine"):
        [line] = [line for line in out.splitlines() if line.startswith(name)]
        assert re.search(r"[\d.]+ GB +<?[\d,.]+ +(-|<?\$[\d,.]+)$", line)


def test_the_papers_machine_takes_the_papers_time():
    for row, hours in (("base", 12), ("big", 3.5 * 24)):
        run = RunConfig.load(ROOT / "configs" / f"wmt14_en_de_{row}.toml")
        found = plan_run(run, DEVICES["p100x8"])
        assert found.hours == pytest.approx(hours, rel=0.05)
        assert found.fits


def a_run(**recipe):
    model = {"n_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4}
    corpus = CorpusConfig(name="files", splits={}, vocab_size=100)
    standard = TrainConfig(steps=10, tokens=1000, positions=250)
    return RunConfig(
        corpus=corpus, model=model, training=replace(standard, **recipe)
    )


def test_a_plan_is_exact_in_its_parts():
    run, two = a_run(), replace(DEVICES["p100x8"], count=2)
    found = plan_run(run, two)
    sizes = run.transformer(100)
    # 4 batches on 2 processors: 2 passes, nobody waits
    by_hand = plan(sizes, two, steps=10, tokens=1000, accumulate=2)
    assert found == by_hand
    # 4 batches on 8: half of them wait, the time is that of one batch
    eight = plan_run(run, DEVICES["p100x8"])
    assert eight.hours == pytest.approx(found.hours / 2)
    assert eight.flops == pytest.approx(found.flops)
    assert (eight.tokens, eight.tokens_per_process) == (1000, 250)
    assert eight.memory == found.memory
    # 4 batches on 3: two turns, as with 2
    three = plan_run(run, replace(two, count=3))
    assert three.hours == pytest.approx(found.hours)


def test_a_plan_grows_with_what_it_should_grow_with():
    device = DEVICES["h200x1"]
    small = plan_run(a_run(), device)
    for change in ({"steps": 20}, {"tokens": 2000}):
        more = plan_run(a_run(**change), device)
        assert more.hours == pytest.approx(2 * small.hours)
        assert more.memory == small.memory
    wide = plan_run(a_run(positions=500), device)
    assert wide.hours == pytest.approx(small.hours)
    assert wide.memory.activations == 2 * small.memory.activations
    again = plan_run(a_run(recompute=True), device)
    assert again.hours > small.hours
    assert again.memory.activations < small.memory.activations
    half = plan_run(a_run(precision="bf16"), device)
    assert half.hours < small.hours


def test_a_divided_model_divides_its_state_and_nothing_else():
    device = DEVICES["h100x8"]
    whole, part = (plan_run(a_run(), device, sharded=s) for s in (False, True))
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(part.memory, name) == getattr(whole.memory, name) / 8
    assert part.memory.activations == whole.memory.activations
    assert part.memory.logits == whole.memory.logits
    assert part.hours == whole.hours


def test_gradients_stay_whole_until_the_last_turn():
    device = DEVICES["h200x1"]
    pair = replace(device, count=2)
    whole, part = (plan_run(a_run(), pair, sharded=s) for s in (False, True))
    assert passes_of(a_run().training)[0] > pair.count
    assert part.memory.gradients == whole.memory.gradients
    assert part.memory.weights == whole.memory.weights / 2


def test_what_does_not_fit_is_said():
    run = RunConfig.load(ROOT / "configs" / "wmt14_en_de_big.toml")
    small = replace(DEVICES["p100x8"], memory=4e9)
    lines = plan_lines(run, [plan_run(run, small)])
    assert lines[-1].endswith("does not fit")


def test_a_large_model_is_measured_in_part(monkeypatch):
    seen = []

    def fake(sizes, training, batch):
        seen.append((sizes, batch.src.numel()))
        return 2.0, 0.5

    monkeypatch.setattr("transformer_lit.train.seconds_of_parts", fake)
    small = a_run()
    machine = calibrated(small)
    [(sizes, positions)] = seen
    assert sizes == small.transformer(100)
    assert positions == 240  # rows of 30
    # 4 batches of 2 s a 240 positions, and one step of 0.5 s
    hours = plan_run(small, machine).hours
    assert hours * 3600 == pytest.approx(10 * (4 * 2 * 250 / 240 + 0.5))
    big = RunConfig.load(ROOT / "configs" / "wmt14_en_de_big.toml")
    calibrated(big)
    sizes, positions = seen[-1]
    assert sizes.n_layers == 1 and sizes.d_model == 1024
    assert positions < 1000


# Prints the rise of the peak from before a model to after two updates; a small
# model before it has set up what does not grow with the sizes.
MEMORY = """
import json, resource, sys
from transformer_lit.model import Transformer
from transformer_lit.optimizer import noam
from transformer_lit.train import a_batch
from transformer_lit.trainer import RunConfig, accumulate

run = RunConfig.load(sys.argv[1])
sizes, positions = run.transformer(100), run.training.positions

def updates(positions):
    model = Transformer(sizes)
    adam, _ = noam(model, 10)
    batch = a_batch(sizes, positions, 30)
    for _ in range(2):
        adam.zero_grad()
        accumulate(model, [batch], tokens=positions, pad_id=0)
        adam.step()

updates(30)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = int(open("/proc/self/statm").read().split()[1]) * 4096
updates(positions)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux's /proc")
def test_the_planned_memory_is_what_an_update_takes(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[corpus]\nname = "numbers"\nvocab_size = 100\n'
        "[model]\nn_layers = 3\nd_model = 256\nd_ff = 1024\nn_heads = 4\n"
        "[training]\ntokens = 5000\npositions = 5000\n"
    )
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # every tensor is given back to the system when it is not needed any
        # more: else the C library keeps a third more than it uses
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TOP_PAD_": "0",
    }
    command = [sys.executable, "-c", MEMORY, str(path)]
    measured = int(subprocess.check_output(command, env=environment))
    planned = plan_run(RunConfig.load(path), DEVICES["h200x1"]).memory.total
    assert planned > 600e6
    assert planned == pytest.approx(measured, rel=0.2)


def test_the_planned_time_was_compared_with_a_run():
    record = json.loads((ROOT / "results" / "dry_run.json").read_text())
    for one in record["runs"]:
        ratio = one["planned_seconds"] / one["measured_seconds"]
        assert ratio == pytest.approx(1, abs=0.2), one["config"]


# -- Faults ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("two\nlines"), 2, "x: two lines\n"),
        (FloatingPointError("not finite"), 2, "x: not finite\n"),
        (
            PermissionError(13, "Permission denied", "y"),
            2,
            "x: [Errno 13] Permission denied: 'y'\n",
        ),
        (KeyboardInterrupt(), 130, "x: interrupted\n"),
    ],
)
def test_a_fault_is_one_line(error, code, line, capsys):
    def work():
        raise error

    assert guarded(work, "x") == code
    assert capsys.readouterr() == ("", line)


# -- torchrun ----------------------------------------------------------------

SMALL_RUN = """
[corpus]
name = "files"
splits = {{ train = "{text}/train", valid = "{text}/valid" }}
vocab_size = 90
[model]
n_layers = 1
d_model = 16
d_ff = 32
n_heads = 2
[training]
steps = {steps}
warmup = 10
tokens = 300
positions = 100
log_every = 2
save_every = 2
valid_every = {steps}
keep = 3
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A run's file; its corpus lies beside it."""
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # else a restart reads the addresses of killed processes: pytorch 135712
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    small_corpus(tmp_path / "text")
    path = tmp_path / "small.toml"
    path.write_text(SMALL_RUN.format(text=tmp_path / "text", steps=40))
    return path


def newest_weights(folder, step=40):
    name = f"checkpoints/step-{step:08d}/weights.safetensors"
    return load_file(folder / name)


def torchrun(output, *arguments, size=2):
    """Start torchrun on this machine with a rendezvous of its own."""
    command = [
        *TORCHRUN,
        f"--nproc-per-node={size}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        *map(str, arguments),
    ]
    with output.open("w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def workers_of(process):
    """The processes that a torchrun started, by their parent."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == process.pid:
            found.append(int(status.parent.name))
    return sorted(found)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux's /proc")
def test_a_killed_worker_changes_no_bit(config, tmp_path):
    module = ["-m", "transformer_lit.train", config]
    calm = torchrun(tmp_path / "calm.out", *module, "--out", tmp_path / "calm")
    assert calm.wait(120) == 0, (tmp_path / "calm.out").read_text()
    folder, output = tmp_path / "killed", tmp_path / "killed.out"
    process = torchrun(output, "--max-restarts=3", *module, "--out", folder)
    while not (folder / "checkpoints" / "step-00000006").exists():
        assert process.poll() is None, output.read_text()
        time.sleep(0.005)
    os.kill(workers_of(process)[-1], signal.SIGKILL)
    at_kill = max(p.name for p in (folder / "checkpoints").glob("step-*"))
    assert process.wait(120) == 0, output.read_text()
    assert "exitcode: -9" in output.read_text()
    assert at_kill < "step-00000040"
    one, other = newest_weights(tmp_path / "calm"), newest_weights(folder)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    log, other_log = (
        [json.loads(line) for line in (f / "log.jsonl").open()]
        for f in (tmp_path / "calm", folder)
    )
    assert [e["step"] for e in log] == [e["step"] for e in other_log]


# In double precision rounding stays below what Adam magnifies.
DOUBLE = """
import sys, torch
torch.set_default_dtype(torch.float64)
from transformer_lit.train import main
sys.exit(main())
"""

# Four hosts: network namespaces of a user namespace of their own, so that
# nothing of it outlives the script and no privilege is needed.
HOSTS = """
set -e
mount -t tmpfs none /run
ip link set lo up
ip link add name br0 type bridge
ip link set br0 up
for host in 1 2 3 4; do
    ip netns add host$host
    ip link add name v$host type veth peer name eth0 netns host$host
    ip link set v$host master br0 up
    ip -n host$host address add 10.9.0.$host/24 dev eth0
    ip -n host$host link set eth0 up
    ip -n host$host link set lo up
done
echo ready
[ $# -gt 0 ] || exit 0
for host in 1 2 3 4; do
    GLOO_SOCKET_IFNAME=eth0 ip netns exec host$host "$@" \
        --local-addr=10.9.0.$host --rdzv-conf=is_host=$((host == 1)) \
        >host-$host.out 2>&1 &
    children="$children $!"
done
for child in $children; do wait $child; done
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
UNSHARE += ["--pid", "--fork", "--kill-child"]  # all end together


def may_make_hosts():
    """Whether this system lets us make network namespaces."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    command = [*UNSHARE, "sh", "-c", HOSTS]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode == 0 and done.stdout == "ready\n"


def test_four_hosts_train_what_one_process_trains(config, tmp_path):
    if not may_make_hosts():
        pytest.skip("this system permits no network namespaces (unshare, ip)")
    script = tmp_path / "double.py"
    script.write_text(DOUBLE)
    arguments = [str(script), str(config), "--steps=12", "--out"]
    alone = [sys.executable, *arguments, str(tmp_path / "alone")]
    subprocess.run(alone, check=True, capture_output=True, timeout=120)
    hosts = [
        *TORCHRUN,
        "--nnodes=4",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=10.9.0.1:29400",
        "--rdzv-id=four",
    ]
    launch = tmp_path / "launch.sh"
    launch.write_text(
        "exec "
        + " ".join(hosts)
        + ' "$@" '
        + " ".join([*arguments, str(tmp_path / "four")])
    )
    command = [*UNSHARE, "sh", "-c", HOSTS, "hosts", "sh", str(launch)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    said = "".join(p.read_text() for p in sorted(tmp_path.glob("host-*.out")))
    assert done.returncode == 0, done.stderr + said
    one = newest_weights(tmp_path / "alone", 12)
    four = newest_weights(tmp_path / "four", 12)
    assert one.keys() == four.keys()
    assert max(float((one[k] - four[k]).abs().max()) for k in one) < 1e-9


def test_torchrun_starts_from_a_notebook(config, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    command = [*TORCHRUN, "--nproc-per-node=2", "--standalone", "-m"]
    command += ["transformer_lit.train", str(config), "--steps=2"]
    cell = nbformat.v4.new_code_cell(
        f"import subprocess\nsubprocess.run({command}, check=True)"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, kernel_name="python3", resources=where, timeout=200
    ).execute()
    assert (tmp_path / "runs/small-0/checkpoints/step-00000002").exists()


# -- Files for clusters ------------------------------------------------------


def test_the_cluster_files_are_sound():
    import yaml

    script = ROOT / "launch" / "slurm.sh"
    subprocess.run(["bash", "-n", script], check=True)
    [*documents] = yaml.safe_load_all(
        (ROOT / "launch" / "kubernetes.yaml").read_text()
    )
    assert {one["kind"] for one in documents} == {"Service", "Job"}
    for text in (script.read_text(), json.dumps(documents)):
        for option in (
            "--nnodes",
            "--nproc-per-node",
            "--rdzv-backend=c10d",
            "--max-restarts",
            "transformer_lit.train",
        ):
            assert option in text
