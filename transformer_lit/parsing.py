"""6.3 English constituency parsing.

From book/06_3_parsing.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from transformer_lit.corpus import Tree, read_tree
from transformer_lit.translator import Translator


# 06_3_parsing: A tree as a sentence
def tree_of(text: str) -> Tree:
    """The tree that a text in brackets writes.

    Raises:
        ValueError: it is not one tree.
    """
    tokens = iter(re.findall(r"[()]|[^\s()]+", text))
    if next(tokens, "") != "(":
        raise ValueError(f"a tree begins with a bracket, not like {text!r}")
    tree = read_tree(tokens)
    for token in tokens:
        raise ValueError(f"the tree has ended, and {token!r} goes on")
    return tree


def bracketed(tree: Tree) -> str:
    """A tree as text in brackets, on one line."""
    parts = [bracketed(x) if isinstance(x, list) else x for x in tree]
    return f"({' '.join(parts)})"


# 06_3_parsing: A treebank of our own
# What each symbol may become, with weights. What stands behind ^ is for the
# grammar alone: S^gap is an S in the tree.
GRAMMAR = {
    "S^whole": {"NP-SBJ VP .": 3, "PP^in , NP-SBJ VP .": 1},
    "S": {"NP-SBJ VP": 1},
    "S^gap": {"NP-SBJ^gap VP^short": 1},
    "VP": {
        "VBZ": 2,
        "VBZ ADVP": 1,
        "VBZ^up PRT": 1,
        "VBZ^that SBAR": 2,
        "VBZ^see NP": 4,
        "VBZ^see NP PP^with": 3,
    },
    "VP^short": {"VBZ^see NP": 2, "VBZ": 1},
    "SBAR": {"IN^that S": 1},
    "SBAR^gap": {"WHNP S^gap": 1},
    "WHNP": {"WDT": 1},
    "ADVP": {"RB": 1},
    "PRT": {"RP": 1},
    "PP^of": {"IN^of NP": 1},
    "PP^with": {"IN^with NP": 1},
    "PP^in": {"IN^in NP": 1},
}


GRAMMAR |= {
    "NP-SBJ": {
        "NNP": 3,
        "DT NN": 4,
        "DT JJ NN": 2,
        "NP^one PP^of": 2,
        "NP^one SBAR^gap": 1,
    },
    "NP-SBJ^gap": {"-NONE-": 1},
    "NP": {
        "NNP": 2,
        "DT NN": 4,
        "DT JJ NN": 2,
        "DT^many NNS": 2,
        "NP^any PP^of": 2,
        "NP^one SBAR^gap": 1,
    },
    "NP^one": {"DT NN": 2, "DT JJ NN": 1},
    "NP^any": {"DT NN": 3, "DT JJ NN": 1, "DT^many NNS": 1},
}


LEXICON = {
    "NNP": "Ada Ben Clara Dora Emil Fritz",
    "DT": "the a every this",
    "DT^many": "the some these",
    "NN": "man woman dog cat bird horse king queen teacher doctor "
    "house tower river garden bridge ship lamp stick hat glass",
    "NNS": "watches works paints walks houses towers hats lamps",
    "JJ": "small old red tall quiet",
    "VBZ": "sleeps sings waits works walks",
    "VBZ^see": "sees hears finds likes watches paints",
    "VBZ^that": "says thinks knows",
    "VBZ^up": "wakes comes",
    "RP": "up out",
    "RB": "often quietly now",
    "WDT": "that which",
    "IN^of": "of",
    "IN^with": "with by",
    "IN^in": "in near",
    "IN^that": "that",
    ",": ",",
    ".": ".",
    "-NONE-": "*T*",
}
"""The words of each tag."""


def draw_tree(rng: random.Random, symbol: str = "S^whole") -> Tree:
    """A random tree of the grammar.

    Args:
        rng: where chance comes from.
        symbol: what to begin with.
    """
    label = symbol.partition("^")[0]
    if symbol in LEXICON:
        return [label, rng.choice(LEXICON[symbol].split())]
    rules = GRAMMAR[symbol]
    [rule] = rng.choices(list(rules), list(rules.values()))
    return [label, *(draw_tree(rng, part) for part in rule.split())]


# 06_3_parsing: When the output is no tree
def phrase_labels(lines: Iterable[str]) -> frozenset[str]:
    """The labels that linearised trees close; all others are tags."""
    tokens = {token for line in lines for token in line.split()}
    return frozenset(token[1:] for token in tokens if token.startswith("/"))


MARKS = {
    ",": ",",
    ".": ".",
    "?": ".",
    "!": ".",
    "``": "``",
    "`": "``",
    "''": "''",
    ":": ":",
    ";": ":",
    "--": ":",
    "-": ":",
    "...": ":",
}
"""The tag of each word that is nothing but punctuation."""


def mended_tag(word: str, tag: str) -> str:
    """A word's tag; of punctuation the word itself decides it."""
    if word in MARKS:
        return MARKS[word]
    is_mark = tag in MARKS.values() and word != "'"  # which may be a quote
    return "NN" if is_mark else tag


