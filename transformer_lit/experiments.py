"""6.2 Model variations.

From book/06_2_variations.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import hashlib
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import torch
import tyro
from torch import Tensor, nn

import transformer_lit
from transformer_lit.attention import MultiHeadAttention
from transformer_lit.batches import Batch, make_batch, plan_epoch
from transformer_lit.config import BOS, PAD, TABLE_3, TransformerConfig
from transformer_lit.corpus import CorpusConfig, EncodedSplit, prepare
from transformer_lit.loss import fused_loss, label_smoothed_loss
from transformer_lit.model import Transformer
from transformer_lit.numbers import (
    EINER,
    LIMIT,
    TENS,
    UNITS,
    ZEHNER,
    NumberVocabulary,
    draw_number,
    encode_pair,
    english,
    german,
    is_held_out,
    split_german,
)
from transformer_lit.optimizer import noam, noam_rate
from transformer_lit.tokenizer import write_file
from transformer_lit.translator import Translator


# 06_2_variations: How far to trust a run
class Interval(NamedTuple):
    """A mean and where it lies.

    Attributes:
        mean: of what was measured.
        low, high: the interval.
    """

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 if zero lies outside, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def bootstrap(
    values: list[float], *, level: float = 0.95, draws: int = 10_000
) -> Interval:
    """The percentile bootstrap of a mean.

    Args:
        values: one a seed; for a difference, the differences by seed.
        level: the share of resampled means within the interval.
        draws: how often is resampled, always with the same random numbers.
    """
    data, rng = np.asarray(values, float), np.random.default_rng(0)
    chosen = rng.integers(len(data), size=(draws, len(data)))
    edges = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(data[chosen].mean(1), edges)
    return Interval(float(data.mean()), float(low), float(high))


# 06_2_variations: One row, one run
@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a study: all that a run depends on, but for its seed.

    Attributes:
        model: fields of `TransformerConfig` other than its defaults.
        build: what makes the model of them, a name in `BUILDERS`.
        task: what it learns and how it is scored, a name in `TASKS`.
        steps: updates.
        warmup, factor: of the schedule, section 5.3.
        ramp: False: begin with the highest rate instead of growing to it.
        smoothing: of the labels, section 5.4.
    """

    model: dict[str, Any]
    build: str = "paper"
    task: str = "numbers"
    steps: int = 300
    warmup: int = 100
    factor: float = 0.5
    ramp: bool = True
    smoothing: float = 0.1


def rate(row: Row, step: int, d_model: int) -> float:
    """The learning rate of an update of a run.

    Args:
        row: the run's.
        step: counted from 1.
        d_model: D.
    """
    if not row.ramp:
        step = max(step, row.warmup)
    return noam_rate(step, d_model, row.warmup, row.factor)


T = TypeVar("T")

BUILDERS: dict[str, Callable[[TransformerConfig], Transformer]] = {
    "paper": Transformer,
}
"""From a configuration to a model; add your own."""


def named(table: Mapping[str, T], name: str) -> T:
    """An entry of a table.

    Raises:
        ValueError: there is none of that name; the message lists them.
    """
    if name not in table:
        raise ValueError(f"no {name!r}; take one of {', '.join(table)}")
    return table[name]


@dataclass(frozen=True)
class Task:
    """What a model learns, and how it is scored.

    Attributes:
        vocab_size: W.
        batches: what it learns from.
        score: a trained model, in eval mode, to named numbers.
    """

    vocab_size: int
    batches: Iterator[Batch]
    score: Callable[[Transformer], dict[str, float]]


