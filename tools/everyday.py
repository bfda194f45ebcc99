"""Finish the run of configs/everyday_en_de.toml: the model that ships.

    python tools/everyday.py runs/everyday

How many checkpoints are averaged, the beam, and the length penalty are chosen
on the development set. The 16-bit weights go to transformer_lit/models/
everyday, the scores to results/everyday.json.
"""

import json
import sys
import tempfile
from pathlib import Path

from chapters import PACKAGE, ROOT
from finished import averaged, choose, history, keep
from miniature import commit, machine

import transformer_lit as tl
from transformer_lit.bleu import score
from transformer_lit.corpus import (
    CorpusConfig,
    EncodedSplit,
    prepare,
    read_text,
    write_json,
)
from transformer_lit.trainer import RunConfig

CONFIG = ROOT / "configs" / "everyday_en_de.toml"
KEPT = PACKAGE / "models" / "everyday"
PROTOCOL = "sacrebleu"
COUNTS = (1, 5, 10, 20)
ATTRIBUTION = (
    "trained on sentence pairs of tatoeba.org, by way of "
    "www.manythings.org/anki, CC BY 2.0 FR"
)

CARD = """\
# everyday

A small Transformer (section 3 of *Attention Is All You Need*, {layers}
layers of width {width}, {count:,} parameters) that translates short everyday
sentences from English into German:

    transformer-lit translate --model everyday "Where is the station?"

**Data.** {pairs:,} sentence pairs of [Tatoeba](https://tatoeba.org), by way
of [manythings.org/anki](http://www.manythings.org/anki), written by the
contributors of Tatoeba and shared under
[CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/). Sentences of
the test set were taken out first. The weights are shared under the same
conditions: name Tatoeba and its contributors.

**Training.** `configs/everyday_en_de.toml`: {updates:,} updates, the mean of
the last {averaged} checkpoints, stored in 16 bits. English is read in any
case; German comes out as it is written.

**Scores** (beam {beam_size}, alpha {alpha}; the record is
`results/everyday.json`):

| test set | sentences | BLEU | chrF |
|---|---|---|---|
{rows}

BLEU by sacreBLEU, `{signature}`.

**What it can do.** Sentences of three to ten common words, as they stand in
a phrase book.

**What it cannot do.** Long sentences, rare words and names: it then invents
words, or loses a "not", and nothing in the output tells you.
It knows no context: "you" becomes du, ihr or Sie as it comes. It has learned
who Tom and Mary are, for they are in a great many of its sentences, and
whatever prejudice the sentences have. Do not use it where a wrong
translation can do harm.
"""


def card(record: dict, model: tl.Transformer, pairs: int) -> str:
    """The model card."""
    rows = "\n".join(
        f"| {what} | {one['sentences']:,} | {one['bleu']} | {one['chrf']} |"
        for what, one in record["scores"].items()
    )
    return CARD.format(
        layers=f"{model.config.n_layers} + {model.config.n_layers}",
        width=model.config.d_model,
        count=tl.count_parameters(model.config),
        pairs=pairs,
        rows=rows,
        updates=record["updates"],
        signature=record["signature"],
        **record["chosen_on_dev"],
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    data = prepare(RunConfig.load(CONFIG).corpus)
    captions = prepare(CorpusConfig(name="multi30k", vocab_size=4000))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = choose([run], data, folder, protocol=PROTOCOL, counts=COUNTS)
        search = {key: chosen[key] for key in ("beam_size", "alpha")}
        [model] = averaged([run], chosen["averaged"], folder)
        keep(model, KEPT, attribution=ATTRIBUTION)
    found = {}
    for what, place, split in (
        ("tatoeba dev", data, "valid"),
        ("tatoeba test", data, "test"),
        ("multi30k test_2016", captions, "test_2016"),
    ):
        outputs = tl.Translator.load(KEPT).translate(
            read_text(place / f"{split}.src"), **search
        )
        references = read_text(place / f"{split}.tgt")
        one, chrf = (
            score(outputs=outputs, references=references, protocol=protocol)
            for protocol in (PROTOCOL, "chrf")
        )
        found[what] = {
            "sentences": len(outputs),
            "bleu": round(one.score, 2),
            "chrf": round(chrf.score, 2),
        }
    record = {
        "what": "everyday sentences, English to German",
        "config": CONFIG.name,
        "commit": commit(),
        "machine": machine(),
        "chosen_on_dev": chosen,
        "scores": found,
        "signature": one.signature,
        "chrf_signature": chrf.signature,
        **history(run),
    }
    write_json(ROOT / "results" / "everyday.json", record)
    text = card(record, tl.load_model(KEPT), len(EncodedSplit(data, "train")))
    (KEPT / "README.md").write_text(text, "utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
