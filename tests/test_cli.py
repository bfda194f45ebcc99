"""The command line, as people use it."""

import io
import subprocess
import sys

import pytest

from transformer_lit.cli import main

LONG = "nine hundred eighty-seven thousand three hundred forty-two"
LONG_DE = "neunhundertsiebenundachtzigtausenddreihundertzweiundvierzig"


def run(capsys, *arguments, stdin=None, monkeypatch=None):
    """Exit code, standard output and standard error of a command."""
    if stdin is not None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_translates_one_number(capsys):
    code, out, err = run(capsys, "translate", "--model", "numbers", LONG)
    assert (code, out, err) == (0, LONG_DE + "\n", "")


def test_several_words_are_one_sentence(capsys):
    assert run(capsys, "translate", "forty", "two")[1] == "zweiundvierzig\n"


@pytest.mark.parametrize(
    "text",
    [
        "Nine Hundred and Eighty-Seven Thousand, Three Hundred and Forty-Two",
        "  nine hundred eighty seven thousand three hundred forty two ",
        LONG.upper(),
    ],
)
def test_takes_numbers_as_people_write_them(capsys, text):
    assert run(capsys, "translate", text)[1] == LONG_DE + "\n"


def test_reads_lines_and_keeps_their_order(capsys, monkeypatch):
    lines = "seven\none hundred and one\nzero\nseven\n"
    code, out, _ = run(
        capsys, "translate", stdin=lines, monkeypatch=monkeypatch
    )
    assert code == 0
    assert out.splitlines() == ["sieben", "einhunderteins", "null", "sieben"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("forty tow", "'tow'"),
        ("42", "'42'"),
        ("", "empty"),
        ("   ", "empty"),
        ("and", "empty"),
        ("one million", "0 to 999,999"),
        ("minus three", "0 to 999,999"),
        ("two three", "does not name a number"),
        ("twelve hundred", "one thousand two hundred"),
        ("one thousand thousand", "does not name a number"),
    ],
)
def test_bad_text_gets_one_line_and_no_translation(capsys, text, named):
    code, out, err = run(capsys, "translate", text)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert named in err


def test_a_bad_line_leaves_its_place_empty(capsys, monkeypatch):
    lines = "seven\nsevven\n\neight\n"
    code, out, err = run(
        capsys, "translate", stdin=lines, monkeypatch=monkeypatch
    )
    assert code == 2
    assert out.splitlines() == ["sieben", "", "", "acht"]
    assert "line 2" in err.splitlines()[0]
    assert "'sevven'" in err.splitlines()[0]
    assert "line 3" in err.splitlines()[1]


def test_an_unknown_model_is_named(capsys):
    code, out, err = run(capsys, "translate", "--model", "numberz", "one")
    assert (code, out) == (2, "")
    assert "'numberz'" in err
    assert "numbers" in err
    assert err.count("\n") == 1


def test_parameters_of_every_row_of_table_3(capsys):
    code, out, _ = run(capsys, "params", "--vocab-size", "40960")
    assert code == 0
    assert "65,110,016" in out
    assert len(out.splitlines()) == 20


def test_a_bad_size_is_named(capsys):
    code, _, err = run(capsys, "params", "--vocab-size", "0")
    assert code == 2
    assert "vocab_size=0" in err


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "transformer_lit", "translate", "ten"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "zehn\n"


def test_an_unknown_option_exits_with_2():
    command = [sys.executable, "-m", "transformer_lit", "translate", "--modell"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
