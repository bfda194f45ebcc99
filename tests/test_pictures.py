"""Attention maps: which weights, whose words, what is drawn and what is said
of it, and heads that are taken away."""

import copy

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle
from reference import DOUBLE, TorchTransformer, build, close, lend_weights
from test_notebooks import NOTEBOOKS, code_cells
from torch import nn

import transformer_lit as tl
from transformer_lit.numbers import NumberVocabulary, english, german
from transformer_lit.pictures import (
    KINDS,
    AttentionMap,
    HeadName,
    Picture,
    aligned,
    attention_maps,
    attention_of,
    draw_beside,
    draw_grid,
    draw_matrix,
    draw_word,
    gold_alignment,
    mean_weight,
    token_text,
    token_texts,
    without_heads,
)
from transformer_lit.tokenizer import learn_subwords

WORDS = ("a", "cat", "sleeps")
CROSS = HeadName("cross", 1, 1)


@pytest.fixture(scope="module")
def translator():
    """A translator of numbers that nobody taught anything."""
    vocabulary = NumberVocabulary()
    config = tl.TransformerConfig(
        vocab_size=len(vocabulary), n_layers=2, d_model=12, n_heads=3, d_ff=16
    )
    return tl.Translator(build(config), vocabulary)


def rows(T, S, seed=0):
    """Random weights, T rows over S keys."""
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(T, S, generator=rng, dtype=DOUBLE).softmax(-1)


def encoder_map(layer=1, head=1, words=WORDS, seed=0):
    name = HeadName("encoder", layer, head)
    weights = rows(len(words), len(words), seed)
    return AttentionMap(name, weights, words, words)


# -- A map and its words -----------------------------------------------------


def test_a_weight_is_that_of_the_querys_row_and_the_keys_column():
    weights = rows(2, 3)
    one = AttentionMap(CROSS, weights, ("alte", "Katze"), ("the", "old", "cat"))
    for t, query in enumerate(one.queries):
        for s, key in enumerate(one.keys):
            assert one.weight(query, key) == float(weights[t, s])


def test_a_word_in_question_stands_there_just_once():
    one = encoder_map(words=("the", "old", "the"))
    for query, key in (("the", "old"), ("old", "the"), ("old", "cat")):
        with pytest.raises(ValueError, match="times in"):
            one.weight(query, key)


@pytest.mark.parametrize(("queries", "keys"), [(2, 4), (3, 3), (4, 3), (3, 2)])
def test_a_map_refuses_words_that_do_not_fit(queries, keys):
    with pytest.raises(ValueError, match=rf"{queries} queries and {keys} keys"):
        AttentionMap(CROSS, rows(3, 4), ("x",) * queries, ("y",) * keys)


def test_a_transposed_map_is_refused():
    weights = rows(3, 3)
    for kind in KINDS:
        with pytest.raises(ValueError, match="sum to 1"):
            AttentionMap(HeadName(kind, 1, 1), weights.T, WORDS, WORDS)


def test_a_map_of_one_kind_does_not_pass_for_another():
    weights, german_words = rows(3, 3), ("eine", "Katze", "schläft")
    with pytest.raises(ValueError, match="one sentence"):
        AttentionMap(HeadName("encoder", 1, 1), weights, german_words, WORDS)
    with pytest.raises(ValueError, match="later"):
        AttentionMap(HeadName("decoder", 1, 1), weights, german_words, WORDS)
    AttentionMap(CROSS, weights, german_words, WORDS)


def test_a_head_has_a_kind_and_counts_from_one():
    for kind, layer, head in (("src", 1, 1), ("cross", 0, 1), ("cross", 1, 0)):
        with pytest.raises(ValueError, match=f"{layer}|{kind}"):
            HeadName(kind, layer, head)
    names = {str(HeadName(kind, 1, 2)) for kind in KINDS}
    assert len(names) == 3  # what is printed tells the kinds apart


