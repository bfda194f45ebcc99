"""Number words: two languages, one vocabulary, what people type, and what is
kept for testing."""

import random
import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

import transformer_lit as tl
from transformer_lit.numbers import (
    ENGLISH,
    GERMAN,
    LIMIT,
    NumberVocabulary,
    check_range,
    draw_number,
    encode_pair,
    english,
    german,
    held_out_sample,
    is_held_out,
    number_batches,
    plain,
    read_number,
    split_german,
)

NUMBERS = st.integers(0, LIMIT - 1)
EDGES = [
    *range(0, 1100),
    *range(9_990, 10_020),
    *range(99_980, 101_120),
    *range(999_000, 1_000_000),
]
# every remainder below 1,000 is met, since 1,000 and 331 share no divisor
SAMPLE = sorted({*EDGES, *range(0, LIMIT, 331)})


# -- Words -------------------------------------------------------------------


def test_english_is_num2words_without_and_hyphens_and_commas():
    for number in SAMPLE:
        words = re.findall("[a-z]+", num2words(number, lang="en"))
        want = " ".join(word for word in words if word != "and")
        assert english(number) == want


def test_german_is_num2words_but_for_the_s_before_tausend():
    for number in SAMPLE:
        want = num2words(number, lang="de")
        assert german(number) == want.replace("einstausend", "eintausend")


@pytest.mark.parametrize(
    ("number", "en", "de"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (42, "forty two", "zweiundvierzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred one", "einhunderteins"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand one", "eintausendeins"),
        (1100, "one thousand one hundred", "eintausendeinhundert"),
        (21_000, "twenty one thousand", "einundzwanzigtausend"),
        (101_000, "one hundred one thousand", "einhunderteintausend"),
        (
            101_101,
            "one hundred one thousand one hundred one",
            "einhunderteintausendeinhunderteins",
        ),
        (
            999_999,
            "nine hundred ninety nine thousand nine hundred ninety nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
    ],
)
def test_words_as_people_write_them(number, en, de):
    # written here by hand: num2words itself errs on 101,000
    assert english(number) == en
    assert german(number) == de


def test_no_two_numbers_share_a_word():
    assert len({german(number) for number in SAMPLE}) == len(SAMPLE)
    assert len({english(number) for number in SAMPLE}) == len(SAMPLE)


@pytest.mark.parametrize("write", [english, german, check_range])
@pytest.mark.parametrize("number", [-1, LIMIT, 10**9])
def test_a_number_out_of_range_names_the_range(write, number):
    with pytest.raises(ValueError, match="0 to 999,999") as error:
        write(number)
    assert f"{number:,}" in str(error.value)


# -- Pieces ------------------------------------------------------------------


def test_german_words_fall_into_the_32_pieces_and_rejoin():
    pieces = set()
    for number in SAMPLE:
        word = german(number)
        parts = split_german(word)
        assert "".join(parts) == word
        pieces.update(parts)
    assert pieces == set(GERMAN)
    assert len(GERMAN) == len(set(GERMAN)) == 32


def test_pieces_never_straddle_tausend():
    # so all 1,000,000 words rejoin: those above 1,000 are such sums
    below = {number: split_german(german(number)) for number in range(1000)}
    for number in SAMPLE:
        thousands, rest = divmod(number, 1000)
        if thousands:
            want = below[thousands][:-1] + (
                ["ein"] if thousands % 100 == 1 else below[thousands][-1:]
            )
            want = [*want, "tausend", *(below[rest] if rest else [])]
            assert split_german(german(number)) == want


@pytest.mark.parametrize(
    ("number", "pieces"),
    [
        (1, "eins"),
        (21, "ein und zwanzig"),
        (17, "siebzehn"),
        (70, "siebzig"),
        (116, "ein hundert sechzehn"),
        (707, "sieben hundert sieben"),
        (101_000, "ein hundert ein tausend"),
    ],
)
def test_pieces_are_the_longest_that_fit(number, pieces):
    assert split_german(german(number)) == pieces.split()


@pytest.mark.parametrize("word", ["zwo", "einx", "xeins", "zwei und", "One"])
def test_what_is_no_german_number_word_is_named(word):
    with pytest.raises(ValueError, match=repr(word)):
        split_german(word)


# -- Reading -----------------------------------------------------------------


@given(NUMBERS)
def test_reading_is_the_inverse_of_writing(number):
    assert read_number(english(number)) == number


def test_reading_is_the_inverse_of_writing_on_the_sample():
    for number in SAMPLE[::5]:
        assert read_number(english(number)) == number


@given(NUMBERS)
def test_num2words_own_spelling_is_read(number):
    # "one hundred and one thousand, two hundred and forty-two"
    text = num2words(number, lang="en")
    assert read_number(text) == number
    assert read_number(text.upper()) == number
    assert read_number(f"  {text.title()}\t") == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Forty-Two", 42),
        ("one hundred and five", 105),
        ("ONE THOUSAND, TWO HUNDRED AND THREE", 1203),
        ("twelve   thousand\tand seven", 12_007),
        ("nine-hundred thousand", 900_000),
    ],
)
def test_peoples_spellings_are_read(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["", "   ", "\t", ",", "-"])
def test_an_empty_line_is_called_empty(text):
    with pytest.raises(ValueError, match="empty"):
        read_number(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("forty too", "'too'"),
        ("42", "'42'"),
        ("zweiundvierzig", "'zweiundvierzig'"),
        ("a hundred", "'a'"),
        ("forty two.", "'two.'"),
    ],
)
def test_an_unknown_word_is_named(text, named):
    with pytest.raises(ValueError, match=f"unknown word {re.escape(named)}"):
        read_number(text)