def trained(row: Row, task: Task, seed: int) -> Transformer:
    """A model of a row, trained on a task; it comes in eval mode.

    Raises:
        ValueError: the row names no builder, or an impossible model.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=task.vocab_size, **row.model)
    model = named(BUILDERS, row.build)(config)
    adam, _ = noam(model)
    for step, batch in enumerate(islice(task.batches, row.steps), start=1):
        for group in adam.param_groups:
            group["lr"] = rate(row, step, config.d_model)
        adam.zero_grad()
        head = partial(
            fused_loss,
            targets=batch.tgt_out,
            pad_id=PAD,
            smoothing=row.smoothing,
        )
        sums = model(batch.src, batch.tgt_in, head=head)
        (sums.loss / sums.tokens).backward()
        adam.step()
    return model.eval()


# 06_2_variations: What it learns, and how it is scored
Belongs = Callable[[int], bool]
"""Whether a number belongs to a set."""


def known_number(rng: random.Random, known: Belongs) -> int:
    """As `draw_number`, a number that is `known`."""
    number = draw_number(rng)
    while not known(number):
        number = draw_number(rng)
    return number


def known_batches(known: Belongs, *, size: int, seed: int) -> Iterator[Batch]:
    """As `number_batches`, of the numbers alone that are `known`."""
    rng, vocabulary = random.Random(seed), NumberVocabulary()
    while True:
        numbers = [known_number(rng, known) for _ in range(size)]
        pairs = [encode_pair(vocabulary, number) for number in numbers]
        yield make_batch(pairs, pad_id=PAD, bos_id=BOS)


def held_out(belongs: Belongs) -> Belongs:
    """The numbers of a set that are never trained on."""
    return lambda number: is_held_out(number) and belongs(number)


def sample(belongs: Belongs, count: int, seed: int = 0) -> list[int]:
    """Different numbers of a set, each as likely as another."""
    rng = random.Random(seed)
    found: dict[int, None] = {}  # keeps their order
    while len(found) < count:
        number = rng.randrange(LIMIT)
        if belongs(number):
            found[number] = None
    return list(found)


def right(model: Transformer, numbers: list[int]) -> float:
    """The share of numbers translated letter for letter, by greedy search."""
    translator = Translator(model, NumberVocabulary())
    texts = [english(number) for number in numbers]
    outputs = translator.translate(texts, beam_size=1)
    pairs = zip(outputs, numbers, strict=True)
    return sum(word == german(n) for word, n in pairs) / len(numbers)


@torch.inference_mode()
def mean_nll(model: Transformer, batches: list[Batch]) -> float:
    """The negative log-likelihood without smoothing, in nats per token."""
    nll = tokens = 0.0
    for batch in batches:
        logits = model(batch.src, batch.tgt_in)
        sums = label_smoothed_loss(logits, batch.tgt_out, pad_id=PAD)
        nll, tokens = nll + float(sums.nll), tokens + float(sums.tokens)
    return nll / tokens


TESTED = 500
"""The numbers of a test."""


def numbers_task(
    seed: int,
    tested: int = TESTED,
    *,
    known: Belongs = lambda number: True,
    tests: dict[str, Belongs] | None = None,
    size: int = 32,
) -> Task:
    """Number words, English to German.

    Args:
        seed: of the numbers to learn from.
        tested: how many numbers a test has, the same for every seed.
        known: which of them may be learned from.
        tests: what to score on, exact match by name; None: the numbers held
            out in section 5.1. The NLL is that of the first.
        size: B, pairs in a batch.
    """
    tests = tests or {"exact": is_held_out}
    samples = {name: sample(fits, tested) for name, fits in tests.items()}

    def score(model: Transformer) -> dict[str, float]:
        found = {name: right(model, ns) for name, ns in samples.items()}
        first, vocabulary = next(iter(samples.values())), NumberVocabulary()
        pairs = [encode_pair(vocabulary, number) for number in first]
        batch = make_batch(pairs, pad_id=PAD, bos_id=BOS)
        return {**found, "nll": mean_nll(model, [batch])}

    batches = known_batches(known, size=size, seed=seed)
    return Task(len(NumberVocabulary()), batches, score)


TaskMaker = Callable[[int, int], Task]
"""From a seed and the size of a test to a task."""

TASKS: dict[str, TaskMaker] = {"numbers": numbers_task}
"""What can be learned; add your own."""


def measure(row: Row, seed: int, tested: int = TESTED) -> dict[str, float]:
    """Train a row and score it.

    Args:
        row: what to train.
        seed: of the weights, of dropout and of the data.
        tested: the examples of a test.
    """
    task = named(TASKS, row.task)(seed, tested)
    return task.score(trained(row, task, seed))


# 06_2_variations: Table 3 in miniature
WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


def miniature(row: str) -> dict[str, Any]:
    """A row of Table 3 with widths an eighth and half the layers.

    Args:
        row: its name in `TABLE_3`.
    """
    base = {"n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8}
    found = {**base, **named(TABLE_3, row)}
    small = {width: found[width] // 8 for width in WIDTHS if width in found}
    return {**found, **small, "n_layers": found["n_layers"] // 2}


def table3_rows(**recipe: Any) -> dict[str, Row]:
    """Every row of Table 3, as `miniature` shrinks it.

    Args:
        recipe: fields of `Row` for all of them.
    """
    base = Row(model={}, **recipe)
    rows = {name: replace(base, model=miniature(name)) for name in TABLE_3}
    rows["D.ls0"] = replace(rows["D.ls0"], smoothing=0.0)
    rows["D.ls2"] = replace(rows["D.ls2"], smoothing=0.2)
    rows["big"] = replace(rows["big"], steps=3 * base.steps)
    return rows


class Contrast(NamedTuple):
    """A comparison that a study makes: one score minus another.

    Attributes:
        row, score: which score of which row.
        to_row, to_score: what is subtracted.
        expected: the sign that we expect, -1 or 1; 0: no difference.
    """

    row: str
    score: str
    to_row: str
    to_score: str
    expected: int


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question for runs to answer.

    Attributes:
        question: what is asked.
        hypothesis: what we expect; written before the runs.
        limits: what the answer will not show.
        rows: what is trained, by name.
        contrasts: what is compared, by name; chosen before the runs.
        seeds: how many runs each row has.
    """

    question: str
    hypothesis: str
    limits: str
    rows: dict[str, Row]
    contrasts: dict[str, Contrast]
    seeds: int = 5