def test_a_piece_that_continues_a_word_has_a_hyphen():
    vocabulary = learn_subwords(["green field", "a field is green."] * 9, 24)
    ids = vocabulary.src_ids("a green field.")
    words = token_texts(vocabulary, [tl.BOS, *ids])
    assert words[0] == "(begin)" and words[-1] == "(end)"
    assert any(word.startswith("-") for word in words)
    joined = " ".join(words[1:-1]).replace(" -", "").replace(" .", ".")
    assert joined == "a green field."


def test_a_vocabulary_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="list"):
        token_text([], 5)


# -- From a sentence to its maps ---------------------------------------------


@given(number=st.integers(0, 999_999))
def test_the_maps_are_those_of_torchs_layers(translator, number):
    found = attention_maps(translator, english(number), german(number))
    model, vocabulary = translator.model, translator.vocabulary
    torchs = TorchTransformer(model.config).double().eval()
    lend_weights(torchs.parts(model), model, torchs)
    heard = {}

    def listen(name):
        def hook(module, args, kwargs):
            attend = nn.MultiheadAttention.forward
            options = {"need_weights": True, "average_attn_weights": False}
            heard[name] = attend(module, *args, **kwargs | options)[1][0]

        return hook

    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(torchs, stack).layers, start=1):
            hear = layer.self_attn.register_forward_pre_hook
            hear(listen((stack, i)), with_kwargs=True)
            if stack == "decoder":
                hear = layer.multihead_attn.register_forward_pre_hook
                hear(listen(("cross", i)), with_kwargs=True)
    src = torch.tensor([vocabulary.src_ids(english(number))])
    tgt = vocabulary.tgt_ids(german(number))
    torchs(src, torch.tensor([[tl.BOS, *tgt[:-1]]]))

    N, H = model.config.n_layers, model.config.n_heads
    assert len(found) == len(KINDS) * N * H
    for name, one in found.items():
        assert one.name == name
        close(one.weights, heard[name.kind, name.layer][name.head - 1].detach())


def test_a_row_of_the_decoder_bears_the_word_that_is_written_there(translator):
    found = attention_maps(translator, "forty two", "zweiundvierzig")
    written = ("zwei", "und", "vierzig", "(end)")
    seen, read = (
        ("(begin)", "zwei", "und", "vierzig"),
        ("forty", "two", "(end)"),
    )
    words = {"encoder": (read, read), "decoder": (written, seen)}
    words["cross"] = written, read
    for name, one in found.items():
        assert (one.queries, one.keys) == words[name.kind]


def test_without_a_translation_the_models_own_is_drawn(translator):
    own = translator.translate(["seven"], beam_size=1)[0]
    found, given = (
        attention_maps(translator, "seven", text)[CROSS] for text in (None, own)
    )
    assert found.queries == given.queries
    close(found.weights, given.weights)


def test_the_mean_weight_is_that_of_each_sentence(translator):
    examples = [("forty two", "forty", "two"), ("six thousand", "six", "(end)")]
    found = mean_weight(translator, examples)
    assert len(found) == 2 * 3  # the heads of the encoder
    for name, mean in found.items():
        assert name.kind == "encoder"
        by_hand = [
            attention_maps(translator, text)[name].weight(query, key)
            for text, query, key in examples
        ]
        assert mean == pytest.approx(sum(by_hand) / 2)
    with pytest.raises(ValueError, match="no examples"):
        mean_weight(translator, [])


# -- Pictures ----------------------------------------------------------------


def lines(picture):
    """What is drawn, as {(y of the beginning, y of the end): opacity}."""
    found = {}
    for line in picture.figure.axes[0].lines:
        start, end = line.get_ydata()
        found[-start, -end] = line.get_alpha()
    return found


def texts(picture):
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts]


