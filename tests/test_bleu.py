"""Scores: sacreBLEU's own command line, cases by hand, each protocol."""

import math
import subprocess
import sys

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from transformer_lit.bleu import PROTOCOLS, score, split_hyphens

OUTPUTS = [
    "Die E-Mail-Adresse steht auf der Rückseite.",
    "er sagte: „Wir kommen morgen zurück.“",
    "Der Zug fährt um 7,30 Uhr vom Gleis 5 ab, z. B. heute.",
    "Wir haben die Ja-Nein-Frage nicht so ganz verstanden.",
]
REFERENCES = [
    "Die E-Mail-Adresse steht auf der letzten Seite.",
    'Er sagte: "Wir kommen morgen wieder."',
    "Der Zug fährt um 7.30 Uhr vom Gleis 5 ab, z.B. heute.",
    "Wir haben die Ja-Nein-Frage nicht beantwortet.",
]


def scored(protocol, outputs=OUTPUTS, references=REFERENCES):
    return score(outputs=outputs, references=references, protocol=protocol)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("sacrebleu", []),
        ("intl", ["-tok", "intl"]),
        ("lowercase", ["-lc"]),
        ("tokenised", ["-tok", "none", "--force"]),
        ("chrf", ["-m", "chrf"]),
    ],
)
def test_it_is_what_sacrebleus_command_line_says(tmp_path, protocol, options):
    for name, lines in (("out", OUTPUTS), ("ref", REFERENCES)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref")]
    command += ["-i", str(tmp_path / "out"), "-w", "6", *options]
    said = subprocess.run(
        [*command, "-f", "text"], capture_output=True, text=True, check=True
    ).stdout
    label, _, rest = said.partition(" = ")
    found = scored(protocol)
    assert found.score == pytest.approx(float(rest.split()[0]), abs=1e-6)
    assert found.signature == label.partition("|")[2]
    assert found.protocol == protocol


@pytest.mark.parametrize(
    ("protocol", "parts"),
    [
        ("sacrebleu", {"case:mixed", "tok:13a", "smooth:exp"}),
        ("intl", {"case:mixed", "tok:intl"}),
        ("lowercase", {"case:lc", "tok:13a"}),
        ("tokenised", {"case:mixed", "tok:none"}),
        ("moses-lc", {"pre:moses-lower-de", "tok:none"}),
        ("paper", {"pre:moses-hyphens-de", "tok:none", "smooth:none"}),
        ("chrf", {"nc:6", "nw:0"}),
    ],
)
def test_the_signature_tells_how(protocol, parts):
    signature = scored(protocol).signature
    for part in parts:
        assert part in signature
    assert f"version:{sacrebleu.__version__}" in signature
    assert ("pre:" in signature) == (protocol in ("moses-lc", "paper"))
    assert str(scored(protocol)).split()[1] == protocol


def test_too_long_and_too_short_by_hand():
    # five of six words; the other way the brevity penalty
    long, short = "eins zwei drei vier fünf sechs", "eins zwei drei vier fünf"
    shares = (5 / 6) * (4 / 5) * (3 / 4) * (2 / 3)
    found = scored("tokenised", [long], [short]).score
    assert found == pytest.approx(100 * shares**0.25)
    found = scored("tokenised", [short], [long]).score
    assert found == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_mosess_words_in_lower_case_by_hand():
    outputs = [
        "die e-mail-adresse steht auf der rückseite .",
        "er sagte : „ wir kommen morgen zurück . “",
        "der zug fährt um 7,30 uhr vom gleis 5 ab , z. b. heute .",
        "wir haben die ja-nein-frage nicht so ganz verstanden .",
    ]
    references = [
        "die e-mail-adresse steht auf der letzten seite .",
        'er sagte : " wir kommen morgen wieder . "',
        "der zug fährt um 7.30 uhr vom gleis 5 ab , z.b. heute .",
        "wir haben die ja-nein-frage nicht beantwortet .",
    ]
    want = scored("tokenised", outputs, references)
    assert scored("moses-lc").score == pytest.approx(want.score, abs=1e-9)


def test_the_papers_protocol_keeps_case_and_splits_hyphens():
    atat = " ##AT##-##AT## "
    out = ["eins zwei Ost-West im A-B-Team."]
    ref = ["eins zwei Ost-West im A-B-Team!"]
    # the script's expression eats both neighbours: "A-B-Team" has one cut
    once = f"eins zwei Ost{atat}West im A{atat}B-Team"
    want = scored("tokenised", [f"{once} ."], [f"{once} !"]).score
    assert scored("paper", out, ref).score == pytest.approx(want)
    twice = once.replace("B-T", f"B{atat}T")
    other = scored("tokenised", [f"{twice} ."], [f"{twice} !"]).score
    assert abs(want - other) > 1  # or one cut would look like two
    lower = [line.lower() for line in out]
    assert scored("paper", lower, ref).score < want - 1
    assert scored("paper", ["ein Wort"], ["ein Wort"]).score == 0  # no triple


def test_hyphens_inside_words_only():
    assert split_hyphens("Ost-West") == "Ost ##AT##-##AT## West"
    assert split_hyphens("auf- und ab") == "auf- und ab"
    assert split_hyphens("nie - immer") == "nie - immer"


WORDS = st.lists(st.sampled_from("ja nein Ost-West 75".split()), min_size=4)


@given(st.lists(WORDS, min_size=1, max_size=3))
def test_a_text_against_itself_scores_100_and_in_capitals_by_case(lines):
    texts = [" ".join(["eins", *words]) for words in lines]
    shouted = [text.upper() for text in texts]
    for protocol in PROTOCOLS:
        assert scored(protocol, texts, texts).score == pytest.approx(100)
        blind = scored(protocol, shouted, texts).score == pytest.approx(100)
        assert blind == (protocol in ("lowercase", "moses-lc"))


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_exchanged_arguments_give_another_score(protocol):
    short = [line.rsplit(" ", 2)[0] for line in OUTPUTS]
    there = scored(protocol, short, REFERENCES).score
    back = scored(protocol, REFERENCES, short).score
    assert abs(there - back) > 0.1


def test_arguments_go_by_name_only():
    with pytest.raises(TypeError):
        score(OUTPUTS, REFERENCES)


def test_protocols_disagree_on_the_same_output():
    scores = {name: scored(name).score for name in PROTOCOLS}
    assert len({round(value, 6) for value in scores.values()}) == len(scores)
    assert scores["lowercase"] > scores["sacrebleu"]


@pytest.mark.parametrize(
    ("outputs", "references", "named"),
    [
        (["a", "b"], ["a"], "2 outputs and 1 references"),
        ([], [], "0 outputs and 0 references"),
    ],
)
def test_unequal_counts_are_one_line(outputs, references, named):
    with pytest.raises(ValueError, match=named) as caught:
        score(outputs=outputs, references=references)
    assert "\n" not in str(caught.value)


def test_one_text_is_no_list_of_lines():
    # its characters would be scored as sentences
    for outputs, references in (("ab", "ab"), ("ab", ["a", "b"])):
        with pytest.raises(ValueError, match="lists of lines"):
            score(outputs=outputs, references=references)


@pytest.mark.parametrize("language", ["german", "xx", ""])
def test_a_language_that_moses_would_take_for_english_is_refused(language):
    with pytest.raises(ValueError, match=f"language={language!r}.* de,"):
        score(
            outputs=["z. B."],
            references=["z. B."],
            protocol="paper",
            language=language,
        )


def test_an_unknown_protocol_is_named():
    with pytest.raises(ValueError, match=r"'bleu'.*sacrebleu"):
        scored("bleu")
