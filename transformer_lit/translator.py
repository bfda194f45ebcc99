"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import transformer_lit
from transformer_lit.batches import pad, rectangles
from transformer_lit.config import TransformerConfig
from transformer_lit.decoding import (
    Hypothesis,
    beam_search,
    check_search,
    greedy_search,
)
from transformer_lit.hardware import ROUTE
from transformer_lit.model import Transformer, load_model
from transformer_lit.tokenizer import Vocabulary, load_vocabulary


# 06_1_translation: A translator
@dataclass(frozen=True)
class Search:
    """How to look for an output; the defaults are section 6.1's.

    An option that makes no sense is a ValueError at once.

    Attributes:
        beam_size: how many outputs grow at a time; 1: greedy search.
        alpha: the exponent of the length penalty.
        max_extra: how many tokens longer than its source an output may be.
        n_best: how many outputs are wanted of each sentence.
    """

    beam_size: int = 4
    alpha: float = 0.6
    max_extra: int = 50
    n_best: int = 1

    def __post_init__(self) -> None:
        check_search(self.beam_size, self.alpha, self.max_extra, self.n_best)

    def __call__(
        self, model: Transformer, src: Tensor
    ) -> list[list[Hypothesis]]:
        """The best outputs of each source sentence [B, S]."""
        if self.beam_size == self.n_best == 1:
            return greedy_search(model, src, max_extra=self.max_extra)
        return beam_search(
            model,
            src,
            beam_size=self.beam_size,
            alpha=self.alpha,
            max_extra=self.max_extra,
            n_best=self.n_best,
        )


SHIPPED = Path(transformer_lit.__path__[0]) / "models"
"""Where the models that come with the package lie, one folder each."""


def find_model(name: str | Path) -> Path:
    """The folder of a shipped model, of a model, or of a run's best model.

    Raises:
        ValueError: there is no such model.
    """
    shipped = sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))
    folder = SHIPPED / name if name in shipped else Path(name)
    newest = sorted((folder / "checkpoints").glob("step-*"))[::-1]
    for place in (folder, folder / "averaged", folder / "best", *newest):
        if (place / "weights.safetensors").is_file():
            return place
    if folder.is_dir():
        raise ValueError(f"{folder} holds no model and no run with one")
    raise ValueError(
        f"no model {str(name)!r}: shipped are {', '.join(shipped)}; "
        "or give a folder"
    )


Fault = Callable[[int, str], None]
"""Called with the number of a line that cannot be read, and why."""


def refuse(number: int, reason: str) -> None:
    """The `Fault` that raises a ValueError."""
    raise ValueError(f"line {number}: {reason}")


@dataclass(frozen=True)
class Translation:
    """An output as text.

    Attributes:
        text: the words.
        score, log_prob: as in `Hypothesis`.
    """

    text: str
    score: float
    log_prob: float


def best_text(found: list[Translation]) -> str:
    """The best translation's text; of nothing, nothing."""
    return found[0].text if found else ""


def check_texts(texts: Iterable[str], **sizes: int) -> None:
    """Raise a ValueError for one text in place of many, or a size below 1."""
    if isinstance(texts, str):
        raise ValueError(f"give a list of texts, as in [{texts!r}]")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size} must be at least 1")


def check_fit(vocabulary: Vocabulary, config: TransformerConfig) -> None:
    """Raise a ValueError for a vocabulary too large for a model."""
    if len(vocabulary) > config.vocab_size:
        raise ValueError(
            f"the vocabulary has {len(vocabulary)} entries, the model "
            f"{config.vocab_size}: they do not belong together"
        )


def check_engine(engine: str, precision: str) -> None:
    """Raise a ValueError for what cannot compute, or not so precisely."""
    if engine not in ("torch", "ctranslate2"):
        raise ValueError(f"engine={engine!r} must be 'torch' or 'ctranslate2'")
    if precision not in ("fp32", "bf16"):
        raise ValueError(f"precision={precision!r} must be 'fp32' or 'bf16'")
    if (engine, precision) == ("ctranslate2", "bf16"):
        raise ValueError(
            "precision='bf16' is torch's; for ctranslate2 choose one when you "
            "export the model (--quantization)"
        )