def against(base: str, score: str, expected: str) -> dict[str, Contrast]:
    """Contrasts of rows with a base row in one score.

    Args:
        base: the row to compare with.
        score: the score to compare.
        expected: rows and signs, such as "A.h1 - A.h4 0".
    """
    signs = {"-": -1, "0": 0, "+": 1}
    parts = expected.split()
    return {
        row: Contrast(row, score, base, score, signs[sign])
        for row, sign in zip(parts[::2], parts[1::2], strict=True)
    }


STUDIES: dict[str, Study] = {}
"""What can be run, by name; add your own."""

STUDIES["table3"] = Study(
    question="Which rows of Table 3 keep their sign on number words?",
    hypothesis=(
        "Narrow and few things lose: one head, heads of width 2, narrow "
        "keys, one layer, narrow models and inner layers. Wide ones win, "
        "and so does the big model. Half as many heads or twice as many "
        "change nothing, nor do two layers instead of three; four are too "
        "deep for 300 updates. Dropout costs, since nothing can be learned "
        "by heart. Smoothing changes perplexity, not the words. Learned "
        "positions change nothing."
    ),
    limits=(
        "One small task, data without end, 300 updates, far from "
        "convergence: it ranks how fast rows learn. It says nothing about "
        "translation. Where the paper disagrees, both may be right."
    ),
    rows=table3_rows(),
    contrasts={
        **against(
            "base",
            "exact",
            "A.h1 - A.h4 0 A.h16 0 A.h32 - B.dk16 - B.dk32 - C.N2 - C.N4 0 "
            "C.N8 - C.d256 - C.d1024 + C.ff1024 - C.ff4096 + D.drop0 + "
            "D.drop2 - D.ls0 0 D.ls2 0 E.learned 0 big +",
        ),
        "D.ls0, NLL": Contrast("D.ls0", "nll", "base", "nll", -1),
        "D.ls2, NLL": Contrast("D.ls2", "nll", "base", "nll", 1),
    },
)


# 06_2_variations: Many runs, and what they found
def run_file(row: Row, seed: int, tested: int, folder: Path) -> Path:
    """The file of a run in a folder; another run has another file."""
    about = [asdict(row), seed, tested, transformer_lit.__version__]
    text = json.dumps(about, sort_keys=True)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def cached(row: Row, seed: int, tested: int, folder: Path) -> dict[str, Any]:
    """What `measure` finds, and its seconds; from `folder`, if it is there.

    The file appears only when the run is over.
    """
    file = run_file(row, seed, tested, folder)
    if not file.exists():
        start = time.perf_counter()
        scores = measure(row, seed, tested)
        seconds = round(time.perf_counter() - start, 1)
        found = {"seconds": seconds, "scores": scores}
        write_file(file, json.dumps(found).encode())
    return dict(json.loads(file.read_text("utf-8")))


