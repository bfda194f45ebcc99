"""Small training runs in processes that can be killed.

A child is forked from the test, so that it need not import torch again. A run
of several processes talks through gloo, as under torchrun.
"""

import hashlib
import json
import os
import pickle
import random
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_lit.corpus import CorpusConfig
from transformer_lit.distributed import Sharded
from transformer_lit.numbers import draw_number, english, german
from transformer_lit.train import processes
from transformer_lit.trainer import RunConfig, TrainConfig, Trainer, whole_model

SMALL = {"n_layers": 1, "d_model": 16, "d_ff": 32, "n_heads": 2}


def small_corpus(folder: Path) -> CorpusConfig:
    """Numbers in words as text files: 300 pairs, and 6 to validate."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(0)
    for split, count in (("train", 300), ("valid", 6)):
        numbers = [draw_number(rng) for _ in range(count)]
        for lang, write in (("en", english), ("de", german)):
            text = "".join(f"{write(number)}\n" for number in numbers)
            (folder / f"{split}.{lang}").write_text(text)
    splits = {split: str(folder / split) for split in ("train", "valid")}
    return CorpusConfig(name="files", splits=splits, vocab_size=90)


def small_run(corpus: CorpusConfig, **recipe: object) -> RunConfig:
    """A run of a few updates that take some milliseconds each."""
    standard = TrainConfig(
        steps=24,
        warmup=10,
        tokens=200,
        positions=100,
        log_every=2,
        save_every=2,
        valid_every=12,
        keep=3,
    )
    return RunConfig(
        corpus=corpus, model=SMALL, training=replace(standard, **recipe)
    )


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(run: RunConfig, folder: Path, size: int, **options) -> list[int]:
    """Fork the processes of a run; their ids."""
    port = free_port()
    return [
        fork(run, folder, rank, size, port, **options) for rank in range(size)
    ]


def fork(
    run: RunConfig,
    folder: Path,
    rank: int,
    size: int,
    port: int,
    *,
    sharded: bool = False,
    double: bool = False,
) -> int:
    """Fork one process of a run; its id."""
    child = os.fork()
    if child:
        return child
    try:
        # The lock that came along is shared with the parent. Had a process
        # been killed while it held it, all others would wait for ever.
        tqdm.set_lock(threading.RLock())
        output = os.open(
            folder.parent / f"out-{rank}", os.O_WRONLY | os.O_CREAT
        )
        os.dup2(output, 1)
        os.dup2(output, 2)
        if size > 1:
            os.environ |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        if double:
            torch.set_default_dtype(torch.float64)
        with processes(sharded) as together:
            assert isinstance(together, Sharded) == sharded
            model = whole_model(Trainer(run, folder, together).fit())
            content = pickle.dumps([p.tolist() for p in model.parameters()])
            digest = hashlib.sha256(content).hexdigest()
            (folder.parent / f"hash-{rank}").write_text(digest)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def end(children: list[int]) -> list[int]:
    """Wait for children; their exit codes, negative for a signal."""
    return [
        os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children
    ]


def train(run: RunConfig, folder: Path, size: int = 1, **options) -> None:
    """Train in forked processes to the end; all must have the same model."""
    codes = end(start(run, folder, size, **options))
    output = "".join(
        (folder.parent / f"out-{rank}").read_text() for rank in range(size)
    )
    assert codes == [0] * size, output
    hashes = [(folder.parent / f"hash-{r}").read_text() for r in range(size)]
    assert len(set(hashes)) == 1


def train_and_kill(
    run: RunConfig,
    folder: Path,
    size: int,
    rng: random.Random,
    most: float,
    **options,
) -> int:
    """Train with kill -9 after random times, until a try gets to the end.

    Returns:
        How many tries were killed.
    """
    kills = 0
    while True:
        children = start(run, folder, size, **options)
        time.sleep(rng.uniform(0, most))
        for child in children:  # one that has ended waits for its parent
            os.kill(child, signal.SIGKILL)
        codes = end(children)
        assert set(codes) <= {0, -signal.SIGKILL}
        if not any(codes):
            return kills
        kills += 1


def files(folder: Path) -> dict[str, str]:
    """The checksums of a folder's files by their paths.

    Not their contents: where those differ, pytest would print them for
    minutes, and nobody would see which file it is.
    """
    return {
        str(path.relative_to(folder)): checksum(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def checksum(content: bytes) -> str:
    """The first part of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def contents(folder: Path) -> dict[str, object]:
    """As `files`, but of parts and their checksums only what they hold.

    The words in the head of a file of torch's distributed checkpoint have
    another order in every process, and so the file another checksum.
    """
    found: dict[str, object] = dict(files(folder))
    for name in found:
        content = (folder / name).read_bytes()
        if Path(name).name.startswith("shard-"):
            end = 8 + int.from_bytes(content[:8], "little")
            found[name] = json.loads(content[8:end]), checksum(content[end:])
        elif Path(name).name == "state.json":
            state = json.loads(content)
            del state["sha256"], state["digest"]
            found[name] = state
    return found
