"""The page `machine` in Chromium: the forward pass in JavaScript against
PyTorch in float64, and what a reader sees and does."""

import base64
import functools
import hashlib
import http.server
import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import test_browser
import torch

from transformer_lit.decoding import beam_search, greedy_search
from transformer_lit.model import load_model
from transformer_lit.numbers import (
    NumberVocabulary,
    english,
    german,
    held_out_sample,
    is_held_out,
)
from transformer_lit.translator import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
browser = test_browser.browser
NUMBERS = [0, 7, 42, 100, 999, 1000, 21_021, 999_999]
NUMBERS += held_out_sample(200 - len(NUMBERS), seed=1)
VOCABULARY = NumberVocabulary()

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def viz():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
        import viz
    return viz


@pytest.fixture(scope="module")
def page_file(viz, tmp_path_factory):
    """The one file, alone in an empty folder."""
    path = tmp_path_factory.mktemp("machine") / "machine.html"
    path.write_text(viz.whole(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model():
    """The shipped miniature in float64."""
    return load_model(SHIPPED / "numbers").double()


def src_ids(number):
    return VOCABULARY.encode(english(number).split())


# ---- The forward pass ----


BYTES = """() => {
  TL.model = TL.loadModel(TL.data);
  TL.bytes = (doubles) => {
    const bytes = new Uint8Array(doubles.buffer);
    let text = "";
    for (const b of bytes) text += String.fromCharCode(b);
    return btoa(text);
  };
}"""


@pytest.fixture(scope="module")
def engine(browser, viz):
    """A blank page with the scripts that compute."""
    tab = browser.new_page()
    for script in ("numbers", "forward", "search"):
        tab.add_script_tag(content=(ROOT / f"viz/{script}.js").read_text())
    tab.add_script_tag(content=viz.data())
    tab.evaluate(BYTES)
    yield tab
    tab.close()


RUN = """([src, tgt]) => {
  const { tensors } = TL.forward(TL.model, src, tgt);
  const all = Object.values(tensors);
  const flat = new Float64Array(all.flatMap((x) => Array.from(x.data)));
  const shapes = all.map((x) => [x.name, x.rows, x.cols]);
  return { shapes, bytes: TL.bytes(flat) };
}"""


def in_the_page(engine, src, tgt):
    """Every tensor of a run in the page, by name."""
    found = engine.evaluate(RUN, [src, tgt])
    flat = np.frombuffer(base64.b64decode(found["bytes"]))
    tensors, at = {}, 0
    for name, rows, cols in found["shapes"]:
        tensors[name] = flat[at : at + rows * cols].reshape(rows, cols)
        at += rows * cols
    assert at == len(flat)
    return tensors


def watch(module, name, found):
    """Keep what goes into a module and what comes out."""

    def hook(_module, inputs, output):
        found[name] = (inputs[0], output)

    return module.register_forward_hook(hook)


def parts_of(model):
    """The modules to watch, by the page's names of their outputs."""
    for stack in ("encoder", "decoder"):
        for n, layer in enumerate(getattr(model, stack).layers, start=1):
            parts = {"self": layer.self_attention, "ffn": layer.feed_forward}
            frames = [layer.residual_1, layer.residual_2]
            if stack == "decoder":
                cross = layer.cross_attention
                parts = {"self": parts["self"], "cross": cross, **parts}
                frames.append(layer.residual_3)
            order = ["self", "cross", "ffn"]
            for part, frame in zip(
                [p for p in order if p in parts], frames, strict=True
            ):
                here = f"{stack}.{n}.{part}"
                for letter in "12" if part == "ffn" else "qkvo":
                    yield (
                        f"{here}.w{letter}",
                        getattr(parts[part], f"w_{letter}"),
                    )
                yield f"{here}.norm", frame.norm


@torch.inference_mode()
def in_torch(model, src, tgt):
    """The same tensors by the package, from hooks on its modules."""
    seen, found, maps = {}, {}, []
    hooks = [watch(m, name, seen) for name, m in parts_of(model)]
    src, tgt = torch.tensor([src]), torch.tensor([tgt])
    memory = model.encode(src, maps=maps)
    logits = model.decode(tgt, memory, src=src, maps=maps)
    for hook in hooks:
        hook.remove()
    for stack, ids in (("encoder", src), ("decoder", tgt)):
        embedded = model.src_embedding(ids)
        found[f"{stack}.embedded"] = embedded
        summed = model.src_positions(embedded)
        found[f"{stack}.positions"] = model.src_positions(0 * embedded)
        found[f"{stack}.x"] = summed
    for name, (x, y) in seen.items():
        here, last = name.rsplit(".", 1)
        if last == "norm":
            found[f"{here}.sum"], found[name] = x, y
        elif last in ("wq", "wk", "wv"):
            found[f"{here}.{last[1]}"] = y
        elif last == "w1":
            found[f"{here}.inner"] = y
        else:
            found[f"{here}.{'mixed' if last == 'wo' else 'relu'}"] = x
            found[f"{here}.out"] = y
    places = [f"encoder.{n}.self" for n in (1, 2)]
    places += [f"decoder.{n}.{p}" for n in (1, 2) for p in ("self", "cross")]
    for here, weights in zip(places, maps, strict=True):
        heads = [
            seen[f"{here}.w{x}"][1][0].unflatten(-1, (4, 8)).transpose(0, 1)
            for x in "qk"
        ]
        score = heads[0] @ heads[1].mT / 8**0.5
        if here.startswith("decoder") and here.endswith("self"):
            future = torch.ones_like(score).triu(1).bool()
            score = score.masked_fill(future, -torch.inf)
        for head in range(4):
            found[f"{here}.scores.{head + 1}"] = score[None, head]
            found[f"{here}.weights.{head + 1}"] = weights[:, head]
    found["logits"], found["probabilities"] = logits, logits.softmax(-1)
    return {name: value[0].numpy() for name, value in found.items()}


def test_every_tensor_equals_torch_in_float64(engine, model):
    exact = load_model(SHIPPED / "numbers")
    tensors = numbers = 0
    for number in NUMBERS:
        src, pieces = src_ids(number), VOCABULARY.tgt_ids(german(number))
        tgt = [model.config.bos_id, *pieces[:-1]]
        here, there = in_the_page(engine, src, tgt), in_torch(model, src, tgt)
        assert here.keys() == there.keys()
        for name, value in here.items():
            np.testing.assert_allclose(
                value, there[name], rtol=0, atol=1e-9, err_msg=name
            )
            numbers += value.size
        tensors += len(here)
        if number == 42:  # and the model as it was trained, in float32
            single = in_torch(exact, src, tgt)
            for name, value in here.items():
                np.testing.assert_allclose(
                    value, single[name], rtol=1e-5, atol=1e-5, err_msg=name
                )
    print(f"{tensors} tensors, {numbers} numbers")
    assert tensors == 118 * len(NUMBERS)


MUTANTS = {
    "a bit of a weight": ("data", "", ""),
    "two heads change places": (
        "forward",
        "Math.floor(c / K)]",
        "Math.floor(c / K) ^ 1]",
    ),
    "the mask is one off": ("forward", "j <= i)", "j < i || !j)"),
    "embeddings keep their size": (
        "forward",
        "ids[i] * D + j] * Math.sqrt(D)",
        "ids[i] * D + j]",
    ),
    "scores are not divided": ("forward", "sum / Math.sqrt(K)", "sum"),
    "normalisation comes first": ("forward", "add(x, y));", "add(x, x));"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_seen(browser, viz, model, name):
    where, right, wrong = MUTANTS[name]
    texts = {"forward": (ROOT / "viz/forward.js").read_text("utf-8")}
    texts["data"] = viz.data()
    if where == "data":  # a number of E that the number 42 reads
        at = texts["data"].index('"weights": "') + 12 + 170
        old = texts["data"][at]
        new = "A" if old != "A" else "B"
        texts["data"] = texts["data"][:at] + new + texts["data"][at + 1 :]
    else:
        assert texts[where].count(right) == 1
        texts[where] = texts[where].replace(right, wrong)
    tab = browser.new_page()
    tab.add_script_tag(content=texts["forward"] + texts["data"])
    tab.evaluate(BYTES)
    src = src_ids(42)
    tgt = [model.config.bos_id, *VOCABULARY.tgt_ids("zweiundvierzig")[:-1]]
    here, there = in_the_page(tab, src, tgt), in_torch(model, src, tgt)
    far = max(
        np.nanmax(np.abs(np.exp(here[n]) - np.exp(there[n]))) for n in here
    )
    assert far > 1e-9
    tab.close()


def test_greedy_search_equals_the_packages(engine, model):
    sources = [src_ids(number) for number in NUMBERS]
    here = engine.evaluate(
        "(sources) => sources.map((src) => TL.greedy(TL.model, src))", sources
    )
    for src, found in zip(sources, here, strict=True):
        [[one]] = greedy_search(model, torch.tensor([src]))
        assert found["tokens"] == one.tokens
        assert found["score"] == pytest.approx(one.score, abs=1e-9)


@pytest.mark.parametrize(
    ("size", "alpha", "count"), [(4, 0.6, 200), (1, 0.6, 20), (8, 0.0, 20)]
)
def test_beam_search_equals_the_packages(engine, model, size, alpha, count):
    sources = [src_ids(number) for number in NUMBERS[:count]]
    here = engine.evaluate(
        """([sources, options]) => sources.map(
             (src) => TL.beam(TL.model, src, options).found)""",
        [sources, {"size": size, "alpha": alpha}],
    )
    for src, found in zip(sources, here, strict=True):
        [kept] = beam_search(
            model, torch.tensor([src]), beam_size=size, alpha=alpha
        )
        assert [one["tokens"] for one in found] == [k.tokens for k in kept]
        for one, k in zip(found, kept, strict=True):
            assert one["score"] == pytest.approx(k.score, abs=1e-9)
            assert one["logProb"] == pytest.approx(k.log_prob, abs=1e-9)


def test_a_search_that_is_cut_off_equals_the_packages(engine, model):
    src = src_ids(NUMBERS[-1])
    here = engine.evaluate(
        """(src) => TL.beam(TL.model, src.slice(0, 2), {maxExtra: 0}).found""",
        src,
    )
    [kept] = beam_search(model, torch.tensor([src[:2]]), max_extra=0)
    assert [one["tokens"] for one in here] == [k.tokens for k in kept]


# ---- Numbers and words ----


def test_number_words_and_the_held_out_ones_agree(engine):
    numbers = [*range(1100), *range(1100, 1_000_000, 997)]
    here = engine.evaluate(
        "(all) => all.map((n) => [TL.english(n).join(' '), TL.isHeldOut(n)])",
        numbers,
    )
    there = [[english(n), is_held_out(n)] for n in numbers]
    assert here == there


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("999,999", 999_999),
        ("Forty-two", 42),
        ("one hundred and five", 105),
        ("-1", "out of range"),
        ("1000000", "out of range"),
        ("zwei", "no number word"),
        ("two forty", "Did you mean “forty two”"),
        ("", "Type a number"),
    ],
)
def test_what_a_reader_types(engine, text, number):
    here = engine.evaluate(
        "(t) => { try { return TL.readNumber(t) } catch (e) { return e.message } }",
        text,
    )
    assert here == number or (isinstance(here, str) and str(number) in here)


def test_the_data_is_the_shipped_model(viz, engine, model):
    weights = (SHIPPED / "numbers" / "weights.safetensors").read_bytes()
    data = json.loads(viz.data().removeprefix("TL.data = ").rstrip(";\n"))
    assert data["sha256"] == hashlib.sha256(weights).hexdigest()
    count = sum(p.numel() for p in model.parameters())
    assert engine.evaluate("TL.model.count") == count
    sizes = [int(np.prod(shape)) for _, shape, _ in data["tensors"]]
    assert sum(sizes) == count


# ---- The page ----


def opened(browser, file, hash_="", **how):
    """The page in a new window, ready, with the errors that it made."""
    how = {"reduced_motion": "reduce", **how}
    how.setdefault("viewport", {"width": 1280, "height": 800})
    tab = browser.new_context(**how).new_page()
    tab.faults, tab.asked = [], []
    tab.on("pageerror", lambda error: tab.faults.append(str(error)))
    tab.on("requestfailed", lambda r: tab.faults.append(r.url))
    tab.on("request", lambda r: tab.asked.append(r.url))
    tab.on(
        "console",
        lambda m: tab.faults.append(m.text) if m.type == "error" else None,
    )
    address = file if isinstance(file, str) else file.as_uri()
    tab.goto(address + hash_)
    tab.wait_for_selector("[data-state=ready]", timeout=10_000)
    return tab


@pytest.fixture(scope="module")
def page(browser, page_file):
    tab = opened(browser, page_file)
    yield tab
    tab.context.close()


def test_the_one_file_needs_nothing_and_fits_its_budget(page, page_file, viz):
    text = page_file.read_text("utf-8")
    for word in ("http", "import(", 'type="module"', "fetch("):
        assert word not in text
    assert page.faults == []
    assert page.asked == [page_file.as_uri()]
    sizes = {"page": len(text), "data": len(viz.data())}
    sizes["scripts"] = len(viz.scripts())
    print(sizes)
    assert sizes["page"] <= 800_000
    assert sizes["data"] <= 400_000
    assert sizes["scripts"] <= 120_000


def test_the_count_and_the_checksum_are_shown(page, viz, model):
    page.evaluate("TL.page.go(0)")
    shown = page.locator(".tl-cell").inner_text()
    count = sum(p.numel() for p in model.parameters())
    assert f"{count:,}" in shown
    assert json.loads(viz.data()[10:-2])["sha256"][:12] in shown


EXPLAIN = """() => {
  const { run, model } = TL.page, wrong = [];
  let cells = 0;
  for (const x of [...Object.values(run.tensors), ...Object.values(model.weights)]) {
    for (let i = 0; i < x.rows; i++) {
      for (let j = i % 5; j < x.cols; j += 5) {
        const { value, again, how } = TL.explain(run, x.name, i, j);
        cells++;
        if (!how || !(value === again || Math.abs(value - again) < 1e-12)) wrong.push([x.name, i, j, value, again]);
      }
    }
  }
  return { cells, wrong };
}"""


def test_every_explanation_gives_the_value_again(page):
    found = page.evaluate(EXPLAIN)
    assert found["wrong"] == []
    assert found["cells"] > 10_000


CAMERAS = [(0.0, 0.0), (-0.28, 0.26), (0.4, -0.3)]
CELLS = """([seed, yaw, pitch]) => {
  let state = seed;
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  const { stage } = TL.page, names = [...new Set(stage.blocks.map((b) => b.name))];
  const name = names[random(names.length)];
  const { tensor } = stage.blockAt(name, 0);
  const cell = { name, row: random(tensor.rows), col: random(tensor.cols) };
  stage.show(new Set([name]), stage.viewOf(new Set([name]), yaw, pitch), false);
  stage.setCursor(null);
  stage.raise();
  const box = stage.canvas.getBoundingClientRect(), [x, y] = stage.pointOf(cell);
  return { ...cell, x: x + box.left, y: y + box.top, value: TL.round(tensor.data[cell.row * tensor.cols + cell.col]) };
}"""


@pytest.mark.parametrize("camera", CAMERAS)
def test_what_the_mouse_points_at_is_what_is_told(page, camera):
    page.evaluate("TL.page.go(0)")
    for seed in range(1, 51):
        cell = page.evaluate(CELLS, [seed * 7919, *camera])
        page.mouse.move(cell["x"], cell["y"])
        at = page.evaluate("TL.page.stage.cursor")
        assert at == {key: cell[key] for key in ("name", "row", "col")}
        assert page.locator(".tl-cell strong").inner_text() == cell["value"]


PIXEL = """async (cell) => {
  const { stage } = TL.page, ratio = stage.ratio;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const box = stage.canvas.getBoundingClientRect();
  const at = [cell.x - box.left, cell.y - box.top].map((v) => Math.floor(v * ratio));
  stage.marks = false; // a number may stand in the middle
  stage.paint();
  stage.marks = true;
  const seen = stage.context.getImageData(...at, 1, 1).data;
  const { tensor } = stage.blockAt(cell.name, cell.col);
  const value = tensor.data[cell.row * tensor.cols + cell.col];
  return [Array.from(seen).slice(0, 3), TL.colour(stage.theme, tensor, value), stage.camera.zoom];
}"""


def test_what_is_painted_is_the_value(page):
    page.evaluate("TL.page.go(0)")
    checked = 0
    for seed in range(1, 80):
        cell = page.evaluate(CELLS, [seed * 104_729, -0.28, 0.26])
        seen, meant, zoom = page.evaluate(PIXEL, cell)
        if zoom > 6:  # in a smaller cell the middle mixes with its edges
            assert np.abs(np.subtract(seen, meant)).max() <= 2, cell
            checked += 1
    assert checked >= 20


WHERE = """() => {
  const { stage, step } = TL.page, { width, height } = stage.camera;
  const shown = stage.blocks.filter((b) => !stage.dimmed(b.name));
  const inside = shown.every((b) => TL.corners(stage.camera, b, b.thick).every(
    ([x, y]) => x >= 0 && y >= 0 && x <= width && y <= height));
  return [step, stage.focus && stage.focus.size, shown.length > 0 && inside, location.hash];
}"""


def test_the_walk_by_its_buttons(page):
    steps = page.evaluate("TL.STEPS.length")
    assert steps >= 29
    assert page.locator("main > section h2").count() == steps
    page.evaluate("TL.page.go(0)")
    for n in range(steps):
        step, focus, inside, address = page.evaluate(WHERE)
        assert (step, inside) == (n, True)
        assert focus is None or focus > 0
        assert address.startswith(f"#step-{n + 1}&n=")
        if n < steps - 1:
            page.get_by_role("button", name="Next").click()
    assert page.get_by_role("button", name="Next").is_disabled()


def test_the_walk_by_reading(page):
    page.wait_for_function("!TL.page.going")
    for n in (4, 11, 22):
        page.evaluate(
            "(n) => scrollTo(0, TL.page.sections[n].getBoundingClientRect().top + scrollY - 100)",
            n,
        )
        page.wait_for_function(f"TL.page.step === {n}")


def test_a_link_to_a_step(browser, page_file):
    tab = opened(browser, page_file, "#step-7&n=99")
    assert tab.evaluate("[TL.page.step, TL.page.number]") == [6, 99]
    assert "neunundneunzig" in tab.locator(".tl-said").inner_text()
    tab.context.close()


CHANGED = """async (number) => {
  const { page } = TL, old = page.run.tensors, weights = page.model.weights.E.data.slice();
  const form = page.find("form");
  form.number.value = number;
  form.number.dispatchEvent(new Event("change"));
  const same = Object.keys(old).filter((name) => !name.endsWith("positions") &&
    old[name].data.length === page.run.tensors[name].data.length &&
    old[name].data.every((v, at) => v === page.run.tensors[name].data[at]));
  return [same, weights.every((v, at) => v === page.model.weights.E.data[at]), page.find(".tl-said").textContent];
}"""


def test_another_number_changes_everything_but_the_weights(page):
    page.evaluate(CHANGED, "21043")
    first = page.evaluate("TL.page.number")
    for number in (21_042, 999_999, 70_000):
        same, weights, said = page.evaluate(CHANGED, str(number))
        assert said.endswith("→ " + german(number))
        assert weights
        assert same in ([], ["decoder.embedded"])  # <bos> ein und zwanzig ...
    page.go_back()
    page.wait_for_function("TL.page.number === 999999")
    page.go_back()
    page.go_back()
    page.wait_for_function(f"TL.page.number === {first}")


def test_a_number_that_is_none_gets_a_sentence(page):
    page.locator("[name=number]").fill("1000000")
    assert "out of range" in page.locator(".tl-said").inner_text()
    page.locator("[name=number]").fill("42")
    assert "zweiundvierzig" in page.locator(".tl-said").inner_text()


def test_the_words_come_one_by_one(page):
    page.locator("[name=number]").fill("21042")
    for written in (1, 2, 8):
        page.locator("[name=written]").fill(str(written))
        rows = page.evaluate("TL.page.run.tensors['decoder.x'].rows")
        assert rows == written
    assert "→ einundzwanzigtausendzweiundvierzig" in page.locator(
        ".tl-said"
    ).inner_text().replace("\n", " ")


def test_keys_move_the_cursor_and_leave_the_page_alone(page):
    page.evaluate("TL.page.go(6)")
    page.locator("canvas").focus()
    for key, cell in [
        ("ArrowRight", ["encoder.1.self.scores.1", 0, 2]),
        ("ArrowDown", ["encoder.1.self.scores.1", 1, 2]),
        ("End", ["encoder.1.self.scores.1", 1, 5]),
        ("PageDown", ["encoder.1.self.scores.2", 0, 0]),
    ]:
        page.keyboard.press(key)
        at = page.evaluate("Object.values(TL.page.stage.cursor)")
        if key != "PageDown":
            assert at == cell, key
        else:
            assert at[0] != cell[0].replace("2", "1")
    page.evaluate("document.activeElement.blur()")
    before = page.evaluate("[scrollY, JSON.stringify(TL.page.stage.cursor)]")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.wait_for_function(f"scrollY > {before[0]}")


def test_the_wheel_is_the_pages(page):
    page.evaluate("TL.page.go(6)")
    page.mouse.move(900, 400)
    page.wait_for_timeout(500)  # the page has scrolled to its step
    camera = "[TL.page.step, TL.page.stage.camera.zoom]"
    before, top = page.evaluate(f"[{camera}, scrollY]")
    page.mouse.wheel(0, 40)
    page.wait_for_function(f"scrollY > {top}")
    assert page.evaluate(camera) == before


def test_the_tab_key_visits_every_control_once_and_gets_out(page):
    page.evaluate("TL.page.go(3)")
    page.locator("[name=number]").focus()
    seen = []
    for _ in range(40):
        name = page.evaluate(
            "document.activeElement.name || document.activeElement.tagName"
        )
        if name in seen and name == "A":
            break
        seen.append(name)
        page.keyboard.press("Tab")
    controls = "number draw written CANVAS in out previous next replay whole"
    inside = [name for name in seen if name in controls.split()]
    assert inside == controls.split()
    assert "A" in seen or "SUMMARY" in seen


def test_the_table_holds_the_values(page):
    page.evaluate("TL.page.go(7)")
    page.evaluate("TL.page.more.open = true")
    page.locator(".tl-more select").select_option("encoder.2.ffn.norm")
    page.wait_for_function("TL.page.more.querySelectorAll('tbody td').length")
    shown, meant = page.evaluate(
        """() => [
          [...document.querySelectorAll('.tl-more tbody td')].map((c) => c.textContent),
          Array.from(TL.page.run.tensors['encoder.2.ffn.norm'].data, TL.round)]"""
    )
    assert shown == meant
    assert "LayerNorm: 6 rows" in page.locator(".tl-summary").inner_text()
    page.evaluate("TL.page.more.open = false")


def test_the_beam_tree_shows_the_search(page, model):
    page.evaluate("TL.page.go(21)")
    page.wait_for_selector(".tl-beam tbody tr")
    [kept] = beam_search(model, torch.tensor([src_ids(21_042)]))
    rows = page.locator(".tl-beam tbody tr").all()
    texts = [row.locator("td").first.inner_text() for row in rows]
    assert texts == [VOCABULARY.text(k.tokens) for k in kept]
    scores = [row.locator("td").last.inner_text() for row in rows]
    assert scores[0] == f"{kept[0].score:.4f}".replace("-", "−")
    assert page.locator(".beam-tree rect.ended").count() >= len(kept)


def test_a_screen_reader_finds_names_and_controls(page):
    page.evaluate("TL.page.go(6)")
    said = page.locator("[data-viz]").aria_snapshot()
    for part in (
        'textbox "Number"',
        'button "Random held-out"',
        'slider "Written',
        'img "The machine: 7. Compare every query with every key',
        "status",
        'navigation "Steps"',
    ):
        assert part in said, said


def test_motion_ends_and_nothing_runs_at_rest(browser, page_file):
    tab = opened(browser, page_file, reduced_motion="no-preference")
    tab.evaluate("TL.page.go(7)")
    assert tab.evaluate("!!TL.page.stage.tween")
    tab.wait_for_timeout(2500)
    frames = tab.evaluate("TL.page.canvas.dataset.frames")
    tab.wait_for_timeout(1000)
    assert tab.evaluate("TL.page.canvas.dataset.frames") == frames
    tab.context.close()


def test_reduced_motion_cuts(page):
    page.evaluate("TL.page.go(2)")
    page.evaluate("TL.page.go(9)")
    moving = "!!(TL.page.stage.tween || TL.page.playing)"
    assert page.evaluate(f"[TL.page.stage.reveal, {moving}]") == [1, False]
    page.evaluate("TL.page.go(20)")
    assert not page.evaluate(moving)


def test_a_phone(browser, page_file):
    tab = opened(
        browser,
        page_file,
        "#step-8",
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        has_touch=True,
        is_mobile=True,
    )
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    box = tab.locator("canvas").bounding_box()
    heading = tab.locator("#step-8 h2").bounding_box()
    assert box["height"] > 150
    assert box["y"] + box["height"] < heading["y"] < 844
    cell = tab.evaluate(CELLS, [7919, -0.28, 0.26])
    tab.touchscreen.tap(cell["x"], cell["y"])
    at = tab.evaluate("TL.page.stage.cursor")
    assert at == {key: cell[key] for key in ("name", "row", "col")}
    small = tab.evaluate(
        """[...document.querySelectorAll('.tl-machine button')]
           .filter((b) => b.offsetHeight < 44 || b.offsetWidth < 44).length"""
    )
    assert small == 0
    tab.context.close()


def touch(cdp, kind, *points):
    """Fingers on the glass."""
    at = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
    cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})


