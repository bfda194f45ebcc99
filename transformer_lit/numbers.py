"""5.1 Training data and batching.

From book/05_1_data.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from transformer_lit.batches import Batch, make_batch
from transformer_lit.config import BOS, EOS, PAD, UNK

# 05_1_data: A language that can be known completely
LIMIT = 1_000_000
"""The numbers of the miniature run from 0 to LIMIT - 1."""


def check_range(number: int) -> int:
    """The number itself, or a ValueError unless 0 <= number < LIMIT."""
    if not 0 <= number < LIMIT:
        raise ValueError(
            f"{number:,} is out of range: this model reads 0 to {LIMIT - 1:,}"
        )
    return number


def plain(text: str) -> str:
    """Lower case, without "and", hyphens and commas."""
    words = text.lower().replace("-", " ").replace(",", " ").split()
    return " ".join(word for word in words if word != "and")


@cache
def three_digits(number: int, language: str) -> str:
    """A number below 1,000 in words of "en" or "de"."""
    from num2words import num2words  # imported when needed: it is slow

    return plain(num2words(number, lang=language))


def english(number: int) -> str:
    """A number in English words, e.g. "forty two" for 42.

    Words are set apart by single spaces, without "and", hyphens or commas.

    Raises:
        ValueError: the number is not in 0 ... 999,999.
    """
    thousands, rest = divmod(check_range(number), 1000)
    words = [three_digits(thousands, "en"), "thousand"] if thousands else []
    if rest or not thousands:
        words.append(three_digits(rest, "en"))
    return " ".join(words)


def german(number: int) -> str:
    """A number as one German word, e.g. "zweiundvierzig" for 42.

    Raises:
        ValueError: the number is not in 0 ... 999,999.
    """
    thousands, rest = divmod(check_range(number), 1000)
    word = three_digits(thousands, "de") + "tausend" if thousands else ""
    word = word.replace("einstausend", "eintausend")  # eins loses its s
    return word + three_digits(rest, "de") if rest or not thousands else word


# 05_1_data: Pieces for a miniature
UNITS = "zero one two three four five six seven eight nine ten eleven twelve \
thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ENGLISH = [*UNITS, *TENS, "hundred", "thousand"]

EINER = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf \
dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
ZEHNER = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
GERMAN = [*EINER, *ZEHNER.split(), "ein", "und", "hundert", "tausend"]


# As a regular expression: this piece, or else that one, longer ones first.
LONGEST_FIRST = "|".join(sorted(GERMAN, key=len, reverse=True))


def split_german(word: str) -> list[str]:
    """Cut a German number word into entries of GERMAN, longest match first.

    Raises:
        ValueError: the word is not made of such pieces.
    """
    pieces = re.findall(LONGEST_FIRST, word)
    if "".join(pieces) != word:
        raise ValueError(f"{word!r} is not a German number word")
    return pieces


class NumberVocabulary:
    """One shared vocabulary: 4 special tokens, 30 English, 32 German ones.

    Attributes:
        tokens: every token, by id.
        ids: every id, by token.
    """

    def __init__(self) -> None:
        special = {PAD: "<pad>", BOS: "<bos>", EOS: "<eos>", UNK: "<unk>"}
        head = [special[i] for i in range(len(special))]
        self.tokens = [*head, *ENGLISH, *GERMAN]
        self.ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: list[str]) -> list[int]:
        """Tokens to ids, with EOS behind them; unknown ones become UNK."""
        return [self.ids.get(token, UNK) for token in tokens] + [EOS]

    def src_ids(self, text: str) -> list[int]:
        """The ids of an English number, with EOS; see `read_number`."""
        return self.encode(english(read_number(text)).split())

    def tgt_ids(self, text: str) -> list[int]:
        """The ids of a German number word, with EOS."""
        return self.encode(split_german(text))

    def text(self, ids: Sequence[int]) -> str:
        """The German word of ids, up to the first EOS."""
        return "".join(self.decode(list(ids)))

    def save(self, folder: Path) -> None:
        """Write `vocabulary.json` into a folder."""
        (folder / "vocabulary.json").write_text('{"kind": "numbers"}\n')

    def decode(self, ids: list[int]) -> list[str]:
        """Ids to tokens, up to the first EOS, without special tokens."""
        end = ids.index(EOS) if EOS in ids else len(ids)
        return [self.tokens[i] for i in ids[:end] if i not in (PAD, BOS, UNK)]


# 05_1_data: Reading what people write
def value(words: list[str]) -> int:
    """Add up number words from left to right, whether they fit or not."""
    total = group = 0
    for word in words:
        if word == "thousand":
            total, group = (total + (group or 1)) * 1000, 0
        elif word == "hundred":
            group = (group or 1) * 100
        elif word in UNITS:
            group += UNITS.index(word)
        else:
            group += 20 + 10 * TENS.index(word)
    return total + group


def read_number(text: str) -> int:
    """The number that English words name.

    Hyphens, commas, capitals and "and" may stand as people write them.

    Raises:
        ValueError: a word is not a number word, the words name no number as
            the model knows it, or the number is out of range.
    """
    words = plain(text).split()
    if not words:
        raise ValueError("the line is empty: write a number in English words")
    if {"minus", "negative", "million", "billion", "trillion"} & set(words):
        raise ValueError(
            f"{text.strip()!r} is out of range: this model reads 0 to "
            f"{LIMIT - 1:,}"
        )
    for word in words:
        if word not in ENGLISH:
            raise ValueError(
                f"unknown word {word!r}: write a number in English words"
            )
    number = value(words)
    if number >= LIMIT or english(number) != " ".join(words):
        hint = f"; did you mean {english(number)!r}?" if number < LIMIT else ""
        raise ValueError(f"{text.strip()!r} does not name a number{hint}")
    return number


# 05_1_data: What is never trained on
def is_held_out(number: int) -> bool:
    """Whether a number is kept for testing: one in twenty of those from
    1,000 on, by a multiplicative hash, so that neighbours are not kept
    together; the smaller ones teach the words."""
    return number >= 1000 and number * 2654435761 % 2**32 < 2**32 // 20


def draw_number(rng: random.Random) -> int:
    """A number to train on: in each of its two groups of three digits, any
    count of digits is as likely as another."""
    while True:
        thousands = rng.randrange(10 ** rng.randint(0, 3))
        rest = rng.randrange(10 ** rng.randint(0, 3))
        number = 1000 * thousands + rest
        if not is_held_out(number):
            return number


def held_out_sample(count: int, seed: int) -> list[int]:
    """Numbers that `draw_number` never gives, each once, in random order."""
    held_out = [number for number in range(LIMIT) if is_held_out(number)]
    return random.Random(seed).sample(held_out, count)


# 05_1_data: Batches
def number_batches(
    vocabulary: NumberVocabulary, *, size: int, seed: int
) -> Iterator[Batch]:
    """Batches of random number pairs without end.

    Args:
        vocabulary: the shared vocabulary.
        size: B, pairs in a batch.
        seed: the same seed gives the same batches.
    """
    rng = random.Random(seed)
    while True:
        numbers = [draw_number(rng) for _ in range(size)]
        pairs = [encode_pair(vocabulary, number) for number in numbers]
        yield make_batch(pairs, pad_id=PAD, bos_id=BOS)


def encode_pair(
    vocabulary: NumberVocabulary, number: int
) -> tuple[list[int], list[int]]:
    """The source and target ids of a number, each with its EOS."""
    src = vocabulary.encode(english(number).split())
    return src, vocabulary.encode(split_german(german(number)))


__all__ = [
    "EINER",
    "ENGLISH",
    "GERMAN",
    "LIMIT",
    "LONGEST_FIRST",
    "NumberVocabulary",
    "TENS",
    "UNITS",
    "ZEHNER",
    "check_range",
    "draw_number",
    "encode_pair",
    "english",
    "german",
    "held_out_sample",
    "is_held_out",
    "number_batches",
    "plain",
    "read_number",
    "split_german",
    "three_digits",
    "value",
]
