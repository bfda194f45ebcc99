"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


# 06_1_translation: Which BLEU did they mean?
@cache
def moses(language: str) -> Callable[[str], str]:
    """Moses' tokenizer, which sets punctuation apart from words."""
    from sacremoses import MosesTokenizer  # imported when needed: it is slow
    from sacremoses.corpus import NonbreakingPrefixes

    known = set(NonbreakingPrefixes().available_langs.values())
    if language not in known:  # it would be cut as English without a word
        raise ValueError(
            f"language={language!r} must be one of {', '.join(sorted(known))}"
        )
    tokenizer = MosesTokenizer(lang=language)
    return lambda text: tokenizer.tokenize(text, return_str=True, escape=False)


def split_hyphens(text: str) -> str:
    """A hyphen inside a word becomes a word, as `get_ende_bleu.sh` does it."""
    import re

    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)


def as_it_is(text: str, language: str) -> str:
    """The text unchanged."""
    return text


def moses_lower(text: str, language: str) -> str:
    """Moses' words in lower case."""
    return moses(language)(text).lower()


def moses_hyphens(text: str, language: str) -> str:
    """Moses' words with hyphens split."""
    return split_hyphens(moses(language)(text))


@dataclass(frozen=True)
class Protocol:
    """A way to score.

    Attributes:
        about: in words.
        prepare: what is done to output and reference first, by language.
        options: for sacrebleu's metric.
        metric: "BLEU" or "CHRF".
        raw: it is meant for text as people write it.
    """

    about: str
    prepare: Callable[[str, str], str]
    options: dict[str, Any]
    metric: str = "BLEU"
    raw: bool = True


WORDS = {"tokenize": "none", "force": True}  # cut at spaces only
# Every protocol by its name.
PROTOCOLS = {
    "sacrebleu": Protocol("sacreBLEU's default (13a)", as_it_is, {}),
    "intl": Protocol(
        "sacreBLEU, Unicode punctuation", as_it_is, {"tokenize": "intl"}
    ),
    "lowercase": Protocol(
        "sacreBLEU, case ignored", as_it_is, {"lowercase": True}
    ),
    "tokenised": Protocol("words as they stand", as_it_is, WORDS, raw=False),
    "moses-lc": Protocol(
        "Moses' words, lower case (Multi30k's habit)", moses_lower, WORDS
    ),
    "paper": Protocol(
        "Moses' words, hyphens split, as the released script",
        moses_hyphens,
        WORDS | {"smooth_method": "none"},  # like multi-bleu.perl
    ),
    "chrf": Protocol("groups of characters", as_it_is, {}, metric="CHRF"),
}


@dataclass(frozen=True)
class Score:
    """A score with all that is needed to repeat it.

    Attributes:
        score: 0 to 100.
        protocol: its name in PROTOCOLS.
        signature: sacreBLEU's, behind what was done to the text before.
    """

    score: float
    protocol: str
    signature: str

    def __str__(self) -> str:
        return f"{self.score:.2f}  {self.protocol}  {self.signature}"


def score(
    *,
    outputs: list[str],
    references: list[str],
    protocol: str = "sacrebleu",
    language: str = "de",
) -> Score:
    """Score a whole test set.

    Args:
        outputs: the translations, a line each.
        references: one human translation each, in the same order.
        protocol: a name in PROTOCOLS.
        language: of the text; Moses' tokenizer knows its abbreviations.

    Raises:
        ValueError: unequal counts of lines, none, text that is no list, an
            unknown protocol, or a language that Moses does not know.
    """
    import sacrebleu  # imported when needed: it is slow

    if protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise ValueError(f"no protocol {protocol!r}: there are {known}")
    if isinstance(outputs, str) or isinstance(references, str):
        raise ValueError("give lists of lines, not one text")
    if len(outputs) != len(references) or not outputs:
        raise ValueError(
            f"{len(outputs)} outputs and {len(references)} references: give "
            "one reference for each output, and at least one"
        )
    how = PROTOCOLS[protocol]
    metric = getattr(sacrebleu, how.metric)(**how.options)
    ours = [how.prepare(text, language) for text in outputs]
    theirs = [how.prepare(text, language) for text in references]
    found = metric.corpus_score(ours, [theirs]).score
    return Score(found, protocol, signature(metric, how.prepare, language))


def signature(
    metric: Any, prepare: Callable[[str, str], str], language: str
) -> str:
    """What was done first, in front of sacreBLEU's own signature."""
    own = metric.get_signature().format()
    if prepare is as_it_is:
        return own
    import sacremoses

    name = prepare.__name__.replace("_", "-")
    return f"pre:{name}-{language}-{sacremoses.__version__}|{own}"


__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Score",
    "WORDS",
    "as_it_is",
    "moses",
    "moses_hyphens",
    "moses_lower",
    "score",
    "signature",
    "split_hyphens",
]