def test_a_line_is_as_dark_as_its_weight():
    weights = torch.tensor(
        [[0.7, 0.0, 0.3], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    )
    name = HeadName("encoder", 1, 1)
    one = AttentionMap(name, weights, WORDS, WORDS)
    want = {
        (t, s): w
        for t, s in [(0, 0), (0, 2), (1, 1), (2, 0), (2, 1), (2, 2)]
        if (w := float(weights[t, s]))
    }
    assert lines(draw_beside(one, one)) == want
    row = {ends: w for ends, w in want.items() if ends[0] == 2}
    assert lines(draw_beside(one, one, "sleeps")) == row
    assert lines(draw_word([one], "sleeps")) == row


def test_each_head_has_its_column_of_squares():
    maps = [encoder_map(head=head, seed=head) for head in (1, 2, 3)]
    picture = draw_word(maps, "cat")
    bars = [
        (patch.get_x(), -patch.get_y() - patch.get_height() / 2, patch)
        for patch in picture.figure.axes[0].patches
        if isinstance(patch, Rectangle)
    ]
    assert len(bars) == 3 * len(WORDS)
    columns = sorted({round(x, 6) for x, _, _ in bars})
    for x, y, patch in bars:
        one = maps[columns.index(round(x, 6))]
        assert patch.get_alpha() == float(one.weights[1, round(y)])


def test_words_stand_in_every_column():
    maps = [encoder_map(head=1), encoder_map(head=2, seed=1)]
    assert texts(draw_word(maps, "cat"))[:3] == [*WORDS]
    for word in WORDS:
        assert texts(draw_word(maps, "cat")).count(word) == 2
        assert texts(draw_beside(*maps)).count(word) == 3
    ax = draw_matrix(maps[0]).figure.axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == [*WORDS]
    assert [label.get_text() for label in ax.get_yticklabels()] == [*WORDS]


def test_one_picture_is_of_one_sentence_and_one_kind():
    one, other = encoder_map(), encoder_map(words=("a", "dog", "sleeps"))
    cross = AttentionMap(CROSS, rows(3, 3), WORDS, WORDS)
    for wrong in (other, cross):
        for draw in (draw_grid, lambda maps: draw_word(maps, "sleeps")):
            with pytest.raises(ValueError, match="one picture"):
                draw([one, wrong])
        with pytest.raises(ValueError, match="one picture"):
            draw_beside(one, wrong)


def test_a_grid_has_a_square_for_each_head():
    maps = [encoder_map(n, h, seed=n + h) for n in (1, 2) for h in (1, 2, 3)]
    axes = draw_grid(maps).figure.axes
    for one, ax in zip(maps, axes, strict=True):
        close(torch.tensor(ax.images[0].get_array()), one.weights)


def test_rings_mark_the_gold():
    ax = draw_matrix(encoder_map(), [2, None, 0]).figure.axes[0]
    rings = [(line.get_ydata()[0], line.get_xdata()[0]) for line in ax.lines]
    assert rings == [(0, 2), (2, 0)]


def test_the_text_says_what_the_lines_show():
    weights = torch.tensor([[0.2, 0.8, 0.0], [0.1, 0.3, 0.6], [0.0, 0.0, 1.0]])
    name = HeadName("encoder", 4, 7)
    one = AttentionMap(name, weights, WORDS, WORDS)
    for picture in (draw_beside(one, one), draw_matrix(one)):
        for part in ("a to cat 0.80", "cat to sleeps 0.60", "sleeps 1.00"):
            assert part in picture.alt
        assert str(name).partition(", ")[2] in picture.alt
    about = draw_word([one], "cat").alt
    assert "head 7 to sleeps 0.60" in about and "0.80" not in about
    assert "gets 0.53 in layer 4" in draw_grid([one]).alt  # (0 + .6 + 1) / 3
    gold = draw_matrix(one, [1, None, 0]).alt
    assert "In 1 of 2 rows" in gold


def test_every_picture_names_its_kind():
    cross = AttentionMap(CROSS, rows(3, 3), ("eine", "Katze", "da"), WORDS)
    for one in (encoder_map(), cross):
        word = one.queries[1]
        pictures = [draw_word([one], word), draw_beside(one, one)]
        for picture in [*pictures, draw_grid([one]), draw_matrix(one)]:
            assert KINDS[one.name.kind] in picture.alt


def test_jupyter_gets_the_image_and_its_text():
    picture = Picture(plt.figure(), "A cat sleeps.")
    data, about = picture._repr_mimebundle_(include=None, exclude=None)
    assert data["image/png"].startswith("iVBOR")  # base64 of a PNG's head
    assert about["image/png"]["alt"] == data["text/plain"] == "A cat sleeps."
    assert plt.get_fignums() == []


def test_the_pages_texts_are_the_computed_ones():
    [path] = [p for p in NOTEBOOKS if p.stem == "09_attention_pictures"]
    assert nbformat.read(path, 4).cells
    count = 0
    for cell in code_cells(path):
        for output in cell.outputs:
            about = output.get("metadata", {}).get("image/png", {})
            if "alt" in about:
                assert cell.metadata["mystnb"]["image"]["alt"] == about["alt"]
                count += 1
    assert count >= 5


# -- Where the answer is known -----------------------------------------------


@given(number=st.integers(0, 999_999))
def test_every_english_word_is_aligned_once(number):
    gold = gold_alignment(number)
    words = english(number).split()
    assert sorted(s for s in gold if s is not None) == [*range(len(words))]
    pieces = NumberVocabulary().decode(
        NumberVocabulary().tgt_ids(german(number))
    )
    unaligned = [p for p, s in zip(pieces, gold, strict=True) if s is None]
    assert set(unaligned) <= {"und"}
    assert len(unaligned) == pieces.count("und")


@pytest.mark.parametrize(
    ("number", "gold"),
    [
        (7, [0]),
        (42, [1, None, 0]),
        (22_022, [1, None, 0, 2, 4, None, 3]),
        (2_222, [0, 1, 2, 3, 5, None, 4]),
        (101_001, [0, 1, 2, 3, 4]),
    ],
)
def test_a_gold_alignment_is_that_of_a_reader(number, gold):
    assert gold_alignment(number) == gold


def test_alignment_is_judged_by_the_largest_weight_of_a_row():
    weights = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5]])
    one = AttentionMap(CROSS, weights, ("x", "y", "z"), ("a", "b"))
    assert aligned(one, [0, 1]) == [True, True]
    assert aligned(one, [1, None]) == [False]
    assert aligned(one, [None, 0, None]) == [False]
    for wrong in ([0, 0, 0, 0], [2], [-1]):
        with pytest.raises(ValueError, match="does not fit"):
            aligned(one, wrong)


