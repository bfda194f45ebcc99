"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import sys

from transformer_lit.cli import main

# 06_1_translation: From the shell
if __package__ == "transformer_lit":  # python -m transformer_lit
    sys.exit(main())


__all__ = []