class SourceTranslator:
    """From source ids to translations; see `Translator`."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary) -> None:
        check_fit(vocabulary, model.config)
        self.model, self.config = model, model.config
        self.vocabulary = vocabulary

    def prepare(self, text: str) -> list[int]:
        """Source ids of a text.

        Raises:
            ValueError: the text is nothing that this model reads.
        """
        return self.vocabulary.src_ids(text)

    def read_ids(
        self, sources: list[list[int]], search: Search, batch_tokens: int
    ) -> list[list[Translation]]:
        """Translate sources, longest first; an empty one gets no output."""
        found: list[list[Translation]] = [[] for _ in sources]
        lengths = np.array([[len(ids)] for ids in sources]).reshape(-1, 1)
        eos_id = self.config.eos_id
        full = [i for i, ids in enumerate(sources) if set(ids) - {eos_id}]
        full.sort(key=lambda i: -len(sources[i]))
        for batch in rectangles(lengths, np.array(full, int), batch_tokens):
            hypotheses = self.find([sources[i] for i in batch], search)
            for i, kept in zip(batch, hypotheses, strict=True):
                found[i] = [self.translation(one) for one in kept]
        return found

    def find(
        self, sources: list[list[int]], search: Search
    ) -> list[list[Hypothesis]]:
        """The best outputs of each source of a batch."""
        device = next(self.model.parameters()).device
        src = pad(sources, self.config.pad_id)
        return search(self.model, src.to(device))

    def translation(self, found: Hypothesis) -> Translation:
        """A hypothesis as text."""
        text = self.vocabulary.text(found.tokens)
        return Translation(text, found.score, found.log_prob)


def read_line(
    translator: SourceTranslator, number: int, line: str, on_fault: Fault | None
) -> list[int]:
    """Source ids of a line; none if it has a fault."""
    try:
        return translator.prepare(line.rstrip("\r\n"))
    except ValueError as error:
        (on_fault or refuse)(number, str(error))
        return []


class Translator(SourceTranslator):
    """A trained model together with its vocabulary: text in, text out.

    Args:
        model: a model in eval mode.
        vocabulary: the one it was trained with.

    The options `search` of the methods are the fields of `Search`, and
    `batch_tokens` limits the source positions of a batch.

    Raises:
        ValueError: the vocabulary is too large for the model.
    """

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path,
        *,
        engine: str = "torch",
        precision: str = "fp32",
    ) -> "Translator":
        """A shipped model by name, a model's folder, or a run's folder.

        Args:
            name_or_folder: which model; for "ctranslate2" also the folder
                of an exported one.
            engine: what computes it: "torch" or "ctranslate2".
            precision: of weights and products, torch's only: "fp32" or
                "bf16".

        Raises:
            ValueError: there is no such model, engine or precision, or it is
                damaged.
        """
        check_engine(engine, precision)
        if engine == "ctranslate2":
            from transformer_lit.ctranslate import load_fast

            return load_fast(name_or_folder)
        folder = find_model(name_or_folder)
        model = load_model(folder)
        if precision == "bf16":
            model = model.bfloat16()
        return cls(model, load_vocabulary(folder))

    def hypotheses(
        self, texts: list[str], *, batch_tokens: int = 4096, **search: Any
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, the best first.

        An empty text has none, if the model reads such texts at all.

        Raises:
            ValueError: a text is nothing that this model reads; nothing is
                translated then.
        """
        check_texts(texts, batch_tokens=batch_tokens)
        sources = [self.prepare(text) for text in texts]
        return self.read_ids(sources, Search(**search), batch_tokens)

    def translate(self, texts: list[str], **options: Any) -> list[str]:
        """Translate texts, in their order; options as in `hypotheses`."""
        return [best_text(one) for one in self.hypotheses(texts, **options)]

    def hypotheses_lines(
        self,
        lines: Iterable[str],
        *,
        on_fault: Fault | None = None,
        block: int = 4096,
        batch_tokens: int = 4096,
        **search: Any,
    ) -> Iterator[list[Translation]]:
        """As `hypotheses`, one block of lines after the other.

        Args:
            lines: a text each; a file, say, of any length.
            on_fault: told of a line that the model does not read, which
                then has no translation; None: a ValueError names it.
            block: how many lines are held at a time.
        """
        check_texts(lines, block=block, batch_tokens=batch_tokens)
        numbered, how = enumerate(lines, start=1), Search(**search)
        while chunk := list(itertools.islice(numbered, block)):
            sources = [read_line(self, *line, on_fault) for line in chunk]
            yield from self.read_ids(sources, how, batch_tokens)

    def translate_lines(
        self, lines: Iterable[str], **options: Any
    ) -> Iterator[str]:
        """As `translate`, block by block; options as `hypotheses_lines`."""
        for found in self.hypotheses_lines(lines, **options):
            yield best_text(found)


