"""Text in, text out: order, blocks, empty lines, folders, the commands."""

import io
import itertools
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import build
from safetensors.torch import load_file

import transformer_lit as tl
from transformer_lit import shell
from transformer_lit.bleu import PROTOCOLS, score
from transformer_lit.corpus import fetch, open_text
from transformer_lit.numbers import english, held_out_sample
from transformer_lit.records import load_record
from transformer_lit.tokenizer import learn_subwords
from transformer_lit.translator import (
    SHIPPED,
    best_text,
    find_model,
    hypotheses_by_processes,
)

TEXT = [
    "a small dog runs over the green field",
    "ein kleiner Hund rennt über das grüne Feld",
    "two men play in the snow",
    "zwei Männer spielen im Schnee",
] * 5


@pytest.fixture(scope="module")
def numbers():
    return tl.Translator.load("numbers")


@pytest.fixture(scope="module")
def words():
    """A translator of sentences; nobody taught it anything."""
    vocabulary = learn_subwords(TEXT, 60)
    config = tl.TransformerConfig(
        vocab_size=60, n_layers=1, d_model=8, n_heads=2
    )
    return tl.Translator(build(config), vocabulary)


# -- Texts -------------------------------------------------------------------


@given(
    st.permutations(
        [f"{w} thousand" for w in ("one two three four").split()]
        + ["zero", "nine hundred ninety nine thousand twelve"]
    ),
    st.integers(1, 40),
)
def test_the_order_stays_and_the_batch_changes_nothing(
    numbers, texts, batch_tokens
):
    alone = [numbers.translate([text])[0] for text in texts]
    assert numbers.translate(texts, batch_tokens=batch_tokens) == alone
    assert alone[texts.index("zero")] == "null"


def test_a_batch_holds_no_more_positions_than_allowed(words, monkeypatch):
    seen = []
    start = words.model.start

    def watch(src):
        seen.append(src.shape)
        return start(src)

    monkeypatch.setattr(words.model, "start", watch)
    texts = ["a " * n for n in (1, 9, 3, 30, 2, 2, 5)]
    found = words.translate(texts, batch_tokens=20, max_extra=2)
    assert len(found) == len(texts)
    assert sum(rows for rows, _ in seen) == len(texts)
    for rows, width in seen:
        assert rows == 1 or rows * width <= 20
    widths = [width for _, width in seen]
    assert widths == sorted(widths, reverse=True)  # the largest at first


def test_empty_lines_stay_empty_where_the_model_reads_sentences(words):
    texts = ["two men", "", "   ", "a dog"]
    found = words.translate(texts, max_extra=3)
    assert found[1] == found[2] == ""
    assert found[0] == words.translate(["two men"], max_extra=3)[0]
    assert found[3] == words.translate(["a dog"], max_extra=3)[0]
    assert words.hypotheses(["", "a"], max_extra=3)[0] == []
    assert words.translate([""]) == [""]
    assert words.translate([]) == []


def test_an_empty_line_is_a_fault_where_the_model_reads_numbers(numbers):
    with pytest.raises(ValueError, match="empty"):
        numbers.translate(["one", ""])


def test_hypotheses_are_the_beams_as_text(words):
    texts = ["two", "a small dog"]  # the batch has them the other way
    found = words.hypotheses(
        texts, beam_size=5, n_best=3, alpha=1.0, max_extra=3
    )
    for text, kept in zip(texts, found, strict=True):
        src = torch.tensor([words.vocabulary.src_ids(text)])
        [want] = tl.beam_search(
            words.model, src, beam_size=5, alpha=1.0, max_extra=3, n_best=3
        )
        assert [one.text for one in kept] == [
            words.vocabulary.text(one.tokens) for one in want
        ]
        for one, other in zip(kept, want, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-9)
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9)


def test_a_beam_of_one_is_greedy_search(words):
    text = "two men play"
    src = torch.tensor([words.vocabulary.src_ids(text)])
    [[want]] = tl.greedy_search(words.model, src, max_extra=4)
    [[found]] = words.hypotheses([text], beam_size=1, max_extra=4)
    assert found.log_prob == pytest.approx(want.log_prob, abs=1e-9)
    assert found.text == words.vocabulary.text(want.tokens)


