"""The small figures of `tl.viz.show`: their numbers and sentences in Python,
and in Chromium the same figures, made live."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import test_browser
import torch
from test_machine import serious

from transformer_lit import viz
from transformer_lit.decoding import Hypothesis, beam_search, greedy_search
from transformer_lit.masks import causal_mask, padding_mask, target_mask
from transformer_lit.optimizer import noam_rate
from transformer_lit.pictures import attention_maps
from transformer_lit.positions import sinusoids
from transformer_lit.records import load_record
from transformer_lit.translator import Translator
from transformer_lit.viz import ablations, beam, heads, show
from transformer_lit.viz.story import number_text

browser = test_browser.browser
WORDS = ["the", "cat", "<sat>", "down & out"]

pytestmark = pytest.mark.xdist_group("browser")


def one_row_off(row, amount):
    """To be added to attention of 4 words."""
    off = torch.zeros(4, 4)
    off[row] = amount
    return off


def weights(*shape):
    """Attention of no model."""
    random = torch.Generator().manual_seed(1)
    return torch.randn(*shape, generator=random).mul(2).softmax(-1)


@pytest.fixture(scope="module")
def numbers():
    """The shipped miniature in float64."""
    translator = Translator.load("numbers")
    translator.model.double()
    return translator


TEXT = "three hundred forty two"
SCORES = {
    "no scale": {"exact": [0.61, 0.72, 0.5], "nll": [0.3, 0.2, 0.4]},
    "paper": {"exact": [0.9, 0.94, 0.91], "nll": [0.11, 0.08, 0.1]},
    "pre-norm <1>": {"exact": [0.93, 0.95, 0.9], "nll": [0.1, 0.07, 0.1]},
    "bigger": {"exact": [1, 0.99, 1]},
}


@pytest.fixture(scope="module")
def maps(numbers):
    return attention_maps(numbers, TEXT)


@pytest.fixture(scope="module")
def made(numbers, maps):
    """A figure of each kind."""
    figures = {kind: show(kind) for kind in ("masks", "rotation", "softmax")}
    figures["heads"] = show("heads", maps, kind="cross", layer=2, word="und")
    figures["plain"] = show("heads", WORDS, weights(2, 3, 4, 4))
    figures["rate"] = show("rate")
    figures["beam"] = show("beam", numbers, TEXT)
    figures["curves"] = show("curves", "numbers")
    figures["everyday"] = show("curves", "everyday")
    figures["ablations"] = show("ablations", SCORES, base="paper")
    return figures


FIGURES = "heads plain masks rotation softmax rate beam curves everyday ablations".split()
every_figure = pytest.mark.parametrize("name", FIGURES)


def test_every_kind_has_a_figure_here(made):
    assert sorted(made) == sorted(FIGURES)
    assert {figure.story.kind for figure in made.values()} == set(viz.KINDS)


# ---- Python alone ----


@pytest.mark.parametrize(
    "attention",
    [
        weights(4, 4),
        weights(3, 4, 4).numpy(),
        weights(2, 3, 4, 4).tolist(),
        weights(2, 1, 3, 4, 4),
        tuple(weights(2, 1, 3, 4, 4)),  # a layer each, as transformers has it
        [weights(3, 4, 4).bfloat16()] * 2,
        weights(3, 4, 4).requires_grad_(),
        weights(2, 3, 4, 4).double(),
        [[*weights(3, 4, 4).half()]] * 2,
        torch.eye(4, dtype=torch.int64),
        torch.eye(4, dtype=torch.bool),
        [[*row] for row in torch.eye(4).tolist()],
        1.005 * torch.eye(4),
    ],
    ids="matrix numpy lists batch tuple bfloat16 grad float64 nested integers "
    "bool rows rounding".split(),
)
def test_attention_of_any_model_is_taken(attention):
    [view] = show("heads", WORDS, attention).story.data["views"]
    while isinstance(attention, list | tuple):
        parts = [torch.as_tensor(n) for one in attention for n in one]
        attention = torch.stack(parts)
    given = torch.as_tensor(attention).detach().float().reshape(-1, 4, 4)
    drawn = [h["weights"] for one in view["layers"] for h in one["heads"]]
    found = torch.tensor(drawn) / heads.SCALE
    torch.testing.assert_close(found, given, rtol=0, atol=1e-5)


def test_rows_are_queries_and_columns_keys():
    one = weights(2, 3)
    story = show("heads", ["a", "b"], one, keys=["x", "y", "z"]).story
    assert story.head[1:] == ["x", "y", "z"]
    assert [row[0] for row in story.rows] == ["a", "b"]
    assert story.rows[1][1:] == pytest.approx(one[1].tolist(), abs=1e-5)
    t, s = divmod(int(one.argmax()), 3)
    assert f"{'ab'[t]} to {'xyz'[s]}" in story.summary


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        ((["a", "b"], weights(3, 3)), {}, "a token for each row"),
        ((["a", "b"], weights(2, 3)), {}, r"keys=\[\.\.\.\]"),
        ((WORDS, weights(2, 5, 3, 4, 4)), {}, r"attention\[:, 0\]"),
        ((WORDS, torch.randn(4, 4)), {}, "behind the softmax"),
        ((WORDS, weights(4, 4).T), {}, "a row for each query"),
        ((WORDS, weights(4, 4) * torch.nan), {}, "sums to nan"),
        ((WORDS, weights(4, 4) * torch.inf), {}, "row 1 .* sums to inf"),
        ((WORDS, weights(4, 4) + one_row_off(2, 0.1)), {}, "row 3 .* to 1.40"),
        ((["a", "b"], [[2, -1], [0, 1]]), {}, "least weight is -1.00"),
        ((["a", "b"], [[1, -1], [0, 1]]), {}, "behind the softmax"),
        ((WORDS, weights(4, 4) + 0j), {}, "give one sentence's"),
        ((WORDS, weights(4)), {}, "give one sentence's"),
        ((WORDS, [[0.5, 0.5], [1.0]]), {}, "different shapes"),
        ((WORDS, (None, None)), {}, "attn_implementation"),
        ((WORDS, ()), {}, "give one sentence's"),
        ((WORDS, "the cat"), {}, "this is no attention"),
        ((WORDS,), {}, "output_attentions=True"),
        ((3,), {}, "this is no attention"),
        (("the cat", weights(2, 2)), {}, r"text\.split\(\)"),
        ((4, weights(4, 4)), {}, "no list of words"),
        (([], weights(0, 0)), {}, "nothing to show"),
        ((WORDS, weights(2, 0, 4, 4)), {}, "nothing to show"),
        ((["a"] * 200, weights(200, 200)), {}, "200 tokens: more than 100"),
        ((WORDS, [weights(4, 4), weights(2, 4, 4)]), {}, "different shapes"),
        ((["a"] * 101, weights(101, 101)), {}, "a shorter sentence"),
        ((["a"] * 90, weights(2, 8, 90, 90)), {}, r"attention\[:2\]"),
        ((WORDS, weights(4, 4)), {"layer": 2}, "layer=2 is none of"),
        ((WORDS, weights(4, 4)), {"word": "dog"}, "word='dog' is none of"),
        (([],), {}, "nothing to show"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_line(
    arguments, options, complaint
):
    with pytest.raises(ValueError, match=complaint) as error:
        show("heads", *arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "options", "complaint"),
    [
        ("tree", (), {}, "none of heads, masks"),
        ("masks", (), {"target": 3, "target_padding": 3}, "number from 0 to 2"),
        ("masks", (), {"source": 9}, "source=9 must be a whole number from 1"),
        ("masks", (), {"source": 2.5}, "source=2.5 must be a whole number"),
        ("masks", (), {"source": "6"}, "source='6' must be a whole number"),
        ("rotation", (), {"pair": 8}, "pair=8 must be a whole .* from 0 to 7"),
        ("rotation", (), {"d_model": 10**9}, "from 2 to 4,096"),
        ("rotation", (), {"offset": math.inf}, "offset=inf must be"),
        ("rotation", (), {"d_model": 7}, "must be even"),
        ("softmax", (), {"d_k": 65}, "d_k=65 is none of"),
        ("softmax", (), {"keys": 1}, "keys=1 must be"),
        ("softmax", (), {"draws": 10**9}, "from 2 to 5,000"),
        ("softmax", (), {"seed": -1}, "seed=-1 must be"),
        ("rate", (), {"warmup": 0}, "warmup=0 must be a whole .* from 100"),
        ("beam", ("numbers", "six"), {}, r"Translator\.load"),
        ("rate", (), {"d_model": 500}, "d_model=500 is none of"),
        ("curves", ("nothing",), {}, "no record results/nothing"),
        ("curves", ("dry_run",), {}, "no learning curve"),
        ("curves", ({"a": [[1, 2, 3]]},), {}, r"measures=\[\.\.\.\]"),
        ("curves", ({},), {}, "no run"),
        ("curves", ([[1, 2]],), {}, r"list is no runs: give \{name: points\}"),
        ("curves", ({"a": [3.0, 2.0]},), {}, "each point needs a place"),
        ("curves", ({"a": []},), {}, "each point needs a place"),
        ("curves", ({"a": [[1, math.nan]]},), {}, "a: nan cannot be drawn"),
        ("curves", ({"a": [[1, 1e40]]},), {}, "leave it out"),
        ("curves", ({"a": [[1, "x"]]},), {}, "'x' is not a number"),
        ("curves", ({n: [[1, 2]] for n in range(13)},), {}, "show fewer"),
        ("curves", ({"a": [[n, n] for n in range(3001)]},), {}, "tenth"),
        ("ablations", ("everyday",), {}, "compares no variants"),
        ("ablations", ({},), {}, "no score to show"),
        ("ablations", ({"a": {"b": [1]}},), {"base": "c"}, "base='c' is none"),
        ("ablations", ([1, 2],), {}, "no score to show"),
        ("ablations", ({"a": [1, 2]},), {}, "a: no score to show"),
        ("ablations", ({"a": {"b": []}},), {}, "no score to show"),
        ("ablations", ({"a": {"b": [math.nan]}},), {}, "a, b: nan cannot"),
        ("ablations", ({n: {"b": 1} for n in range(31)},), {}, "show fewer"),
    ],
)
def test_options_that_make_no_sense(kind, arguments, options, complaint):
    with pytest.raises(ValueError, match=complaint) as error:
        show(kind, *arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", " ", None, "no number", "1 " * 30])
def test_a_text_without_a_tree_is_refused(numbers, text):
    with pytest.raises(ValueError, match=r"^[^\n]{10,}$"):
        show("beam", numbers, text)


def test_numbers_of_any_library_are_taken():
    points = torch.tensor([[2.0, 0.25], [1.0, 0.5]])
    for given in (points, points.numpy(), points.double().requires_grad_()):
        story = show("curves", {7: given}, measures="loss").story
        assert story.rows == [["7", "1", 0.5], ["7", "2", 0.25]]  # in order
    for given in (points[0], points[0].numpy(), (2, 0.25)):
        story = show("ablations", {"a": {"b": given}, "c": {"b": 1}}).story
        assert story.rows[0] == ["a", 1.125, 0, 0.25, 2, "2"]
        assert story.rows[1] == ["c", 1, -0.125, 1, 1, "1"]
    for whole in (points[0, 0].int(), 2.0):
        with pytest.raises(ValueError, match="whole number"):
            show("rate", step=whole)
    assert show("rate", step=np.int64(7)).story.data["start"]["step"] == 7


def test_small_numbers_are_not_rounded_to_nothing():
    rates = [[n / 1e6, 3e-7 * n] for n in (1, 2, 3)]
    story = show("curves", {"a": rates}).story
    assert [row[1] for row in story.rows] == [f"0.00000{n}000" for n in "123"]
    assert number_text(story.rows[0][2], story.digits) == "0.0000003000"
    assert number_text(-0.0, 2) == number_text(-0.001, 2) == "0.00"


def test_the_greedy_output_is_that_of_greedy_search(numbers):
    """With a beam of one it need not be (section 6.1)."""
    text = "twelve"
    for alpha in (0.0, 2.0):
        story = show("beam", numbers, text, beam_size=8, alpha=alpha).story
        src = torch.tensor([numbers.prepare(text)])
        [[greedy]] = greedy_search(numbers.model, src)
        assert story.data["greedy"] == greedy.tokens
        words = " ".join(numbers.vocabulary.tokens[i] for i in greedy.tokens)
        same = "the same" if story.rows[0][0] == words else "another output"
        assert story.summary.endswith(f"Greedy search finds {same}.")


def test_another_greedy_output_is_told(numbers, monkeypatch):
    other = [[Hypothesis([5], -1.0, -1.0)]]
    monkeypatch.setattr(beam, "greedy_search", lambda *_: other)
    story = show("beam", numbers, "six").story
    assert story.summary.endswith("Greedy search finds another output.")


def test_a_query_that_may_look_nowhere_is_shown():
    one = weights(4, 4)
    one[0] = 0
    assert show("heads", WORDS, one).story.rows[0][1:] == [0, 0, 0, 0]


def test_the_variance_of_a_product_is_its_width():
    for d_k, variance, error, *_ in show("softmax").story.rows:
        assert abs(variance - int(d_k)) < 3 * error


def test_with_the_scale_the_width_hardly_matters():
    rows = show("softmax").story.rows
    plain, scaled = ([row[n] for row in rows] for n in (3, 4))
    assert plain[-1] > 0.9
    assert 0.25 < min(scaled) < max(scaled) < 0.4
    assert plain[0] == scaled[0]  # the root of 1 is 1


def test_the_masks_are_the_books():
    src, tgt = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[5, 6, 0]])
    grids = {
        "source padding": padding_mask(src, 0)[0, 0].expand(3, -1),
        "target padding": padding_mask(tgt, 0)[0, 0].expand(3, -1),
        "causal": causal_mask(3),
        "both": target_mask(tgt, 0)[0, 0],
    }
    options = {"source": 4, "source_padding": 1}
    story = show("masks", **options, target=3, target_padding=1).story
    for name, may, count in story.rows:
        grid, _, t = name.partition(", query ")
        line = grids[grid][int(t) - 1]
        assert may.split() == [
            str(s + 1) for s in line.nonzero()[:, 0].tolist()
        ]
        assert count == line.sum()


@every_figure
def test_an_output_is_the_same_each_time_and_plain_text_too(made, name):
    figure = made[name]
    bundle = figure._repr_mimebundle_()
    assert bundle["text/plain"].startswith(figure.story.title)
    assert figure.story.summary in bundle["text/plain"]
    assert bundle["text/html"] == figure.output()
    assert len(bundle["text/html"]) < 120_000
    assert not re.search(r"https?://(?!www.w3.org)", bundle["text/html"])
    assert " id=" not in re.sub("<svg.*?</svg>", "", figure.page(), flags=re.S)


def test_a_picture_has_the_same_bytes_twice():
    assert show("rate").output() == show("rate").output()


# ---- In the browser ----


# select_option would also take an option by its label.
CHOOSE = """(one, value) => {
  one.value = value;
  one.dispatchEvent(new Event("input", { bubbles: true }));
}"""


ODD = '<b>&amp; "it\'s" <!-- </script> \\ $x$ $$ 😀👩‍👩‍👧 שלום مرحبا 漢字 the the'.split(
    " "
)
ODD += [
    "",
    " ",
    "\n",
    "\t",
    "a" * 60,
    "\ud800",
    "\u202eab",
    "_x",
    "%",
    "#",
    "{}",
]


@dataclass
class Visit:
    """An opened figure and what happened."""

    tab: Any
    frame: Any
    errors: list[str]
    requests: list[str]

    def __getattr__(self, name):
        return getattr(self.frame, name)

    @property
    def summary(self):
        return self.frame.locator(".summary").inner_text()

    def set(self, name, value):
        """Set a control as a reader's hand would."""
        one = self.frame.locator(f"[name={name}]")
        if one.evaluate("one => one.type") == "checkbox":
            one.set_checked(value)
        elif one.evaluate("one => one.localName") == "select":
            one.evaluate(CHOOSE, str(value))
        else:
            one.fill(str(value))

    def shown(self):
        """The table as it is written."""
        return self.frame.evaluate(
            """() => [...document.querySelectorAll('tbody tr')].map((row) =>
              [...row.children].map((cell) => cell.textContent))"""
        )

    def table(self):
        """The values, by the name of their row, all digits."""
        return self.frame.evaluate(
            """() => [...document.querySelectorAll('tbody tr')].map((row) =>
              [...row.children].map((cell) => cell.dataset.value === undefined
                ? cell.textContent : Number(cell.dataset.value)))"""
        )