@dataclass(frozen=True)
class Parsed:
    """What an output was read as.

    Attributes:
        tree: with all words of the sentence, under a top without a label.
        repairs: how often each rule was needed.
    """

    tree: Tree
    repairs: Counter[str]


class Builder:
    """A tree that grows from left to right.

    Attributes:
        left: the words that have no tag yet, the next one last.
        stack: the phrases that are open, the innermost last.
        repairs: how often each rule was needed.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.left = list(reversed(words))
        self.stack: list[Tree] = [[]]
        self.repairs = Counter[str]()

    def tag(self, tag: str) -> None:
        """Give the next word its tag."""
        if not self.left:
            self.repairs["tag without a word"] += 1
            return
        word = self.left.pop()
        mended = mended_tag(word, tag)
        if mended != tag:
            self.repairs["tag of a mark"] += 1
        self.stack[-1].append([mended, word])

    def close(self) -> str:
        """Close the innermost phrase; its label."""
        phrase = self.stack.pop()
        if len(phrase) > 1:
            self.stack[-1].append(phrase)
        else:
            self.repairs["phrase without a word"] += 1
        return str(phrase[0])


def delinearise(
    words: Sequence[str], labels: Iterable[str], phrases: frozenset[str]
) -> Parsed:
    """The tree that linearised labels stand for; see `linearise`.

    Args:
        words: of the sentence.
        labels: any tokens; what is no tree is repaired.
        phrases: which labels open a phrase; all others are tags.
    """
    tree = Builder(words)
    for token in labels:
        if token in phrases:
            tree.stack.append([token])
        elif not token.startswith("/"):
            tree.tag(token)
        elif token[1:] in [phrase[0] for phrase in tree.stack[1:]]:
            while tree.close() != token[1:]:
                tree.repairs["open, not closed"] += 1
        else:
            tree.repairs["closed, not open"] += 1
    while tree.left:
        tree.tag(mended_tag(tree.left[-1], "NN"))
        tree.repairs["word without a tag"] += 1
    while len(tree.stack) > 1:
        tree.close()
        tree.repairs["open, not closed"] += 1
    return Parsed(tree.stack[0], tree.repairs)


# 06_3_parsing: Which brackets agree
# Labels that do not count; a word with such a tag does not count either.
# They are those of COLLINS.prm, and S1, another name of the top.
DELETED = frozenset("TOP S1 -NONE- , : `` '' .".split())

# A label that counts as another.
SAME = {"PRT": "ADVP"}


@dataclass
class Constituents:
    """What is compared of a tree.

    Attributes:
        words, tags: those that count.
        brackets: how often each (label, start, end) stands there; a phrase
            reaches from word `start` to before word `end`.
        length: all words, those that do not count included.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    brackets: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    length: int = 0

    def add(self, tree: Tree) -> None:
        """Take in a tree, behind what is there."""
        label: str
        has_label = bool(tree) and isinstance(tree[0], str)
        label, *rest = tree if has_label else ("TOP", *tree)
        if rest and isinstance(rest[0], str):
            if label != "-NONE-":
                self.length += 1
            if label not in DELETED:
                self.words.append(rest[0])
                self.tags.append(SAME.get(label, label))
            return
        start = len(self.words)
        for child in rest:
            self.add(child)
        label, end = re.split("[-=]", label)[0], len(self.words)
        if label not in DELETED and start < end:
            self.brackets[SAME.get(label, label), start, end] += 1


def constituents(tree: Tree) -> Constituents:
    """What is compared of a tree."""
    found = Constituents()
    found.add(tree)
    return found


def percent(part: int, whole: int) -> float:
    """A share in percent; of nothing, 0."""
    return 100 * part / whole if whole else 0.0


@dataclass(frozen=True)
class BracketCounts:
    """What was counted over some sentences; counts can be added up.

    Attributes:
        sentences: how many were compared.
        errors: those whose words differ; nothing else of them is counted.
        skipped: those with no word in the output; nor of them.
        gold, found, matched: brackets of the treebank, of the output, of both.
        complete: sentences whose brackets are all right, and no others.
        words, tagged: words, and those with the right tag.
    """

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    gold: int = 0
    found: int = 0
    matched: int = 0
    complete: int = 0
    words: int = 0
    tagged: int = 0

    def __add__(self, other: Self) -> Self:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return type(self)(*(one + other for one, other in pairs))