def test_an_unknown_option_is_refused(numbers):
    with pytest.raises(TypeError):
        numbers.translate(["one"], beam=3)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_tokens", 0),
        ("block", 0),
        ("alpha", -1),  # greedy search would not have looked at it
        ("n_best", 2),
        ("max_extra", -1),
    ],
)
def test_an_option_without_sense_is_refused(numbers, option, value):
    options = {"beam_size": 1, option: value}
    with pytest.raises(ValueError, match=f"{option}={value}"):
        list(numbers.translate_lines(["one"], **options))


def test_one_text_is_no_list_of_texts(numbers):
    # its letters would be translated one by one
    with pytest.raises(ValueError, match=r"\['one'\]"):
        numbers.translate("one")
    with pytest.raises(ValueError, match=r"\['one'\]"):
        next(numbers.translate_lines("one"))


# -- Lines -------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 2, 7, 100])
def test_lines_are_read_block_by_block(numbers, block):
    read = []

    def lines():
        for i in range(20):
            read.append(i)
            yield f"{'one two three four'.split()[i % 4]}\n"

    found = numbers.translate_lines(lines(), block=block)
    assert next(found) == "eins"
    assert len(read) == min(block, 20)
    rest = list(found)
    assert rest[:3] == ["zwei", "drei", "vier"]
    assert len(rest) == 19


def test_a_faulty_line_is_named_or_reported(numbers):
    lines = ["one", "won", "two"]
    with pytest.raises(ValueError, match="line 2: unknown word 'won'"):
        list(numbers.translate_lines(lines))
    faults = []
    found = numbers.translate_lines(
        lines, on_fault=lambda *fault: faults.append(fault), block=1
    )
    assert list(found) == ["eins", "", "zwei"]
    assert [number for number, _ in faults] == [2]


# -- Folders -----------------------------------------------------------------


def put(translator, folder):
    tl.save_model(translator.model, folder)
    translator.vocabulary.save(folder)


def test_a_run_gives_the_averaged_the_best_or_the_newest(words, tmp_path):
    for place in (
        "checkpoints/step-00000900",
        "checkpoints/step-00010000",
        "best",
        "averaged",
    ):
        put(words, tmp_path / place)
        assert find_model(tmp_path) == tmp_path / place
    loaded = tl.Translator.load(tmp_path)
    words.model.float()
    texts = ["two men play", "a dog"]
    assert loaded.translate(texts, max_extra=3) == words.translate(
        texts, max_extra=3
    )
    words.model.double()
    folder = tmp_path / "best"
    assert len(tl.Translator.load(str(folder)).vocabulary) == 60


def test_folders_without_a_model_are_named(tmp_path):
    with pytest.raises(ValueError, match="holds no model"):
        tl.Translator.load(tmp_path)
    with pytest.raises(ValueError, match=r"'nothing': shipped are .*numbers"):
        tl.Translator.load("nothing")


def test_a_model_without_its_vocabulary_is_refused(words, tmp_path):
    tl.save_model(words.model, tmp_path)
    with pytest.raises(ValueError, match="vocabulary"):
        tl.Translator.load(tmp_path)


def test_a_vocabulary_too_large_for_the_model_is_refused(words, numbers):
    with pytest.raises(ValueError, match="66 entries, the model 60"):
        tl.Translator(words.model, numbers.vocabulary)


# -- Commands ----------------------------------------------------------------


def test_a_file_is_translated_into_a_file(tmp_path, capsys):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("seven\nsevven\n\neight\n")
    assert shell.translate(input=source, output=target) == 2
    assert target.read_text() == "sieben\n\n\nacht\n"
    out, err = capsys.readouterr()
    assert out == ""
    assert "line 2: " in err.splitlines()[0]
    assert "line 3: " in err.splitlines()[1]
    assert len(err.splitlines()) == 2  # no progress where nobody looks
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_processes_change_neither_the_order_nor_the_faults(tmp_path, capsys):
    lines = [english(n) for n in held_out_sample(700, seed=9)]
    lines[3], lines[600] = "sevven", ""
    source = tmp_path / "in"
    source.write_text("\n".join(lines) + "\n")
    told = []
    for processes in (1, 2):
        out = tmp_path / f"{processes}"
        assert shell.translate(input=source, output=out, processes=processes)
        told.append(capsys.readouterr().err)
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()
    assert told[0] == told[1]
    assert [line.split(":")[1] for line in told[0].splitlines()] == [
        " line 4",
        " line 601",
    ]