READY = "figure[data-state=ready], figure[data-state=failed]"


def opened(browser, folder, html, **how):
    """A page with some outputs in it, by file://."""
    path = folder / "page.html"
    meta = '<meta name="viewport" content="width=device-width">'
    start = '<!doctype html><html data-theme="light"><meta charset="utf-8">'
    path.write_text(f"{start}{meta}<body>{html}", encoding="utf-8")
    how = {"viewport": {"width": 1280, "height": 800}, **how}
    tab = browser.new_context(**how).new_page()
    visit = Visit(tab, None, [], [])
    tab.on("pageerror", lambda error: visit.errors.append(str(error)))
    tab.on("request", lambda r: visit.requests.append(r.url))
    tab.on(
        "console",
        lambda m: visit.errors.append(m.text) if m.type == "error" else None,
    )
    tab.goto(path.as_uri())
    if how.get("java_script_enabled", True):
        for frame in tab.main_frame.child_frames:
            if not frame.child_frames:
                frame.wait_for_selector(READY)
    return visit


def in_a_sandbox(html):
    """Colab's shape: an output lies in a frame that may run scripts, and may
    ask nothing of the page around it."""
    inner = viz.quoted(f"<!doctype html>{html}")
    return (
        f"<iframe sandbox='allow-scripts' height=700 srcdoc='{inner}'></iframe>"
    )


