"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from pathlib import Path

import transformer_lit
from transformer_lit.batches import pad
from transformer_lit.decoding import greedy_search
from transformer_lit.model import Transformer, load_model
from transformer_lit.numbers import NumberVocabulary, english, read_number

# 06_1_translation: A translator
SHIPPED = Path(transformer_lit.__path__[0]) / "models"
"""Where the models that come with the package lie, one folder each."""


class Translator:
    """A trained model together with its vocabulary: text in, text out.

    Args:
        model: a model in eval mode.
        vocabulary: the one it was trained with.
    """

    def __init__(
        self, model: Transformer, vocabulary: NumberVocabulary
    ) -> None:
        self.model, self.vocabulary = model, vocabulary

    @classmethod
    def load(cls, name: str) -> "Translator":
        """A shipped model by name, or one from a folder.

        Raises:
            ValueError: there is no such model, or it is damaged.
        """
        shipped = sorted(path.parent.name for path in SHIPPED.glob("*/*.json"))
        folder = SHIPPED / name if name in shipped else Path(name)
        if not folder.is_dir():
            raise ValueError(
                f"no model {name!r}: shipped are {', '.join(shipped)}; "
                "or give a folder"
            )
        return cls(load_model(folder), NumberVocabulary())

    def prepare(self, text: str) -> list[int]:
        """Source ids of a text.

        Raises:
            ValueError: the text is nothing that this model reads.
        """
        return self.vocabulary.encode(english(read_number(text)).split())

    def translate(
        self, texts: list[str], *, batch_size: int = 256
    ) -> list[str]:
        """Translate texts, in their order.

        Raises:
            ValueError: a text is nothing that this model reads; nothing is
                translated then.
        """
        sources = [self.prepare(text) for text in texts]
        outputs: list[str] = []
        for start in range(0, len(sources), batch_size):
            chunk = sources[start : start + batch_size]
            src = pad(chunk, self.model.config.pad_id)
            for best, *_ in greedy_search(self.model, src):
                outputs.append("".join(self.vocabulary.decode(best.tokens)))
        return outputs


__all__ = [
    "SHIPPED",
    "Translator",
]