def test_the_first_fault_in_any_process_is_named():
    lines = [*["one"] * 5, "tow", "two"]
    found = hypotheses_by_processes(
        2, lines, load={"name_or_folder": "numbers"}, block=2
    )
    with pytest.raises(ValueError, match="line 6: unknown word 'tow'"):
        list(found)


def test_a_process_that_is_ended_is_no_riddle():
    endless = itertools.repeat("one")  # no more is read than is in work
    found = hypotheses_by_processes(
        2, endless, load={"name_or_folder": "numbers"}, block=8
    )
    assert best_text(next(found)) == "eins"
    for worker in multiprocessing.active_children():
        worker.kill()
    with pytest.raises(ValueError, match="fewer processes"):
        list(found)


def test_a_model_that_is_not_there_is_named_by_processes_as_well(tmp_path):
    load = {"name_or_folder": tmp_path / "nowhere"}
    with pytest.raises(ValueError, match="no model"):
        list(hypotheses_by_processes(2, ["one"], load=load))


def test_too_few_processes_are_refused():
    found = hypotheses_by_processes(0, ["one"], load={})
    with pytest.raises(ValueError, match="processes=0 must be at least 1"):
        next(found)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    missing, binary = tmp_path / "missing", tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xff")
    for path in (missing, binary):
        with pytest.raises(ValueError, match=path.name) as caught:
            shell.translate(input=path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="not both"):
        shell.translate(("one",), input=missing)


def test_a_failure_leaves_the_old_output(tmp_path, capsys):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("seven\n")
    target.write_text("old\n")
    with pytest.raises(ValueError, match="beam_size=0"):
        shell.translate(input=source, output=target, beam_size=0)
    assert shell.translate(("sevven",), output=target) == 2
    assert "'sevven'" in capsys.readouterr().err
    assert target.read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_a_mark_at_the_head_of_a_file_is_no_text(tmp_path):
    path = tmp_path / "from-windows"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\r\ntwo\r\n")
    assert shell.read_lines(path) == ["one", "", "two"]