def without_frames(html):
    return re.sub(r"<iframe.*</iframe>", "", html, flags=re.S)


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
PHONE |= {"is_mobile": True, "device_scale_factor": 2}
WAYS = {
    "plain": {},
    "settings": {},
    "keys": {},
    "home": {"accept_downloads": True},
    "phone": PHONE,
    "tap": PHONE,
    "dark": {"color_scheme": "dark"},
    "axe": {"reduced_motion": "reduce"},
    "forced": {"forced_colors": "active", "reduced_motion": "reduce"},
    "no scripts": {"java_script_enabled": False, "color_scheme": "dark"},
    "no frames": {},
    "sandbox": {},
}
"""Each way of looking opens one page that holds every figure."""


@pytest.fixture(scope="module")
def look(browser, made, tmp_path_factory):
    """Every figure on one page, as one way of looking has it."""
    pages = {}

    def visit(name, way="plain"):
        if way not in pages:
            change = {"sandbox": in_a_sandbox, "no frames": without_frames}
            htmls = [made[one].output() for one in FIGURES]
            html = "\n".join(change.get(way, str)(one) for one in htmls)
            folder = tmp_path_factory.mktemp("page")
            pages[way] = opened(browser, folder, html, **WAYS[way])
        page = pages[way]
        frames = page.tab.main_frame.child_frames
        frame = frames[FIGURES.index(name)] if frames else page.tab
        if way == "sandbox":
            [frame] = frame.child_frames
        return Visit(page.tab, frame, page.errors, page.requests)

    yield visit
    for page in pages.values():
        page.tab.context.close()


@pytest.fixture
def fresh(browser, made, tmp_path):
    """Figures opened for one test alone."""
    found = []

    def visit(html, **how):
        page = opened(browser, tmp_path, html, **how)
        found.append(page)
        page.frame = page.tab.main_frame.child_frames[0]
        return page

    yield visit
    for one in found:
        one.tab.context.close()


@every_figure
def test_it_is_ready_needs_nothing_and_fits(look, name):
    visit = look(name)
    figure = visit.locator("figure")
    assert figure.get_attribute("data-state") == "ready", visit.summary
    assert visit.errors == []
    outside = [
        u
        for u in visit.requests
        if not u.startswith(("file:", "data:", "about:"))
    ]
    assert outside == []
    assert figure.bounding_box()["width"] <= 752
    assert visit.locator(".picture svg").bounding_box()["height"] <= 420
    frame = visit.frame.frame_element()
    box = frame.bounding_box()
    assert abs(box["height"] - visit.evaluate("document.body.scrollHeight")) < 9
    image = frame.evaluate_handle("one => one.previousElementSibling")
    assert not image.as_element().is_visible()  # nor is it read twice


@every_figure
def test_javascript_says_what_python_said(look, made, name):
    visit, story = look(name), made[name].story
    assert visit.summary == story.summary
    head = visit.locator("thead th").all_text_contents()
    assert head == [*story.head]
    assert visit.shown() == [
        [number_text(value, story.digits) for value in row]
        for row in story.rows
    ]