# 06_1_translation: A file, by several processes
LOADED: list[Translator] = []
"""Of a process that translates blocks: its translator."""


@contextmanager
def unheard() -> Iterator[None]:
    """Processes that start meanwhile do not hear Ctrl-C at first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def start_worker(threads: int, route: str) -> None:
    """Make this process ready to translate blocks.

    Args:
        threads: torch's in this process.
        route: of fp32 products, as in section 5.2.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once
    torch.set_num_threads(threads)
    ROUTE.fp32_precision = route


def translate_block(
    lines: list[str], load: dict[str, Any], options: dict[str, Any]
) -> tuple[list[list[Translation]], list[tuple[int, str]]]:
    """The translations of lines, and the faults: the line, from 1, and why."""
    if not LOADED:
        LOADED.append(Translator.load(**load))
    faults: list[tuple[int, str]] = []
    found = LOADED[0].hypotheses_lines(
        lines, on_fault=lambda *fault: faults.append(fault), **options
    )
    return list(found), faults


def in_order(
    pool: ProcessPoolExecutor,
    blocks: Iterator[list[str]],
    ahead: int,
    how: tuple[dict[str, Any], dict[str, Any]],
) -> Iterator[tuple[list[list[Translation]], list[tuple[int, str]]]]:
    """What `translate_block` finds in each block, `ahead` at a time."""
    sent: deque[Future[Any]] = deque()
    while True:
        for block in itertools.islice(blocks, ahead - len(sent)):
            sent.append(pool.submit(translate_block, block, *how))
        if not sent:
            return
        yield sent.popleft().result()


def hypotheses_by_processes(
    processes: int,
    lines: Iterable[str],
    *,
    load: dict[str, Any],
    on_fault: Fault | None = None,
    block: int = 256,
    **options: Any,
) -> Iterator[list[Translation]]:
    """As `Translator.hypotheses_lines`, by several processes.

    Args:
        processes: how many; torch's threads are shared out among them.
        lines, on_fault, block: as there.
        load: the arguments of `Translator.load`, by name.
        options: the others, as there.

    Raises:
        ValueError: as there, or a process was ended from outside.
    """
    check_texts(lines, processes=processes, block=block)
    threads = max(1, torch.get_num_threads() // processes)
    start = (threads, ROUTE.fp32_precision)
    source, first = iter(lines), 0
    blocks = iter(lambda: list(itertools.islice(source, block)), [])
    with ProcessPoolExecutor(
        processes, get_context("spawn"), start_worker, start
    ) as pool:
        try:
            with unheard():
                for _ in range(processes):
                    pool.submit(int)  # each of these starts a process
            how = (load, options)
            for found, faults in in_order(pool, blocks, 2 * processes, how):
                for number, reason in faults:
                    (on_fault or refuse)(first + number, reason)
                first += len(found)
                yield from found
        except BrokenProcessPool:
            raise ValueError(
                "a process was ended before its work was done, perhaps for "
                "want of memory: take fewer processes"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


__all__ = [
    "Fault",
    "LOADED",
    "SHIPPED",
    "Search",
    "SourceTranslator",
    "Translation",
    "Translator",
    "best_text",
    "check_engine",
    "check_fit",
    "check_texts",
    "find_model",
    "hypotheses_by_processes",
    "in_order",
    "read_line",
    "refuse",
    "start_worker",
    "translate_block",
    "unheard",
]
