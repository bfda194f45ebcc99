"""Launching a run.

From book/11_launch.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from transformer_lit.config import TABLE_3, TransformerConfig
from transformer_lit.corpus import prepare, summary
from transformer_lit.experiments import experiment
from transformer_lit.model import count_parameters
from transformer_lit.shell import average, export, score, translate
from transformer_lit.train import guarded, train
from transformer_lit.trainer import RunConfig


# 11_launch: From the shell
def params(vocab_size: int = 37_000) -> int:
    """Print the parameters of every row of Table 3.

    Args:
        vocab_size: the entries of the shared vocabulary.
    """
    for row in TABLE_3:
        config = TransformerConfig.table_3(row, vocab_size)
        print(f"{row:10s} {count_parameters(config):12,d}")
    return 0


def prepare_corpus(config: Annotated[Path, tyro.conf.Positional], /) -> int:
    """Turn a run's corpus into ids on disk, and say what is in it.

    Args:
        config: the run's file.
    """
    print(summary(prepare(RunConfig.load(config).corpus)))
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "translate": translate,
    "score": score,
    "average": average,
    "export": export,
    "prepare": prepare_corpus,
    "train": train,
    "params": params,
    "experiment": experiment,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `transformer-lit`; returns the exit code.

    Args:
        arguments: the command line; None: this process's.
    """
    prog = "transformer-lit"
    return guarded(
        lambda: tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog=prog, args=arguments
        ),
        prog,
    )


__all__ = [
    "COMMANDS",
    "main",
    "params",
    "prepare_corpus",
]