FAULTS = [
    ("heads", "[r, s] = [rows[0], 0]", "[r, s] = [0, 0]", None),
    ("plain", "const mean = (r) =>", "const mean = (r) => 0 &&", None),
    ("masks", "s <= t", "s < t", None),
    ("rotation", "-sin * here", "sin * here", "-sin * from"),
    ("softmax", "shown(one.largest[1], 2)", "shown(one.largest[0], 2)", None),
    ("rate", "w ** -1.5", "w ** -1.4", None),
    ("beam", "((5 + length) / 6)", "(length / 6)", None),
    ("curves", "points[points.length - 1]", "points[0]", None),
    ("ablations", "mean(values) - level", "level - mean(values)", None),
]


@pytest.mark.parametrize(("name", "right", "wrong", "where"), FAULTS)
def test_a_planted_fault_is_seen(fresh, made, name, right, wrong, where):
    right = where or right
    wrong = wrong.replace("sin * here", "sin * from")
    page = made[name].page()
    assert page.count(right) >= 1
    html = viz.quoted(page.replace(right, wrong))
    visit = fresh(f"<iframe srcdoc='{html}'></iframe>")
    story = made[name].story
    values = [value for row in story.rows for value in row]
    same = visit.summary == story.summary and values == pytest.approx(
        [v for row in visit.table() for v in row]
    )
    assert not same


def test_numbers_are_written_alike(look):
    values = [-0.0, -0.001, 0.005, 1.005, 0.125, 2.5, -2.5, 999.9995, 1e-9]
    values += [1234567.891, -1234.5, 4e14, *weights(4, 4).flatten().tolist()]
    said = look("rate").evaluate(
        """(values) => values.map((value) => [0, 1, 2, 3, 4, 9].map((digits) => TL.shown(value, digits)))""",
        values,
    )
    assert said == [
        [number_text(value, digits) for digits in (0, 1, 2, 3, 4, 9)]
        for value in values
    ]


# What Python says of a setting is what the page says when it is set there.

SETTINGS = [
    ("rotation", {"pair": 0, "position": 0, "offset": 0}),
    ("rotation", {"pair": 7, "position": 100, "offset": 100}),
    ("rate", {"d_model": 4096, "warmup": 20_000, "step": 1}),
    ("rate", {"d_model": 32, "warmup": 100, "step": 40_000}),
    ("softmax", {"d_k": 1}),
    ("softmax", {"d_k": 512}),
    (
        "masks",
        {"source": 1, "source_padding": 0, "target": 1, "target_padding": 0},
    ),
    (
        "masks",
        {
            "source": 8,
            "source_padding": 2,
            "target": 8,
            "target_padding": 7,
            "causal": False,
        },
    ),
    ("heads", {"kind": "encoder", "layer": 1, "word": "forty"}),
    ("heads", {"kind": "decoder", "layer": 2}),
    ("beam", {"beam_size": 8, "alpha": 0}),
    ("beam", {"beam_size": 1, "alpha": 2.0}),
    ("ablations", {"base": "bigger"}),
    ("ablations", {"base": "no scale"}),
]
NAMES = {"source_padding": "sourcePadding", "target_padding": "targetPadding"}
NAMES |= {"d_model": "width", "d_k": "width", "beam_size": "size"}
NAMES |= {"kind": "view"}
PLACES = {
    ("rate", "d_model"): lambda d: int(math.log2(d)),
    ("softmax", "d_k"): lambda d: int(math.log2(d)),
    ("beam", "beam_size"): beam.BEAMS.index,
    ("heads", "kind"): ["encoder", "decoder", "cross"].index,
    ("heads", "layer"): lambda layer: layer - 1,
    ("ablations", "base"): [*SCORES].index,
}
"""How a control counts what Python calls by its name."""


@pytest.mark.parametrize(("kind", "options"), SETTINGS)
def test_the_page_says_what_python_says_of_a_setting(
    look, numbers, maps, kind, options
):
    visit = look(kind, "settings")
    given = {"heads": [maps], "beam": [numbers, TEXT], "ablations": [SCORES]}
    story = show(kind, *given.get(kind, []), **options).story
    for option, value in options.items():
        if option != "word":
            place = PLACES.get((kind, option), lambda value: value)
            visit.set(NAMES.get(option, option), place(value))
    if kind == "heads":
        words = story.data["views"][story.data["start"]["view"]]["queries"]
        word = options.get("word")
        visit.set("word", words.index(word) if word else -1)
    assert visit.summary == story.summary
    assert visit.shown() == [
        [number_text(value, story.digits) for value in row]
        for row in story.rows
    ]


# What a reader may give, and where a control may stand.


def one_hot(T):
    return torch.eye(T)


EXTREMES = {
    "one": lambda: show("heads", ["alone"], [[1]]),
    "odd": lambda: show("heads", ODD, one_hot(len(ODD)), word="the"),
    "wide": lambda: show("heads", [f"token{n}" for n in range(20)], weights(16, 20, 20)),
    "long": lambda: show("heads", ["a"] * 100, weights(1, 100, 100)),
    "cross": lambda: show("heads", ["a"], weights(1, 9), keys="b c d e f g h i j".split()),
    "nowhere": lambda: show("heads", ["a", "b"], torch.zeros(1, 2, 2)),
    "clock": lambda: show("rotation", d_model=2, pair=0, position=0, offset=0),
    "fine clock": lambda: show("rotation", d_model=4096, pair=2047),
    "two keys": lambda: show("softmax", keys=2, draws=2),
    "twenty keys": lambda: show("softmax", keys=20, draws=20),
    "point": lambda: show("curves", {"<b>": [[0, 0]]}, x="<i>epoch</i>"),
    "uneven": lambda: show("curves", {"short": [[1, 5e9], [2, -4]], "a long name " * 5: [[1, 3, ], [90, 2]]}, x="<i>epoch</i>"),
    "tiny": lambda: show("curves", {"a": [[-2e-6, 3e-7], [5e-6, 1e-7]]}),
    "many": lambda: show("curves", {f"a run with number {n}": [[1, n], [2, n]] for n in range(12)}),
    "single": lambda: show("ablations", {"a <variant> with a name that is long " * 2: {"<b>": [1]}}),
    "equal": lambda: show("ablations", {n: {"exact": [0.5, 0.5]} for n in range(30)}),
}  # fmt: skip


@pytest.fixture(scope="module")
def extreme():
    return {name: make() for name, make in EXTREMES.items()}


@pytest.fixture(scope="module", params=["wide", "phone"])
def extremes(request, browser, extreme, tmp_path_factory):
    """Every extreme figure on one page."""
    html = "\n".join(figure.output() for figure in extreme.values())
    folder = tmp_path_factory.mktemp("extremes")
    how = PHONE if request.param == "phone" else {}
    page = opened(browser, folder, html, **how)

    def visit(name):
        frame = page.tab.main_frame.child_frames[[*EXTREMES].index(name)]
        return Visit(page.tab, frame, page.errors, page.requests)

    yield visit
    page.tab.context.close()