def test_two_fingers_zoom_and_one_scrolls_the_page(browser, page_file):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    tab = opened(browser, page_file, "#step-8", is_mobile=True, **phone)
    cdp = tab.context.new_cdp_session(tab)
    zoom, top = tab.evaluate("[TL.page.stage.camera.zoom, scrollY]")
    touch(cdp, "touchStart", (180, 200), (220, 200))
    for far in (40, 60, 80):
        touch(cdp, "touchMove", (200 - far, 200), (200 + far, 200))
    touch(cdp, "touchEnd")
    tab.wait_for_function(f"TL.page.stage.camera.zoom > {1.5 * zoom}")
    touch(cdp, "touchStart", (200, 250))
    for y in (220, 180, 120, 60):
        touch(cdp, "touchMove", (200, y))
    touch(cdp, "touchEnd")
    tab.wait_for_function(f"scrollY > {top + 50}")
    tab.context.close()


def test_it_runs_in_a_sandbox_and_twice_on_a_page(browser, page_file):
    frame = '<iframe sandbox="allow-scripts" width="900" height="700"></iframe>'
    tab = browser.new_page()
    tab.set_content(frame + frame)
    tab.evaluate(
        """(text) => document.querySelectorAll("iframe").forEach(
             (frame) => { frame.srcdoc = text; })""",
        page_file.read_text("utf-8"),
    )
    frames = tab.main_frame.child_frames
    for frame in frames:
        frame.wait_for_selector("[data-state=ready]", timeout=10_000)
    frames[0].locator("[name=number]").fill("7")
    said = [f.locator(".tl-said").inner_text() for f in frames]
    assert said == [
        "seven → sieben",
        "twenty one thousand forty two → einundzwanzigtausendzweiundvierzig",
    ]
    tab.close()


