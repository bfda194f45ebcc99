"""CTranslate2 computes what torch does: tokens, scores, limits, errors."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from reference import build

import transformer_lit as tl
from transformer_lit import cli, ctranslate
from transformer_lit.ctranslate import (
    PATIENCE,
    FastTranslator,
    by_our_score,
    convert,
    load_fast,
    specification,
)
from transformer_lit.decoding import (
    best_continuations,
    length_penalty,
    open_beams,
)
from transformer_lit.numbers import (
    NumberVocabulary,
    english,
    german,
    held_out_sample,
)
from transformer_lit.tokenizer import learn_subwords
from transformer_lit.translator import Search

try:
    import ctranslate2
except ImportError:
    ctranslate2 = None

needs_it = pytest.mark.skipif(
    ctranslate2 is None, reason="ctranslate2 is not installed"
)
TEXT = [
    "a small dog runs over the green field",
    "ein kleiner Hund rennt über das grüne Feld",
    "two men play in the snow",
    "zwei Männer spielen im Schnee",
] * 5
SENTENCES = [
    "two men",
    "a dog",
    "the green snow runs",
    "two small men play in the field",
    "a dog and a dog",
    "the field in the snow",
]
WORDS = learn_subwords(TEXT, 60)


def close(a, b):
    """Two libraries add in another order: equal but for float32's rounding."""
    return a == pytest.approx(b, abs=1e-4)


def random_translator(seed=0, **changes):
    """A small model of sentences, at random, that never writes padding.

    A trained model does not; ours would take it for padding afterwards. The
    first component of what the decoder gives out is made 10, and it counts
    only for the padding's logit, which becomes -200.
    """
    sizes = {"n_layers": 2, "d_model": 16, "d_ff": 24, "n_heads": 2}
    config = tl.TransformerConfig(vocab_size=60, **(sizes | changes))
    model = build(config, seed).float()
    layers, decoder = model.decoder.layers, model.decoder
    norm = decoder.norm if config.pre_norm else layers[-1].residual_3.norm
    with torch.no_grad():
        norm.gain[0], norm.bias[0] = 0, 10
        model.src_embedding.weight[:, 0] = 0
        model.output.weight[:, 0] = 0
        model.output.weight[config.pad_id, 0] = -20
    return tl.Translator(model, WORDS)


@pytest.fixture(scope="module")
def numbers():
    return tl.Translator.load("numbers")


@pytest.fixture(scope="module")
def fast_numbers():
    if ctranslate2 is None:
        pytest.skip("ctranslate2 is not installed")
    return tl.Translator.load("numbers", engine="ctranslate2")


def converted(translator, folder, quantization=None):
    """The same translator by the other library."""
    convert(translator, folder, quantization)
    return tl.Translator.load(folder, engine="ctranslate2")


def pairs(ours, theirs):
    """The hypotheses of both, sentence by sentence."""
    return list(zip(ours, theirs, strict=True))


# -- The shipped model -------------------------------------------------------


@pytest.mark.parametrize("search", [{"beam_size": 1}, {}])
def test_a_thousand_numbers_are_the_same(numbers, fast_numbers, search):
    texts = [english(n) for n in held_out_sample(1000, seed=4)]
    found = pairs(
        numbers.hypotheses(texts, **search),
        fast_numbers.hypotheses(texts, **search),
    )
    for [ours], [theirs] in found:
        # a tie may be broken the other way: then the scores are equal
        assert close(theirs.score, ours.score)
        assert close(theirs.log_prob, ours.log_prob)
    same = sum(ours.text == theirs.text for [ours], [theirs] in found)
    assert same >= 998


def test_the_four_best_are_nearly_always_the_same(numbers, fast_numbers):
    texts = [english(n) for n in held_out_sample(200, seed=5)]
    search = {"n_best": 4, "alpha": 1.0}
    found = pairs(
        numbers.hypotheses(texts, **search),
        fast_numbers.hypotheses(texts, **search),
    )
    same = [
        [one.text for one in ours] == [one.text for one in theirs]
        for ours, theirs in found
    ]
    assert sum(same) >= 175
    for (ours, theirs), alike in zip(found, same, strict=True):
        assert len(theirs) == 4
        if alike:
            for one, other in zip(ours, theirs, strict=True):
                assert close(other.score, one.score)