MOVES = """() => {
  const said = [], all = (what) => [...document.querySelectorAll(what)];
  const set = (one, change) => {
    change(one);
    one.dispatchEvent(new Event("input", { bubbles: true }));
    const words = document.querySelector("figure").innerText;
    const picture = document.querySelector(".picture").innerHTML;
    if (/NaN|undefined|Infinity|object/.test(words + picture)) said.push([one.name, one.value, words]);
    if (document.documentElement.scrollWidth > innerWidth) said.push([one.name, one.value, "too wide"]);
  };
  const names = all("form [name]").map((one, n) => n);
  for (const n of names) for (const end of ["max", "min"]) {
    const one = all("form [name]")[n];
    if (!one) continue;
    if (one.type === "range") set(one, (it) => { it.value = it[end]; });
    else if (one.type === "checkbox") set(one, (it) => { it.checked = !it.checked; });
    else for (const option of [...one.options].map((o) => o.value).slice(0, 12)) {
      set(all("form [name]")[n], (it) => { it.value = option; });
    }
  }
  return said;
}"""


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_shown_and_every_control_goes_to_its_ends(
    extremes, extreme, name
):
    visit, story = extremes(name), extreme[name].story
    figure = visit.locator("figure")
    assert figure.get_attribute("data-state") == "ready", visit.summary
    assert visit.summary == " ".join(story.summary.split())
    assert (
        visit.locator("figure").locator("i, b").count() == 0
    )  # no text is HTML
    assert visit.evaluate(MOVES) == []
    assert visit.errors == []


@pytest.mark.parametrize("name", EXTREMES)
def test_no_words_of_an_extreme_picture_are_cut_off(extremes, name):
    assert extremes(name).evaluate(CUT_OFF) == []


CUT_OFF = """() => {
  const svg = document.querySelector(".picture svg"), room = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.left < room.left - 1 || box.right > room.right + 1 || box.top < room.top - 1 || box.bottom > room.bottom + 1;
  }).map((one) => one.textContent);
}"""


@every_figure
@pytest.mark.parametrize("way", ["settings", "phone"])
def test_no_words_of_the_picture_are_cut_off(look, name, way):
    assert look(name, way).evaluate(CUT_OFF) == []


def test_no_two_of_many_runs_look_alike(extremes):
    looks = extremes("many").evaluate(
        """() => [...document.querySelectorAll('.picture path[stroke-width="2"]')]
          .map((one) => one.getAttribute("stroke") + one.getAttribute("stroke-dasharray"))"""
    )
    assert len(looks) == 24  # twelve lines, and the same in the legend
    assert len({*looks}) == 12


def test_tokens_are_shown_as_they_are(extremes, extreme):
    frame = extremes("odd").frame
    options = frame.locator("[name=word] option").all_text_contents()[1:]
    assert options[:4] == ["<b>&amp;", '"it\'s"', "<!--", "</script>"]
    repeated = [one for one in options if one.startswith("the")]
    assert repeated == ["the (12)", "the (13)"]
    assert options[13:17] == ["␣ (14)", "␣ (15)", "\\n", "\\t"]
    assert "\u2068שלום\u2069" in options  # what follows is not turned round
    labels = frame.locator(".picture text").all_text_contents()
    assert "😀👩‍👩‍👧" in labels and "$x$" in labels and "_x" in labels
    assert "$x$" in extreme["odd"].picture  # Python sets no formula


# The invariants, as read from the page.


def test_each_row_of_each_head_sums_to_one_and_is_the_models(look, maps):
    visit = look("heads")
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    visit.set("word", -1)
    for name, one in maps.items():
        visit.set("view", order[name.kind])
        visit.set("layer", name.layer - 1)
        for head in range(4):
            box = visit.locator(f"[name=heads][value='{head}']")
            box.set_checked(head == name.head - 1)
        rows = [row[1:] for row in visit.table()]
        shown = torch.tensor(rows, dtype=torch.float32)
        torch.testing.assert_close(
            shown, one.weights.float(), rtol=0, atol=1e-5
        )
        assert (shown.sum(-1) - 1).abs().max() < 1e-4
        if name.kind == "decoder":
            assert not shown.triu(1).any()  # exactly zero


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("source", "target"), [((8, 3), (4, 0)), ((1, 0), (8, 7))]
)
def test_masks_equal_pythons(look, source, target, causal):
    visit = look("masks")
    for name, (length, padding) in (("source", source), ("target", target)):
        visit.set(name, length)
        visit.set(f"{name}Padding", padding)
    visit.set("causal", causal)
    options = dict(zip(("source", "source_padding"), source, strict=True))
    options |= dict(zip(("target", "target_padding"), target, strict=True))
    story = show("masks", **options, causal=causal).story
    assert visit.table() == story.rows
    assert visit.summary == story.summary


def test_there_is_never_more_padding_than_tokens(look):
    visit = look("masks")
    visit.set("source", 6)
    visit.set("sourcePadding", 5)
    visit.set("source", 2)
    assert visit.locator("[name=sourcePadding]").input_value() == "1"
    rows = [row for row in visit.table() if row[0].startswith("source")]
    assert all(row[1:] == ["1", 1] for row in rows)


@pytest.mark.parametrize(
    ("pair", "position", "offset"), [(0, 0, 1), (1, 100, 100), (7, 31, 64)]
)
def test_to_move_on_is_to_turn(look, pair, position, offset):
    visit = look("rotation")
    for name, value in zip(
        ("pair", "position", "offset"), (pair, position, offset), strict=True
    ):
        visit.set(name, value)
    rows = {
        name: torch.tensor(v, dtype=torch.float64) for name, *v in visit.table()
    }
    turn = torch.stack([rows["R(k), first row"], rows["R(k), second row"]])
    table = sinusoids(position + offset + 1, 16)[:, 2 * pair : 2 * pair + 2]
    for found, meant in (
        (rows["PE(p)"], table[position]),
        (rows["PE(p + k)"], table[position + offset]),
        (turn @ rows["PE(p)"], rows["PE(p + k)"]),
        (rows["R(k) PE(p)"], rows["PE(p + k)"]),
    ):
        torch.testing.assert_close(found, meant, rtol=0, atol=1e-12)
    wave = 2 * math.pi * 10000 ** (2 * pair / 16)
    assert f"once around in {wave:,.1f} positions" in visit.summary


def test_the_softmax_of_the_page_is_torchs(look, made):
    visit = look("softmax")
    for n, one in enumerate(made["softmax"].story.data["widths"]):
        for scaled in (False, True):
            visit.set("width", n)
            visit.set("scaled", scaled)
            scale = one["d_k"] ** 0.5 if scaled else 1
            scores = torch.tensor(one["scores"], dtype=torch.float64) / scale
            bars = visit.evaluate(
                """() => [...document.querySelectorAll('.picture rect')].map(
                     (bar) => Number(bar.getAttribute('height')))"""
            )
            found = torch.tensor(bars, dtype=torch.float64) / sum(bars)
            torch.testing.assert_close(found, scores.softmax(-1))
            assert f"At width {one['d_k']} the" in visit.summary
            tallest = number_text(float(scores.softmax(-1).max()), 2)
            way = "scaled" if scaled else "unscaled"
            said = f"The bars are {way}; the tallest is {tallest}."
            assert visit.summary.endswith(said)


