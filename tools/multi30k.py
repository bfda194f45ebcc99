"""Score the runs of configs/multi30k_en_de.toml; write results/multi30k.json.

    python tools/multi30k.py runs/multi30k-1 runs/multi30k-2 runs/multi30k-3

How many checkpoints are averaged, the beam, and the length penalty are chosen
on the validation split, by the mean over the runs. The test sets are scored
once, with what was chosen. The best run's averaged weights (best on the
validation split) are kept in results/multi30k/, in 16 bits.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from chapters import ROOT
from finished import averaged, bleu, choose, history, keep, mean
from miniature import commit, machine
from sacremoses import MosesDetokenizer

import transformer_lit as tl
from transformer_lit.bleu import score
from transformer_lit.corpus import CorpusConfig, prepare, read_text, write_json
from transformer_lit.trainer import RunConfig

CONFIG = ROOT / "configs" / "multi30k_en_de.toml"
KEPT = ROOT / "results" / "multi30k"
PROTOCOL = "tokenised"  # the corpus is lower-cased and tokenised already
COUNTS = (5, 10, 20, 30)
TESTS = ("test_2016", "test_2017")
SENTENCES = [  # ours, written as the corpus is: lower-cased and tokenised
    "a man in a blue shirt is playing the guitar .",
    "two children are building a sand castle on the beach .",
    "a brown dog jumps over a fence .",
    "an old woman is selling flowers at the market .",
    "three women are sitting on a bench and laughing .",
    "a boy with a red helmet rides his bicycle down the street .",
    "people are waiting for the bus in the rain .",
    "a girl in a yellow dress is dancing in front of a crowd .",
    "the player in white kicks the ball towards the goal .",
    "a cook is cutting vegetables in a small kitchen .",
    "a child looks through the window of a train .",
    "several cyclists are racing up a steep hill .",
    "a man who is wearing a hat reads a newspaper to his grandson .",
    "the woman on the left is not looking at the camera .",
    "nobody is standing on the stage .",
    "a cat sleeps between two open umbrellas , although it is raining .",
    "eleven nuns are paddling a canoe past a lighthouse .",
    "a beekeeper lifts a honeycomb out of its hive .",
    "the physicist explains an equation to her students .",
    "we will not go to the theatre tomorrow .",
]


def on_raw_text(model: Path, data: Path, raw: Path, search: dict) -> dict:
    """sacreBLEU, case ignored, of outputs put together again as text."""
    join = MosesDetokenizer(lang="de").detokenize
    found = {}
    for split in TESTS:
        outputs = tl.Translator.load(model).translate(
            read_text(data / f"{split}.src"), **search
        )
        one = score(
            outputs=[join(text.split()) for text in outputs],
            references=read_text(raw / f"{split}.tgt"),
            protocol="lowercase",
        )
        found[split] = round(one.score, 2)
    return {"bleu": found, "signature": one.signature}


def record_of(run: Path, model: Path, data: Path, search: dict) -> dict:
    """Scores, time and curve of one run."""
    found = {
        split: bleu(model, data, split, PROTOCOL, **search)
        for split in ("valid", *TESTS)
    }
    return {
        "run": run.name,
        "bleu": {split: round(one.score, 2) for split, one in found.items()},
        "signature": found["valid"].signature,
        **history(run),
    }


def main() -> None:
    runs = [Path(name) for name in sys.argv[1:]]
    if not runs:
        sys.exit(__doc__)
    data = prepare(RunConfig.load(CONFIG).corpus)
    raw = prepare(CorpusConfig(name="multi30k", vocab_size=4000))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = choose(runs, data, folder, protocol=PROTOCOL, counts=COUNTS)
        search = {key: chosen[key] for key in ("beam_size", "alpha")}
        models = averaged(runs, chosen["averaged"], folder)
        found = [
            record_of(run, model, data, search)
            for run, model in zip(runs, models, strict=True)
        ]
        best = max(range(len(runs)), key=lambda i: found[i]["bleu"]["valid"])
        second = on_raw_text(models[best], data, raw, search)
        outputs = tl.Translator.load(models[best]).translate(
            SENTENCES, **search
        )
        about = "research only, as the data are: see Multi30k's terms"
        shutil.rmtree(KEPT, ignore_errors=True)
        keep(models[best], KEPT, licence=about)
    means = {
        split: mean([one["bleu"][split] for one in found])
        for split in ("valid", *TESTS)
    }
    record = {
        "what": "Multi30k, English to German, text only",
        "protocol": "BLEU on the corpus's own lower-cased, tokenised text",
        "config": CONFIG.name,
        "commit": commit(),
        "machine": machine(),
        "chosen_on_valid": chosen,
        "mean": means,
        "kept": found[best]["run"],
        "raw_text": second,
        "translations": list(zip(SENTENCES, outputs, strict=True)),
        "runs": found,
    }
    write_json(ROOT / "results" / "multi30k.json", record)
    print(json.dumps({key: record[key] for key in ("mean", "raw_text")}))


if __name__ == "__main__":
    main()