def test_what_int8_costs_on_numbers(numbers, tmp_path):
    if ctranslate2 is None:
        pytest.skip("ctranslate2 is not installed")
    small = converted(numbers, tmp_path, "int8")
    sample = held_out_sample(1000, seed=0)
    texts, wanted = [english(n) for n in sample], [german(n) for n in sample]
    right = [
        sum(a == b for a, b in zip(one.translate(texts), wanted, strict=True))
        for one in (numbers, small)
    ]
    print(f"right of 1000: float32 {right[0]}, int8 {right[1]}")
    assert right[1] >= right[0] - 5  # half a per cent
    [[one]] = numbers.hypotheses(["forty two"])
    [[other]] = small.hypotheses(["forty two"])
    assert not close(other.log_prob, one.log_prob)  # it is quantised


# -- Models of every kind ----------------------------------------------------

KINDS = {
    "base": {},
    "one head, one layer": {"n_layers": 1, "n_heads": 1, "d_ff": 5},
    "three layers": {"n_layers": 3, "d_model": 24, "n_heads": 4},
    "pre-norm": {"pre_norm": True},
    "no biases": {"attention_bias": False},
    "three matrices": {"tie_embeddings": False},
    "not scaled": {"scale_embeddings": False},
    "released positions": {"positions": "released"},
    "learned positions": {"positions": "learned", "max_len": 70},
    "another epsilon": {"layer_norm_eps": 0.3},
    "narrow heads": {"d_k": 5, "d_v": 5},
}


@needs_it
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_search_is_the_same(kind, tmp_path):
    slow = random_translator(**KINDS[kind])
    fast = converted(slow, tmp_path)
    search = {"beam_size": 1, "max_extra": 8}
    for [ours], [theirs] in pairs(
        slow.hypotheses(SENTENCES, **search),
        fast.hypotheses(SENTENCES, **search),
    ):
        assert theirs.text == ours.text
        assert close(theirs.log_prob, ours.log_prob)
        assert theirs.score == theirs.log_prob


def log_prob(model, ids, tokens, ended):
    """What our model, reading it whole, gives to an output."""
    config = model.config
    written = [*tokens, config.eos_id] if ended else tokens
    src = torch.tensor([ids])
    tgt_in = torch.tensor([[config.bos_id, *written[:-1]]])
    log_probs = model(src, tgt_in)[0].log_softmax(-1)
    return log_probs[range(len(written)), written].sum().item()


@needs_it
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_finds_some_of_ours_with_the_same_scores(kind, alpha, tmp_path):
    # What ended there has ended here, too, so its best is never better.
    slow = random_translator(seed=1, **KINDS[kind])
    fast = converted(slow, tmp_path)
    search = Search(alpha=alpha, max_extra=3, n_best=4)
    sources = [slow.prepare(text) for text in SENTENCES]
    rooms = [len(ids) + search.max_extra for ids in sources]
    for ids, room, (ours, theirs) in zip(
        sources,
        rooms,
        pairs(slow.find(sources, search), fast.find(sources, search)),
        strict=True,
    ):
        if len(theirs[0].tokens) < room:  # it has ended
            assert theirs[0].score <= ours[0].score + 1e-4
        scores = [one.score for one in theirs]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(one.tokens) for one in theirs}) == len(theirs)
        for one in theirs:
            ended = len(one.tokens) < room
            own = log_prob(slow.model, ids, one.tokens, ended)
            assert close(one.log_prob, own)
            length = len(one.tokens) + ended
            penalty = length_penalty(length, alpha)
            assert one.score == pytest.approx(one.log_prob / penalty)


