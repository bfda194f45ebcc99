"""Trees as sentences and back, and brackets counted as EVALB counts them."""

import json
import os
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lit import parsing
from transformer_lit.cli import main
from transformer_lit.corpus import linearise, trees
from transformer_lit.parsing import (
    DELETED,
    GRAMMAR,
    LEXICON,
    MARKS,
    PAPER_SEARCH,
    BracketScore,
    Parser,
    bracketed,
    by_length,
    constituents,
    delinearise,
    draw_tree,
    leaves,
    phrase_labels,
    relabelled,
    right_branching,
    score_tree,
    score_trees,
    tree_of,
)
from transformer_lit.trainer import RunConfig

ROOT = Path(__file__).resolve().parents[1]
DATA = os.environ.get("TRANSFORMER_LIT_DATA")
SAMPLE = Path(DATA or "") / "wsj-sample" / "wsj_0001-0199.trees.tsv.gz"


@cache
def treebank(name):
    """The trees of a treebank: the sample, where it lies, or our grammar's."""
    if name == "wsj" and not (DATA and SAMPLE.exists()):
        pytest.skip("TRANSFORMER_LIT_DATA names no folder with wsj-sample")
    if name == "wsj":
        return list(trees(SAMPLE))
    rng = random.Random(0)
    return [[draw_tree(rng)] for _ in range(1000)]


each_treebank = pytest.mark.parametrize("name", ["ours", "wsj"])


# -- Reading and writing -----------------------------------------------------


@each_treebank
def test_brackets_are_read_as_they_were_written(name):
    for tree in treebank(name):
        assert tree_of(bracketed(tree)) == tree


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with a bracket"),
        ("S (NP x)", "begins with a bracket"),
        ("(S (NP x)", "never closed"),
        ("(S (NP x)))", r"'\)' goes on"),
        ("(NP x) (NP y)", r"'\(' goes on"),
    ],
)
def test_what_is_not_one_tree_is_an_error(text, reason):
    with pytest.raises(ValueError, match=reason):
        tree_of(text)


@each_treebank
def test_a_tree_comes_back_from_its_line(name):
    lines = [linearise(tree) for tree in treebank(name)]
    phrases = phrase_labels(" ".join(labels) for _, labels in lines)
    repaired = Counter()
    for words, labels in lines:
        back = delinearise(words, labels, phrases)
        assert back.repairs or linearise(back.tree) == (words, labels)
        repaired += back.repairs
        assert len(labels) == len(words) + 2 * sum(
            label.startswith("/") for label in labels
        )
    # the sample has one word that it tags as a comma
    assert repaired == Counter({"tag of a mark": 1} if name == "wsj" else {})


# -- Repairs -----------------------------------------------------------------

PHRASES = frozenset("S NP VP".split())


@pytest.mark.parametrize(
    ("labels", "tree", "repairs"),
    [
        ("S NP NNP /NP VP VBZ /VP /S", "S (NP ann) (VP sings)", {}),
        (
            "S NP NNP /NP VP VBZ /S",
            "S (NP ann) (VP sings)",
            {"open, not closed": 1},
        ),
        (
            "S NP NNP /NP VP VBZ",
            "S (NP ann) (VP sings)",
            {"open, not closed": 2},
        ),
        (
            "S NP NNP /NP /NP VP VBZ /PP /VP /S",
            "S (NP ann) (VP sings)",
            {"closed, not open": 2},
        ),
        (
            "S NP NP /NP NNP /NP VP VBZ /VP /S",
            "S (NP ann) (VP sings)",
            {"phrase without a word": 1},
        ),
        (
            "S NP NNP /NP VP VBZ RB RB /VP /S",
            "S (NP ann) (VP sings)",
            {"tag without a word": 2},
        ),
        (
            "S NP NNP /NP",
            "S (NP ann) sings",
            {"word without a tag": 1, "open, not closed": 1},
        ),
        ("", "", {"word without a tag": 2}),
        (
            "S NP , /NP VP VBZ /VP /S",
            "S (NP ann) (VP sings)",
            {"tag of a mark": 1},
        ),
        (
            "/ S NP NNP NP VP VBZ / /VP /S",
            "S (NP ann (NP (VP sings)))",
            {"closed, not open": 2, "open, not closed": 2},
        ),
        (
            "S VP NP NNP /VP VBZ /S",
            "S (VP (NP ann)) sings",
            {"open, not closed": 1},
        ),
    ],
)
def test_each_rule_of_repair(labels, tree, repairs):
    found = delinearise(["ann", "sings"], labels.split(), PHRASES)
    text = bracketed(found.tree)[1:-1]
    text = re.sub(r"\((?:NNP|VBZ|NN) (\w+)\)", r"\1", text)
    assert text == (f"({tree})" if tree else "ann sings")
    assert found.repairs == Counter(repairs)


