"""Score the runs of configs/multi30k_en_de.toml; write results/multi30k.json.

    python tools/multi30k.py runs/multi30k_en_de-1 runs/multi30k_en_de-2 ...

How many checkpoints are averaged, the beam, and the length penalty are chosen
on the validation split, by the mean over the runs. The test sets are scored
once, with what was chosen. The best run's averaged weights (best on the
validation split) are kept in results/multi30k/, in 16 bits.
"""

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from chapters import ROOT
from miniature import commit, machine

import transformer_lit as tl
from transformer_lit.averaging import average, last_checkpoints
from transformer_lit.bleu import Score, score
from transformer_lit.corpus import prepare, read_text, write_json
from transformer_lit.trainer import RunConfig, read_log

CONFIG = ROOT / "configs" / "multi30k_en_de.toml"
KEPT = ROOT / "results" / "multi30k"
PROTOCOL = "tokenised"  # the corpus is lower-cased and tokenised already
AVERAGED = (5, 10, 20, 30)
SEARCHES = [
    {"beam_size": beam_size, "alpha": alpha}
    for beam_size, alpha in ((4, 0.6), (5, 0.6), (5, 1.0))
]


def bleu(model: Path, data: Path, split: str, **search: float) -> Score:
    """A model's score on a split."""
    outputs = tl.Translator.load(model).translate(
        read_text(data / f"{split}.src"), **search
    )
    references = read_text(data / f"{split}.tgt")
    return score(outputs=outputs, references=references, protocol=PROTOCOL)


def mean(values: list[float]) -> float:
    """The mean, rounded as scores are printed."""
    return round(statistics.mean(values), 2)


def choose(runs: list[Path], data: Path, folder: Path) -> dict[str, object]:
    """How many checkpoints, and which search: the best on validation."""
    tried = []
    for count in AVERAGED:
        models = [folder / f"{run.name}-{count}" for run in runs]
        for run, model in zip(runs, models, strict=True):
            average(last_checkpoints(run, count), model)
        for search in SEARCHES if count == AVERAGED[-1] else SEARCHES[:1]:
            scores = [bleu(m, data, "valid", **search).score for m in models]
            tried.append({"averaged": count, **search, "bleu": mean(scores)})
            print(tried[-1])
    best_count = max(tried[: len(AVERAGED)], key=lambda one: one["bleu"])
    searched = [one for one in tried if one["averaged"] == AVERAGED[-1]]
    best_search = max(searched, key=lambda one: one["bleu"])
    return {
        "tried": tried,
        "averaged": best_count["averaged"],
        "beam_size": best_search["beam_size"],
        "alpha": best_search["alpha"],
    }


def record_of(run: Path, model: Path, data: Path, search: dict) -> dict:
    """Scores, time and curve of one run."""
    entries = read_log(run / "log.jsonl")
    training = [entry for entry in entries if "valid" not in entry]
    judged = [entry for entry in entries if "valid" in entry]
    found = {s: bleu(model, data, s, **search) for s in ("valid", *TESTS)}
    seconds = sum(entry["seconds"] for entry in training)
    tokens = sum(entry["tokens"] for entry in training)
    return {
        "run": run.name,
        "bleu": {split: round(one.score, 2) for split, one in found.items()},
        "signature": found["valid"].signature,
        "updates": training[-1]["step"],
        "seconds": round(seconds),
        "tokens_per_second": round(tokens / seconds),
        "curve": [
            {
                "step": entry["step"],
                "nll": round(entry["valid"]["nll"], 4),
                "bleu": round(entry["valid"]["bleu"], 2),
            }
            for entry in judged
        ],
    }


TESTS = ("test_2016", "test_2017")


def main() -> None:
    runs = [Path(name) for name in sys.argv[1:]]
    if not runs:
        sys.exit(__doc__)
    config = RunConfig.load(CONFIG)
    data = prepare(config.corpus)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = choose(runs, data, folder)
        search = {key: chosen[key] for key in ("beam_size", "alpha")}
        models = [folder / f"{run.name}-{chosen['averaged']}" for run in runs]
        found = [
            record_of(run, model, data, search)
            for run, model in zip(runs, models, strict=True)
        ]
        best = max(range(len(runs)), key=lambda i: found[i]["bleu"]["valid"])
        keep(models[best])
    write_json(
        ROOT / "results" / "multi30k.json",
        {
            "what": "Multi30k, English to German, text only",
            "protocol": "BLEU on the corpus's own lower-cased, tokenised text",
            "config": CONFIG.name,
            "commit": commit(),
            "machine": machine(),
            "chosen_on_valid": chosen,
            "mean": {
                split: mean([one["bleu"][split] for one in found])
                for split in ("valid", *TESTS)
            },
            "kept": found[best]["run"],
            "runs": found,
        },
    )
    print(json.dumps(found, indent=1))


def keep(model: Path) -> None:
    """Keep a model in 16 bits."""
    shutil.rmtree(KEPT, ignore_errors=True)
    translator = tl.Translator.load(model)
    about = "research only, as the data are: see Multi30k's terms"
    tl.save_model(translator.model.half(), KEPT, licence=about)
    translator.vocabulary.save(KEPT)


if __name__ == "__main__":
    main()