class BracketScore(BracketCounts):
    """The figures that EVALB makes of the counts, in percent."""

    @property
    def recall(self) -> float:
        """The share of the treebank's brackets that were found."""
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """The share of the brackets found that are the treebank's."""
        return percent(self.matched, self.found)

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision."""
        return percent(2 * self.matched, self.gold + self.found)

    @property
    def complete_match(self) -> float:
        """The share of sentences in which every bracket is right."""
        valid = self.sentences - self.errors - self.skipped
        return percent(self.complete, valid)

    @property
    def tagging(self) -> float:
        """The share of words that have the right tag."""
        return percent(self.tagged, self.words)


def score_tree(gold: Tree, found: Tree) -> BracketScore:
    """Compare a tree with the treebank's, by the rules of EVALB.

    Args:
        gold: the treebank's.
        found: the one to be scored.
    """
    a, b = constituents(gold), constituents(found)
    if not b.words:
        return BracketScore(sentences=1, skipped=1)
    if a.words != b.words:
        return BracketScore(sentences=1, errors=1)
    return BracketScore(
        sentences=1,
        gold=a.brackets.total(),
        found=b.brackets.total(),
        matched=(a.brackets & b.brackets).total(),
        complete=int(a.brackets == b.brackets),
        words=len(a.words),
        tagged=sum(x == y for x, y in zip(a.tags, b.tags, strict=True)),
    )


def score_trees(
    golds: Iterable[Tree], founds: Iterable[Tree], longest: int | None = None
) -> BracketScore:
    """Compare trees with the treebank's, one by one.

    Args:
        golds: the treebank's.
        founds: those to be scored, in the same order.
        longest: leave out sentences with more words; None: none.

    Raises:
        ValueError: there are more of one than of the other.
    """
    total = BracketScore()
    for gold, found in zip(golds, founds, strict=True):
        if longest is None or constituents(gold).length <= longest:
            total += score_tree(gold, found)
    return total


def by_length(
    golds: Iterable[Tree], founds: Iterable[Tree], width: int = 10
) -> dict[int, BracketScore]:
    """Scores of the sentences of 1 to 10 words, of 11 to 20, and so on.

    Args:
        golds, founds: as in `score_trees`.
        width: how many lengths are taken together.

    Returns:
        The scores by the greatest length of each class, the shortest first.
    """
    scores: dict[int, BracketScore] = {}
    for gold, found in zip(golds, founds, strict=True):
        classes = math.ceil(constituents(gold).length / width)
        most = width * max(classes, 1)
        scores[most] = scores.get(most, BracketScore()) + score_tree(
            gold, found
        )
    return dict(sorted(scores.items()))


# 06_3_parsing: What costs nothing
def leaves(tree: Tree) -> list[Tree]:
    """The words of a tree with their tags, without empty elements."""
    if len(tree) == 2 and isinstance(tree[1], str):
        return [tree] if tree[0] != "-NONE-" else []
    children = [child for child in tree if isinstance(child, list)]
    return [leaf for child in children for leaf in leaves(child)]


def right_branching(words: Sequence[Tree], label: str) -> Tree:
    """Each phrase is a word and the phrase behind it; the whole is an S.

    Args:
        words: with their tags, as `leaves` gives them. A mark at the end
            stands outside the phrases.
        label: of all phrases but the whole.
    """
    inner = list(words)
    end: list[Tree] = []
    while len(inner) > 1 and inner[-1][0] in DELETED:
        end.insert(0, inner.pop())
    tree = inner.pop()
    while inner:
        tree = [label, inner.pop(), tree]
    phrase = tree[1:] if isinstance(tree[1], list) else [tree]
    return [["S", *phrase, *end]]


def relabelled(tree: Tree, label: str) -> Tree:
    """The same phrases, all with one label."""
    if len(tree) == 2 and isinstance(tree[1], str):
        return tree
    children = [relabelled(x, label) for x in tree if isinstance(x, list)]
    return [label, *children] if isinstance(tree[0], str) else children


# 06_3_parsing: A parser in half a minute
PAPER_SEARCH = {"beam_size": 21, "alpha": 0.3, "max_extra": 300}
"""How section 6.3 searches."""


class Parser:
    """A translator from words to linearised trees: sentences in, trees out.

    Args:
        translator: trained on a treebank.
        phrases: the labels of its phrases, as `phrase_labels` gives them.
    """

    def __init__(self, translator: Translator, phrases: frozenset[str]) -> None:
        self.translator, self.phrases = translator, phrases

    def parse(
        self, sentences: Sequence[Sequence[str]], **search: Any
    ) -> list[Parsed]:
        """Parse sentences.

        Args:
            sentences: the words of each.
            search: fields of `Search`; section 6.3's where none are given.
        """
        outputs = self.translator.translate(
            [" ".join(words) for words in sentences],
            **{**PAPER_SEARCH, **search},
        )
        return [
            delinearise(words, output.split(), self.phrases)
            for words, output in zip(sentences, outputs, strict=True)
        ]


__all__ = [
    "BracketCounts",
    "BracketScore",
    "Builder",
    "Constituents",
    "DELETED",
    "GRAMMAR",
    "LEXICON",
    "MARKS",
    "PAPER_SEARCH",
    "Parsed",
    "Parser",
    "SAME",
    "bracketed",
    "by_length",
    "constituents",
    "delinearise",
    "draw_tree",
    "leaves",
    "mended_tag",
    "percent",
    "phrase_labels",
    "relabelled",
    "right_branching",
    "score_tree",
    "score_trees",
    "tree_of",
]