def test_a_mark_has_its_own_tag_and_a_word_has_no_marks():
    words = ["``", "Ann", "'", "s", ".", "''", "?"]
    labels = "NN `` POS '' , , .".split()
    found = delinearise(words, labels, PHRASES)
    assert [tag for tag, _ in found.tree] == "`` NN POS NN . '' .".split()
    assert found.repairs == Counter({"tag of a mark": 5})
    quote = delinearise(["'"], ["''"], PHRASES)
    assert quote.tree == [["''", "'"]] and not quote.repairs


TOKENS = ["S", "NP", "VP", "/S", "/NP", "/VP", "/", "NNP", ",", ".", "/PP"]


@given(
    st.lists(st.sampled_from(["ann", "sings", ",", ".", "'"]), max_size=6),
    st.lists(st.sampled_from(TOKENS), max_size=20),
)
def test_whatever_comes_out_every_word_has_its_place(words, labels):
    found = delinearise(words, labels, PHRASES)
    assert [word for _, word in leaves(found.tree)] == words
    if words:
        line = linearise(found.tree)
        again = delinearise(*line, PHRASES)
        assert again.tree == found.tree and not again.repairs


def test_the_marks_of_the_treebank_are_tagged_as_it_tags_them():
    wrong = Counter(
        (tag, word)
        for tree in treebank("wsj")
        for tag, word in leaves(tree)
        if (word in MARKS or tag in MARKS.values())
        and word != "'"
        and MARKS.get(word) != tag
    )
    assert sum(wrong.values()) <= 1, wrong  # one word is tagged as a comma


# -- EVALB, rule by rule -----------------------------------------------------

GOLD = """(TOP (S (NP-SBJ (NP (DT the) (NN man)) (, ,) (ADVP (RB now)))
    (VP (VBZ wakes) (PRT (RP up)) (NP (-NONE- *)) (PP (IN in)
    (NP (DT a) (NN bed)))) (. .)))"""


def count(found, gold=GOLD):
    """Gold, found, matched, complete, words, tagged of two trees."""
    score = score_tree(tree_of(gold), tree_of(found))
    assert (score.sentences, score.errors, score.skipped) == (1, 0, 0)
    return counts_of(score)


def counts_of(score):
    """What EVALB prints of a sentence that is no error."""
    brackets = (score.gold, score.found, score.matched)
    return (*brackets, score.complete, score.words, score.tagged)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        # S, NP, NP, ADVP, VP, PRT, PP, NP: eight brackets, eight words
        ("(S ", "(S ", (8, 8, 8, 1, 8, 8)),
        ("NP-SBJ", "NP", (8, 8, 8, 1, 8, 8)),  # function tags
        ("NP-SBJ", "NP=2", (8, 8, 8, 1, 8, 8)),
        ("TOP", "S1", (8, 8, 8, 1, 8, 8)),
        ("(TOP ", "(", (8, 8, 8, 1, 8, 8)),
        ("PRT", "ADVP", (8, 8, 8, 1, 8, 8)),  # the same label
        ("(ADVP", "(PRT", (8, 8, 8, 1, 8, 8)),
        ("PRT", "PP", (8, 8, 7, 0, 8, 8)),
        ("(NP (-NONE- *)) ", "", (8, 8, 8, 1, 8, 8)),  # empty
        ("(, ,) (ADVP (RB now))", "(ADVP (, ,) (RB now))", (8, 8, 8, 1, 8, 8)),
        ("(RB now)", "(NN now)", (8, 8, 8, 1, 8, 7)),  # tags do not matter
        ("(, ,)", "(: ,)", (8, 8, 8, 1, 8, 8)),
        ("(NP (DT a) (NN bed))", "(DT a) (NN bed)", (8, 7, 7, 0, 8, 8)),
        # a bracket that stands there twice is matched once
        ("(ADVP (RB now))", "(ADVP (ADVP (RB now)))", (8, 9, 8, 0, 8, 8)),
        # a PP of another extent
        (
            "(PP (IN in)\n    (NP (DT a) (NN bed)))",
            "(PP (IN in))\n    (NP (DT a) (NN bed))",
            (8, 8, 7, 0, 8, 8),
        ),
    ],
)
def test_what_counts(old, new, counts):
    assert old in GOLD
    found = GOLD.replace(old, new, 1)
    assert count(found) == counts


