"""Table 3's rows, and every deviation from the paper by name."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import configs

import transformer_lit as tl
from transformer_lit.config import DEVIATIONS, TABLE_3

# N, d_model, d_ff, h, d_k, d_v, P_drop, and the parameters in millions, as
# Table 3 prints them; None where it prints none.
ROWS = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 65),
    "A.h1": (6, 512, 2048, 1, 512, 512, 0.1, None),
    "A.h4": (6, 512, 2048, 4, 128, 128, 0.1, None),
    "A.h16": (6, 512, 2048, 16, 32, 32, 0.1, None),
    "A.h32": (6, 512, 2048, 32, 16, 16, 0.1, None),
    "B.dk16": (6, 512, 2048, 8, 16, 64, 0.1, 58),
    "B.dk32": (6, 512, 2048, 8, 32, 64, 0.1, 60),
    "C.N2": (2, 512, 2048, 8, 64, 64, 0.1, 36),
    "C.N4": (4, 512, 2048, 8, 64, 64, 0.1, 50),
    "C.N8": (8, 512, 2048, 8, 64, 64, 0.1, 80),
    "C.d256": (6, 256, 2048, 8, 32, 32, 0.1, 28),
    "C.d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 168),
    "C.ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 53),
    "C.ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 90),
    "D.drop0": (6, 512, 2048, 8, 64, 64, 0.0, None),
    "D.drop2": (6, 512, 2048, 8, 64, 64, 0.2, None),
    "D.ls0": (6, 512, 2048, 8, 64, 64, 0.1, None),
    "D.ls2": (6, 512, 2048, 8, 64, 64, 0.1, None),
    "E.learned": (6, 512, 2048, 8, 64, 64, 0.1, None),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, None),
}

SIZES = "vocab_size n_layers d_model d_ff n_heads d_k d_v p_drop".split()
IDS = "pad_id bos_id eos_id".split()

PAPER = {
    "pre_norm": False,
    "layer_norm_eps": 1e-6,
    "attention_bias": True,
    "p_drop_attention": 0.0,
    "p_drop_relu": 0.0,
    "tie_embeddings": True,
    "scale_embeddings": True,
    "positions": "sinusoidal",
    "max_len": 1024,
}


def count(config: tl.TransformerConfig) -> int:
    """The parameters of a model that is built, but takes no memory."""
    with torch.device("meta"):
        model = tl.Transformer(config)
    return sum(parameter.numel() for parameter in model.parameters())


# -- Table 3 -----------------------------------------------------------------


def test_table_3_has_these_rows_and_no_others():
    assert list(TABLE_3) == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_table_3_has_the_papers_sizes(row):
    config = tl.TransformerConfig.table_3(row, 37_000)
    assert config.vocab_size == 37_000
    assert (
        config.n_layers,
        config.d_model,
        config.d_ff,
        config.n_heads,
        *config.head_sizes,
        config.p_drop,
    ) == ROWS[row][:7]
    # apart from row (E) no row departs from the paper's ways
    want = PAPER | ({"positions": "learned"} if row == "E.learned" else {})
    assert {name: getattr(config, name) for name in PAPER} == want


@pytest.mark.parametrize("row", ROWS)
def test_the_layers_are_built_with_a_rows_sizes(row):
    config = tl.TransformerConfig.table_3(row, 9)
    with torch.device("meta"):
        model = tl.Transformer(config)
    N, D, F, H, K, V, p_drop, _ = ROWS[row]
    assert len(model.encoder.layers) == len(model.decoder.layers) == N
    layer = model.decoder.layers[-1]
    for attention in (layer.self_attention, layer.cross_attention):
        assert attention.n_heads == H
        assert attention.w_q.weight.shape == (H * K, D)
        assert attention.w_k.weight.shape == (H * K, D)
        assert attention.w_v.weight.shape == (H * V, D)
        assert attention.w_o.weight.shape == (D, H * V)
    assert layer.feed_forward.w_1.weight.shape == (F, D)
    assert layer.residual_3.dropout.p == model.dropout.p == p_drop


@pytest.mark.parametrize("row", [r for r, sizes in ROWS.items() if sizes[7]])
def test_the_papers_millions_come_out_at_40960_entries(row):
    config = tl.TransformerConfig.table_3(row, 40_960)
    assert round(tl.count_parameters(config) / 1e6) == ROWS[row][7]


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (tl.TransformerConfig.base(37_000), 63_082_496),
        (tl.TransformerConfig.base(40_960), 65_110_016),
        (tl.TransformerConfig.big(37_000), 214_245_376),
        (tl.TransformerConfig.big(40_960), 218_300_416),
        (tl.TransformerConfig.miniature(66), 61_504),
    ],
)
def test_parameters_are_counted_exactly(config, parameters):
    assert tl.count_parameters(config) == parameters
    assert count(config) == parameters


@given(configs(p_drop_attention=0.1, p_drop_relu=0.1))
def test_the_formula_equals_the_model_for_any_sizes_and_deviations(config):
    assert tl.count_parameters(config) == count(config)


@pytest.mark.parametrize("row", ROWS)
def test_the_formula_equals_the_model_for_every_row(row):
    config = tl.TransformerConfig.table_3(row, 37_000)
    assert tl.count_parameters(config) == count(config)


def test_a_row_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"'F\.big'.*'base'"):
        tl.TransformerConfig.table_3("F.big", 100)


def test_presets_are_what_they_say():
    config = tl.TransformerConfig
    assert config.base(100) == config(vocab_size=100)
    assert config.big(100) == config.table_3("big", 100)
    assert config.tiny(100) == config(
        vocab_size=100, n_layers=4, d_model=128, d_ff=256, n_heads=4
    )
    assert config.miniature(100) == config(
        vocab_size=100, n_layers=2, d_model=32, d_ff=128, n_heads=4
    )


# -- Deviations --------------------------------------------------------------


def test_the_deviations_are_the_fields_that_are_neither_sizes_nor_ids():
    fields = [field.name for field in dataclasses.fields(tl.TransformerConfig)]
    assert fields == [*SIZES, *IDS, *DEVIATIONS]


@pytest.mark.parametrize("name", PAPER)
def test_the_default_is_the_papers_way(name):
    assert getattr(tl.TransformerConfig(vocab_size=9), name) == PAPER[name]


def test_the_papers_ways_are_all_the_deviations():
    assert list(PAPER) == list(DEVIATIONS)
    for section, what in DEVIATIONS.values():
        assert section.split(".")[0] in ("3", "5")
        assert what and not what.endswith(".")


@pytest.mark.parametrize(
    ("name", "value", "reads"),
    [
        ("layer_norm_eps", 1e-5, lambda m: m.encoder.layers[0].residual_1),
        ("p_drop_attention", 0.2, lambda m: m.decoder.layers[0]),
        ("p_drop_relu", 0.2, lambda m: m.decoder.layers[0].feed_forward),
    ],
)
def test_a_deviation_reaches_its_layer(name, value, reads):
    model = tl.Transformer(
        dataclasses.replace(tl.TransformerConfig.miniature(9), **{name: value})
    )
    part = reads(model)
    found = {
        "layer_norm_eps": lambda: part.norm.eps,
        "p_drop_attention": lambda: part.cross_attention.p_drop,
        "p_drop_relu": lambda: part.dropout.p,
    }[name]()
    assert found == value


# -- Errors ------------------------------------------------------------------

GOOD = {"vocab_size": 9, "d_model": 12, "n_heads": 3}

BAD = [
    *[
        (name, value)
        for name in ("vocab_size", "n_layers", "d_model", "d_ff", "n_heads")
        for value in (0, -1, 2.0, "8", None, True)
    ],
    *[
        (name, value)
        for name in ("d_k", "d_v")
        for value in (0, -1, 2.0, "8", False)
    ],
    *[
        (name, value)
        for name in ("p_drop", "p_drop_attention", "p_drop_relu")
        for value in (-0.1, 1.0, 1.5, math.nan, math.inf, "0.1", None)
    ],
    *[(name, value) for name in IDS for value in (-1, 9, 1000)],
    ("pad_id", 0.5),
    ("pad_id", 1),  # which is BOS
    ("bos_id", 2),
    ("eos_id", 0),
    ("n_heads", 5),  # does not divide 12
    ("d_model", 13),
    ("positions", "rotary"),
    ("positions", None),
    ("layer_norm_eps", -1e-6),
    ("layer_norm_eps", math.nan),
    ("layer_norm_eps", "1e-6"),
    ("max_len", 0),
    ("max_len", -5),
    ("max_len", 2.5),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_an_error_that_names_its_field(name, value):
    with pytest.raises(ValueError, match=name):
        tl.TransformerConfig(**(GOOD | {name: value}))


@pytest.mark.parametrize("positions", ["sinusoidal", "released"])
def test_sinusoids_need_an_even_width(positions):
    odd = {"vocab_size": 9, "d_model": 5, "n_heads": 1}
    with pytest.raises(ValueError, match=r"d_model=5.*even"):
        tl.TransformerConfig(**odd, positions=positions)
    tl.TransformerConfig(**odd, positions="learned")


def test_the_released_ladder_needs_two_pairs():
    with pytest.raises(ValueError, match="d_model=2"):
        tl.TransformerConfig(
            vocab_size=9, d_model=2, n_heads=1, positions="released"
        )


def test_the_smallest_sizes_are_allowed():
    smallest = {"vocab_size": 3, "n_layers": 1, "d_ff": 1, "n_heads": 1}
    tl.TransformerConfig(**smallest, d_model=2)
    tl.TransformerConfig(**smallest, d_model=4, positions="released")
    tl.TransformerConfig(**smallest, d_model=1, positions="learned", max_len=1)


def test_given_head_widths_need_no_division():
    config = tl.TransformerConfig(
        vocab_size=9, d_model=10, n_heads=4, d_k=3, d_v=2
    )
    assert config.head_sizes == (3, 2)
    with pytest.raises(ValueError, match="d_v"):
        tl.TransformerConfig(vocab_size=9, d_model=10, n_heads=4, d_k=3)


def test_a_configuration_is_frozen_and_takes_keywords_only():
    config = tl.TransformerConfig.base(9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 8
    with pytest.raises(TypeError):
        tl.TransformerConfig(9)
    with pytest.raises(TypeError):
        tl.TransformerConfig(True, vocab_size=9)  # would be pre_norm
    assert hash(config) == hash(tl.TransformerConfig.base(9))


def test_replace_checks_again():
    config = tl.TransformerConfig.base(9)
    with pytest.raises(ValueError, match="n_heads=7"):
        dataclasses.replace(config, n_heads=7)


@given(st.integers(4, 99))
def test_the_special_ids_are_named_once_and_differ(vocab_size):
    config = tl.TransformerConfig(vocab_size=vocab_size)
    ids = (config.pad_id, config.bos_id, config.eos_id)
    assert ids == (tl.PAD, tl.BOS, tl.EOS) == (0, 1, 2)
    assert tl.UNK == 3