@torch.inference_mode()
def by_its_rules(model, ids, search):
    """Our beam with the library's rules, told in the chapter: what counts as
    finished, when to stop, and how many are returned."""
    k, room = search.beam_size, len(ids) + search.max_extra
    beams, ended, cut_off = open_beams(model, torch.tensor([ids])), [], []
    length, first_ended = 0, False
    while length < room and not (first_ended and len(ended) >= PATIENCE * k):
        logits = model.step(beams.ids.flatten(), beams.cache)
        length = beams.cache.ids.shape[1]
        best = best_continuations(beams.log_probs, logits, 2 * k)
        log_probs, parents, tokens = (part[0].tolist() for part in best)
        first_ended |= tokens[0] == model.config.eos_id
        growing = []
        for at, token in enumerate(tokens):
            ends = token == model.config.eos_id
            if at < k and (ends or length == room):
                text = beams.text(0, parents[at]) + [token] * (not ends)
                score = log_probs[at] / length_penalty(length, search.alpha)
                one = tl.Hypothesis(text, log_probs[at], score)
                (ended if ends else cut_off).append(one)
            if not ends and len(growing) < k:
                growing.append(at)
        log_probs, parents, tokens = (part[:, growing] for part in best)
        beams.follow(parents, tokens, log_probs)
    every = sorted([*ended, *cut_off], key=lambda one: -one.log_prob)
    every = every[: PATIENCE * k]
    found = [one for one in every if one in ended] or every
    return sorted(found, key=lambda one: -one.score)[: search.n_best]


@needs_it
@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_that_differ_are_those_that_the_chapter_tells(kind, tmp_path):
    slow = random_translator(seed=1, **KINDS[kind])
    with torch.no_grad():  # surer of its words, and of the end
        slow.model.output.weight *= 2
        slow.model.output.weight[slow.config.eos_id, 0] = 0.3
    fast = converted(slow, tmp_path)
    sources = [slow.prepare(text) for text in SENTENCES]
    for search in (
        Search(max_extra=3),
        Search(max_extra=3, n_best=4, alpha=2.0),
        Search(max_extra=0, n_best=2, beam_size=2, alpha=0.0),
    ):
        for ids, theirs in pairs(sources, fast.find(sources, search)):
            want = by_its_rules(slow.model, ids, search)
            assert [one.tokens for one in theirs] == [w.tokens for w in want]
            for one, other in pairs(theirs, want):
                assert close(one.log_prob, other.log_prob)
                assert close(one.score, other.score)


# -- The interface -----------------------------------------------------------


@needs_it
def test_limits_lines_and_empty_texts_are_the_translators(tmp_path):
    slow = random_translator()
    fast = converted(slow, tmp_path)
    texts = ["two men play", "", "a dog", "  "]
    for max_extra in (0, 1, 7):
        options = {"max_extra": max_extra, "beam_size": 1}
        want = slow.translate(texts, **options)
        assert fast.translate(texts, **options) == want
        assert list(fast.translate_lines(texts, block=1, **options)) == want
        assert want[1] == want[3] == ""
    assert fast.translate([]) == []


@needs_it
def test_the_order_stays_and_the_batch_changes_nothing(fast_numbers):
    texts = ["zero", "nine hundred ninety nine thousand twelve", "one", "two"]
    alone = [fast_numbers.translate([text])[0] for text in texts]
    assert alone[0] == "null"
    for batch_tokens in (1, 12, 4096):
        found = fast_numbers.translate(texts, batch_tokens=batch_tokens)
        assert found == alone
    faults = []
    lines = fast_numbers.translate_lines(
        ["one", "won"], on_fault=lambda *fault: faults.append(fault)
    )
    assert list(lines) == ["eins", ""]
    assert [number for number, _ in faults] == [2]


@needs_it
def test_an_empty_output_is_not_forbidden(tmp_path):
    slow = random_translator()
    with torch.no_grad():
        slow.model.output.weight[slow.config.eos_id, 0] = 20
    fast = converted(slow, tmp_path)
    for search in (Search(beam_size=1), Search()):
        [[ours]] = slow.find([slow.prepare("two men")], search)
        [[theirs]] = fast.find([slow.prepare("two men")], search)
        assert ours.tokens == theirs.tokens == []
        assert close(theirs.score, ours.score)


