"""How time and memory grow with the length of the sentences, and of all else.

    python -m benchmarks growth

Each point is measured in a process of its own, so that its peak of memory is
its own; points of an earlier, interrupted call are kept. Beside a time stand
the operations that chapter 5.2 counts for the same work.
"""

import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import transformer_lit as tl
from benchmarks.bench import machine, resume, save
from benchmarks.envs import ROOT
from transformer_lit import corpus
from transformer_lit.attention import fused_attention, scaled_dot_product
from transformer_lit.decoding import Kept, advance, open_beams
from transformer_lit.hardware import forward_flops, training_flops
from transformer_lit.numbers import draw_number, english, german

CONFIG = tl.TransformerConfig(
    vocab_size=1000, n_layers=2, d_model=256, n_heads=4, d_ff=1024
)
SHORT = 16
"""The length of whatever does not grow."""
LENGTHS = [2**i for i in range(4, 12)]  # 16 to 2,048
SERIES: dict[str, list[int]] = {
    "training: source length": LENGTHS,
    "training: target length": LENGTHS,
    "training: sentences": [2**i for i in range(7)],
    "writing: source length": LENGTHS,
    "writing: target length": LENGTHS[:-1],
    "writing: sentences": [2**i for i in range(7)],
    "writing: beam": [1, 2, 4, 8, 16],
    "attention by the formula": LENGTHS,
    "attention, fused": LENGTHS,
    "preparing: pairs": [2_000, 20_000, 200_000],
    "opening: bytes": [10**6, 10**7, 10**8, 10**9],
}
"""What grows, and the sizes that are measured."""

RESULT = ROOT / "results" / "growth.json"
Point = dict[str, float | None]
Work = tuple[Callable[[], object], float | None]
"""What is timed, and the operations that it takes if they are counted."""


def random_ids(rows: int, length: int) -> torch.Tensor:
    """Ids of words [B, S]."""
    return torch.randint(tl.UNK + 1, CONFIG.vocab_size, (rows, length))


def training(*, rows: int = 1, src: int = SHORT, tgt: int = SHORT) -> Work:
    """Both passes over a batch of equally long sentences."""
    model = tl.Transformer(CONFIG).train()
    ids, out = random_ids(rows, src), random_ids(rows, tgt)
    loss = partial(tl.fused_loss, targets=out, pad_id=tl.PAD)

    def work() -> None:
        model(ids, out, head=loss).loss.backward()
        model.zero_grad()

    flops = training_flops(
        CONFIG, rows * src, rows * tgt, src_length=src, tgt_length=tgt
    )
    return work, flops


def writing(
    *, rows: int = 1, src: int = SHORT, tgt: int = SHORT, beam: int = 1
) -> Work:
    """`tgt` steps of beam search; nothing ends before."""
    model = tl.Transformer(CONFIG).eval()
    model.output.weight.data[tl.EOS] = 0  # never among the best
    ids = random_ids(rows, src)

    @torch.inference_mode()
    def work() -> None:
        beams, found = open_beams(model, ids), [Kept(beam) for _ in ids]
        for _ in range(tgt):
            advance(model, beams, found, beam, 0.6)

    # A step looks at what is there: half of T x T scores, as in the paper's
    # Table 1; `forward_flops` counts whole squares.
    flops = forward_flops(
        CONFIG,
        rows * src,
        rows * beam * tgt,
        src_length=src,
        tgt_length=tgt / 2,
    )
    return work, flops


def attention(length: int, *, fused: bool) -> Work:
    """Both passes of one attention of eight heads over one sentence."""
    q, k, v = torch.randn(3, 1, 8, length, 64).requires_grad_().unbind()

    def work() -> None:
        if fused:
            fused_attention(q, k, v).sum().backward()
        else:
            scaled_dot_product(q, k, v)[0].sum().backward()

    return work, 3 * 2 * 2 * 8 * 64 * float(length) ** 2


def preparing(pairs: int, place: Path) -> Work:
    """A corpus of numbers, from text files to ids on disk."""
    for lang, write in (("en", english), ("de", german)):
        rng = random.Random(0)
        with (place / f"train.{lang}").open("w", encoding="utf-8") as file:
            for _ in range(pairs):
                file.write(f"{write(draw_number(rng))}\n")
    # A sample of the text and a shard are in memory: small ones, so that the
    # largest corpus here is many times as large as both.
    corpus.SHARD = 5000
    splits = {"train": str(place / "train")}
    config = tl.CorpusConfig(
        name="files", splits=splits, vocab_size=100, sample=1000
    )

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=place) as cache:
            os.environ["TRANSFORMER_LIT_CACHE"] = cache
            tl.prepare(config)

    return work, None


def opening(size: int, folder: Path) -> Work:
    """A shard of so many bytes, and a pair from its middle."""
    pairs = size // 120  # 20 ids of two bytes and an end of eight, each side
    with (folder / "train-00000.ids").open("wb") as file:
        file.truncate(pairs * 80)
    ends = 20 * np.arange(1, 2 * pairs + 1, dtype=np.int64)
    ends.tofile(folder / "train-00000.ends")
    about = json.dumps({"pairs": pairs})
    (folder / "train-00000.json").write_text(about)

    def work() -> None:
        src, tgt = corpus.EncodedSplit(folder, "train")[pairs // 2]
        assert len(src) == len(tgt) == 20

    return work, None


def work_of(series: str, size: int, folder: Path) -> Work:
    """What a point of a series measures; it may write into the folder."""
    kind, _, what = series.partition(": ")
    name = {"source length": "src", "target length": "tgt", "beam": "beam"}
    options = {name.get(what, "rows"): size}
    match kind:
        case "training":
            return training(**options)
        case "writing":
            return writing(**options)
        case "preparing":
            return preparing(size, folder)
        case "opening":
            return opening(size, folder)
    return attention(size, fused=kind.endswith("fused"))


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(series: str, size: int, threads: int, rounds: int) -> Point:
    """A point, in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        work, flops = work_of(series, size, Path(folder))
        before, times = peak_bytes(), []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
            if sum(times) > 60 and len(times) > 1:
                break
    seconds = statistics.median(times[1:])  # the first sets things up
    more = peak_bytes() - before
    return {"size": size, "seconds": seconds, "bytes": more, "flops": flops}


def growth(
    *,
    series: tuple[str, ...] = (),
    threads: int = 2,
    rounds: int = 5,
    out: Path = RESULT,
) -> int:
    """Measure what is missing.

    Args:
        series: the beginnings of their names; none: all.
        threads: of torch.
        rounds: timed turns; the median counts.
        out: the record.
    """
    about = {**machine("cpu"), "threads": threads, "rounds": rounds}
    record = resume(out, about)
    points = record.setdefault("series", {})
    todo = [
        (name, size)
        for name, sizes in SERIES.items()
        if not series or name.startswith(series)
        for size in sizes
        if size not in [point["size"] for point in points.get(name, [])]
    ]
    for name, size in tqdm(todo, unit=" points", disable=None):
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            point = alone.submit(measure, name, size, threads, rounds).result()
        points.setdefault(name, []).append(point)
        save(out, record)
    return 0