@pytest.mark.parametrize(
    ("width", "warmup", "step"),
    [(512, 4000, 4000), (1024, 700, 40_000), (32, 100, 1)],
)
def test_the_rate_is_the_papers(look, width, warmup, step):
    visit = look("rate")
    visit.set("width", int(math.log2(width)))
    visit.set("warmup", warmup)
    visit.set("step", step)
    rows = dict(visit.table())
    chosen = rows.pop(f"{step:,} (chosen)")
    assert chosen == pytest.approx(1e3 * noam_rate(step, width, warmup))
    for name, value in rows.items():
        rate = noam_rate(int(name.replace(",", "")), width, warmup)
        assert value == pytest.approx(1e3 * rate, rel=1e-12)
    assert max(rows, key=rows.get) == f"{warmup:,}"
    if (width, warmup) == (512, 4000):
        assert rows["4,000"] == pytest.approx(0.699, abs=5e-4)


def test_the_tree_is_the_search(look, numbers):
    visit, model = look("beam"), numbers.model
    src = torch.tensor([numbers.prepare(TEXT)])
    for n, size in enumerate(beam.BEAMS):
        for alpha in (0.0, 0.6, 1.3, 2.0):
            visit.set("size", n)
            visit.set("alpha", alpha)
            [[best]] = beam_search(
                model, src, beam_size=size, alpha=alpha, n_best=1
            )
            output, log_prob, length, _, score = visit.table()[0]
            words = [numbers.vocabulary.tokens[i] for i in best.tokens]
            assert output == " ".join(words)
            assert log_prob == pytest.approx(best.log_prob, abs=1e-9)
            assert score == pytest.approx(best.score, abs=1e-9)
            assert int(length) == len(best.tokens) + 1
            assert f"With a beam of {size} and alpha {alpha}" in visit.summary


def test_curves_are_the_records(look):
    visit, record = look("curves"), load_record("numbers")
    visit.set("measure", 1)
    for run in record["runs"]:
        name = f"seed {run['seed']}"
        rows = [row for row in visit.table() if row[0] == name]
        shown = [[int(row[1].replace(",", "")), *row[2:]] for row in rows]
        assert shown == run["curve"]
    for n in (0, 1):
        visit.locator(f"[name=runs][value='{n}']").uncheck()
    last = record["runs"][2]["curve"][-1]
    assert f"at the last update: {last[2]:.4f}." in visit.summary
    assert {row[0] for row in visit.table()} == {"seed 2"}


def test_a_variant_is_compared_with_any_other(look):
    visit = look("ablations")
    visit.set("measure", 1)
    visit.set("base", 0)
    rows = {name: values for name, *values in visit.table()}
    assert [*rows] == ["no scale", "paper", "pre-norm <1>"]  # that have it
    means = {name: sum(SCORES[name]["nll"]) / 3 for name in rows}
    for name, (mean, difference, least, most, runs) in rows.items():
        assert mean == pytest.approx(means[name])
        assert difference == pytest.approx(means[name] - means["no scale"])
        assert [least, most] == sorted(SCORES[name]["nll"])[::2]
        assert runs == "3"
    assert "Furthest from it is pre-norm <1>: 0.2100 below." in visit.summary


@pytest.mark.parametrize("shape", ["experiment", "modern"])
def test_the_records_of_studies_are_read(monkeypatch, shape):
    runs = [("a", 0.5), ("b", 0.7), ("a", 0.6), ("b", 0.8)]
    record = {
        "experiment": {
            "runs": [
                {"row": name, "scores": {"exact_match": x, "nll": 1 - x}}
                for name, x in runs
            ]
        },
        "modern": {
            "trials": [
                {"variant": name, "exact_match": x, "nll": 1 - x}
                for name, x in runs
            ]
        },
    }
    monkeypatch.setattr(ablations, "load_record", lambda _: record[shape])
    rows = show("ablations", "a study").story.rows
    assert [row[0] for row in rows] == ["a", "b"]
    assert [row[1] for row in rows] == pytest.approx([0.55, 0.75])
    assert rows[1][2] == pytest.approx(0.2)


# The picture is that of the values.


def marks(visit, what, *names):
    """Numbers that the marks of a picture have, in its order."""
    return np.array(
        visit.evaluate(
            """([what, names]) => [...document.querySelectorAll('.picture ' + what)]
              .map((one) => names.map((name) => Number(one.getAttribute(name))))""",
            [what, names],
        )
    )


def ends_of(visit, what):
    """Where the lines of a picture begin and end: x, y, x, y."""
    drawn = visit.evaluate(
        """(what) => [...document.querySelectorAll('.picture ' + what)]
          .map((one) => one.getAttribute('d'))""",
        what,
    )
    found = [[float(x) for x in re.findall(r"-?[\d.]+", d)] for d in drawn]
    return np.array([[*one[:2], *one[-2:]] for one in found])


def follows(places, values, sign):
    """Whether places lie on a straight scale of the values."""
    slope, start = np.polyfit(values, places, 1)
    assert slope * sign > 0
    np.testing.assert_allclose(
        slope * np.array(values) + start, places, atol=0.1
    )


def test_lines_lead_to_the_words_they_mean(look, made):
    visit = look("plain", "settings")
    visit.set("look", 0)
    visit.set("layer", 1)
    visit.set("word", -1)
    given = weights(2, 3, 4, 4)[1, 2]
    for head in range(3):
        visit.locator(f"[name=heads][value='{head}']").set_checked(head == 2)
    lines = "path[stroke='var(--c2)']"
    labels = marks(visit, "text", "x", "y")
    left, right = labels[:4, 1], labels[4:, 1]
    assert labels[:4, 0].max() < labels[4:, 0].min()
    found = np.zeros((4, 4))
    opacity = marks(visit, lines, "stroke-opacity")[:, 0]
    for (x, y, to_x, to_y), weight in zip(
        ends_of(visit, lines), opacity, strict=True
    ):
        assert x < to_x
        found[abs(left - y).argmin(), abs(right - to_y).argmin()] = weight
    np.testing.assert_allclose(found, given * (given > 0.01), atol=6e-4)


def test_squares_are_the_means(look):
    visit = look("plain", "settings")
    visit.set("look", 1)
    visit.set("layer", 0)
    visit.set("word", -1)
    for head in range(3):
        visit.locator(f"[name=heads][value='{head}']").check()
    found = marks(visit, "rect[fill-opacity]", "x", "y", "fill-opacity")
    order = np.lexsort((found[:, 0], found[:, 1]))  # by rows, then columns
    shown = found[order, 2].reshape(4, 4)
    np.testing.assert_allclose(shown, weights(2, 3, 4, 4)[0].mean(0), atol=6e-4)


def test_the_hands_of_the_clock_stand_where_pe_says(look):
    visit = look("rotation", "settings")
    for name, value in (("pair", 1), ("position", 2), ("offset", 5)):
        visit.set(name, value)
    (cx, cy, R), *hands = marks(visit, "circle", "cx", "cy", "r")
    table = sinusoids(8, 16)[:, 2:4]
    for (x, y, _), p in zip(hands, (2, 7), strict=True):
        assert [(x - cx) / R, (cy - y) / R] == pytest.approx(table[p].tolist())