@needs_it
def test_a_long_source_is_read_whole(tmp_path):
    slow = random_translator(n_layers=1)
    with torch.no_grad():  # an output that soon ends
        slow.model.output.weight[slow.config.eos_id, 0] = 0.7
    fast = converted(slow, tmp_path)
    search = Search(beam_size=1)
    source = [6, 7] * 515 + [5] * 90 + [slow.config.eos_id]
    [[ours]] = slow.find([source], search)
    [[theirs]] = fast.find([source], search)
    assert theirs.tokens == ours.tokens
    assert close(theirs.log_prob, ours.log_prob)


# -- Converting --------------------------------------------------------------


@needs_it
@pytest.mark.parametrize("quantization", [None, "int8", "float16"])
def test_the_model_is_not_changed_by_it(tmp_path, quantization):
    slow, out = random_translator(), tmp_path / "new" / "out"
    before = {k: v.clone() for k, v in slow.model.state_dict().items()}
    convert(slow, out, quantization)
    after = slow.model.state_dict()
    assert all(after[name].equal(value) for name, value in before.items())
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.model",
        "vocabulary.json",
    }
    convert(slow, out, quantization)  # once more


@needs_it
def test_tied_matrices_are_stored_once_and_int8_is_small(tmp_path):
    sizes = []
    changes = {"d_model": 256, "n_heads": 4, "n_layers": 2, "d_ff": 1024}
    slow = random_translator(**changes)
    for quantization in (None, "int8"):
        folder = tmp_path / str(quantization)
        convert(slow, folder, quantization)
        table = 2048 * 256 * 4  # positions stay in float32, once
        sizes.append((folder / "model.bin").stat().st_size - table)
    total = sum(weight.numel() for weight in slow.model.parameters())
    assert sizes[0] == pytest.approx(4 * total, rel=0.01)
    assert sizes[1] == pytest.approx(total, rel=0.05)


@needs_it
def test_a_run_is_converted_for_the_moment(tmp_path):
    slow = random_translator()
    tl.save_model(slow.model, tmp_path / "best")
    slow.vocabulary.save(tmp_path / "best")
    before = sorted(path.name for path in (tmp_path / "best").iterdir())
    fast = tl.Translator.load(tmp_path, engine="ctranslate2")
    assert isinstance(fast, FastTranslator)
    options = {"max_extra": 3, "beam_size": 1}
    want = slow.translate(SENTENCES, **options)
    assert fast.translate(SENTENCES, **options) == want
    after = sorted(path.name for path in (tmp_path / "best").iterdir())
    assert after == before


# -- What goes wrong ---------------------------------------------------------


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_library_is_one_line_with_the_remedy(
    numbers, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match="pip install ctranslate2") as caught:
        convert(numbers, tmp_path)
    assert one_line(caught)
    with pytest.raises(ValueError, match="pip install ctranslate2"):
        tl.Translator.load("numbers", engine="ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_engine_is_named():
    with pytest.raises(ValueError, match="engine='onnx' must be 'torch' or"):
        tl.Translator.load("numbers", engine="onnx")


def test_an_unknown_quantization_is_named_and_nothing_written(
    numbers, tmp_path
):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"'int7' must be one of int8, "):
        convert(numbers, out, "int7")
    assert not out.exists()


@needs_it
def test_every_quantization_that_is_offered_exists():
    accepted = set(ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES)
    assert set(ctranslate.QUANTIZATIONS) <= accepted


def test_a_model_that_cannot_be_expressed_is_refused():
    slow = random_translator(d_k=4, d_v=8)
    with pytest.raises(ValueError, match="d_k=4 and d_v=8") as caught:
        specification(slow.model)
    assert one_line(caught)


def test_a_model_is_not_overwritten(numbers, tmp_path):
    tl.save_model(numbers.model, tmp_path)
    config = (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="another folder"):
        convert(numbers, tmp_path)
    assert (tmp_path / "config.json").read_text() == config


def small_fast(**config):
    """A translator for what is refused before the library is asked."""
    sizes = {"vocab_size": 60, "d_model": 8, "n_heads": 2, "n_layers": 1}
    about = tl.TransformerConfig(**(sizes | config))
    return FastTranslator(None, about, WORDS)


