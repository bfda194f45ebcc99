"""Train the `numbers` miniature that the package ships, and record it.

    python tools/miniature.py

Three seeds; each is tested on 20,000 numbers that it never saw. The first
seed's weights go to transformer_lit/models/numbers, the record of all three
to results/numbers.json.
"""

import hashlib
import json
import os
import platform
import subprocess
import time
from pathlib import Path

import torch
from chapters import PACKAGE, ROOT
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

import transformer_lit as tl
from transformer_lit.numbers import (
    NumberVocabulary,
    held_out_sample,
    number_batches,
)

SEEDS = (0, 1, 2)
RECIPE = {"batch_size": 64, "steps": 4500, "warmup": 1000, "smoothing": 0.1}
CHECKPOINTS = range(3700, 4501, 200)  # the last five, which are averaged
TESTED = 20_000
EVERY = 100  # updates between two points of the curve


def train(seed: int) -> tuple[tl.Transformer, dict[str, object]]:
    """One run; the model and its record."""
    torch.manual_seed(seed)
    vocabulary = NumberVocabulary()
    model = tl.Transformer(tl.TransformerConfig.miniature(len(vocabulary)))
    batches = number_batches(vocabulary, size=RECIPE["batch_size"], seed=seed)
    start = time.perf_counter()
    run = tl.fit(
        model,
        batches,
        steps=RECIPE["steps"],
        warmup=RECIPE["warmup"],
        smoothing=RECIPE["smoothing"],
    )
    averaged, curve = AveragedModel(model), []
    for p in tqdm(run, total=RECIPE["steps"], desc=f"seed {seed}"):
        if p.step % EVERY == 0:
            curve.append([p.step, round(p.loss, 4), round(p.nll, 4)])
        if p.step in CHECKPOINTS:
            averaged.update_parameters(model)
    model = averaged.module
    seconds = time.perf_counter() - start
    translator = tl.Translator(model.eval(), vocabulary)
    match = tl.exact_match(translator, held_out_sample(TESTED, seed=0))
    print(f"seed {seed}: exact match {match:.4%}, {seconds:.0f} s")
    return model, {
        "seed": seed,
        "seconds": round(seconds),
        "exact_match": match,
        "tested_on": TESTED,
        "curve": curve,
    }


def machine() -> dict[str, object]:
    """Where the runs were made."""
    cpu = [
        line.partition(": ")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": cpu[0] if cpu else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def commit() -> str:
    """The commit that the runs were made from."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, text=True).strip()


def main() -> None:
    runs = [train(seed) for seed in SEEDS]
    shipped = PACKAGE / "models" / "numbers"
    tl.save_model(runs[0][0], shipped)
    NumberVocabulary().save(shipped)
    weights = (shipped / "weights.safetensors").read_bytes()
    record = {
        "what": "English number words to German, 0 to 999,999",
        "protocol": "exact match, greedy decoding, numbers never trained on",
        "config": "TransformerConfig.miniature(66)",
        "recipe": {**RECIPE, "averaged_checkpoints": list(CHECKPOINTS)},
        "commit": commit(),
        "machine": machine(),
        "shipped_seed": SEEDS[0],
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "runs": [run for _, run in runs],
    }
    part = ROOT / "results" / "numbers.json.part"
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, ROOT / "results" / "numbers.json")


if __name__ == "__main__":
    main()
