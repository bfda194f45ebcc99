"""Compare the dry run's time with the time that a run really takes here.

    python tools/check_plan.py numbers=200 multi30k_en_de=20

Trains each run of configs/ for so many updates, after and before its speed is
measured as the dry run does it, and writes results/dry_run.json.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chapters import ROOT
from miniature import machine

from transformer_lit.corpus import write_json
from transformer_lit.train import calibrated, plan_run
from transformer_lit.trainer import RunConfig, Trainer, read_log


def planned(run: RunConfig, updates: int) -> float:
    """Seconds that the dry run expects of so many updates."""
    every = replace(run, training=replace(run.training, steps=updates))
    return plan_run(every, calibrated(every)).hours * 3600


def measured(run: RunConfig, updates: int) -> float:
    """Seconds that so many updates took, behind as many to warm up."""
    training = replace(
        run.training,
        steps=2 * updates,
        log_every=updates,
        save_every=2 * updates,
        valid_every=100 * updates,
    )
    with tempfile.TemporaryDirectory() as folder:
        Trainer(replace(run, training=training), folder).fit()
        entries = read_log(Path(folder, "log.jsonl"))
    return [e["seconds"] for e in entries if "seconds" in e][-1]


def main() -> int:
    runs = []
    for argument in sys.argv[1:]:
        name, _, count = argument.partition("=")
        run = RunConfig.load(ROOT / "configs" / f"{name}.toml")
        before = planned(run, int(count))
        took = measured(run, int(count))
        after = planned(run, int(count))
        runs.append(
            {
                "config": name,
                "updates": int(count),
                "planned_before": round(before, 2),
                "planned_after": round(after, 2),
                "planned_seconds": round((before + after) / 2, 2),
                "measured_seconds": round(took, 2),
            }
        )
        print(runs[-1])
    record = {
        "what": "seconds of training as planned by the dry run, and measured",
        "machine": machine(),
        "runs": runs,
    }
    write_json(ROOT / "results" / "dry_run.json", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