def test_more_positions_than_were_exported_are_refused():
    with pytest.raises(ValueError, match=r"2000 source tokens .* 2048 pos"):
        small_fast().find([[5] * 2000], Search())
    learned = small_fast(positions="learned", max_len=9)
    with pytest.raises(ValueError, match="9 positions"):
        learned.find([[5] * 8], Search(max_extra=2))


def test_a_beam_as_wide_as_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="beam_size=31 is more than half"):
        small_fast().find([[5]], Search(beam_size=31))


def test_outputs_that_were_cut_off_count_where_none_has_ended():
    search = Search(n_best=3, alpha=0.0)
    words = [["5", "6"], ["5", "2"], ["2"], ["6", "6"]]
    result = SimpleNamespace(hypotheses=words, scores=[-1.0, -2.0, -1.5, -1.2])
    found = by_our_score(result, search, eos_id=2)
    assert [one.tokens for one in found] == [[], [5]]
    result = SimpleNamespace(hypotheses=words[:1], scores=[-1.0])
    [one] = by_our_score(result, search, eos_id=2)
    assert one.tokens == [5, 6]


def test_probabilities_that_are_no_numbers_are_reported():
    result = SimpleNamespace(hypotheses=[["5"]], scores=[math.nan])
    with pytest.raises(ValueError, match="NaN"):
        by_our_score(result, Search(), eos_id=2)


@needs_it
@pytest.mark.parametrize("file", ["config.json", "model.bin"])
def test_a_damaged_folder_is_named(numbers, tmp_path, file):
    convert(numbers, tmp_path)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="export the model again") as caught:
        load_fast(tmp_path)
    assert one_line(caught)


@needs_it
def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    slow = random_translator()
    convert(slow, tmp_path)
    NumberVocabulary().save(tmp_path)
    with pytest.raises(ValueError, match="66 entries, the model 60"):
        load_fast(tmp_path)


@needs_it
def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no model"):
        load_fast(tmp_path)
    with pytest.raises(ValueError, match="'nothing'"):
        load_fast("nothing")


# -- Commands ----------------------------------------------------------------


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    code = cli.main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


@needs_it
def test_exports_translates_and_scores_from_the_shell(capsys, tmp_path):
    out, source, hyp = tmp_path / "int8", tmp_path / "en", tmp_path / "hyp"
    sample = held_out_sample(20, seed=6)
    source.write_text("".join(f"{english(n)}\n" for n in sample))
    (tmp_path / "de").write_text("".join(f"{german(n)}\n" for n in sample))
    code, said, err = run(
        capsys, "export", "numbers", "--out", out, "--quantization", "int8"
    )
    assert (code, said, err) == (
        0,
        f"{out}: to be used with --engine ctranslate2\n",
        "",
    )
    files = ["--input", source, "--output", hyp]
    code, said, err = run(
        capsys, "translate", "--model", out, "--engine", "ctranslate2", *files
    )
    assert (code, said, err) == (0, "", "")
    code, said, _ = run(
        capsys, "score", hyp, tmp_path / "de", "--protocol", "chrf"
    )
    assert code == 0
    assert float(said.split()[0]) > 90
    about = json.loads((out / "config.json").read_text())
    assert about["layer_norm_epsilon"] == 1e-6


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--to", "onnx"], "to='onnx'"),
        (["--quantization", "int7"], "quantization='int7'"),
    ],
)
def test_a_bad_export_is_one_line(capsys, tmp_path, arguments, named):
    out = tmp_path / "out"
    code, said, err = run(capsys, "export", "numbers", "--out", out, *arguments)
    assert (code, said) == (2, "")
    assert named in err
    assert err.count("\n") == 1
    assert not out.exists()


@needs_it
def test_a_folder_that_cannot_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("no folder")
    code, said, err = run(
        capsys, "export", "numbers", "--out", tmp_path / "file"
    )
    assert (code, said) == (2, "")
    assert err.count("\n") == 1
    assert "file: " in err
