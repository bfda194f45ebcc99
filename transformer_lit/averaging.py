"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import json
import math
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from transformer_lit.model import load_model, save_model
from transformer_lit.tokenizer import write_file


# 06_1_translation: Averaging checkpoints
def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, Tensor]:
    """The plain mean of each parameter, section 6.1.

    Args:
        folders: models as `save_model` writes them, all of one config.

    Returns:
        The means by the parameters' names; of tied ones the first name.

    Raises:
        ValueError: no folders, a damaged one, or different configs.
    """
    if not folders:
        raise ValueError("there are no checkpoints to average: name some")
    expected, sums = load_model(folders[0]).config, dict[str, Tensor]()
    for folder in folders:
        model = load_model(folder)
        if model.config != expected:
            raise ValueError(
                f"{folder} has another configuration than {folders[0]}; "
                "average the checkpoints of one run"
            )
        for name, weight in model.named_parameters():
            value = weight.detach().double()
            sums[name] = sums[name] + value if name in sums else value
    return {name: (s / len(folders)).float() for name, s in sums.items()}


def average(folders: Sequence[str | Path], out: str | Path) -> None:
    """Write the mean of some checkpoints as a model of its own.

    Args:
        folders: as for `average_checkpoints`.
        out: the folder to write; the last checkpoint's vocabulary is copied.
    """
    mean = average_checkpoints(folders)
    last, out = Path(folders[-1]), Path(out)
    model = load_model(last)
    model.load_state_dict(mean, strict=False)  # tied names: one storage
    about = json.loads((last / "config.json").read_text("utf-8"))
    about["averaged"] = [Path(folder).name for folder in folders]
    del about["model"]
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.model", "vocabulary.json"):
        if (last / name).is_file():
            write_file(out / name, (last / name).read_bytes())
    save_model(model, out, **about)


def checkpoints_by_step(run: Path) -> dict[int, Path]:
    """The complete checkpoints of a run, oldest first."""
    found = {}
    for folder in sorted((run / "checkpoints").glob("step-*")):
        step = folder.name.removeprefix("step-")
        if step.isdecimal() and (folder / "weights.safetensors").is_file():
            found[int(step)] = folder
    return found


def enough(found: list[Path], n: int, what: str) -> list[Path]:
    """The first n, or a ValueError that says how many there are."""
    if n < 1:
        raise ValueError(f"n={n} checkpoints cannot be averaged; ask for 1 on")
    if len(found) < n:
        raise ValueError(
            f"{what}: {len(found)} found, {n} asked for; ask for fewer, or "
            "keep more in the next run"
        )
    return found[:n]


def last_checkpoints(run: str | Path, n: int) -> list[Path]:
    """The newest n checkpoints of a run, oldest first.

    Raises:
        ValueError: there are fewer than n.
    """
    newest = [*reversed(checkpoints_by_step(Path(run)).values())]
    return enough(newest, n, f"checkpoints in {run}")[::-1]


def best_checkpoints(run: str | Path, n: int) -> list[Path]:
    """The n checkpoints of the least validation NLL, the best first.

    An NLL that is infinite or NaN counts as none.

    Raises:
        ValueError: there are fewer than n that were validated and kept.
    """
    log = Path(run) / "log.jsonl"
    if not log.is_file():
        raise ValueError(f"{log} is missing: no checkpoint was validated")
    nll: dict[int, float] = {}
    for line in log.read_text("utf-8").splitlines(keepends=True):
        if line.endswith("\n"):  # not one that a crash cut off
            entry = json.loads(line)
            if "valid" in entry and math.isfinite(entry["valid"]["nll"]):
                nll[entry["step"]] = entry["valid"]["nll"]
    folders = checkpoints_by_step(Path(run))
    steps = sorted(nll.keys() & folders.keys(), key=lambda step: nll[step])
    found = [folders[step] for step in steps]
    return enough(found, n, f"validated checkpoints in {run}")


__all__ = [
    "average",
    "average_checkpoints",
    "best_checkpoints",
    "checkpoints_by_step",
    "enough",
    "last_checkpoints",
]
