"""CTranslate2, which only decodes, with random weights of the same sizes."""

# mypy: disable-error-code="import-not-found, import-untyped"
import tempfile
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from torch import Tensor

from benchmarks.cases import Case, Size
from benchmarks.peer import ALPHA, Decode, Peer

TYPES = {"fp32": "float32", "medium": "float32", "bf16": "bfloat16"}
WORDS = ["<blank>", "<s>", "</s>", "<unk>"]


def fill(part: Any, size: Size) -> None:
    """Give every layer of a specification its weights."""
    D, F = size.d_model, size.d_ff
    rng = np.random.default_rng(0)

    def linear(spec: Any, outputs: int, inputs: int) -> None:
        weight = rng.normal(0, inputs**-0.5, (outputs, inputs))
        spec.weight = weight.astype(np.float32)
        spec.bias = np.zeros(outputs, np.float32)

    def norm(spec: Any) -> None:
        spec.gamma, spec.beta = np.ones(D, np.float32), np.zeros(D, np.float32)

    for layer in part.layer:
        linear(layer.self_attention.linear[0], 3 * D, D)
        linear(layer.self_attention.linear[1], D, D)
        norm(layer.self_attention.layer_norm)
        if hasattr(layer, "attention"):
            linear(layer.attention.linear[0], D, D)
            linear(layer.attention.linear[1], 2 * D, D)
            linear(layer.attention.linear[2], D, D)
            norm(layer.attention.layer_norm)
        linear(layer.ffn.linear_0, F, D)
        linear(layer.ffn.linear_1, D, F)
        norm(layer.ffn.layer_norm)


def specification(size: Size) -> Any:
    """A model for its `save`; one table for all uses, as everybody has."""
    spec = TransformerSpec.from_config(
        size.n_layers, size.n_heads, pre_norm=False
    )
    rng = np.random.default_rng(1)
    shape = size.vocab_size, size.d_model
    table = rng.normal(0, size.d_model**-0.5, shape).astype(np.float32)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    fill(spec.encoder, size)
    fill(spec.decoder, size)
    words = [*WORDS, *(f"w{i}" for i in range(len(WORDS), size.vocab_size))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    return spec


class Adapter(Peer):
    """One worker with all the threads."""

    package = "ctranslate2"

    def decoder(self, case: Case) -> Decode:
        spec = specification(case.size)
        spec.validate()
        spec.optimize()
        steps = case.lengths[0][0][1]
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            translator = ctranslate2.Translator(
                folder,
                device=case.device,
                compute_type=TYPES[case.precision],
                inter_threads=1,
                intra_threads=case.threads,
            )

        def decode(src: Tensor) -> list[list[int]]:
            found = translator.translate_batch(
                [[f"w{i}" for i in row] for row in src.tolist()],
                beam_size=case.beam,
                length_penalty=ALPHA,
                min_decoding_length=steps,
                max_decoding_length=steps,
            )
            return [list(range(len(one.hypotheses[0]))) for one in found]

        return decode
