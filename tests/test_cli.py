"""The command line, as people use it."""

import contextlib
import io
import subprocess
import sys
from unittest.mock import Mock

import pytest

from transformer_lit import shell
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


def test_the_command_has_every_part(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for name in ("translate", "score", "average", "prepare", "train", "params"):
        assert f"• {name} " in out


RUN = """
[corpus]
name = "numbers"
vocab_size = 66
pairs = 50
[model]
preset = "miniature"
[training]
steps = 2
warmup = 2
tokens = 100
positions = 100
log_every = 1
save_every = 1
valid_every = 2
"""


def test_prepares_trains_averages_translates_and_scores(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transformer_lit.corpus.held_out_sample", few)
    config, out = tmp_path / "run.toml", tmp_path / "out"
    config.write_text(RUN)
    code, said, err = run(capsys, "prepare", str(config))
    assert (code, err) == (0, "")
    assert "train: 50 of 50 pairs" in said
    arguments = ["train", str(config), "--out", str(out), "--seed", "3"]
    code, said, err = run(capsys, *arguments)
    assert (code, said, err) == (0, f"{out}\n", "")
    code, said, _ = run(capsys, "average", str(out), "--last", "2")
    assert (code, said) == (0, "averaged step-00000001, step-00000002\n")
    hyp = tmp_path / "hyp"
    code, _, err = run(
        capsys, "translate", "--model", str(out), "--output", str(hyp), "ten"
    )
    assert (code, err) == (0, "")
    code, said, _ = run(capsys, "score", str(hyp), str(hyp))
    assert code == 0
    assert said.splitlines()[0].split()[0] in ("0.00", "100.00")
    # another seed is another run: it must not go on with this one
    arguments[-1] = "4"
    code, said, err = run(capsys, *arguments)
    assert (code, said) == (2, "")
    assert "training.seed=3" in err
    assert err.count("\n") == 1


def few(count, seed):
    """Some held-out numbers, instead of two thousand."""
    from transformer_lit.numbers import held_out_sample

    return held_out_sample(5, seed)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("steps = 0", "steps=0"),
        ("stepz = 2", "'stepz'"),
        ('precision = "fp8"', "precision='fp8'"),
        ("steps = = 2", "cannot read"),
    ],
)
@pytest.mark.parametrize("command", ["train", "prepare"])
def test_a_bad_file_is_one_line(capsys, tmp_path, command, change, named):
    config = tmp_path / "run.toml"
    config.write_text(RUN.replace("steps = 2", change))
    code, out, err = run(capsys, command, str(config))
    assert (code, out) == (2, "")
    assert named in err
    assert err.count("\n") == 1


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("transformer_lit.shell.Translator.load", stop)
    code, out, err = run(capsys, "translate", "ten")
    assert (code, out, err) == (130, "", "transformer-lit: interrupted\n")


def test_a_gradient_that_is_not_finite_is_one_line(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transformer_lit.corpus.held_out_sample", few)
    monkeypatch.setattr(
        "transformer_lit.trainer.gradient_norm", lambda _: float("nan")
    )
    config = tmp_path / "run.toml"
    config.write_text(RUN)
    out = tmp_path / "out"
    code, _, err = run(capsys, "train", str(config), "--out", str(out))
    assert code == 2
    assert "not finite" in err
    assert err.count("\n") == 1


@pytest.fixture
def routes(monkeypatch):
    """A machine on which the other route is faster: the widths asked about."""
    widths = []

    def fast_matmul(width):
        widths.append(width)
        return contextlib.nullcontext(2.5)

    monkeypatch.setattr(shell, "fast_matmul", fast_matmul)
    return widths


def test_the_faster_route_of_products_is_told(capsys, monkeypatch, routes):
    def lines(*options):
        return run(
            capsys,
            *("translate", *options),
            stdin="forty two\n",
            monkeypatch=monkeypatch,
        )

    code, out, err = lines()
    assert (code, out, routes) == (0, "zweiundvierzig\n", [32])
    assert err.startswith("fp32 products by oneDNN: 2.5 times as fast")
    assert err.count("\n") == 1
    assert lines("--no-fast-matmul") == (0, out, "")
    assert run(capsys, "translate", "forty", "two") == (0, out, "")
    assert lines("--precision", "bf16") == (0, out, "")
    monkeypatch.setenv("RANK", "1")
    assert lines() == (0, out, "")
    assert routes == [32, 32]


@pytest.mark.parametrize(
    ("options", "told"),
    [((), 1), (("--no-fast-matmul",), 0), (("--precision", "bf16"), 0)],
)
def test_training_in_fp32_takes_it_too(
    capsys, tmp_path, monkeypatch, routes, options, told
):
    monkeypatch.setattr("transformer_lit.train.Trainer", Mock())
    config = tmp_path / "run.toml"
    config.write_text(RUN)
    code, _, err = run(capsys, "train", str(config), *options)
    assert (code, err.count("oneDNN"), len(routes)) == (0, told, told)