def test_the_curve_of_the_rate_is_drawn_and_the_base_beneath_it(look):
    visit = look("rate", "settings")
    for name, value in (("width", 9), ("warmup", 4000), ("step", 16_000)):
        visit.set(name, value)
    curve, base = (
        visit.locator(f".picture path[stroke='var(--{name})']")
        for name in ("c0", "quiet")
    )
    assert curve.get_attribute("d") == base.get_attribute("d")
    (_, peak), (_, here) = marks(visit, "circle", "cx", "cy")
    foot = ends_of(visit, "path[stroke='var(--c0)']")[0, 1]
    assert (foot - here) / (foot - peak) == pytest.approx(0.5, abs=2e-3)
    visit.set("width", 11)
    assert curve.get_attribute("d") != base.get_attribute("d")


def test_rows_are_called_queries_and_columns_keys(look):
    visit = look("masks", "settings")
    turned = visit.locator(".picture text[transform]").all_text_contents()
    assert turned == ["query"] * 4
    labels = visit.locator(".picture text").all_text_contents()
    assert labels.count("key") == labels.count("query") == 4
    visit.set("source", 7)
    visit.set("target", 3)
    boxes = marks(visit, "rect.grid", "x", "y")[: 7 * 3]
    assert len({*boxes[:, 0]}) == 7 and len({*boxes[:, 1]}) == 3


def test_the_thick_path_is_the_best_output(look, numbers):
    visit = look("beam", "settings")
    visit.set("size", 2)
    visit.set("alpha", 0.6)
    boxes = marks(visit, "rect[stroke-width='2']", "x", "y")
    words = visit.evaluate(
        """() => [...document.querySelectorAll('.picture rect[stroke-width="2"]')]
          .map((one) => one.nextElementSibling.textContent)"""
    )
    best = visit.table()[0][0]
    assert " ".join(words) == f"{best} (end)"
    assert [*boxes[:, 0]] == sorted(boxes[:, 0])


def test_lines_and_dots_stand_at_their_values(look):
    visit = look("everyday", "settings")
    visit.set("from", 0)
    [drawn] = visit.evaluate(
        "[...document.querySelectorAll('.picture path[stroke-width=\"2\"]')].map((one) => one.getAttribute('d'))"
    )
    points = np.array(re.findall(r"([\d.]+) ([\d.]+)", drawn), float)
    rows = visit.table()
    follows(points[:, 0], [float(row[1].replace(",", "")) for row in rows], 1)
    follows(points[:, 1], [row[2] for row in rows], -1)

    visit = look("ablations", "settings")
    visit.set("measure", 0)
    places = marks(visit, "circle", "cx", "cy")
    values = [v for one in SCORES.values() for v in one["exact"]]
    follows(places[:, 0], values, 1)
    lines = [n for n, one in enumerate(SCORES.values()) for _ in one["exact"]]
    follows(places[:, 1], lines, 1)


# For everyone.


@every_figure
def test_without_scripts_there_are_picture_sentence_and_table(look, made, name):
    visit, story = look(name, "no scripts"), made[name].story
    assert visit.locator("figure").get_attribute("data-state") == "static"
    box = visit.locator(".picture svg").bounding_box()
    assert box["height"] > 60 and box["width"] > 300
    assert visit.locator("figcaption").inner_text() == story.title
    fills = visit.locator(".picture text").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).fill)"
    )
    for fill in fills:  # dark enough for the picture's white ground
        assert min(map(int, re.findall(r"\d+", fill))) < 120
    assert visit.locator(".reading").inner_text() == story.reading
    assert not visit.locator(".trying").is_visible()
    assert visit.summary == story.summary
    visit.locator("summary").click()
    assert visit.locator("tbody tr").count() == len(story.rows)
    assert visit.locator("table").is_visible()
    assert visit.locator("button, select, input").count() == 0


@every_figure
def test_without_frames_the_picture_remains(look, made, name):
    visit = look(name, "no frames")
    image = visit.tab.locator("img").nth(FIGURES.index(name))
    assert image.evaluate("i => i.complete && i.naturalWidth") > 300
    assert image.bounding_box()["height"] > 60
    alt = image.get_attribute("alt")
    assert alt == f"{made[name].story.title}. {made[name].story.summary}"


def test_two_copies_are_independent(fresh, made):
    visit = fresh(2 * made["rate"].output())
    first, second = visit.tab.main_frame.child_frames
    first.locator("[name=step]").fill("20000")
    said = [f.locator(".summary").inner_text() for f in (first, second)]
    assert "At step 20,000" in said[0]
    assert said[1] == made["rate"].story.summary


@every_figure
def test_it_runs_in_a_sandbox(look, made, name):
    visit = look(name, "sandbox")
    visit.wait_for_selector(READY)
    assert visit.locator("figure").get_attribute("data-state") == "ready"
    assert visit.summary == made[name].story.summary
    assert visit.errors == []


@every_figure
def test_the_keyboard_reaches_and_moves_each_control(look, name):
    visit = look(name, "keys")
    controls = visit.locator("form input, form select")
    names = controls.evaluate_all("all => all.map((one) => one.name)")
    assert names != []
    controls.first.focus()
    for name in names:
        was = visit.evaluate(STATE)
        here, kind, value = visit.evaluate(FOCUSED)
        assert here == name
        keys = {"checkbox": ["Space"], "range": ["ArrowRight"]}
        for key in keys.get(kind, ["ArrowDown", "ArrowUp"]):
            if visit.evaluate(FOCUSED)[2] == value:
                visit.tab.keyboard.press(key)
        assert visit.evaluate(STATE) != was, name
        assert visit.evaluate(FOCUSED)[0] == name  # it stays
        visit.tab.keyboard.press("Tab")
    assert visit.evaluate(FOCUSED)[0] is None  # and gets out


FOCUSED = """() => { const { name, type, value } = document.activeElement;
  return [name, type, value].map((one) => one ?? null); }"""
STATE = """() => JSON.stringify([...document.querySelectorAll('form input, form select')]
  .map((one) => [one.value, one.checked])) + document.querySelector('.picture').innerHTML"""


@every_figure
def test_a_screen_reader_finds_name_sentence_controls_and_table(
    look, made, name
):
    visit, story = look(name), made[name].story
    visit.locator("details").evaluate("one => { one.open = true; }")
    said = visit.locator("figure").aria_snapshot()
    for part in (
        f'img "{story.title}"',
        "- status:",
        "- table:",
        "columnheader",
        'button "Download SVG"',
        'button "Copy values"',
    ):
        assert part in said, said
    names = re.findall(r'(?:slider|combobox|checkbox) "(.*?)"', said)
    assert names and len({*names}) == len(names)  # each has one of its own
    sliders = re.findall(r'slider "(.*?)"', said)
    assert not any(re.search(r"\d$", name) for name in sliders)  # no values
    labels = visit.locator("form input, form select").evaluate_all(
        "all => all.map((one) => one.labels[0].textContent.trim())"
    )
    assert labels and all(labels)