def test_the_n_best_are_a_table(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\nforty two\n"))
    assert shell.translate(n_best=2, beam_size=3) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert [rows[0][2], rows[2][2]] == ["eins", "zweiundvierzig"]
    assert float(rows[0][1]) > float(rows[1][1])


def test_the_search_options_reach_the_search(capsys):
    shell.translate(("forty", "two"), n_best=1, alpha=0.0)
    plain = float(capsys.readouterr().out.split("\t")[1])
    shell.translate(("forty", "two"), n_best=1, alpha=1.0)
    divided = float(capsys.readouterr().out.split("\t")[1])
    assert divided == pytest.approx(plain / (9 / 6), abs=2e-4)
    # six source ids, and seven pieces with the end
    text = ("twenty", "one", "thousand", "twenty", "one")
    shell.translate(text, max_extra=0, beam_size=1)
    assert capsys.readouterr().out == "einundzwanzigtausendeinund\n"
    shell.translate(text, max_extra=0)  # something else has ended in time
    assert capsys.readouterr().out != "einundzwanzigtausendeinundzwanzig\n"
    shell.translate(text)
    assert capsys.readouterr().out == "einundzwanzigtausendeinundzwanzig\n"


def test_scores_are_printed_with_their_protocols(tmp_path, capsys):
    hyp, ref = tmp_path / "hyp", tmp_path / "ref"
    hyp.write_text("eins zwei drei vier fünf sechs\n")
    ref.write_text("eins zwei drei vier fünf\n")
    assert shell.score(hyp, ref) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == [
        name for name in PROTOCOLS if name != "tokenised"
    ]
    assert shell.score(hyp, ref, protocol=("tokenised",)) == 0
    [row] = capsys.readouterr().out.splitlines()
    assert float(row.split()[0]) == pytest.approx(
        100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25, abs=0.01
    )
    ref.write_text("eins\nzwei\n")
    with pytest.raises(ValueError, match="1 outputs and 2 references"):
        shell.score(hyp, ref)


def test_checkpoints_are_averaged_into_the_run(words, tmp_path, capsys):
    for step in (1, 2, 3):
        put(words, tmp_path / "checkpoints" / f"step-{step:08d}")
    assert shell.average(tmp_path, last=2) == 0
    assert "step-00000002, step-00000003\n" in capsys.readouterr().out
    assert find_model(tmp_path) == tmp_path / "averaged"
    (tmp_path / "log.jsonl").write_text(
        '{"step": 1, "valid": {"nll": 1.0}}\n'
        '{"step": 3, "valid": {"nll": 0.5}}\n'
    )
    out = tmp_path / "elsewhere"
    assert shell.average(tmp_path, best=2, out=out) == 0
    assert "step-00000003, step-00000001\n" in capsys.readouterr().out
    assert (out / "weights.safetensors").is_file()
    with pytest.raises(ValueError, match=r"log\.jsonl: "):
        shell.average(tmp_path, last=1, out=tmp_path / "log.jsonl")
    for options in ({}, {"last": 1, "best": 1}):
        with pytest.raises(ValueError, match="--last N or --best N"):
            shell.average(tmp_path, **options)


# -- The model for everyday sentences ----------------------------------------

EVERYDAY = SHIPPED / "everyday"


def test_everyday_answers_in_german_however_it_is_typed():
    tr = tl.Translator.load("everyday")
    typed = [
        "I would like a cup of tea, please.",
        "I WOULD LIKE A CUP OF TEA, PLEASE.",
        "i would like a cup of tea, please.",
    ]
    found = tr.translate(typed)
    assert len({*found}) == 1
    assert "eine Tasse Tee" in found[0]


def test_everyday_is_small_sound_and_says_where_it_comes_from():
    weights = load_file(EVERYDAY / "weights.safetensors")
    assert {w.dtype for w in weights.values()} == {torch.float16}
    assert (EVERYDAY / "weights.safetensors").stat().st_size < 8e6
    model = tl.load_model(EVERYDAY)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    card = (EVERYDAY / "README.md").read_text("utf-8")
    for word in ("tatoeba.org", "CC BY 2.0 FR", "cannot"):
        assert word in card
    record = load_record("everyday")
    for one in record["scores"].values():
        assert f"| {one['sentences']:,} | {one['bleu']} |" in card


with_data = pytest.mark.skipif(
    not Path(os.environ.get("TRANSFORMER_LIT_DATA", "none")).is_dir(),
    reason="TRANSFORMER_LIT_DATA names no folder of corpora",
)


def lines_of(corpus, name):
    """The lines of a corpus's file."""
    with open_text(fetch(corpus, name)) as file:
        return [line.decode().rstrip("\n") for line in file]


@with_data
def test_everyday_scores_what_its_record_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path))
    record = load_record("everyday")
    chosen = record["chosen_on_dev"]
    src, references = (
        lines_of("tatoeba", f"tatoeba/dev.en-de.{x}") for x in ("en", "de")
    )
    outputs = tl.Translator.load("everyday").translate(
        src, beam_size=chosen["beam_size"], alpha=chosen["alpha"]
    )
    found = score(outputs=outputs, references=references)
    assert found.signature == record["signature"]
    want = record["scores"]["tatoeba dev"]["bleu"]
    assert found.score == pytest.approx(want, abs=0.1)


# -- Sixteen bits ------------------------------------------------------------


def test_bf16_rounds_the_weights_and_sums_in_32():
    plain = tl.Translator.load("numbers")
    half = tl.Translator.load("numbers", precision="bf16")
    assert {p.dtype for p in plain.model.parameters()} == {torch.float32}
    assert {p.dtype for p in half.model.parameters()} == {torch.bfloat16}
    texts = [english(number) for number in held_out_sample(100, seed=8)]
    for beam_size in (1, 4):
        options = {"beam_size": beam_size, "n_best": 1}
        pairs = [
            (a[0], b[0])
            for a, b in zip(
                plain.hypotheses(texts, **options),
                half.hypotheses(texts, **options),
                strict=True,
            )
        ]
        same = [(a, b) for a, b in pairs if a.text == b.text]
        assert len(same) >= 97
        apart = [abs(a.log_prob - b.log_prob) for a, b in same]
        assert 0 < sum(apart) / len(apart) < 0.1
        # A sum in 16 bits would be a multiple of 2^-8.
        assert any((256 * b.log_prob) % 1 for _, b in same)


def test_a_precision_is_torchs_and_known():
    with pytest.raises(ValueError, match="precision='fp8' must be 'fp32' or"):
        tl.Translator.load("numbers", precision="fp8")
    with pytest.raises(ValueError, match="you export the model"):
        tl.Translator.load("numbers", engine="ctranslate2", precision="bf16")