def test_two_equal_brackets_must_be_found_twice():
    twice = "(NP (NP (NN x)))"
    assert count("(NP (NN x))", twice) == (2, 1, 1, 0, 1, 1)
    assert count(twice, twice) == (2, 2, 2, 1, 1, 1)


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ("(S (NN x))", {"errors": 1}),  # too few words
        ("(S (NN x) (NN y) (NN z))", {"errors": 1}),
        ("(S (NN x) (NN z))", {"errors": 1}),  # another word
        ("(S (NN x) (, y))", {"errors": 1}),  # a word tagged away
        ("(S (-NONE- x))", {"skipped": 1}),
        ("()", {"skipped": 1}),
        ("(S)", {"skipped": 1}),
    ],
)
def test_a_sentence_with_other_words_is_counted_and_left_out(found, what):
    gold = tree_of("(S (NN x) (NN y))")
    assert score_tree(gold, tree_of(found)) == BracketScore(1, **what)
    both = score_trees([gold, gold], [gold, tree_of(found)])
    assert both.f1 == both.complete_match == both.tagging == 100
    assert both.sentences == 2


def test_the_figures_are_made_of_sums():
    score = BracketScore(5, 1, 1, 20, 10, 9, 2, 50, 40)
    assert (score.recall, score.precision) == (45, 90)
    assert score.f1 == pytest.approx(2 * 45 * 90 / (45 + 90))
    assert score.complete_match == pytest.approx(100 * 2 / 3)
    assert score.tagging == 80
    assert score + score == BracketScore(10, 2, 2, 40, 20, 18, 4, 100, 80)
    empty = BracketScore()
    assert (empty.f1, empty.recall, empty.complete_match) == (0, 0, 0)


def test_the_cut_at_40_counts_marks_but_nothing_empty():
    def sentence(words):
        leaf = ["NN", "x"]
        marks = [[".", "."], ["-NONE-", "*"]]
        return [["S", *[leaf] * (words - 1), *marks]]

    golds = [sentence(40), sentence(41)]
    assert [constituents(gold).length for gold in golds] == [40, 41]
    assert score_trees(golds, golds).sentences == 2
    assert score_trees(golds, golds, longest=40).sentences == 1
    assert list(by_length(golds, golds)) == [40, 50]


def test_as_many_trees_as_the_treebank_has():
    gold = tree_of(GOLD)
    with pytest.raises(ValueError):
        score_trees([gold], [gold, gold])


# -- EVALB, by another way ---------------------------------------------------


def read_line(text):
    """A tree's words and brackets, read from the left, character by
    character, as the documentation of EVALB describes it."""
    deleted = ["TOP", "-NONE-", ",", ":", "``", "''", "."]
    words, brackets, stack, length = [], [], [], 0
    i = 0
    while i < len(text):
        if text[i] == ")":
            brackets[stack.pop()][2] = len(words)
        elif text[i] == "(":
            label = re.match(r"[^\s()]*", text[i + 1 :])[0]
            i += len(label)
            word = re.match(r"\s+([^\s()]+)\)", text[i + 1 :])
            if word:
                length += label != "-NONE-"
                if label not in deleted:
                    words.append((label, word[1]))
                i += len(word[0])
            else:
                stack.append(len(brackets))
                brackets.append([label, len(words), None])
        i += 1
    kept = []
    for label, start, end in brackets:
        for sign in "-=":
            label = label.partition(sign)[0]
        if start != end and label not in deleted:
            kept.append((label, start, end))
    return words, kept, length


def equal(a, b):
    """Whether two labels count as one."""
    return a == b or {a, b} == {"ADVP", "PRT"}


def evalb(gold, test):
    """What EVALB counts, by search, bracket by bracket."""
    words, brackets, length = read_line(gold)
    test_words, test_brackets, _ = read_line(test)
    if not test_words:
        return "skipped", length
    if [w for _, w in words] != [w for _, w in test_words]:
        return "error", length
    free, matched = list(test_brackets), 0
    for label, start, end in brackets:
        for one in free:
            if one[1:] == (start, end) and equal(one[0], label):
                free.remove(one)
                matched += 1
                break
    tagged = sum(
        equal(a, b) for (a, _), (b, _) in zip(words, test_words, strict=True)
    )
    complete = len(brackets) == len(test_brackets) == matched
    sizes = (len(brackets), len(test_brackets), matched)
    return (*sizes, int(complete), len(words), tagged), length