def test_the_mouse_over_a_word_does_what_the_control_does(look):
    visit = look("plain")
    visit.set("word", 0)
    chosen = visit.summary
    visit.set("word", 3)
    assert visit.summary != chosen
    visit.locator("[data-word='0']").hover()
    assert visit.summary == chosen
    visit.locator("figcaption").hover()
    assert visit.summary != chosen
    visit.locator("[data-word='0']").click()
    visit.locator("figcaption").hover()
    assert visit.summary == chosen
    assert visit.locator("[name=word]").input_value() == "0"


def test_a_tap_on_a_word_chooses_it_and_another_lets_go(look):
    visit = look("plain", "tap")
    every = visit.summary
    for summary, word in (("weight of cat goes", "1"), ("weight goes", "-1")):
        visit.locator("[data-word='1']").tap()
        assert summary in visit.summary
        assert visit.locator("[name=word]").input_value() == word
    assert visit.summary == every


def test_a_word_is_not_kept_for_another_sentence(look):
    visit = look("heads", "settings")
    visit.set("view", 0)
    visit.set("word", 1)
    assert "of hundred goes" in visit.summary
    visit.set("view", 1)
    assert visit.locator("[name=word]").input_value() == "-1"


@every_figure
def test_a_phone(look, name):
    visit = look(name, "phone")
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.evaluate("document.documentElement.scrollWidth") <= 390
    small = visit.evaluate(
        """() => [...document.querySelectorAll('button, select, label, summary')]
          .map((one) => [one.textContent, one.offsetWidth, one.offsetHeight])
          .filter(([, width, height]) => width < 44 || height < 44)"""
    )
    assert small == []
    assert visit.locator(".picture svg").bounding_box()["height"] <= 420


def colours(visit):
    """The colours of a figure's picture, as the screen has them."""
    import io

    from PIL import Image

    shot = visit.locator(".picture").screenshot()
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    return sorted(image.getcolors(1 << 20), reverse=True)


@every_figure
def test_it_follows_the_theme_around_it(look, name):
    visit = look(name, "dark")
    visit.tab.evaluate("document.documentElement.dataset.theme = 'light'")
    visit.wait_for_selector(":root[data-theme=light]")
    (_, paper), *rest = colours(visit)
    assert min(paper) > 240  # the page around it says light
    visit.tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    visit.wait_for_selector(":root[data-theme=dark]")
    (_, paper), *rest = colours(visit)
    assert max(paper) < 40
    assert max(max(colour) for _, colour in rest) > 150


def test_the_books_dark_theme_lays_no_light_card_under_it(fresh, made):
    card = "<div class='text_html' style='background: #ced6dd'>"
    visit = fresh(f"{card}{made['rate'].output()}</div>")
    colour = "document.querySelector('div').style.background"
    assert visit.tab.evaluate(colour) == "none"


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) =>
      v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll(".picture text, .summary, label, th, td, button, figcaption")]
    .map((one) => {
      const style = getComputedStyle(one), ink = light(one.localName === "text" ? style.fill : style.color);
      return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), one.textContent];
    });
}"""


@every_figure
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_its_words_can_be_read(look, name, theme):
    visit = look(name, "dark")
    visit.tab.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    visit.wait_for_selector(f":root[data-theme={theme}]")
    found = visit.evaluate(CONTRAST)
    assert len(found) > 10
    assert [words for contrast, words in found if contrast < 4.5] == []


@every_figure
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(look, name, theme):
    visit = look(name, "axe")
    visit.tab.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    visit.wait_for_selector(f":root[data-theme={theme}]")
    assert serious(visit.frame) == []
    visit.locator("details").evaluate("one => { one.open = true; }")
    assert visit.evaluate(MOVES) == []
    assert serious(visit.frame) == []


def test_axe_would_find_a_control_without_a_name(fresh, made):
    visit = fresh(made["rate"].output())
    visit.evaluate("document.querySelector('label').firstChild.remove()")
    assert [rule for rule, _ in serious(visit.frame)] == ["label"]


@every_figure
def test_forced_colours_and_print_keep_it(look, name):
    visit = look(name, "forced")
    visit.tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    visit.wait_for_selector(":root[data-theme=dark]")
    visit.tab.emulate_media(media="screen", forced_colors="active")
    assert len(colours(visit)) > 8
    assert visit.evaluate("document.getAnimations().length") == 0
    dark = {"color_scheme": "dark", "forced_colors": "none"}
    visit.tab.emulate_media(media="print", **dark)
    assert len(colours(visit)) > 8
    ink = "getComputedStyle(document.body).color"
    assert visit.evaluate(ink) == "rgb(34, 34, 34)"  # on white paper
    assert not visit.locator("button").first.is_visible()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plain", '"weights": [[', '"weights": [[9'),
        ("plain", '"queries": ["the", ', '"queries": ['),
        ("rotation", '"width": 16', '"width": '),
        ("softmax", '"largest": [0.', '"largest": [7.'),
        ("curves", "[100.0, 3.0457", "[100, null"),
        ("beam", '"words": {', '"words": {}, "nothing": {'),
        ("ablations", '"values": [0.61', '"values": ["0.61"'),
    ],
)
def test_data_that_are_wrong_fail_with_a_sentence(
    fresh, made, name, right, wrong
):
    page = made[name].page()
    assert right in page
    html = viz.quoted(page.replace(right, wrong, 1))
    visit = fresh(f"<iframe srcdoc='{html}'></iframe>")
    figure = visit.locator("figure")
    assert figure.get_attribute("data-state") == "failed"
    assert visit.summary.startswith("This figure cannot be shown live. ")
    assert visit.locator(".picture svg").count() == 1  # Python's stays
    assert visit.errors == []


@every_figure
def test_the_picture_and_the_values_can_be_taken_home(
    look, made, name, tmp_path
):
    visit = look(name, "home")
    visit.tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    visit.wait_for_selector(":root[data-theme=dark]")
    with visit.tab.expect_download() as got:
        visit.get_by_role("button", name="Download SVG").click()
    assert visit.locator(":root[data-theme=dark]").count() == 1  # still
    assert got.value.suggested_filename == f"{made[name].story.kind}.svg"
    got.value.save_as(tmp_path / "one.svg")
    alone = visit.tab.context.new_page()
    alone.goto((tmp_path / "one.svg").as_uri())
    assert alone.evaluate("document.documentElement.getBBox().width") > 200
    drawn = (tmp_path / "one.svg").read_text("utf-8")
    assert "var(--" not in drawn  # drawing programs know no such thing
    assert "fill: rgb(34, 34, 34)" in drawn  # its words, in ink, on paper
    visit.get_by_role("button", name="Copy values").click()
    visit.wait_for_selector("text=Copied.")


def test_a_figure_can_be_saved_as_a_page(browser, made, tmp_path):
    made["rate"].save(tmp_path / "rate.html")
    tab = browser.new_page()
    tab.goto((tmp_path / "rate.html").as_uri())
    tab.wait_for_selector("figure[data-state=ready]")
    tab.close()
