"""Section 3 as a whole: torch.nn's model, no leak, no padding that matters,
writing step by step, saving and loading."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    DOUBLE,
    LENGTHS,
    SEEDS,
    TorchTransformer,
    build,
    check_gradients,
    close,
    configs,
    grad,
    lend_weights,
    more_pads,
    sentences,
    slope,
)
from torch import Tensor, nn

import transformer_lit as tl


@st.composite
def problems(draw, **fixed):
    """A model in float64, source sentences, and target sentences."""
    config = draw(configs(**fixed))
    model = build(config, draw(SEEDS))
    src_lengths = draw(LENGTHS)
    rows = len(src_lengths)
    tgt_lengths = draw(
        st.lists(st.integers(1, 7), min_size=rows, max_size=rows)
    )
    return model, sentences(config, src_lengths), sentences(config, tgt_lengths)


def other_ids(ids: Tensor, vocab_size: int) -> Tensor:
    """Different ids everywhere, the padding's and BOS's among them."""
    return (ids + torch.randint(1, vocab_size, ids.shape)) % vocab_size


# -- torch.nn ----------------------------------------------------------------


def check_parity(problem):
    ours, src, tgt_in = problem
    theirs = TorchTransformer(ours.config).double()
    parts = theirs.parts(ours)
    lend_weights(parts, ours, theirs)
    output, want = ours(src, tgt_in), theirs(src, tgt_in)
    # Where the target is padding, torch and we may say what we like; here
    # the first token is real, so that no row of either is empty: all equal.
    close(output, want)
    slope(output)
    slope(want)
    check_gradients(parts)


@given(problems(d_k=None, d_v=None, pre_norm=False))
def test_the_model_equals_torch_nn_in_outputs_and_all_gradients(problem):
    check_parity(problem)


@given(problems(d_k=None, d_v=None, pre_norm=True))
def test_the_pre_norm_model_equals_torch_nn_with_its_final_norms(problem):
    check_parity(problem)


def test_the_papers_way_equals_torch_nn_at_the_papers_proportions():
    config = tl.TransformerConfig(
        vocab_size=23, d_model=32, d_ff=128, p_drop=0.0
    )
    assert (config.n_layers, config.n_heads) == (6, 8)
    model = build(config)
    check_parity(
        (model, sentences(config, [9, 4, 1]), sentences(config, [2, 11, 5]))
    )


# -- No leak -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("path", ["fused", "plain"])
@given(problems(), st.integers(0, 6))
def test_a_later_target_token_changes_no_earlier_output(
    mode, path, problem, at
):
    model, src, tgt_in = problem
    model.train(mode == "train")  # without dropout there is no difference
    at %= tgt_in.shape[1]
    changed = tgt_in.clone()
    changed[:, at:] = other_ids(tgt_in[:, at:], model.config.vocab_size)

    def decode(ids):
        memory = model.encode(src)
        maps: list[Tensor] | None = [] if path == "plain" else None
        return model.decode(ids, memory, src=src, maps=maps)

    # not close but equal: what is hidden is not even rounded differently
    assert decode(changed)[:, :at].equal(decode(tgt_in)[:, :at])


@given(problems(), st.integers(0, 6))
def test_no_gradient_flows_from_an_output_to_a_later_token(problem, at):
    model, src, tgt_in = problem
    at %= tgt_in.shape[1]
    entered = []  # the target's vectors on their way into the decoder
    model.tgt_positions.register_forward_hook(
        lambda module, inputs, output: entered.append(output)
    )
    output = model(src, tgt_in)
    [slopes] = torch.autograd.grad(output[:, at].sum(), entered)
    assert (slopes[:, at + 1 :] == 0).all()


@given(problems(), st.integers(0, 6))
def test_steps_that_share_a_beginning_agree_on_it(problem, at):
    model, src, tgt_in = problem
    at %= tgt_in.shape[1]
    changed = tgt_in.clone()
    changed[:, at:] = other_ids(tgt_in[:, at:], model.config.vocab_size)
    first, second = model.start(src), model.start(src)
    for t in range(at):
        a = model.step(tgt_in[:, t], first)
        b = model.step(changed[:, t], second)
        assert a.equal(b)


def test_outputs_do_read_the_past_and_the_source():
    # or the tests above would be passed by a model that reads nothing
    config = tl.TransformerConfig.miniature(9)
    model = build(config)
    src, tgt_in = sentences(config, [4]), sentences(config, [5])
    before = model(src, tgt_in)
    for t in range(5):
        changed = tgt_in.clone()
        changed[:, t] = other_ids(tgt_in[:, t], 9)
        after = model(src, changed)
        assert (after != before).any(-1)[0].tolist() == [
            position >= t for position in range(5)
        ]
    for s in range(4):
        changed = src.clone()
        changed[:, s] = src[:, s] % 8 + 1  # another token, no padding
        assert (model(changed, tgt_in) != before).any(-1).all()


# -- Padding -----------------------------------------------------------------


@given(problems(), st.integers(0, 5), st.integers(0, 5))
def test_more_padding_changes_nothing(problem, more_src, more_tgt):
    model, src, tgt_in = problem
    pad_id = model.config.pad_id
    wide_src = more_pads(src, more_src, pad_id)
    wide_tgt = more_pads(tgt_in, more_tgt, pad_id)
    want = model(src, tgt_in)
    close(model(wide_src, wide_tgt)[:, : tgt_in.shape[1]], want, 1e-12)
    maps: list[Tensor] = []
    memory = model.encode(wide_src, maps=maps)
    plain = model.decode(wide_tgt, memory, src=wide_src, maps=maps)
    close(plain[:, : tgt_in.shape[1]], want, 1e-12)


@given(problems(), st.integers(1, 5), st.integers(1, 5))
def test_more_padding_changes_no_gradient(problem, more_src, more_tgt):
    model, src, tgt_in = problem
    config = model.config

    def gradients(src, tgt_in):
        model.zero_grad()
        sums = tl.label_smoothed_loss(
            model(src, tgt_in), tgt_in, pad_id=config.pad_id
        )
        sums.loss.backward()
        return [grad(parameter).clone() for parameter in model.parameters()]

    want = gradients(src, tgt_in)
    padded = gradients(
        more_pads(src, more_src, config.pad_id),
        more_pads(tgt_in, more_tgt, config.pad_id),
    )
    for a, b in zip(padded, want, strict=True):
        # learned positions beyond the sentences get zeros in both
        close(a, b, 1e-11)


@given(problems(tie_embeddings=False))
def test_what_the_paddings_embedding_holds_changes_nothing(problem):
    model, src, tgt_in = problem
    real = tgt_in != model.config.pad_id
    before = model(src, tgt_in)
    with torch.no_grad():
        for embedding in (model.src_embedding, model.tgt_embedding):
            embedding.weight[model.config.pad_id] = 1e3 * torch.randn(
                model.config.d_model, dtype=DOUBLE
            )
    close(model(src, tgt_in)[real], before[real], 1e-12)


@given(problems())
def test_a_sentence_gives_the_same_logits_alone_and_in_any_batch(problem):
    model, src, tgt_in = problem
    pad_id = model.config.pad_id
    together = model(src, tgt_in)
    for row in range(len(src)):
        alone_src = src[row][src[row] != pad_id][None]
        alone_tgt = tgt_in[row][tgt_in[row] != pad_id][None]
        alone = model(alone_src, alone_tgt)[0]
        close(alone, together[row, : alone_tgt.shape[1]], 1e-12)


@given(problems())
def test_an_all_pad_source_spoils_nothing(problem):
    model, src, tgt_in = problem
    before = model(src, tgt_in)
    src[0] = model.config.pad_id
    output = model(src, tgt_in)
    assert output.isfinite().all()
    close(output[1:], before[1:], 1e-12)  # its neighbours do not notice
    slope(output)
    for parameter in model.parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all()


def test_with_nothing_to_read_cross_attention_adds_only_its_bias():
    config = tl.TransformerConfig.miniature(9)
    model = build(config)
    seen = []
    for layer in model.decoder.layers:
        layer.cross_attention.w_o.register_forward_hook(
            lambda module, inputs, output: seen.append((inputs[0], module))
        )
    model(torch.full((1, 3), config.pad_id), sentences(config, [4]))
    assert len(seen) == 2
    for mixed, _ in seen:
        assert (mixed == 0).all()


# -- Maps --------------------------------------------------------------------


@given(problems())
def test_maps_have_one_entry_an_attention_and_the_right_shapes(problem):
    model, src, tgt_in = problem
    config = model.config
    (B, S), T = src.shape, tgt_in.shape[1]
    src_maps: list[Tensor] = []
    memory = model.encode(src, maps=src_maps)
    tgt_maps: list[Tensor] = []
    model.decode(tgt_in, memory, src=src, maps=tgt_maps)
    H, N = config.n_heads, config.n_layers
    assert [m.shape for m in src_maps] == [(B, H, S, S)] * N
    assert [m.shape for m in tgt_maps] == [(B, H, T, T), (B, H, T, S)] * N
    pads = (src == config.pad_id)[:, None, None].expand(B, H, T, S)
    for own, cross in zip(tgt_maps[::2], tgt_maps[1::2], strict=True):
        assert (own.triu(1) == 0).all()
        assert (cross[pads] == 0).all()
    for weights in (*src_maps, *tgt_maps):
        close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@given(problems())
def test_asking_for_maps_changes_no_output(problem):
    model, src, tgt_in = problem
    maps: list[Tensor] = []
    memory = model.encode(src, maps=maps)
    close(model.decode(tgt_in, memory, src=src, maps=maps), model(src, tgt_in))


# -- Step by step ------------------------------------------------------------


@given(problems())
def test_writing_step_by_step_equals_the_teacher_forced_pass(problem):
    model, src, tgt_in = problem
    want = model(src, tgt_in)
    cache = model.start(src)
    for t in range(tgt_in.shape[1]):
        close(model.step(tgt_in[:, t], cache), want[:, t])
    assert cache.ids.equal(tgt_in)


@given(problems(), st.data())
def test_step_by_step_survives_reordering_dropping_and_repeating_rows(
    problem, data
):
    model, src, _ = problem
    W = model.config.vocab_size
    cache = model.start(src)
    written = torch.empty(len(src), 0, dtype=torch.int64)
    for _ in range(data.draw(st.integers(1, 5))):
        ids = torch.randint(W, (len(src),))  # padding inside, too
        written = torch.cat([written, ids[:, None]], dim=1)
        logits = model.step(ids, cache)
        close(logits, model(src, written)[:, -1])
        rows = torch.tensor(
            data.draw(
                st.lists(st.integers(0, len(src) - 1), min_size=1, max_size=4)
            )
        )
        cache.select(rows)
        src, written = src[rows], written[rows]
        assert cache.ids.equal(written)
        assert cache.memory.shape[0] == len(rows)


# -- Dropout: where it falls -------------------------------------------------


def test_dropout_has_the_papers_places_and_rates():
    config = tl.TransformerConfig(
        vocab_size=9,
        n_layers=2,
        d_model=8,
        n_heads=2,
        p_drop=0.1,
        p_drop_attention=0.2,
        p_drop_relu=0.3,
    )
    model = tl.Transformer(config)
    rates = {
        name: module.p
        for name, module in model.named_modules()
        if isinstance(module, nn.Dropout)
    }
    want = {"dropout": 0.1}  # on the sums of embeddings and positions
    for stack, residuals in (("encoder", 2), ("decoder", 3)):
        for layer in range(2):
            prefix = f"{stack}.layers.{layer}"
            want[f"{prefix}.feed_forward.dropout"] = 0.3
            for i in range(1, residuals + 1):
                want[f"{prefix}.residual_{i}.dropout"] = 0.1
    assert rates == want
    attentions = [
        module.p_drop
        for module in model.modules()
        if isinstance(module, tl.MultiHeadAttention)
    ]
    assert attentions == [0.2] * 6


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_dropout_falls_on_the_sum_of_embedding_and_position(side):
    config = tl.TransformerConfig(
        vocab_size=9, n_layers=1, d_model=64, n_heads=2, p_drop=0.25
    )
    model = build(config).train()
    ids = sentences(config, [50, 50])
    entered = []
    getattr(model, side).layers[0].register_forward_pre_hook(
        lambda module, inputs: entered.append(inputs[0])
    )
    model(ids, ids)
    [x] = entered
    whole = model.src_positions(model.src_embedding(ids))
    kept = x != 0
    close(x[kept], whole[kept] / 0.75)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)


def test_without_dropout_train_and_eval_mode_agree():
    config = tl.TransformerConfig(
        vocab_size=9, n_layers=2, d_model=8, n_heads=2, p_drop=0.0
    )
    model = build(config)
    src, tgt_in = sentences(config, [4, 2]), sentences(config, [3, 5])
    assert model.train()(src, tgt_in).equal(model.eval()(src, tgt_in))


def test_the_same_seed_builds_the_same_model():
    config = tl.TransformerConfig.miniature(9)
    models = []
    for _ in range(2):
        torch.manual_seed(7)
        models.append(tl.Transformer(config).state_dict())
    for name, weight in models[0].items():
        assert weight.equal(models[1][name])


def test_logits_start_at_about_unit_size():
    # The output of a post-norm stack has unit size in each of D channels,
    # the matrix variance 1 / D: the logits' variance is 1. A forgotten or
    # doubled factor would show at once.
    config = tl.TransformerConfig(vocab_size=500, n_layers=2)
    model = tl.Transformer(config).eval()
    ids = sentences(config, [20])
    with torch.no_grad():
        logits = model(ids, ids)
    # the token that is read is itself in the output matrix: leave it out
    assert logits.std().item() == pytest.approx(1.0, rel=0.2)


# -- Saving and loading ------------------------------------------------------


@given(config=configs(), seed=SEEDS)
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, config, seed):
    folder = tmp_path_factory.mktemp("model")
    model = build(config, seed).float()
    tl.save_model(model, folder / "new" / "folder", note="a note")
    loaded = tl.load_model(str(folder / "new" / "folder"))
    assert loaded.config == config
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    src, tgt_in = sentences(config, [3, 1]), sentences(config, [2, 4])
    assert loaded(src, tgt_in).equal(model(src, tgt_in))


def test_a_folder_holds_two_files_and_nothing_pickled(tmp_path):
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    tl.save_model(model, tmp_path, steps=7)
    tl.save_model(model, tmp_path, steps=8)  # over an older one
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["config.json", "weights.safetensors"]
    about = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert about["steps"] == 8
    assert about["model"]["d_model"] == 32
    # safetensors: eight bytes of length, then JSON
    head = (tmp_path / "weights.safetensors").read_bytes()
    length = int.from_bytes(head[:8], "little")
    assert "src_embedding.weight" in head[8 : 8 + length].decode()


def test_both_files_have_the_permissions_of_any_file(tmp_path):
    tl.save_model(tl.Transformer(tl.TransformerConfig.miniature(9)), tmp_path)
    (tmp_path / "any file").write_text("")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_failed_save_leaves_the_finished_files_alone(tmp_path):
    model = tl.Transformer(tl.TransformerConfig.miniature(9))
    tl.save_model(model, tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(TypeError):
        tl.save_model(model, tmp_path, note=object())  # not JSON
    assert (tmp_path / "config.json").read_bytes() == before
    tl.load_model(tmp_path)


def damage(folder, what):
    """Spoil a saved model in one way."""
    config, weights = folder / "config.json", folder / "weights.safetensors"
    about = json.loads(config.read_text("utf-8"))
    if what == "no config":
        config.unlink()
    elif what == "no weights":
        weights.unlink()
    elif what == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif what == "empty weights":
        weights.write_bytes(b"")
    elif what == "cut config":
        config.write_text(config.read_text("utf-8")[:40], "utf-8")
    elif what == "config is a list":
        config.write_text("[]", "utf-8")
    elif what == "config without model":
        config.write_text("{}", "utf-8")
    elif what == "config is not text":
        config.write_bytes(b"\xff\xfe\x00")
    else:
        about["model"] |= {
            "another field": {"colour": "red"},
            "a bad size": {"n_layers": 0},
            "another size": {"d_ff": 64},
            "more layers": {"n_layers": 3},
            "fewer layers": {"n_layers": 1},
        }[what]
        config.write_text(json.dumps(about), "utf-8")


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("no config", "config.json is missing"),
        ("no weights", "weights.safetensors is missing"),
        ("cut weights", "weights.safetensors is damaged"),
        ("empty weights", "weights.safetensors is damaged"),
        ("cut config", "config.json is damaged"),
        ("config is a list", "config.json is damaged"),
        ("config without model", "config.json is damaged"),
        ("config is not text", "config.json is damaged"),
        ("another field", "colour"),
        ("a bad size", "n_layers=0"),
        ("another size", "another config.json"),
        ("more layers", "another config.json"),
        ("fewer layers", "another config.json"),
    ],
)
def test_a_damaged_model_is_an_error_that_names_the_file(tmp_path, what, named):
    tl.save_model(tl.Transformer(tl.TransformerConfig.miniature(9)), tmp_path)
    tl.load_model(tmp_path)
    damage(tmp_path, what)
    with pytest.raises(ValueError) as error:
        tl.load_model(tmp_path)
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("place", ["nowhere", "a file"])
def test_a_folder_that_is_none_is_an_error(tmp_path, place):
    (tmp_path / "a file").write_text("")
    with pytest.raises(ValueError, match="holds no model"):
        tl.load_model(tmp_path / place)


def test_the_model_works_in_half_precision():
    model = tl.Transformer(tl.TransformerConfig.miniature(9)).eval()
    ids = torch.arange(3, 8)[None]
    want = model(ids, ids)
    for dtype in (torch.bfloat16, torch.float16):
        output = model.to(dtype)(ids, ids)
        assert output.dtype == dtype
        assert (output.float() - want).abs().max() < 0.2