def disturbed(rng, tree):
    """A tree with some random changes."""
    label, *rest = tree
    if isinstance(rest[0], str):
        draw = rng.random()
        if draw < 0.001:  # another number of words, or another word
            return rng.choice([[], [["NN", "x"]], [tree, tree]])
        if draw < 0.002:  # a tag that does not count
            return [[rng.choice([",", ".", ":", "-NONE-"]), *rest]]
        if draw < 0.03 and label not in DELETED:  # another tag
            return [[rng.choice(["NN", "VB", "ADVP", "PRT"]), *rest]]
        return [tree]
    children = [new for child in rest for new in disturbed(rng, child)]
    draw = rng.random()
    if draw < 0.1 and children:  # no bracket
        return children
    if draw < 0.2:
        label = rng.choice(["NP", "VP-TMP", "PRT", "ADVP=2", "S", "TOP", "."])
    elif draw < 0.3:
        children = [[label, *children]]
    elif draw < 0.4 and len(children) > 2:
        cut = rng.randrange(1, len(children))
        children = [["NP", *children[:cut]], *children[cut:]]
    return [[label, *children]] if children else []


@each_treebank
def test_a_search_bracket_by_bracket_counts_the_same(name):
    rng, kinds = random.Random(0), Counter()
    for tree in treebank(name):
        gold, test = (
            ["TOP", *(new for x in tree for new in disturbed(rng, x))]
            for _ in range(2)
        )
        if name == "wsj":
            gold = ["TOP", *tree]
        found, length = evalb(bracketed(gold), bracketed(test))
        score = score_tree(gold, test)
        assert constituents(gold).length == length
        if isinstance(found, str):
            kinds[found] += 1
            assert score == BracketScore(
                sentences=1,
                errors=int(found == "error"),
                skipped=int(found == "skipped"),
            )
        else:
            kinds["complete" if found[3] else "valid"] += 1
            assert found == counts_of(score)
    assert kinds["error"] > 10 and kinds["complete"] > 10
    assert kinds["valid"] > len(treebank(name)) / 2


@each_treebank
def test_every_tree_scored_against_itself_has_100(name):
    bank = treebank(name)
    score = score_trees(bank, bank)
    assert score.sentences == len(bank)
    assert (score.errors, score.skipped) == (0, 0)
    assert score.gold == score.found == score.matched > 3 * len(bank)
    assert score.complete == len(bank)
    for share in (score.f1, score.recall, score.precision, score.tagging):
        assert share == 100
    if name == "wsj":
        assert score_trees(bank, bank, longest=40).sentences == 3629


@each_treebank
def test_the_lengths_add_up(name):
    rng, bank = random.Random(1), treebank(name)
    tests = [[new for x in t for new in disturbed(rng, x)] for t in bank]
    scores = by_length(bank, tests)
    assert sum(scores.values(), BracketScore()) == score_trees(bank, tests)
    assert list(scores) == sorted(scores) and len(scores) > 2
    under_20 = sum((s for n, s in scores.items() if n <= 20), BracketScore())
    assert under_20 == score_trees(bank, tests, longest=20)


# -- Trees that cost nothing -------------------------------------------------


@each_treebank
def test_right_branching_trees(name):
    for tree in treebank(name):
        words = leaves(tree)
        found = right_branching(words, "NP")
        assert leaves(found) == words
        score = score_tree(tree, found)
        assert score.errors == 0 and score.tagged == score.words
        spans = constituents(found).brackets
        assert {end for _, _, end in spans} == {score.words}


def test_a_right_branching_tree_by_hand():
    words = [["DT", "a"], ["NN", "b"], ["VB", "c"], [".", "."]]
    assert bracketed(right_branching(words, "X")) == (
        "((S (DT a) (X (NN b) (VB c)) (. .)))"
    )
    assert right_branching(words[:1], "X") == [["S", words[0]]]
    assert right_branching(words[2:], "X") == [["S", *words[2:]]]
    assert right_branching(words[3:], "X") == [["S", words[3]]]


@each_treebank
def test_relabelling_changes_labels_alone(name):
    for tree in treebank(name):
        found = relabelled(tree, "X")
        assert leaves(found) == leaves(tree)
        a, b = (
            Counter(
                (start, end)
                for _, start, end in constituents(t).brackets.elements()
            )
            for t in (tree, found)
        )
        assert a == b
        assert {x for x, _, _ in constituents(found).brackets} <= {"X"}


# -- Our own treebank --------------------------------------------------------


