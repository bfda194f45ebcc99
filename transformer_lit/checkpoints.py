"""Training as software.

From book/10_training.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from transformer_lit.corpus import write_json
from transformer_lit.model import Transformer, save_model
from transformer_lit.tokenizer import Vocabulary


# 10_training: Checkpoints
def file_sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checkpoint_folders(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def digest_of(state: dict[str, Any]) -> str:
    """The SHA-256 of JSON values, however they are laid out in a file."""
    content = json.dumps(state, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def save_checkpoint(
    run: Path,
    step: int,
    *,
    model: Transformer,
    vocabulary: Vocabulary,
    optimizer: dict[str, Tensor],
    state: dict[str, Any],
    keep: int,
) -> None:
    """Write a checkpoint, whole or not at all, and remove the oldest.

    Args:
        run: the run's folder.
        step: the updates done.
        model, vocabulary: a checkpoint is a model's folder, too.
        optimizer: the optimiser's tensors by name.
        state: everything else, as JSON can hold it.
        keep: how many checkpoints stay.
    """
    part = start_checkpoint(run, step)
    save_model(model, part)
    vocabulary.save(part)
    save_file(optimizer, part / "optimizer.safetensors")
    finish_checkpoint(part, {"step": step, **state}, keep)


def start_checkpoint(run: Path, step: int) -> Path:
    """A folder `part-...` with nothing in it yet."""
    part = run / "checkpoints" / f"part-{step:08d}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    return part


def finish_checkpoint(part: Path, state: dict[str, Any], keep: int) -> None:
    """Add state and checksums, rename the folder, and remove the oldest."""
    checksums = {file.name: file_sha256(file) for file in part.iterdir()}
    state = {**state, "sha256": checksums}
    write_json(part / "state.json", {**state, "digest": digest_of(state)})
    target = part.with_name(part.name.replace("part-", "step-"))
    shutil.rmtree(target, ignore_errors=True)
    os.replace(part, target)
    remove_oldest(part.parents[1], keep)


def remove_oldest(run: Path, keep: int) -> None:
    """Leave the newest `keep` checkpoints only."""
    for folder in checkpoint_folders(run)[:-keep]:
        shutil.rmtree(folder)


def read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint whose files are all as they were written.

    Raises:
        ValueError: a file is missing or differs; the message names it.
    """
    file = folder / "state.json"
    try:
        state = json.loads(file.read_text("utf-8"))
        sound = state.pop("digest") == digest_of(state)
    except (OSError, ValueError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{file} is missing or damaged")
    for name, checksum in state["sha256"].items():
        file = folder / name
        if not file.is_file() or file_sha256(file) != checksum:
            raise ValueError(f"{file} is missing or damaged")
    return state


def newest_checkpoint(run: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest sound checkpoint and its state; None when there is none.

    What is damaged is reported on standard error and passed over.
    """
    for folder in reversed(checkpoint_folders(run)):
        try:
            return folder, read_state(folder)
        except ValueError as error:
            print(f"{error}: this checkpoint is passed over", file=sys.stderr)
    return None


__all__ = [
    "checkpoint_folders",
    "digest_of",
    "file_sha256",
    "finish_checkpoint",
    "newest_checkpoint",
    "read_state",
    "remove_oldest",
    "save_checkpoint",
    "start_checkpoint",
]
