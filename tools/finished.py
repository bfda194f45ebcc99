"""What the records of finished runs share: choosing, scoring, keeping."""

import statistics
from pathlib import Path

import transformer_lit as tl
from transformer_lit.averaging import average, last_checkpoints
from transformer_lit.bleu import Score, score
from transformer_lit.corpus import read_text
from transformer_lit.trainer import read_log

SEARCHES = [
    {"beam_size": beam_size, "alpha": alpha}
    for beam_size, alpha in ((4, 0.6), (5, 0.6), (5, 1.0), (5, 1.4))
]


def bleu(
    model: Path, data: Path, split: str, protocol: str, **search: float
) -> Score:
    """A model's score on a split of a prepared corpus."""
    outputs = tl.Translator.load(model).translate(
        read_text(data / f"{split}.src"), **search
    )
    references = read_text(data / f"{split}.tgt")
    return score(outputs=outputs, references=references, protocol=protocol)


def mean(values: list[float]) -> float:
    """The mean, rounded as scores are printed."""
    return round(statistics.mean(values), 2)


def averaged(runs: list[Path], count: int, folder: Path) -> list[Path]:
    """Of each run the mean of its last checkpoints, as a model."""
    models = [folder / f"{run.name}-{count}" for run in runs]
    for run, model in zip(runs, models, strict=True):
        if not model.exists():
            average(last_checkpoints(run, count), model)
    return models


def choose(
    runs: list[Path],
    data: Path,
    folder: Path,
    *,
    protocol: str,
    counts: tuple[int, ...],
) -> dict[str, object]:
    """How many checkpoints to average, then which search: by validation.

    Both by the mean over the runs, and never by a test set.
    """
    tried: list[dict[str, float]] = []

    def try_out(count: int, search: dict[str, float]) -> None:
        models = averaged(runs, count, folder)
        found = [bleu(m, data, "valid", protocol, **search) for m in models]
        scores = mean([one.score for one in found])
        tried.append({"averaged": count, **search, "bleu": scores})
        print(tried[-1], flush=True)

    for count in counts:
        try_out(count, SEARCHES[0])
    count = max(tried, key=lambda one: one["bleu"])["averaged"]
    for search in SEARCHES[1:]:
        try_out(int(count), search)
    best = max(tried, key=lambda one: one["bleu"])
    return {"tried": tried, **{key: best[key] for key in best if key != "bleu"}}


def history(run: Path) -> dict[str, object]:
    """Time and curve of a run, from its log."""
    entries = read_log(run / "log.jsonl")
    training = [entry for entry in entries if "valid" not in entry]
    seconds = sum(entry["seconds"] for entry in training)
    tokens = sum(entry["tokens"] for entry in training)
    return {
        "updates": training[-1]["step"],
        "seconds": round(seconds),
        "tokens_per_second": round(tokens / seconds),
        "curve": [
            {
                "step": entry["step"],
                "nll": round(entry["valid"]["nll"], 4),
                "bleu": round(entry["valid"]["bleu"], 2),
            }
            for entry in entries
            if "valid" in entry
        ],
    }


def keep(model: Path, folder: Path, **about: str) -> None:
    """Keep a model in 16 bits; what else lies in the folder stays."""
    translator = tl.Translator.load(model)
    tl.save_model(translator.model.half(), folder, **about)
    translator.vocabulary.save(folder)
