"""Train every variant of chapter 7 alike; write results/modern.json.

    python tools/modern.py               all variants, three seeds
    python tools/modern.py rotary ALiBi  these only

The record is written after each trial. What stands in it, from the same
budget, is not run again: stop and start it as you like.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from chapters import ROOT
from miniature import commit, machine

from transformer_lit.corpus import write_json
from transformer_lit.modern import VARIANTS, Budget, trial

RECORD = ROOT / "results" / "modern.json"
SEEDS = (0, 1, 2)
BUDGET = Budget()


def trials() -> list[dict[str, Any]]:
    """What has been run with this budget."""
    if not RECORD.exists():
        return []
    record = json.loads(RECORD.read_text("utf-8"))
    same = record["budget"] == asdict(BUDGET)
    return list(record["trials"]) if same else []


def main() -> None:
    names = sys.argv[1:] or list(VARIANTS)
    unknown = set(names) - set(VARIANTS)
    if unknown:
        sys.exit(f"no such variant: {', '.join(sorted(unknown))}\n{__doc__}")
    done = trials()
    known = {(one["variant"], one["seed"]) for one in done}
    for seed in SEEDS:
        for name in names:
            if (name, seed) in known:
                continue
            start = time.perf_counter()
            found = trial(name, BUDGET, seed)
            seconds = round(time.perf_counter() - start)
            found |= {"nll": round(found["nll"], 5), "seconds": seconds}
            done.append(found)
            print(found, flush=True)
            record = {
                "what": "English number words to German, one change at a time",
                "protocol": "greedy decoding, numbers never trained on",
                "budget": asdict(BUDGET),
                "commit": commit(),
                "machine": machine(),
                "trials": done,
            }
            write_json(RECORD, record)


if __name__ == "__main__":
    main()
