"""Launching a run.

From book/11_launch.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import sys

from transformer_lit.cli import main

# 11_launch: From the shell
if __package__ == "transformer_lit":  # python -m transformer_lit
    sys.exit(main())


__all__ = []
