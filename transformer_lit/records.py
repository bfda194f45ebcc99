"""Training as software.

From book/10_training.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import json
from pathlib import Path
from typing import Any

import transformer_lit


# 10_training: Three seeds, and the model that ships
def load_record(name: str) -> dict[str, Any]:
    """The record of a long run, `results/NAME.json`.

    Raises:
        ValueError: there is no record of that name.
    """
    package = Path(transformer_lit.__path__[0])
    for folder in (package / "results", package.parent / "results"):
        if (folder / f"{name}.json").exists():
            return json.loads((folder / f"{name}.json").read_text("utf-8"))
    raise ValueError(f"there is no record results/{name}.json")


__all__ = [
    "load_record",
]
