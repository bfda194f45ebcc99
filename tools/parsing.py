"""Score a parser of configs/wsj_sample.toml; write results/parsing.json.

    python tools/parsing.py --split wsj_0001-0199.trees.tsv.gz
    python tools/parsing.py runs/wsj_sample-0

The first command cuts the sample of the treebank into splits, by article. The
second scores a run. Which weights and which beam are used is chosen on the
validation split by F1; the test split is scored once, with what was chosen.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from chapters import ROOT
from miniature import commit, machine

import transformer_lit as tl
from transformer_lit.averaging import average, last_checkpoints
from transformer_lit.corpus import Tree, linearise, open_text, trees, write_json
from transformer_lit.parsing import (
    BracketScore,
    Parsed,
    Parser,
    by_length,
    constituents,
    leaves,
    phrase_labels,
    relabelled,
    right_branching,
    score_trees,
)
from transformer_lit.trainer import RunConfig, read_log

CONFIG = ROOT / "configs" / "wsj_sample.toml"
ARTICLES = {"train": (1, 159), "valid": (160, 179), "test": (180, 199)}
AVERAGED = (1, 5, 10)
BEAMS = (1, 4, 21)


def split(file: Path) -> None:
    """Cut the sample into splits, by article."""
    places = RunConfig.load(CONFIG).corpus.splits or {}
    lines: dict[str, list[str]] = {name: [] for name in ARTICLES}
    with open_text(file) as text:
        for line in text:
            article, _, tree = line.decode("utf-8").partition("\t")
            number = int(article.removeprefix("wsj_"))
            for name, (first, last) in ARTICLES.items():
                if first <= number <= last:
                    lines[name].append(tree)
    for name, place in places.items():
        (ROOT / place).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / place).write_text("".join(lines[name]), "utf-8")
        print(f"{place}: {len(lines[name])} trees")


def rounded(score: BracketScore) -> dict[str, float]:
    """A score as it is recorded."""
    shares = ("f1", "recall", "precision", "complete_match", "tagging")
    counts = ("sentences", "errors", "skipped")
    return {
        **{name: round(getattr(score, name), 2) for name in shares},
        **{name: getattr(score, name) for name in counts},
    }


def both(golds: Sequence[Tree], founds: Sequence[Tree]) -> dict[str, object]:
    """The scores of all sentences, and of those of at most 40 words."""
    return {
        "all": rounded(score_trees(golds, founds)),
        "at_most_40_words": rounded(score_trees(golds, founds, longest=40)),
    }


def commonest_label(bank: Sequence[Tree]) -> str:
    """The label that most phrases have."""
    found = Counter(
        label
        for tree in bank
        for label, _, _ in constituents(tree).brackets.elements()
    )
    return found.most_common(1)[0][0]


def baselines(bank: Sequence[Tree], golds: Sequence[Tree]) -> dict[str, object]:
    """What trees are worth that no parser was needed for."""
    label = commonest_label(bank)
    branching = [right_branching(leaves(gold), label) for gold in golds]
    shape = [relabelled(gold, label) for gold in golds]
    return {
        "label": label,
        "right_branching": both(golds, branching),
        "all_phrases_known_but_their_labels": both(golds, shape),
    }


def repairs(found: Sequence[Parsed]) -> dict[str, object]:
    """How many outputs were repaired, and by which rules."""
    total = sum((one.repairs for one in found), Counter[str]())
    structure = [one for one in found if set(one.repairs) - {"tag of a mark"}]
    return {
        "outputs": len(found),
        "repaired": sum(bool(one.repairs) for one in found),
        "repaired_beyond_tags_of_marks": len(structure),
        "times": dict(sorted(total.items())),
    }


class Bench:
    """A run's parsers, and the trees that they are scored on."""

    def __init__(self, run: Path) -> None:
        config = RunConfig.load(CONFIG)
        self.banks = {
            name: list(trees(ROOT / place))
            for name, place in (config.corpus.splits or {}).items()
        }
        lines = [linearise(tree)[1] for tree in self.banks["train"]]
        self.phrases = phrase_labels(" ".join(labels) for labels in lines)
        self.run = run

    def parse(self, model: Path, name: str, beam_size: int) -> list[Parsed]:
        """The trees of a split."""
        parser = Parser(tl.Translator.load(model), self.phrases)
        sentences = [linearise(tree)[0] for tree in self.banks[name]]
        return parser.parse(sentences, beam_size=beam_size)

    def f1(self, model: Path, beam_size: int) -> float:
        """The F1 of the validation split."""
        found = self.parse(model, "valid", beam_size)
        golds = self.banks["valid"]
        return round(score_trees(golds, [one.tree for one in found]).f1, 2)