def derivations(words):
    """In how many ways the grammar makes a sentence."""

    @cache
    def ways(symbols, i, j):
        if not symbols:
            return int(i == j)
        first, rest = symbols[0], symbols[1:]
        if first == "-NONE-":
            return ways(rest, i, j)
        if first in LEXICON:
            fits = i < j and words[i] in LEXICON[first].split()
            return ways(rest, i + 1, j) if fits else 0
        return sum(
            ways(tuple(rule.split()), i, k) * ways(rest, k, j)
            for k in range(i, j + 1)
            for rule in GRAMMAR[first]
        )

    return ways(("S^whole",), 0, len(words))


def test_a_sentence_of_our_grammar_has_one_tree():
    for tree in treebank("ours")[:150]:
        assert derivations(tuple(linearise(tree)[0])) == 1
    assert derivations(("the", "man", "sees")) == 0


def test_our_grammar_is_closed():
    used = {s for rules in GRAMMAR.values() for r in rules for s in r.split()}
    assert used | {"S^whole"} == {*GRAMMAR, *LEXICON}
    words = [word for line in LEXICON.values() for word in line.split()]
    assert max(Counter(words).values()) > 1  # words of more than one tag


# -- The parser --------------------------------------------------------------


def test_a_parser_searches_as_the_paper_does_and_repairs(monkeypatch):
    asked = []

    def translate(texts, **search):
        asked.append((texts, search))
        return ["S NP NNP /NP VP VBZ /VP /S", "S NP"]

    parser = Parser(SimpleNamespace(translate=translate), PHRASES)
    sentences = [["ann", "sings"], ["ben", "."]]
    one, two = parser.parse(sentences)
    assert bracketed(one.tree) == "((S (NP (NNP ann)) (VP (VBZ sings))))"
    assert bracketed(two.tree) == "((S (NP (NN ben) (. .))))"
    assert not one.repairs and two.repairs["word without a tag"] == 2
    parser.parse(sentences, beam_size=1)
    texts = ["ann sings", "ben ."]
    assert asked == [
        (texts, {"beam_size": 21, "alpha": 0.3, "max_extra": 300}),
        (texts, {"beam_size": 1, "alpha": 0.3, "max_extra": 300}),
    ]


# -- The record, where there is one ------------------------------------------


def test_the_record_is_made_of_what_it_says():
    file = ROOT / "results" / "parsing.json"
    if not file.exists():
        pytest.skip("there is no results/parsing.json")
    record = json.loads(file.read_text("utf-8"))
    assert record["trees"] == {"train": 3396, "valid": 273, "test": 245}
    test, cheats = record["test"]["all"], record["baselines"]
    assert test["sentences"] == record["repairs"]["outputs"] == 245
    counts = [one["sentences"] for one in record["by_length"].values()]
    assert sum(counts) == 245
    assert test["f1"] > cheats["right_branching"]["all"]["f1"]
    chosen = record["chosen_on_valid"]
    assert chosen["f1"] == max(
        one["f1"]
        for one in chosen["tried"]
        if one["averaged"] == chosen["averaged"]
    )


# -- The files of the runs ---------------------------------------------------


def test_the_papers_parser_is_the_papers():
    run = RunConfig.load(ROOT / "configs" / "wsj.toml")
    sizes = run.transformer(run.corpus.vocab_size)
    assert (sizes.n_layers, sizes.d_model) == (4, 1024)
    assert (sizes.n_heads, sizes.d_ff) == (8, 2048)  # as the base model
    assert run.corpus.name == "wsj" and run.corpus.vocab_size == 16_000
    assert set(run.corpus.splits) == {"train", "valid", "test"}
    recipe = run.training
    assert (recipe.steps, recipe.tokens) == (100_000, 25_000)
    assert recipe.smoothing == 0.1


@pytest.mark.parametrize("name", ["wsj", "wsj_sample"])
def test_the_command_that_a_file_names_runs(name, capsys):
    text = (ROOT / "configs" / f"{name}.toml").read_text()
    [command] = re.findall(r"transformer-lit (translate .*)", text)
    flags = command.replace(f"runs/{name}-0", "numbers")
    if name == "wsj":
        given = {
            key.replace("-", "_"): float(value)
            for key, value in re.findall(r"--([a-z-]+) ([\d.]+)", flags)
        }
        assert given == PAPER_SEARCH
    arguments = flags.partition(" --input")[0].split()
    assert main([*arguments, "twelve"]) == 0
    assert capsys.readouterr().out == "zwölf\n"


def test_the_module_says_what_is_in_it():
    assert not [n for n in parsing.__all__ if not getattr(parsing, n, None)]