def test_the_dark_theme_paints_dark(browser, page_file):
    tab = opened(browser, page_file, color_scheme="dark")
    tab.wait_for_function("TL.page.canvas.dataset.frames > 0")
    rgb = tab.evaluate(
        "Array.from(TL.page.stage.context.getImageData(3, 3, 1, 1).data)"
    )
    assert max(rgb[:3]) < 60
    tab.context.close()


COLOURS = """() => {
  const { context, canvas } = TL.page.stage;
  const all = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(all).size;
}"""


def test_forced_colours_and_print_keep_the_picture(browser, page_file):
    tab = opened(browser, page_file, forced_colors="active")
    tab.wait_for_function("TL.page.canvas.dataset.frames > 0")
    assert tab.evaluate(COLOURS) > 1000
    tab.emulate_media(media="print", forced_colors="none")
    assert tab.locator("canvas").bounding_box()["height"] > 200
    assert tab.evaluate(COLOURS) > 1000
    tab.context.close()


CONTRAST = """() => {
  const light = (text) => {
    const rgb = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = rgb.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = getComputedStyle(document.querySelector(".tl-stick")).backgroundColor;
  return [...document.querySelectorAll(".tl-machine :is(b, span, p, output, strong), main p, main a, h2")].map((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(back)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser, page_file, scheme):
    tab = opened(browser, page_file, "#step-6", color_scheme=scheme)
    found = tab.evaluate(CONTRAST)
    assert len(found) > 60
    assert min(found) >= 4.5
    tab.context.close()


def test_without_scripts_the_walk_can_be_read(browser, page_file):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page_file.as_uri())
    assert tab.locator("section h2").count() >= 29
    assert "needs JavaScript" in tab.locator("body").inner_text()
    context.close()


def test_every_fact_of_the_walk_is_quoted_in_the_file(page):
    missing = page.evaluate(
        """[...document.querySelectorAll('a.fact')].filter(
             (a) => !document.getElementById(a.hash.slice(1)) || !a.title).length"""
    )
    assert missing == 0
    assert page.locator("a.fact").count() >= 40


def test_speed(browser, page_file):
    tab = opened(browser, page_file)
    timed = tab.evaluate(
        """() => {
          const { page } = TL, { stage } = page, form = page.find("form");
          const clock = (act) => { const t = performance.now(); act(); return performance.now() - t; };
          const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
          const paint = () => { stage.paint(); stage.context.getImageData(0, 0, 1, 1); };
          const input = median(Array.from({ length: 9 }, (_, n) => clock(() => {
            form.number.value = 999990 + n;
            page.read(false);
            paint();
          })));
          const frame = median(Array.from({ length: 31 }, () => clock(() => { stage.turn(1, 0); paint(); })));
          return { ready: performance.getEntriesByType("navigation")[0].loadEventEnd, input, frame };
        }"""
    )
    print(timed)
    # Ten times the budgets for an idle machine, 150 and 33: others may work.
    assert timed["input"] <= 1500
    assert timed["frame"] <= 330
    tab.context.close()


# ---- The page of the book ----

BUILT = ROOT / "_build" / "html" / "book" / "machine.html"
built = pytest.mark.skipif(
    not BUILT.is_file(), reason="the book is not built: run `make book`"
)


@pytest.fixture(scope="module")
def served():
    """The built book over http; gives the address."""
    handler = functools.partial(Quiet, directory=BUILT.parents[1])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that logs nothing and whose site has no icon."""

    def do_GET(self):
        if self.path != "/favicon.ico":
            return super().do_GET()
        self.send_response(204)
        return self.end_headers()

    def log_message(self, *_):
        pass


