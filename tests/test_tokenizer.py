"""Pieces learned from text: there and back, kept, refused."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lit.config import BOS, EOS, PAD, UNK
from transformer_lit.numbers import NumberVocabulary, english, german
from transformer_lit.tokenizer import (
    Subwords,
    draw_sample,
    learn_pieces,
    learn_subwords,
    load_vocabulary,
    write_file,
)


def lines(count: int = 300) -> list[str]:
    """Numbers in English and German words, as text to learn from."""
    rng = random.Random(0)
    numbers = [rng.randrange(10**6) for _ in range(count)]
    return [speak(n) for n in numbers for speak in (english, german)]


LINES = lines()
LETTERS = sorted({letter for line in LINES for letter in line} - {" "})
SUBWORDS = learn_subwords(LINES, 100)
WORDS = st.lists(
    st.text(st.sampled_from(LETTERS), min_size=1, max_size=8), max_size=6
)


@given(WORDS)
def test_text_of_known_characters_comes_back(words):
    text = " ".join(words)
    ids = SUBWORDS.tgt_ids(text)
    assert ids[-1] == EOS
    assert not {PAD, BOS, EOS, UNK} & set(ids[:-1])
    assert SUBWORDS.text(ids) == text


@given(st.text(max_size=30))
def test_any_text_can_be_encoded(text):
    ids = SUBWORDS.src_ids(text)
    assert ids[-1] == EOS
    assert all(UNK <= i < len(SUBWORDS) for i in ids[:-1])
    assert isinstance(SUBWORDS.text(ids), str)


def test_the_special_tokens_have_the_ids_of_the_model():
    names = [SUBWORDS.pieces.id_to_piece(i) for i in (PAD, BOS, EOS, UNK)]
    assert names == ["<pad>", "<s>", "</s>", "<unk>"]
    assert len(SUBWORDS) == 100


def test_what_stands_behind_the_end_is_not_read():
    ids = SUBWORDS.tgt_ids("forty two")
    assert SUBWORDS.text([BOS, *ids, *ids, PAD]) == "forty two"


def test_a_character_that_was_never_seen_is_unknown():
    assert UNK in SUBWORDS.tgt_ids("forty Ω two")
    assert SUBWORDS.text(SUBWORDS.tgt_ids("forΩty")) == "forty"


def test_only_the_source_is_lowered():
    lower = learn_subwords(LINES, 100, lowercase_src=True)
    assert lower.src_ids("FORTY") == SUBWORDS.src_ids("forty")
    assert lower.tgt_ids("FORTY") == SUBWORDS.tgt_ids("FORTY")


def test_learning_leaves_nothing_to_chance():
    assert learn_pieces(LINES, 100) == learn_pieces(iter(LINES), 100)


PROCESS = """
import hashlib
from test_tokenizer import LINES
from transformer_lit.tokenizer import learn_pieces
print(hashlib.sha256(learn_pieces(LINES, 100, sample=150)).hexdigest())
"""


def test_another_process_draws_the_same_sample():
    # SentencePiece's own sample is another one in each process
    answer = subprocess.run(
        [sys.executable, "-c", PROCESS],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashlib.sha256(learn_pieces(LINES, 100, sample=150)).hexdigest()
    assert answer.stdout.strip() == here


@given(st.integers(0, 40), st.integers(0, 20))
def test_a_sample_has_its_size_and_no_line_twice(total, count):
    stream = [str(number) for number in range(total)]
    drawn = draw_sample(iter(stream), count)
    assert len(drawn) == len(set(drawn)) == min(total, count)
    assert set(drawn) <= set(stream)


def test_an_error_while_reading_is_not_buried():
    def broken():
        yield "forty two"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        learn_subwords(broken(), 100)


def test_a_sample_is_drawn_from_all_the_text():
    # the second half of the text brings letters that the first half lacks
    text = ["abc abe"] * 2000 + ["xyz xyw"] * 2000
    model = learn_pieces(text, 16, sample=200)
    assert model == learn_pieces(text, 16, sample=200)
    sampled = Subwords(model)
    assert UNK not in sampled.tgt_ids("abc xyz")


@pytest.mark.parametrize(
    ("text", "size"), [(LINES, 50_000), (LINES, 10), ([], 100)]
)
def test_a_text_that_does_not_fit_is_an_error_of_one_line(text, size):
    with pytest.raises(ValueError, match=f"vocab_size={size}") as caught:
        learn_subwords(text, size)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("lowercase_src", [False, True])
def test_what_was_saved_is_loaded(tmp_path, lowercase_src):
    kept = Subwords(SUBWORDS.model, lowercase_src=lowercase_src)
    kept.save(tmp_path)
    again = load_vocabulary(tmp_path)
    assert len(again) == len(kept)
    for text in ("Forty Two", "einundvierzig"):
        assert again.src_ids(text) == kept.src_ids(text)
        assert again.tgt_ids(text) == kept.tgt_ids(text)


def test_the_vocabulary_of_numbers_is_loaded(tmp_path):
    NumberVocabulary().save(tmp_path)
    assert isinstance(load_vocabulary(tmp_path), NumberVocabulary)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vocabulary.json", b""),
        ("vocabulary.json", b"[]"),
        ("vocabulary.json", b"{}"),
        ("vocabulary.json", b"\xff"),
        ("tokenizer.model", b""),
        ("tokenizer.model", SUBWORDS.model[:100]),
    ],
)
def test_a_damaged_vocabulary_is_an_error_that_names_it(
    tmp_path, file, content
):
    SUBWORDS.save(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match="no sound vocabulary") as caught:
        load_vocabulary(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_vocabulary_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no sound vocabulary"):
        load_vocabulary(tmp_path / "nowhere")


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_file(file, b"old")

    def stop(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_file(file, b"new")
    assert file.read_bytes() == b"old"
    monkeypatch.undo()
    write_file(file, b"new")
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"new"
