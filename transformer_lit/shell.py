"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

import tyro
from tqdm import tqdm

from transformer_lit.averaging import average as write_average
from transformer_lit.averaging import best_checkpoints, last_checkpoints
from transformer_lit.bleu import PROTOCOLS
from transformer_lit.bleu import score as score_lines
from transformer_lit.ctranslate import convert
from transformer_lit.hardware import fast_matmul
from transformer_lit.translator import (
    Translation,
    Translator,
    best_text,
    hypotheses_by_processes,
)


# 06_1_translation: From the shell
def read_lines(path: Path) -> list[str]:
    """The lines of a text file.

    Raises:
        ValueError: it cannot be read; the message is one line.
    """
    try:
        text = path.read_text("utf-8-sig")  # Windows may put a mark first
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None
    return text.removesuffix("\n").split("\n") if text else []


@contextlib.contextmanager
def written_whole(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when all of it is written."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


class Faults:
    """Reports lines that cannot be read, one line each, and counts them."""

    def __init__(self, numbered: bool) -> None:
        self.numbered, self.count = numbered, 0

    def __call__(self, number: int, reason: str) -> None:
        self.count += 1
        where = f"line {number}: " if self.numbered else ""
        print(f"transformer-lit: {where}{reason}", file=sys.stderr)


@contextlib.contextmanager
def told_matmul(wanted: bool, width: int) -> Iterator[None]:
    """`fast_matmul` if wanted; says so where it makes a difference."""
    first = os.environ.get("RANK", "0") == "0"  # of several processes
    chosen = fast_matmul(width) if wanted else contextlib.nullcontext(1.0)
    with chosen as gain:
        if gain > 1 and first:
            print(
                f"fp32 products by oneDNN: {gain:.1f} times as fast here, and "
                "as precise (--no-fast-matmul leaves them to MKL)",
                file=sys.stderr,
            )
        yield


def lines_to_read(words: tuple[str, ...], path: Path | None) -> Iterable[str]:
    """Words as one line, or the lines of a file or of standard input."""
    if words and path:
        raise ValueError("give words or --input, not both")
    if path:
        return tqdm(read_lines(path), unit=" lines", disable=None)
    return [" ".join(words)] if words else sys.stdin


def shown(
    found: Iterable[list[Translation]], n_best: int | None
) -> Iterator[str]:
    """The lines to print: the best texts, or tables of the n best."""
    for number, kept in enumerate(found, start=1):
        if n_best is None:
            yield best_text(kept)
        else:
            for one in kept:
                yield f"{number}\t{one.score:.4f}\t{one.text}"


def translate(
    words: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    model: str = "numbers",
    input: Path | None = None,
    output: Path | None = None,
    beam_size: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int | None = None,
    engine: str = "torch",
    precision: str = "fp32",
    processes: int = 1,
    fast_matmul: bool = True,
) -> int:
    """Translate words, or the lines of a file or of standard input.

    Args:
        words: the text; several words make one sentence.
        model: a shipped model's name, a model's folder, or a run's.
        input: a file to translate line by line.
        output: where to write; standard output if it is not given.
        beam_size: how many outputs grow at a time; 1: greedy search.
        alpha: the exponent of the length penalty.
        max_extra: how many tokens longer than its source an output may be.
        n_best: show so many, as a table: line number, score, text.
        engine: what computes: torch or ctranslate2.
        precision: of torch's weights: fp32, or bf16, which is faster.
        processes: for lines: so many work side by side, one a core at best.
        fast_matmul: for lines, take the faster route of products (5.2).
    """
    lines = lines_to_read(words, input)
    load = {"name_or_folder": model, "engine": engine, "precision": precision}
    translator = Translator.load(**load)
    faults = Faults(numbered=not words)
    team = partial(hypotheses_by_processes, processes, load=load)
    found = (translator.hypotheses_lines if processes == 1 else team)(
        lines,
        on_fault=faults,
        block=256,
        beam_size=beam_size,
        alpha=alpha,
        max_extra=max_extra,
        n_best=1 if n_best is None else n_best,
    )
    printed: Iterable[str] = shown(found, n_best)
    if words:
        printed = list(printed)  # all at once, to know of a fault before
        if faults.count:
            return 2
    in_fp32 = (engine, precision) == ("torch", "fp32")
    # To find out which route is faster is not worth it for one sentence.
    route = told_matmul(
        fast_matmul and in_fp32 and not words, translator.config.d_model
    )
    with written_whole(output) as file, route:
        for line in printed:  # for a faulty line an empty one
            print(line, file=file)
    return 2 if faults.count else 0


def score(
    hyp: Annotated[Path, tyro.conf.Positional],
    ref: Annotated[Path, tyro.conf.Positional],
    /,
    protocol: tuple[str, ...] = (),
    language: str = "de",
) -> int:
    """Score a file of outputs against a file of references.

    Args:
        hyp: the outputs, a line each.
        ref: the references, in the same order.
        protocol: which ones; none: all that are meant for plain text.
        language: of the text.
    """
    names = protocol or [name for name, p in PROTOCOLS.items() if p.raw]
    outputs, references = read_lines(hyp), read_lines(ref)
    for name in names:
        found = score_lines(
            outputs=outputs,
            references=references,
            protocol=name,
            language=language,
        )
        print(found)
    return 0


def average(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    last: int | None = None,
    best: int | None = None,
    out: Path | None = None,
) -> int:
    """Average checkpoints of a run into one model.

    Args:
        run: the run's folder.
        last: so many of the newest.
        best: so many of the least validation loss.
        out: the folder to write; RUN/averaged if it is not given.
    """
    if last is not None and best is None:
        folders = last_checkpoints(run, last)
    elif best is not None and last is None:
        folders = best_checkpoints(run, best)
    else:
        raise ValueError("give --last N or --best N, one of the two")
    try:
        write_average(folders, out or run / "averaged")
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from None
    print(f"averaged {', '.join(folder.name for folder in folders)}")
    return 0


# 06_1_translation: Two searches that differ
def export(
    run: Annotated[str, tyro.conf.Positional],
    /,
    out: Path,
    to: str = "ctranslate2",
    quantization: str | None = None,
) -> int:
    """Write a model for another library.

    Args:
        run: a shipped model's name, a model's folder, or a run's.
        out: the folder to write.
        to: the library; there is one, ctranslate2.
        quantization: what to store weights in, as int8; float32 if not given.
    """
    if to != "ctranslate2":
        raise ValueError(f"to={to!r}: models are exported to ctranslate2")
    try:
        convert(Translator.load(run), out, quantization)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from None
    print(f"{out}: to be used with --engine {to}")
    return 0


__all__ = [
    "Faults",
    "average",
    "export",
    "lines_to_read",
    "read_lines",
    "score",
    "shown",
    "told_matmul",
    "translate",
    "written_whole",
]