@pytest.mark.parametrize(
    "text", ["minus one", "negative two", "one million", "two billion"]
)
def test_a_number_beyond_the_model_names_the_range(text):
    with pytest.raises(ValueError, match="0 to 999,999") as error:
        read_number(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("hundred", "'one hundred'"),
        ("twelve hundred", "'one thousand two hundred'"),
        ("forty twelve", "'fifty two'"),
        ("two forty", "'forty two'"),
        ("one two", "'three'"),
        ("zero one", "'one'"),
        ("thousand two", "'one thousand two'"),
    ],
)
def test_words_that_name_no_number_get_a_hint(text, hint):
    with pytest.raises(ValueError, match="does not name a number") as error:
        read_number(text)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "text", ["one thousand thousand", "ten thousand one thousand"]
)
def test_where_the_sum_is_beyond_the_model_there_is_no_hint(text):
    # the first is LIMIT exactly
    with pytest.raises(ValueError) as error:
        read_number(text)
    assert str(error.value) == f"{text!r} does not name a number"


@given(st.lists(st.sampled_from(ENGLISH), min_size=1, max_size=9))
def test_any_words_are_read_right_or_refused(words):
    text = " ".join(words)
    try:
        number = read_number(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert english(number) == text


def test_plain_keeps_the_words_only():
    assert plain("One hundred AND-one,two") == "one hundred one two"


# -- The vocabulary ----------------------------------------------------------


def test_the_vocabulary_has_66_different_tokens():
    vocabulary = NumberVocabulary()
    assert len(vocabulary) == len(set(vocabulary.tokens)) == 66
    assert len(ENGLISH) == 30
    for token, i in vocabulary.ids.items():
        assert vocabulary.tokens[i] == token
    assert [vocabulary.tokens[i] for i in (tl.PAD, tl.BOS, tl.EOS, tl.UNK)] == [
        "<pad>",
        "<bos>",
        "<eos>",
        "<unk>",
    ]


@given(NUMBERS)
def test_what_is_encoded_is_decoded(number):
    vocabulary = NumberVocabulary()
    for tokens in (english(number).split(), split_german(german(number))):
        ids = vocabulary.encode(tokens)
        assert ids[-1] == tl.EOS
        assert ids.count(tl.EOS) == 1
        assert tl.UNK not in ids
        assert vocabulary.decode(ids) == tokens


def test_decoding_stops_at_the_first_end_and_skips_special_ids():
    vocabulary = NumberVocabulary()
    one, two = vocabulary.ids["one"], vocabulary.ids["two"]
    ids = [tl.BOS, one, tl.PAD, two, tl.UNK, tl.EOS, one]
    assert vocabulary.decode(ids) == ["one", "two"]
    assert vocabulary.decode([one]) == ["one"]
    assert vocabulary.decode([]) == []


def test_an_unknown_token_becomes_unk():
    vocabulary = NumberVocabulary()
    assert vocabulary.encode(["one", "dog"])[1:] == [tl.UNK, tl.EOS]


# -- What is kept for testing ------------------------------------------------


def test_about_a_twentieth_is_held_out_and_none_below_1000():
    held_out = [is_held_out(number) for number in range(LIMIT)]
    assert not any(held_out[:1000])
    assert sum(held_out) / LIMIT == pytest.approx(0.05, rel=0.01)
    # evenly: in each stretch of 10,000, too
    for start in range(0, LIMIT, 10_000):
        share = sum(held_out[start : start + 10_000]) / 10_000
        assert 0.04 < share < 0.06


@given(st.integers(0, 10**6))
def test_a_number_to_train_on_is_never_held_out(seed):
    rng = random.Random(seed)
    for _ in range(200):
        number = draw_number(rng)
        assert 0 <= number < LIMIT
        assert not is_held_out(number)


def test_numbers_of_every_size_are_drawn():
    rng = random.Random(0)
    drawn = [draw_number(rng) for _ in range(3000)]
    digits = {len(str(number)) for number in drawn}
    assert digits == {1, 2, 3, 4, 5, 6}
    assert 0 in drawn


def test_the_test_numbers_are_held_out_and_each_comes_once():
    sample = held_out_sample(1000, 5)
    assert len(set(sample)) == 1000
    assert all(is_held_out(number) for number in sample)
    assert sample == held_out_sample(1000, 5)
    assert sample != sorted(sample)


# -- Batches of them ---------------------------------------------------------


def test_the_same_seed_gives_the_same_batches():
    vocabulary = NumberVocabulary()

    def first(seed):
        batches = number_batches(vocabulary, size=7, seed=seed)
        return [
            (b.src.tolist(), b.tgt_in.tolist(), b.tgt_out.tolist())
            for b in islice(batches, 3)
        ]

    assert first(1) == first(1)
    assert first(1) != first(2)
    batches = first(1)
    assert batches[0] != batches[1]


def test_the_global_random_numbers_are_left_alone():
    random.seed(5)
    before = random.getstate()
    next(number_batches(NumberVocabulary(), size=3, seed=1))
    assert random.getstate() == before


def test_a_batch_pairs_a_number_with_its_translation():
    vocabulary = NumberVocabulary()
    batch = next(number_batches(vocabulary, size=50, seed=3))
    assert len(batch.src) == len(batch.tgt_in) == len(batch.tgt_out) == 50
    for src, tgt in zip(
        batch.src.tolist(), batch.tgt_out.tolist(), strict=True
    ):
        number = read_number(" ".join(vocabulary.decode(src)))
        assert "".join(vocabulary.decode(tgt)) == german(number)
        assert not is_held_out(number)


@given(NUMBERS)
def test_a_pair_is_source_and_target_each_with_its_end(number):
    vocabulary = NumberVocabulary()
    src, tgt = encode_pair(vocabulary, number)
    assert vocabulary.decode(src) == english(number).split()
    assert "".join(vocabulary.decode(tgt)) == german(number)
    assert src[-1] == tgt[-1] == tl.EOS
