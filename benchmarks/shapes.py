"""The shapes of the cases, some of them from real text."""

import gzip
import os
import random
import re
from pathlib import Path

from benchmarks.cases import Case, Lengths

SPLITS = (
    "newstest/newstest2014.en-de.{}",
    "multi30k/raw/train.{}",
    "multi30k/tok/train.lc.norm.tok.{}",
)
LONGEST = 100
Pairs = list[tuple[int, int]]


def count_tokens(path: Path) -> list[int]:
    """Words and punctuation marks of each line, and one for the end."""
    compressed = path.with_name(f"{path.name}.gz")
    raw = (
        gzip.decompress(compressed.read_bytes())
        if compressed.exists()
        else path.read_bytes()
    )
    lines = raw.decode("utf-8").removesuffix("\n").split("\n")
    return [len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in lines]


def real_lengths(folder: str | None) -> tuple[str, Pairs]:
    """Where lengths come from, and those of some thousand sentence pairs.

    Args:
        folder: with one of `SPLITS`; None: lengths are drawn at random.
    """
    for split in SPLITS if folder else ():
        try:
            src, tgt = (
                count_tokens(Path(str(folder)) / split.format(language))
                for language in ("en", "de")
            )
        except FileNotFoundError:
            continue
        pairs = [p for p in zip(src, tgt, strict=True) if max(p) <= LONGEST]
        return split.format("en/de"), pairs
    rng, pairs = random.Random(0), []
    for _ in range(3000):
        length = min(
            LONGEST * 3 // 4, max(3, round(rng.lognormvariate(3, 0.5)))
        )
        pairs.append((length, max(3, round(length * rng.uniform(0.8, 1.25)))))
    return "drawn at random", pairs


def cut(pairs: Pairs, tokens: int) -> Lengths:
    """Full batches of at most so many target tokens, in the given order."""
    batches: Lengths = [[]]
    for pair in pairs:
        if sum(tgt for _, tgt in batches[-1]) + pair[1] > tokens:
            batches.append([])
        batches[-1].append(pair)
    return batches[:-1]


def by_length(pair: tuple[int, int]) -> tuple[int, int]:
    """What sentences are sorted by."""
    return pair[1], pair[0]


def rows(count: int, src: int, tgt: int) -> Lengths:
    """One batch without padding."""
    return [[(src, tgt)] * count]


def all_cases() -> tuple[str, list[Case]]:
    """Where real lengths come from, and the cases in fp32 at base size."""
    origin, pairs = real_lengths(os.environ.get("TRANSFORMER_LIT_DATA"))
    tokens, count = 900, 3
    mixed = cut(pairs, tokens)[:count]
    alike = cut(sorted(pairs, key=by_length), tokens)
    spread = alike[len(alike) // (2 * count) :: len(alike) // count][:count]
    cases = [
        Case("train 32x28", "train", rows(32, 28, 28)),
        Case("train 8x100", "train", rows(8, 100, 100)),
        Case("train text sorted", "train", spread),
        Case("train text mixed", "train", mixed),
    ]
    for count in (16, 64, 1):
        for name, beam in (("greedy", 1), ("beam", 4)):
            shape = rows(count, 25, 32)
            cases.append(Case(f"{name} {count}", "decode", shape, beam))
    return origin, cases