def prepare_worker() -> None:
    """One thread a process; an interrupt lets it finish its run."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


Run = tuple[Row, int, int, Path]
"""The arguments of `cached`."""


def all_runs(runs: list[Run], processes: int) -> Iterator[Run]:
    """Do runs, and name each as soon as it is over.

    Args:
        runs: what `cached` is to be called with.
        processes: so many work at the same time; 1: this one alone.
    """
    if processes == 1:
        for run in runs:
            cached(*run)
            yield run
        return
    with ProcessPoolExecutor(
        processes, get_context("spawn"), prepare_worker
    ) as pool:
        jobs = {pool.submit(cached, *run): run for run in runs}
        try:
            for job in as_completed(jobs):
                job.result()  # a run that fails ends the study
                yield jobs[job]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def progress(runs: list[Run], processes: int) -> Iterator[str]:
    """Do runs; a line after each tells how long the rest may take."""
    start, done = time.perf_counter(), 0
    total = sum(row.steps for row, *_ in runs)
    yield f"{len(runs)} runs to do; the first will tell how long it takes"
    for number, (row, *_) in enumerate(all_runs(runs, processes), start=1):
        done += row.steps
        seconds = (time.perf_counter() - start) / done * (total - done)
        minutes = math.ceil(seconds / 60)
        yield f"run {number} of {len(runs)}, about {minutes} min left"


def probe(study: Study, folder: Path) -> dict[str, float]:
    """The scores of the first row after three updates, on 20 examples.

    Args:
        study: whose first row.
        folder: where the scores of the first call are kept.

    Raises:
        ValueError: the scores have changed, and so has the code.
    """
    row = replace(next(iter(study.rows.values())), steps=3)
    if not run_file(row, 0, 20, folder).exists():
        return dict(cached(row, 0, 20, folder)["scores"])
    found, first = measure(row, 0, 20), cached(row, 0, 20, folder)["scores"]
    same = found.keys() == first.keys() and all(
        math.isclose(found[name], first[name], rel_tol=1e-3) for name in first
    )
    if not same:
        raise ValueError(
            "the code has changed since the finished runs were made: "
            f"delete {folder} and give the command again"
        )
    return found


def run_study(
    study: Study,
    folder: Path,
    *,
    processes: int = 1,
    tested: int = TESTED,
    verbose: bool = False,
) -> dict[str, Any]:
    """Run what a study lacks, and return its record.

    Args:
        study: what to run.
        folder: where finished runs are kept.
        processes: so many runs at the same time, one thread each.
        tested: the examples of a test.
        verbose: print the lines of `progress`.

    Raises:
        ValueError: a row is impossible, its data cannot be had, or the code
            has changed since the folder was begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = probe(study, folder)  # a fault shows before the work begins
    places = [(name, s) for s in range(study.seeds) for name in study.rows]
    runs = [(study.rows[name], s, tested, folder) for name, s in places]
    missing = [run for run in runs if not run_file(*run).exists()]
    for line in progress(missing, processes):
        if verbose:
            print(line, flush=True)
    return {
        **asdict(study),
        "tested": tested,
        "torch": torch.__version__,
        "probe": first,
        "runs": [
            {"row": name, "seed": seed, **cached(*run)}
            for (name, seed), run in zip(places, runs, strict=True)
        ],
    }


Record = dict[str, Any]


def scores(record: Record, row: str, score: str) -> list[float]:
    """A score of a row, run by run, in the order of the seeds."""
    runs = [run for run in record["runs"] if run["row"] == row]
    runs.sort(key=lambda run: run["seed"])
    return [run["scores"][score] for run in runs]


def difference(record: Record, contrast: Contrast) -> Interval:
    """What a record says of a contrast, paired by seed."""
    row, score, to_row, to_score, _ = contrast
    one, other = scores(record, row, score), scores(record, to_row, to_score)
    pairs = zip(one, other, strict=True)
    return bootstrap([a - b for a, b in pairs])


def verdict(found: Interval, expected: int) -> str:
    """What became of a hypothesis, in words."""
    if found.sign == expected:
        return "as expected" if expected else "no difference seen"
    if found.sign == 0:
        return "undecided"
    return "the opposite" if expected else "unexpected"


def findings(record: Record) -> list[str]:
    """A line for each contrast of a record."""
    lines = []
    for name, parts in record["contrasts"].items():
        contrast = Contrast(*parts)
        found = difference(record, contrast)
        words = verdict(found, contrast.expected)
        edges = f"[{found.low:+.3f}, {found.high:+.3f}]"
        lines.append(f"{name:20} {found.mean:+.3f} {edges} {words}")
    return lines


GROUPS: dict[str, list[str]] = {"table3": ["table3", "table3_multi30k"]}
"""Studies that one name stands for."""


def experiment(
    name: Annotated[str, tyro.conf.Positional],
    /,
    out: Path = Path("results"),
    work: Path = Path("runs/experiments"),
    processes: int = 0,
) -> int:
    """Run a study of section 6.2 and write its record.

    What is finished is kept: the same command goes on where it stopped.

    Args:
        name: table3, desk (all of the research desk), or one study.
        out: the folder of the records, NAME.json.
        work: the folder of the finished runs, a folder for each study.
        processes: runs at the same time; 0: one for each processor.

    Returns:
        The exit code: 0, or 2 if a study of several had to be left out.
    """
    choices = {one: [one] for one in STUDIES} | GROUPS
    studies = {one: STUDIES[one] for one in named(choices, name)}
    processes, code = processes or os.cpu_count() or 1, 0
    for one, study in studies.items():
        print(f"{one}: {study.question}")
        try:
            record = run_study(
                study, work / one, processes=processes, verbose=True
            )
        except ValueError as error:
            if len(studies) == 1:
                raise
            why = " ".join(str(error).split())  # one line
            print(f"{one} is left out: {why}", file=sys.stderr)
            code = 2
            continue
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        write_file(out / f"{one}.json", text.encode())
        print("\n".join(findings(record)))
    return code


