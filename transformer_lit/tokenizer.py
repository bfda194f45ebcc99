"""5.1 Training data and batching.

From book/05_1_data.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import io
import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

from transformer_lit.config import BOS, EOS, PAD, UNK
from transformer_lit.numbers import NumberVocabulary


# 05_1_data: Pieces learned from text
class Vocabulary(Protocol):
    """What training and translation ask of a vocabulary."""

    def __len__(self) -> int: ...

    def src_ids(self, text: str) -> list[int]:
        """The ids of a source text, with EOS."""

    def tgt_ids(self, text: str) -> list[int]:
        """The ids of a target text, with EOS."""

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, up to the first EOS."""

    def save(self, folder: Path) -> None:
        """Write it into a folder, where `load_vocabulary` finds it."""


def draw_sample(lines: Iterable[str], count: int) -> list[str]:
    """So many of the lines, each as likely as another; all if there are no more.

    The same lines give the same sample.
    """
    rng = random.Random(0)
    kept: list[str] = []
    for number, line in enumerate(lines):  # number lines came before it
        if number < count:
            kept.append(line)
            continue
        place = rng.randrange(number + 1)
        if place < count:
            kept[place] = line
    return kept


def learn_pieces(
    lines: Iterable[str], vocab_size: int, sample: int = 1_000_000
) -> bytes:
    """The bytes of a SentencePiece model, learned by byte-pair encoding.

    Args:
        lines: text; a line of more than 4,192 bytes is not learned from.
        vocab_size: W, the special tokens among them.
        sample: learn from this many lines, drawn at random, if there are more.

    Raises:
        ValueError: the text is too small for so many pieces, or shows more
            characters than that.
    """
    model = io.BytesIO()
    text = draw_sample(lines, sample)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            character_coverage=1.0,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2] or "it has no usable line"
        raise ValueError(
            f"vocab_size={vocab_size} does not fit the training text: {reason}"
        ) from None
    return model.getvalue()


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


class Subwords:
    """A shared vocabulary of pieces of words, learned by SentencePiece.

    Args:
        model: the bytes of a SentencePiece model, as `learn_pieces` gives.
        lowercase_src: read the source in lower case, however it is written.
    """

    def __init__(self, model: bytes, *, lowercase_src: bool = False) -> None:
        self.model, self.lowercase_src = model, lowercase_src
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.load_from_serialized_proto(model)

    def __len__(self) -> int:
        return int(self.pieces.get_piece_size())

    def src_ids(self, text: str) -> list[int]:
        """The ids of a source text, with EOS."""
        return self.tgt_ids(text.lower() if self.lowercase_src else text)

    def tgt_ids(self, text: str) -> list[int]:
        """The ids of a target text, with EOS."""
        return [*self.pieces.encode(text), EOS]

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, up to the first EOS."""
        ids = list(ids)
        end = ids.index(EOS) if EOS in ids else len(ids)
        return str(self.pieces.decode([i for i in ids[:end] if i > UNK]))

    def save(self, folder: Path) -> None:
        """Write `tokenizer.model` and `vocabulary.json` into a folder."""
        about = {"kind": "subwords", "lowercase_src": self.lowercase_src}
        write_file(folder / "tokenizer.model", self.model)
        write_file(folder / "vocabulary.json", json.dumps(about).encode())


def learn_subwords(
    lines: Iterable[str],
    vocab_size: int,
    *,
    sample: int = 1_000_000,
    lowercase_src: bool = False,
) -> Subwords:
    """Learn a shared vocabulary by byte-pair encoding, section 5.1.

    Args:
        lines: the training text of both languages.
        vocab_size, sample: as in `learn_pieces`, whose ValueError it raises.
        lowercase_src: as in `Subwords`.
    """
    model = learn_pieces(lines, vocab_size, sample)
    return Subwords(model, lowercase_src=lowercase_src)


def load_vocabulary(folder: str | Path) -> Vocabulary:
    """The vocabulary that was saved into a folder.

    Raises:
        ValueError: it is missing or damaged; the message names the file.
    """
    about_file = Path(folder) / "vocabulary.json"
    model_file = Path(folder) / "tokenizer.model"
    try:
        about = json.loads(about_file.read_text("utf-8"))
        if about["kind"] == "numbers":
            return NumberVocabulary()
        return Subwords(
            model_file.read_bytes(), lowercase_src=about["lowercase_src"]
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{folder} holds no sound vocabulary ({type(error).__name__} in "
            "vocabulary.json or tokenizer.model); copy the folder again"
        ) from None


__all__ = [
    "Subwords",
    "Vocabulary",
    "draw_sample",
    "learn_pieces",
    "learn_subwords",
    "load_vocabulary",
    "write_file",
]
