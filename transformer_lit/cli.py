"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import sys
from collections.abc import Callable, Sequence

import tyro

from transformer_lit.config import TABLE_3, TransformerConfig
from transformer_lit.model import count_parameters
from transformer_lit.shell import translate


# 06_1_translation: From the shell
def params(vocab_size: int = 37_000) -> int:
    """Print the parameters of every row of Table 3.

    Args:
        vocab_size: the entries of the shared vocabulary.
    """
    for row in TABLE_3:
        config = TransformerConfig.table_3(row, vocab_size)
        print(f"{row:10s} {count_parameters(config):12,d}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `transformer-lit`; returns the exit code.

    Args:
        arguments: the command line; None: this process's.
    """
    commands: dict[str, Callable[..., int]] = {
        "translate": translate,
        "params": params,
    }
    try:
        return tyro.extras.subcommand_cli_from_dict(
            commands, prog="transformer-lit", args=arguments
        )
    except ValueError as error:
        print(f"transformer-lit: {error}", file=sys.stderr)
        return 2


__all__ = [
    "main",
    "params",
]