# 06_2_variations: On sentences
def corpus_batches(
    pairs: EncodedSplit, *, tokens: int, seed: int
) -> Iterator[Batch]:
    """Batches of about so many tokens a side, epoch after epoch."""
    lengths = pairs.lengths()
    for epoch in count():
        plan = plan_epoch(
            lengths, tokens=tokens, positions=tokens, seed=seed, epoch=epoch
        )
        for update in plan:
            for rectangle in update:
                chosen = [pairs[int(i)] for i in rectangle]
                yield make_batch(chosen, pad_id=PAD, bos_id=BOS)


def multi30k_task(seed: int, tested: int = 1000) -> Task:
    """Captions, English to German; scored by the NLL on validation pairs.

    Raises:
        ValueError: the corpus cannot be had.
    """
    corpus = CorpusConfig(name="multi30k_tok", vocab_size=2000)
    folder = prepare(corpus)
    valid = EncodedSplit(folder, "valid")
    chosen = [valid[i] for i in range(min(tested, len(valid)))]
    chosen.sort(key=lambda pair: len(pair[1]))
    parts = [chosen[i : i + 50] for i in range(0, len(chosen), 50)]
    batches = [make_batch(part, pad_id=PAD, bos_id=BOS) for part in parts]
    return Task(
        corpus.vocab_size,
        corpus_batches(EncodedSplit(folder, "train"), tokens=1024, seed=seed),
        lambda model: {"nll": mean_nll(model, batches)},
    )


TASKS["multi30k"] = multi30k_task
CHOSEN = ["base", "A.h1", "A.h32", "B.dk16", "C.N2", "C.d256", "C.d1024"]
CHOSEN += ["D.drop0", "D.drop2", "D.ls0", "E.learned"]
ON_CAPTIONS = table3_rows(task="multi30k", steps=300)

STUDIES["table3_multi30k"] = Study(
    question="And on sentences that people wrote?",
    hypothesis=(
        "As on number words; less NLL is better. One head, 32 heads, narrow "
        "keys, one layer, narrow models and more dropout lose. Wide models "
        "and those without dropout or smoothing win. Learned positions "
        "change nothing."
    ),
    limits=(
        "300 updates see the corpus less than once. Nothing is learned by "
        "heart so early, so rows (D) cannot show what dropout is for. There "
        "is no BLEU: so young a model hardly translates."
    ),
    rows={name: ON_CAPTIONS[name] for name in CHOSEN},
    contrasts=against(
        "base",
        "nll",
        "A.h1 + A.h32 + B.dk16 + C.N2 + C.d256 + C.d1024 - D.drop0 - "
        "D.drop2 + D.ls0 - E.learned 0",
    ),
    seeds=3,
)


# 06_2_variations: Does the division by $\sqrt
def unscaled(config: TransformerConfig) -> Transformer:
    """A model whose attention does not divide by the root of d_k."""
    model = Transformer(config)
    root = math.sqrt(config.head_sizes[0])

    def enlarge(w_q: nn.Module, inputs: Any, q: Tensor) -> Tensor:
        return q * root

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.w_q.register_forward_hook(enlarge)
    return model


BUILDERS["unscaled"] = unscaled


