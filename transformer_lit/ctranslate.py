"""6.1 Machine translation.

From book/06_1_translation.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import dataclasses
import itertools
import json
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_lit.attention import MultiHeadAttention
from transformer_lit.config import UNK, TransformerConfig
from transformer_lit.decoding import (
    Hypothesis,
    Kept,
    check_numbers,
    length_penalty,
)
from transformer_lit.model import Transformer, one_line
from transformer_lit.stacks import LayerNorm
from transformer_lit.tokenizer import Vocabulary, load_vocabulary
from transformer_lit.translator import Search, Translator, check_fit


# 06_1_translation: The same, by a library made for speed
def library() -> Any:
    """The package `ctranslate2`.

    Raises:
        ValueError: it is not installed; the message says how to mend that.
    """
    try:
        return import_module("ctranslate2")
    except ImportError:
        raise ValueError(
            "CTranslate2 is not installed: pip install ctranslate2"
        ) from None


# 06_1_translation: Moving the weights
def array(*parts: Tensor) -> NDArray[np.float32]:
    """Tensors below each other as one float32 array that is a copy."""
    return torch.cat([part.detach().float() for part in parts]).numpy()


def put_linear(spec: Any, *linears: nn.Linear) -> None:
    """Several maps of the same input become one."""
    spec.weight = array(*(linear.weight for linear in linears))
    if linears[0].bias is not None:
        spec.bias = array(*(linear.bias for linear in linears))


def put_norm(spec: Any, norm: LayerNorm) -> None:
    """The scale and the shift of a layer normalisation."""
    spec.gamma, spec.beta = array(norm.gain), array(norm.bias)


def put_attention(spec: Any, part: MultiHeadAttention, norm: LayerNorm) -> None:
    """An attention sub-layer: self-attention is two maps, the other three."""
    maps = [part.w_q, part.w_k, part.w_v]
    of_one_input = 3 if len(spec.linear) == 2 else 1
    put_linear(spec.linear[0], *maps[:of_one_input])
    if of_one_input == 1:
        put_linear(spec.linear[1], *maps[1:])
    put_linear(spec.linear[-1], part.w_o)
    put_norm(spec.layer_norm, norm)
    spec.queries_scale = (part.w_q.out_features // part.n_heads) ** -0.5


POSITIONS = 2048
"""How many positions an exported table of sinusoids has."""


def positions_of(config: TransformerConfig) -> int:
    """How many positions an exported model has."""
    return config.max_len if config.positions == "learned" else POSITIONS


def put_layer(spec: Any, layer: Any) -> None:
    """A layer of the encoder or, with attention to the memory, the decoder."""
    attention, last = layer.self_attention, layer.residual_2
    put_attention(spec.self_attention, attention, layer.residual_1.norm)
    if hasattr(layer, "cross_attention"):
        put_attention(spec.attention, layer.cross_attention, last.norm)
        last = layer.residual_3
    put_linear(spec.ffn.linear_0, layer.feed_forward.w_1)
    put_linear(spec.ffn.linear_1, layer.feed_forward.w_2)
    put_norm(spec.ffn.layer_norm, last.norm)


def put_stack(
    spec: Any, stack: Any, positions: nn.Module, config: TransformerConfig
) -> None:
    """The encoder or the decoder, all but its embedding matrix."""
    spec.scale_embeddings = config.scale_embeddings
    nothing = torch.zeros(1, positions_of(config), config.d_model)
    spec.position_encodings.encodings = array(positions(nothing)[0])
    for part, layer in zip(spec.layer, stack.layers, strict=True):
        put_layer(part, layer)
    if config.pre_norm:
        put_norm(spec.layer_norm, stack.norm)


def name_words(spec: Any, config: TransformerConfig) -> None:
    """Call each entry of the vocabulary by its id; tell the special ones."""
    names = [str(i) for i in range(config.vocab_size)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    about = spec.config
    about.bos_token = about.decoder_start_token = str(config.bos_id)
    about.eos_token, about.unk_token = str(config.eos_id), str(UNK)


def specification(model: Transformer) -> Any:
    """A model on the CPU as CTranslate2 describes it, nothing shared with it.

    Raises:
        ValueError: CTranslate2 has no such model, or is not installed.
    """
    config = model.config
    d_k, d_v = config.head_sizes
    if d_k != d_v:
        raise ValueError(
            f"d_k={d_k} and d_v={d_v}: CTranslate2 has one width for both, so "
            "this model cannot be exported"
        )
    spec = library().specs.TransformerSpec.from_config(
        config.n_layers, config.n_heads, pre_norm=config.pre_norm
    )
    put_stack(spec.encoder, model.encoder, model.src_positions, config)
    put_stack(spec.decoder, model.decoder, model.tgt_positions, config)
    spec.encoder.embeddings[0].weight = array(model.src_embedding.weight)
    spec.decoder.embeddings.weight = array(model.tgt_embedding.weight)
    spec.decoder.projection.weight = array(model.output.weight)
    name_words(spec, config)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.config.add_attribute("model", dataclasses.asdict(config))
    spec.validate()
    return spec


# 06_1_translation: Whole numbers
QUANTIZATIONS = (
    "int8 int8_float32 int8_float16 int8_bfloat16 int16 float16 bfloat16 float32"
).split()
"""What weights may be stored in; behind int8, what the rest is stored in."""


def convert(
    translator: Translator, out: str | Path, quantization: str | None = None
) -> None:
    """Write a model and its vocabulary into a folder, for CTranslate2.

    Raises:
        ValueError: the model or the quantization is none that CTranslate2
            has, the folder is a model's own, or the library is missing.
    """
    out = Path(out)
    if quantization not in (None, *QUANTIZATIONS):
        raise ValueError(
            f"quantization={quantization!r} must be one of "
            f"{', '.join(QUANTIZATIONS)}, or not be given"
        )
    if (out / "weights.safetensors").exists():
        raise ValueError(f"{out} holds a model to train: name another folder")
    spec = specification(translator.model)
    spec.optimize(quantization)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as part:
        spec.save(part)
        translator.vocabulary.save(Path(part))
        files = [path.name for path in Path(part).iterdir()]
        for name in sorted(files, key=lambda name: name == "model.bin"):
            os.replace(Path(part, name), out / name)


# 06_1_translation: Two searches that differ
PATIENCE = 2
"""How many outputs have to end, as a multiple of the beam's width."""


