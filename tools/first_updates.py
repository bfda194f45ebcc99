"""Run the first updates of the big configurations on a small stand-in.

    python tools/first_updates.py [UPDATES] [TOKENS]

WMT 2014 is too large for most machines. The newstest sets of other years are
the same kind of text: each configs/wmt14_*.toml is trained on them for its
first updates, with everything as it stands in the file but for the corpus,
the tokens of an update, and the precision, which is bf16. The curves go to
results/wmt14_first_updates.json; they say that the configurations train, and
nothing of how good they become.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chapters import ROOT
from miniature import commit, machine

from transformer_lit.corpus import write_json
from transformer_lit.model import count_parameters
from transformer_lit.trainer import RunConfig, Trainer, read_log

RECORD = ROOT / "results" / "wmt14_first_updates.json"


def stand_in(config: RunConfig, updates: int, tokens: int) -> RunConfig:
    """The run on newstest's text, cut short."""
    training = replace(
        config.training,
        steps=updates,
        tokens=tokens,
        positions=tokens,
        precision="bf16",
        log_every=10,
        save_every=updates,
        valid_every=updates * 10,
        keep=1,
    )
    corpus = replace(config.corpus, name="newstest")
    return replace(config, corpus=corpus, training=training)


def first_updates(config: RunConfig) -> dict[str, object]:
    """Train it and say how."""
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(config, folder).fit()
        entries = read_log(Path(folder) / "log.jsonl")
    entries = [entry for entry in entries if "valid" not in entry]
    return {
        "parameters": count_parameters(run.model.config),
        "updates": run.step,
        "tokens": round(sum(entry["tokens"] for entry in entries)),
        "seconds": round(sum(entry["seconds"] for entry in entries)),
        "curve": [[e["step"], round(e["nll"], 3)] for e in entries],
    }


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    updates, tokens = given + [200, 512][len(given) :]
    found = {}
    if RECORD.exists():
        found = json.loads(RECORD.read_text("utf-8"))["runs"]
    for path in sorted((ROOT / "configs").glob("wmt14_*.toml")):
        if path.stem not in found:
            config = stand_in(RunConfig.load(path), updates, tokens)
            found[path.stem] = first_updates(config)
            print(path.stem, found[path.stem], flush=True)
        record = {
            "what": "the first updates of each configuration, on newstest",
            "tokens_per_update": tokens,
            "precision": "bf16",
            "commit": commit(),
            "machine": machine(),
            "runs": found,
        }
        write_json(RECORD, record)


if __name__ == "__main__":
    main()