SMALL = {"n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4}
KEY_WIDTHS = (2, 4, 8, 16, 32, 64)


def scale_rows() -> dict[str, Row]:
    """Every width of the keys, with the scale and without."""
    rows = {}
    for d_k in KEY_WIDTHS:
        row = Row(model={**SMALL, "d_k": d_k})
        rows[f"scaled {d_k}"] = row
        rows[f"unscaled {d_k}"] = replace(row, build="unscaled")
    return rows


def scale_contrasts() -> dict[str, Contrast]:
    """Without the scale against with it, for every width."""
    found = {}
    for d_k in KEY_WIDTHS:
        row, to_row = f"unscaled {d_k}", f"scaled {d_k}"
        sign = -1 if d_k > 16 else 0
        found[row] = Contrast(row, "exact", to_row, "exact", sign)
    return found


STUDIES["desk_scale"] = Study(
    question="Does the division by the root of d_k matter?",
    hypothesis=(
        "Not for keys up to 16 wide; from 32 on a model without it learns "
        "more slowly."
    ),
    limits=(
        "Keys of 64 are as wide as the paper's, but the model is an eighth "
        "as wide. The rate was chosen for models with the scale; without it "
        "a lower one may do. Why it matters is not shown."
    ),
    rows=scale_rows(),
    contrasts=scale_contrasts(),
)


# 06_2_variations: Which positions reach farther?
def positioned(config: TransformerConfig, scheme: str) -> Transformer:
    """A model that knows positions in a way of chapter 7.

    Args:
        config: its sizes.
        scheme: a name in `transformer_lit.modern.SCHEMES`.
    """
    # A later chapter: imported only when it is asked for.
    modern = import_module("transformer_lit.modern")
    model: Transformer = modern.with_positions(Transformer(config), scheme)
    return model


for scheme in ("rotary", "alibi", "none"):
    BUILDERS[scheme] = partial(positioned, scheme=scheme)


def word_count(number: int) -> int:
    """How many English words a number has, 1 to 9."""
    return len(english(number).split())


def length_task(seed: int, tested: int = TESTED) -> Task:
    """Learn numbers of at most six words; be tested on up to nine."""
    return numbers_task(
        seed,
        tested,
        known=lambda number: word_count(number) <= 6,
        tests={
            "up to six": held_out(lambda n: word_count(n) <= 6),
            "longer": lambda n: word_count(n) > 6,
            "seven": lambda n: word_count(n) == 7,
            "eight": lambda n: word_count(n) == 8,
            "nine": lambda n: word_count(n) == 9,
        },
    )


TASKS["length"] = length_task
LEARNS = Row(model={**SMALL, "max_len": 64}, task="length", steps=500)
TABLE = {**LEARNS.model, "positions": "learned"}

STUDIES["desk_length"] = Study(
    question="Which positions reach beyond the lengths seen in training?",
    hypothesis=(
        "On longer numbers rotary positions and ALiBi, which tell distances, "
        "do better than sinusoids. Learned vectors do worse, since the later "
        "ones were never trained, and so does a model told no positions."
    ),
    limits=(
        "Three words beyond six are a short way. A longer number is also a "
        "combination of words that was never seen, so a model may fail at "
        "it for another reason than its length."
    ),
    rows={
        "sinusoidal": LEARNS,
        "learned": replace(LEARNS, model=TABLE),
        "rotary": replace(LEARNS, build="rotary"),
        "ALiBi": replace(LEARNS, build="alibi"),
        "none": replace(LEARNS, build="none"),
    },
    contrasts=against(
        "sinusoidal", "longer", "learned - rotary + ALiBi + none -"
    ),
    seeds=10,
)


# 06_2_variations: Does attention align words?
MEANING = {
    **dict(zip(EINER, UNITS, strict=True)),
    **dict(zip(ZEHNER.split(), TENS, strict=True)),
    "ein": "one",
    "hundert": "hundred",
    "tausend": "thousand",
}
"""The English word that a German piece stands for; "und" has none."""


def gold(number: int) -> list[tuple[int, int]]:
    """Which word each German piece translates: places (target, source)."""
    words, seen = english(number).split(), Counter[str]()
    links = []
    for t, piece in enumerate(split_german(german(number))):
        if word := MEANING.get(piece):
            same = [s for s, w in enumerate(words) if w == word]
            links.append((t, same[seen[word]]))
            seen[word] += 1
    return links


Place = tuple[int, int, int]
"""A target place and the two lengths, all that position tells."""


def placed(number: int) -> Iterator[tuple[Place, int]]:
    """Each link of a number: what position tells of it, its source place."""
    source, target = word_count(number), len(split_german(german(number)))
    for t, s in gold(number):
        yield (t, source, target), s


def position_accuracy(known: list[int], numbers: list[int]) -> float:
    """How often the place alone tells the right word.

    Args:
        known: where the most frequent source places are counted.
        numbers: where they are tried.
    """
    seen: dict[Place, Counter[int]] = defaultdict(Counter)
    for number in known:
        for place, s in placed(number):
            seen[place][s] += 1
    guess = {place: count.most_common(1)[0][0] for place, count in seen.items()}
    links = [link for number in numbers for link in placed(number)]
    return sum(guess.get(place) == s for place, s in links) / len(links)


def cross_maps(model: Transformer, batch: Batch) -> Tensor:
    """The weights of attention over the source, [N, B, H, T, S]."""
    maps: list[Tensor] = []
    memory = model.encode(batch.src)
    model.decode(batch.tgt_in, memory, src=batch.src, maps=maps)
    return torch.stack(maps[1::2])  # every second: over the source


@torch.inference_mode()
def head_accuracy(model: Transformer, numbers: list[int]) -> Tensor:
    """How often the largest weight of a head is on the right word, [N, H].

    The weights of a place are those with which its token is written.
    """
    vocabulary = NumberVocabulary()
    pairs = [encode_pair(vocabulary, number) for number in numbers]
    batch = make_batch(pairs, pad_id=PAD, bos_id=BOS)
    largest = cross_maps(model, batch).argmax(-1)  # [N, B, H, T]
    hits = [
        largest[:, b, :, t] == s
        for b, number in enumerate(numbers)
        for t, s in gold(number)
    ]
    return torch.stack(hits).double().mean(0)


@contextmanager
def without_head(model: Transformer, layer: int, head: int) -> Iterator[None]:
    """While this lasts, a head of attention over the source gives zeros.

    Args:
        model: the model.
        layer, head: which one, both counted from 0.
    """
    layers: Any = model.decoder.layers

    def silence(w_o: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        heads = inputs[0].unflatten(-1, (model.config.n_heads, -1)).clone()
        heads[..., head, :] = 0.0  # [B, T, H, V]
        return heads.flatten(-2)

    w_o = layers[layer].cross_attention.w_o
    handle = w_o.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


def ablations(
    model: Transformer, groups: dict[str, list[int]]
) -> dict[str, float]:
    """Exact match without each head in turn, with all, and the worst loss.

    Args:
        model: the model.
        groups: numbers to translate, by name.
    """
    found: dict[str, float] = {}
    for group, numbers in groups.items():
        left = []
        for layer in range(model.config.n_layers):
            for head in range(model.config.n_heads):
                with without_head(model, layer, head):
                    left.append(right(model, numbers))
                found[f"without {layer + 1}.{head + 1}, {group}"] = left[-1]
        whole = right(model, numbers)
        found[f"all heads, {group}"] = whole
        found[f"loss, {group}"] = whole - min(left)
    return found


def has_und(number: int) -> bool:
    """Whether the German word joins units and tens by "und"."""
    return "und" in split_german(german(number))


def alignment_task(seed: int, tested: int = TESTED) -> Task:
    """Number words, scored by what attention over the source looks at."""
    task = numbers_task(seed, tested)
    picked = sample(is_held_out, tested, seed=1)
    numbers = sample(is_held_out, tested, seed=2)
    known = sample(lambda n: not is_held_out(n), 20 * tested)
    groups = {
        "und": sample(held_out(has_und), tested),
        "no und": sample(held_out(lambda n: not has_und(n)), tested),
    }

    def score(model: Transformer) -> dict[str, float]:
        best = int(head_accuracy(model, picked).argmax())
        accuracy = head_accuracy(model, numbers).flatten()
        return {
            **task.score(model),
            "best head": float(accuracy[best]),
            "mean head": float(accuracy.mean()),
            "position": position_accuracy(known, numbers),
            **ablations(model, groups),
        }

    return Task(task.vocab_size, task.batches, score)


TASKS["alignment"] = alignment_task


ALIGNS = "miniature"

STUDIES["desk_alignment"] = Study(
    question="Does attention over the source align words?",
    hypothesis=(
        "The best head finds the right word more often than position alone "
        "can. Taking a single head away costs more where the order of units "
        "and tens turns round."
    ),
    limits=(
        "The best head is picked by its accuracy, though on other numbers; "
        "the head that costs most is picked on the numbers it is tried on. "
        "A head that is taken away leaves a model that never learned to do "
        "without it, so a loss does not show what the head was for. How a "
        "loss is counted was changed after a pilot run."
    ),
    rows={ALIGNS: Row(model=SMALL, task="alignment", steps=1000)},
    contrasts={
        "best head - position": Contrast(
            ALIGNS, "best head", ALIGNS, "position", 1
        ),
        "und - no und": Contrast(
            ALIGNS, "loss, und", ALIGNS, "loss, no und", 1
        ),
    },
)


# 06_2_variations: Which norm needs the warm-up?
DEPTHS = (2, 6, 12)


def norm_rows() -> dict[str, Row]:
    """Where the norm stands, with warm-up and without, at three depths."""
    rows = {}
    for n in DEPTHS:
        sizes = {"n_layers": n, "d_model": 32, "d_ff": 128, "n_heads": 4}
        for norm in ("post", "pre"):
            model = {**sizes, "pre_norm": norm == "pre"}
            row = Row(model=model, warmup=200, factor=0.25)
            rows[f"{norm}, {n}"] = row
            rows[f"{norm}, {n}, no ramp"] = replace(row, ramp=False)
    return rows


def norm_contrasts() -> dict[str, Contrast]:
    """The ramp left out, by norm and depth; pre-norm against post-norm."""
    found = {}
    for n in DEPTHS:
        for norm in ("post", "pre"):
            row, bare = f"{norm}, {n}", f"{norm}, {n}, no ramp"
            sign = 1 if norm == "post" and n > 2 else 0
            found[bare] = Contrast(bare, "nll", row, "nll", sign)
        post, pre = f"post, {n}", f"pre, {n}"
        sign = -1 if n == 12 else 0
        found[f"pre - post, {n}"] = Contrast(pre, "nll", post, "nll", sign)
    return found


STUDIES["desk_norm"] = Study(
    question="Which norm needs the warm-up, and at which depth?",
    hypothesis=(
        "Without the ramp post-norm learns less at 6 and 12 layers; at 2 it "
        "learns as much, and pre-norm does at every depth. With the ramp "
        "pre-norm is ahead at 12 layers only. All in NLL; less is better."
    ),
    limits=(
        "One peak of the learning rate and one length of the ramp. A lower "
        "peak would need the ramp less and help the deep; a fair race would "
        "tune both for every row."
    ),
    rows=norm_rows(),
    contrasts=norm_contrasts(),
)


# 06_2_variations: Can it put together what it never saw together?
def pairs_of(number: int) -> tuple[int, int]:
    """The last two digits of the thousands, and of the rest."""
    return number // 1000 % 100, number % 100


def joins(two_digits: int) -> bool:
    """Whether German writes them with "und"."""
    return two_digits > 20 and two_digits % 10 > 0


PATTERNS: dict[str, Belongs] = {
    "seventy three": lambda n: 73 in pairs_of(n),
    "seventy thousand": lambda n: pairs_of(n)[0] // 10 == 7,
    "und twice": lambda n: all(joins(pair) for pair in pairs_of(n)),
}
"""What is held out: a pair of words, a word in one place, a shape."""


def pattern_task(seed: int, tested: int = TESTED, *, out: str = "") -> Task:
    """Learn all numbers but those of a pattern; be tested on every pattern.

    Args:
        seed, tested: as in `numbers_task`.
        out: the pattern held out; "": none.
    """
    hidden = PATTERNS.get(out, lambda number: False)
    return numbers_task(
        seed,
        tested,
        known=lambda number: not hidden(number),
        tests={name: held_out(fits) for name, fits in PATTERNS.items()},
    )


COMPOSES = Row(model=SMALL, steps=1500)
TASKS["every pattern"] = pattern_task
TASKS |= {f"no {out}": partial(pattern_task, out=out) for out in PATTERNS}
ALL_AND_EACH = ["every pattern", *(f"no {out}" for out in PATTERNS)]

STUDIES["desk_composition"] = Study(
    question="Can a model write numbers of a pattern that it never saw?",
    hypothesis=(
        "Two words that never met are no obstacle. A word in a place where "
        "it never stood is one, and so is a shape that never came twice."
    ),
    limits=(
        "Three patterns of a language with 30 words. That a model fails at "
        "one does not tell why."
    ),
    rows={name: replace(COMPOSES, task=name) for name in ALL_AND_EACH},
    contrasts={
        out: Contrast(f"no {out}", out, "every pattern", out, sign)
        for out, sign in zip(PATTERNS, (0, -1, -1), strict=True)
    },
)

GROUPS["desk"] = [name for name in STUDIES if name.startswith("desk")]


__all__ = [
    "ALIGNS",
    "ALL_AND_EACH",
    "BUILDERS",
    "Belongs",
    "CHOSEN",
    "COMPOSES",
    "Contrast",
    "DEPTHS",
    "GROUPS",
    "Interval",
    "KEY_WIDTHS",
    "LEARNS",
    "MEANING",
    "ON_CAPTIONS",
    "PATTERNS",
    "Place",
    "Record",
    "Row",
    "Run",
    "SMALL",
    "STUDIES",
    "Study",
    "T",
    "TABLE",
    "TASKS",
    "TESTED",
    "Task",
    "TaskMaker",
    "WIDTHS",
    "ablations",
    "against",
    "alignment_task",
    "all_runs",
    "bootstrap",
    "cached",
    "corpus_batches",
    "cross_maps",
    "difference",
    "experiment",
    "findings",
    "gold",
    "has_und",
    "head_accuracy",
    "held_out",
    "joins",
    "known_batches",
    "known_number",
    "length_task",
    "mean_nll",
    "measure",
    "miniature",
    "multi30k_task",
    "named",
    "norm_contrasts",
    "norm_rows",
    "numbers_task",
    "pairs_of",
    "pattern_task",
    "placed",
    "position_accuracy",
    "positioned",
    "prepare_worker",
    "probe",
    "progress",
    "rate",
    "right",
    "run_file",
    "run_study",
    "sample",
    "scale_contrasts",
    "scale_rows",
    "scores",
    "table3_rows",
    "trained",
    "unscaled",
    "verdict",
    "without_head",
    "word_count",
]