@built
@pytest.mark.parametrize("over", ["file", "http"])
def test_the_machine_lives_in_the_book(browser, served, over):
    root = BUILT.parents[1].as_uri() if over == "file" else served
    tab = opened(browser, root + "/book/machine.html", "#step-8&n=42")
    ours = [
        fault
        for fault in tab.faults
        if not any(t in fault for t in test_browser.THEIRS)
    ]
    assert ours == []
    assert all(url.startswith((root, "data:")) for url in tab.asked)
    assert tab.evaluate("[TL.page.step, TL.page.number]") == [7, 42]
    assert tab.evaluate("TL.page.sections.length === TL.STEPS.length")
    assert tab.locator("figure#machine-stage").is_hidden()
    box = tab.locator("canvas").bounding_box()
    assert box["width"] > 500
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 800
    chapters = tab.locator("#pst-primary-sidebar")
    assert not chapters.is_visible()  # to make room
    tab.locator(".primary-toggle").click()
    chapters.wait_for(state="visible")
    tab.context.close()


@built
def test_other_pages_load_the_small_script_only(browser):
    tab = browser.new_page()
    asked = []
    tab.on("request", lambda r: asked.append(r.url))
    tab.goto(BUILT.with_name("bibliography.html").as_uri())
    assert any("boot.js" in url for url in asked)
    assert not any("machine/machine.js" in url for url in asked)
    assert (ROOT / "book/_static/boot.js").stat().st_size <= 4096
    tab.close()


@built
def test_without_scripts_the_book_shows_the_picture(browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(BUILT.as_uri())
    picture = tab.locator("figure#machine-stage img")
    assert picture.is_visible()
    assert len(picture.get_attribute("alt")) > 80
    context.close()


# ---- The tool ----


def test_the_tool_sees_what_is_out_of_date(viz, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(viz, "EXTRA", tmp_path / "book")
    monkeypatch.setattr(viz, "ROOT", tmp_path)
    monkeypatch.setattr(viz, "data", lambda: "TL.data = {};")
    monkeypatch.setattr(viz, "scripts", lambda: "")
    monkeypatch.setattr(viz, "whole", lambda: "page")
    monkeypatch.setattr(sys, "argv", ["viz.py", "--check"])
    assert viz.main() == 1
    assert "machine.html is out of date" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["viz.py"])
    assert viz.main() == 0
    monkeypatch.setattr(sys, "argv", ["viz.py", "--check"])
    assert viz.main() == 0
    (tmp_path / "book" / "machine" / "data.js").write_text("TL.data = 1;")
    assert viz.main() == 1
