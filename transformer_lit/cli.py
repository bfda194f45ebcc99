"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from transformer_lit.config import TABLE_3, TransformerConfig
from transformer_lit.model import count_parameters
from transformer_lit.translator import Translator


# 06_1_translation: From the shell
def translate(
    words: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    model: str = "numbers",
) -> int:
    """Translate a text, or the lines of standard input when there is none.

    Args:
        words: the text; several words make one sentence.
        model: a shipped model's name, or a folder with a model.
    """
    translator = Translator.load(model)
    lines = [" ".join(words)] if words else sys.stdin.read().splitlines()
    good, faults = [], {}
    for number, line in enumerate(lines, start=1):
        try:
            translator.prepare(line)
            good.append(line)
        except ValueError as error:
            faults[number] = str(error)
    outputs = iter(translator.translate(good))
    for number in range(1, len(lines) + 1):
        if number not in faults:
            print(next(outputs))
            continue
        where = "" if words else f"line {number}: "
        print(f"transformer-lit: {where}{faults[number]}", file=sys.stderr)
        if not words:
            print()  # keeps the lines of output beside those of input
    return 2 if faults else 0


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
    "translate",
]