# -- Heads that are taken away -----------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [(1,), (3,), (1, 2)])
def test_a_head_taken_away_is_one_that_the_last_map_does_not_read(
    translator, kind, heads
):
    # In a copy the weights of W^O that read the heads are zero.
    model = translator.model
    cut = copy.deepcopy(model)
    names = [HeadName(kind, 2, head) for head in heads]
    with torch.no_grad():
        for name in names:
            w_o = attention_of(cut, name).w_o
            w_o.weight[:, 4 * (name.head - 1) : 4 * name.head] = 0.0
    src, tgt_in = torch.tensor([[9, 20, 8, 2]]), torch.tensor([[1, 40, 50]])
    before = model(src, tgt_in)
    with without_heads(model, names):
        close(model(src, tgt_in), cut(src, tgt_in))
        assert not torch.allclose(model(src, tgt_in), before)
    assert torch.equal(model(src, tgt_in), before)


def test_a_head_comes_back_after_an_error(translator):
    model, name = translator.model, CROSS
    src, tgt_in = torch.tensor([[9, 20, 2]]), torch.tensor([[1, 40]])
    before = model(src, tgt_in)
    with pytest.raises(KeyError), without_heads(model, [name]):
        raise KeyError("something else")
    for wrong in (HeadName("cross", 3, 1), HeadName("encoder", 1, 4)):
        refused = pytest.raises(ValueError, match="2 layers of 3 heads")
        with refused, without_heads(model, [name, wrong]):
            pass
    assert torch.equal(model(src, tgt_in), before)


def test_each_kind_is_its_own_sub_layer(translator):
    model = translator.model
    encoder, decoder = model.encoder.layers[1], model.decoder.layers[1]
    found = [attention_of(model, HeadName(kind, 2, 1)) for kind in KINDS]
    assert found[0] is encoder.self_attention
    assert found[1] is decoder.self_attention
    assert found[2] is decoder.cross_attention