def check_room(config: TransformerConfig, search: Search, length: int) -> None:
    """Raise a ValueError for a search that a model has no room for."""
    room = positions_of(config)
    if length + search.max_extra > room:
        raise ValueError(
            f"{length} source tokens and max_extra={search.max_extra} are "
            f"more than the {room} positions that were exported"
        )
    if 2 * search.beam_size > config.vocab_size:
        raise ValueError(
            f"beam_size={search.beam_size} is more than half of the "
            f"{config.vocab_size} entries of the vocabulary"
        )


def engine_options(search: Search, length: int) -> dict[str, Any]:
    """What to ask of the library for sources of this length."""
    greedy = search.beam_size == 1
    return {
        "beam_size": search.beam_size,
        "patience": PATIENCE,
        "num_hypotheses": 1 if greedy else PATIENCE * search.beam_size,
        "length_penalty": 0,
        "max_decoding_length": length + search.max_extra,
        "min_decoding_length": 0,
        "max_input_length": 0,  # no limit
        "return_scores": True,
        "return_end_token": True,
    }


def by_our_score(result: Any, search: Search, eos_id: int) -> list[Hypothesis]:
    """A result of the library as our search would give it, the best first.

    Raises:
        ValueError: the model's output is NaN.
    """
    check_numbers(result.scores)
    ended, cut_off = Kept(search.n_best), Kept(search.n_best)
    for words, log_prob in zip(result.hypotheses, result.scores, strict=True):
        ids, score = [int(word) for word in words], log_prob
        if search.beam_size > 1:
            score /= length_penalty(len(ids), search.alpha)
        ends = ids[-1] == eos_id
        kept = ended if ends else cut_off
        kept.add(Hypothesis(ids[: len(ids) - ends], log_prob, score))
    return ended.best or cut_off.best


class FastTranslator(Translator):
    """A `Translator` whose model and search are CTranslate2's, on the CPU.

    In float32 greedy search writes the same, and every output has the same
    log-probability and score, up to rounding. The best output of a beam is
    the same or, seldom, a worse one. A model that writes its own padding
    token, as none that was trained does, is an exception.

    Args:
        engine: a `ctranslate2.Translator`.
        config, vocabulary: those of the model that was exported.
    """

    def __init__(
        self, engine: Any, config: TransformerConfig, vocabulary: Vocabulary
    ) -> None:
        self.engine, self.config, self.vocabulary = engine, config, vocabulary

    def find(
        self, sources: list[list[int]], search: Search
    ) -> list[list[Hypothesis]]:
        """The best outputs of each source of a batch.

        Raises:
            ValueError: the model has too few positions or entries, or its
                output is NaN.
        """
        found = []
        for length, group in itertools.groupby(sources, key=len):
            check_room(self.config, search, length)
            words = [[str(i) for i in ids] for ids in group]
            options = engine_options(search, length)
            for result in self.engine.translate_batch(words, **options):
                eos_id = self.config.eos_id
                found.append(by_our_score(result, search, eos_id))
        return found


def load_fast(name_or_folder: str | Path) -> FastTranslator:
    """What `convert` wrote; or a model for torch, converted for the moment.

    Raises:
        ValueError: there is no such model, it is damaged, or CTranslate2 is
            not installed.
    """
    ctranslate2, folder = library(), Path(name_or_folder)
    if not (folder / "model.bin").is_file():
        with tempfile.TemporaryDirectory() as made:
            convert(Translator.load(name_or_folder), made)
            return load_fast(made)
    try:
        about = json.loads((folder / "config.json").read_text("utf-8"))
        config = TransformerConfig(**about["model"])
        threads = torch.get_num_threads()
        engine = ctranslate2.Translator(str(folder), intra_threads=threads)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{folder} is damaged ({one_line(error)}); export the model again"
        ) from None
    vocabulary = load_vocabulary(folder)
    check_fit(vocabulary, config)
    return FastTranslator(engine, config, vocabulary)


__all__ = [
    "FastTranslator",
    "PATIENCE",
    "POSITIONS",
    "QUANTIZATIONS",
    "array",
    "by_our_score",
    "check_room",
    "convert",
    "engine_options",
    "library",
    "load_fast",
    "name_words",
    "positions_of",
    "put_attention",
    "put_layer",
    "put_linear",
    "put_norm",
    "put_stack",
    "specification",
]