def choose(bench: Bench, folder: Path) -> tuple[Path, dict[str, object]]:
    """Which weights and which beam have the highest F1 on validation."""
    models, tried = {}, []
    for count in AVERAGED:
        models[count] = folder / str(count)
        average(last_checkpoints(bench.run, count), models[count])
        f1 = bench.f1(models[count], 1)
        tried.append({"averaged": count, "beam_size": 1, "f1": f1})
        print(tried[-1], flush=True)
    best = max(tried, key=lambda one: one["f1"])["averaged"]
    for beam_size in BEAMS[1:]:
        f1 = bench.f1(models[best], beam_size)
        tried.append({"averaged": best, "beam_size": beam_size, "f1": f1})
        print(tried[-1], flush=True)
    chosen = max(
        (one for one in tried if one["averaged"] == best),
        key=lambda one: one["f1"],
    )
    return models[best], {"tried": tried, **chosen}


def lengths(bank: Sequence[Tree]) -> dict[str, float]:
    """How much longer than its sentence a linearised tree is."""
    pairs = [tuple(map(len, linearise(tree))) for tree in bank]
    extra = [labels - words for words, labels in pairs]
    return {
        "words": round(sum(w for w, _ in pairs) / len(pairs), 2),
        "labels": round(sum(x for _, x in pairs) / len(pairs), 2),
        "most_extra": max(extra),
        "share_with_more_than_50_extra": round(
            sum(one > 50 for one in extra) / len(extra), 4
        ),
    }


def log_of(run: Path) -> dict[str, object]:
    """Time and curve of a run."""
    entries = read_log(run / "log.jsonl")
    training = [entry for entry in entries if "valid" not in entry]
    judged = [entry for entry in entries if "valid" in entry]
    return {
        "updates": training[-1]["step"],
        "seconds": round(sum(entry["seconds"] for entry in training)),
        "curve": [
            {"step": one["step"], "nll": round(one["valid"]["nll"], 4)}
            for one in judged
        ],
    }


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--split":
        split(Path(sys.argv[2]))
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bench = Bench(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as name:
        model, chosen = choose(bench, Path(name))
        found = bench.parse(model, "test", int(str(chosen["beam_size"])))
    golds, outputs = bench.banks["test"], [one.tree for one in found]
    everything = [tree for bank in bench.banks.values() for tree in bank]
    record = {
        "what": "articles 1 to 199 of the Penn Treebank's Wall Street Journal",
        "protocol": "EVALB's rules; articles 180 to 199, not section 23",
        "config": CONFIG.name,
        "commit": commit(),
        "machine": machine(),
        "trees": {name: len(bank) for name, bank in bench.banks.items()},
        "lengths": lengths(everything),
        "training": log_of(bench.run),
        "chosen_on_valid": chosen,
        "test": both(golds, outputs),
        "repairs": repairs(found),
        "by_length": {
            str(most): rounded(score)
            for most, score in by_length(golds, outputs).items()
        },
        "baselines": baselines(bench.banks["train"], golds),
    }
    write_json(ROOT / "results" / "parsing.json", record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
