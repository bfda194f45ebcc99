"""The generated pages: their tools see each planted fault, and every link to
a section arrives. And the check of the readers' own solutions."""

import math
import re
from pathlib import Path

import pytest
import test_tools
import torch

from transformer_lit.exercises import (
    REFERENCES,
    WrongAnswerError,
    check_solution,
    difference,
    try_out,
)

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
# Each page by the tool that writes it.
PAGES = {"ledger": "ledger", "covered": "coverage", "exercises": "exercises"}
house, tool, replace = test_tools.house, test_tools.tool, test_tools.replace

on_a_copy = pytest.mark.xdist_group("tools")


def seen(house, name, complaint):
    """Whether a tool of the copy complains."""
    done = tool(house, name, "--check")
    assert done.returncode == 1, done.stdout + done.stderr
    assert complaint in done.stdout, done.stdout
    return True


@on_a_copy
@pytest.mark.parametrize("name", PAGES)
def test_a_clean_house_passes_and_is_written_alike(house, name):
    done = tool(house, name, "--check")
    assert (done.returncode, done.stdout) == (0, "")
    page = house / "book" / f"{PAGES[name]}.md"
    before = page.read_bytes()
    assert tool(house, name).returncode == 0
    assert page.read_bytes() == before


@on_a_copy
@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_was_edited_is_seen(house, name):
    page = f"book/{PAGES[name]}.md"
    with (house / page).open("a") as file:
        file.write("\nA line that no tool wrote.\n")
    assert seen(house, name, f"{page} is out of date")


@on_a_copy
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "symbol: attention.scaled_dot_product",
            "symbol: attention.scaled_dot",
            "the package has no attention.scaled_dot",
        ),
        (
            "symbol: stacks.Residual",
            "symbol: frames.Residual",
            "the package has no frames.Residual",
        ),
        (
            "test: test_stacks.py::test_feed_forward_is_equation_2",
            "test: test_stacks.py::test_feed_forward_is_equation_3",
            "there is no test test_stacks.py::test_feed_forward_is_equation_3",
        ),
        (
            "chapter: 03_4_embeddings",
            "chapter: 03_4_nothing",
            "there is no chapter 03_4_nothing",
        ),
        ("facts: [fig2]", "facts: []", "fig2: is in 0 items"),
        ("facts: [fig2]", "facts: [fig1, fig2]", "fig1: is in 2 items"),
        ("facts: [fig2]", "facts: [fig2, fig9]", "has no row fig9"),
        ("status: exact", "status: nearly", "the status is nearly"),
        ("why: a statement about people", "why: ''", "why is it not run?"),
        ("  - what: Formula (1)\n", "  - what: F\n    wy: x\n", "no key wy"),
        ("at: Table 3 as presets", "at: Table 9", "03_0_architecture has no"),
        ("facts: [fig2]\n    chapter: 03_2_attention\n", "facts: [fig2]\n", ""),
    ],
)
def test_a_fault_among_the_items_is_seen(house, old, new, complaint):
    replace(house / "book" / "paper_items.yml", old, new)
    assert seen(house, "covered", complaint or "no chapter, but exact")


@on_a_copy
def test_an_item_whose_tag_is_gone_is_seen(house):
    text = house / "book" / "03_2_attention.md"
    replace(text, "](#f-3.2.1.eq1)", "](#f-3.2.weighted_sum)")
    assert seen(house, "covered", "no link to one of ['3.2.1.eq1']")


@on_a_copy
def test_an_item_that_waits_is_asked_for_when_its_chapter_has_it(house):
    items = house / "book" / "paper_items.yml"
    one = "    facts: [fig2]\n    chapter: 03_2_attention"
    replace(items, one, "    facts: [fig2]\n    waits: 03_2_attention")
    assert seen(house, "covered", "03_2_attention has it now")


@on_a_copy
def test_a_section_that_was_renamed_is_seen(house):
    text = house / "book" / "03_2_attention.md"
    replace(text, "\n## Figure 2, as a map\n", "\n## Figure 2\n")
    assert seen(house, "ledger", "out of date")
    assert seen(house, "covered", "out of date")
    assert tool(house, "ledger").returncode == 0
    page = (house / "book" / "ledger.md").read_text(encoding="utf-8")
    assert "03_2_attention.html#figure-2)" in page


@on_a_copy
def test_a_conflict_without_its_section_is_seen(house):
    replace(house / "book" / "13_inconsistencies.md", "(inc-bpe)=\n", "")
    assert seen(house, "ledger", "5.1.bpe_cite: no chapter has the label")


@on_a_copy
@pytest.mark.parametrize(
    ("path", "old", "new", "complaint"),
    [
        (
            "book/03_2_attention.md",
            "{exercise} ★ By hand",
            "{exercise} By hand",
            "ex-attention-by-hand: one to three stars",
        ),
        (
            "book/03_2_attention.md",
            ":label: ex-attention-by-hand\n",
            ":label: ex-attention-variance\n",
            "ex-attention-variance: the label is there twice",
        ),
        (
            "book/03_5_positions.md",
            ":label: ex-positions-1\n",
            ":label: ex-positions-9\n",
            "ex-positions-1: has a reference, but there is no such exercise",
        ),
        (
            "book/03_5_positions.md",
            '\ncheck_solution("ex-positions-1"',
            '\nprint("ex-positions-1"',
            "ex-positions-1: its solution is not checked",
        ),
        (
            "book/03_5_positions.md",
            '`check_solution("ex-positions-1"',
            '`print("ex-positions-1"',
            "ex-positions-1: has a reference, but does not say so",
        ),
        (
            "transformer_lit/exercises.py",
            '"ex-positions-1": Reference(',
            '"ex-positions-2": Reference(',
            "ex-positions-1: is to be checked, but has no reference",
        ),
    ],
)
def test_a_fault_among_the_exercises_is_seen(house, path, old, new, complaint):
    replace(house / path, old, new)
    assert seen(house, "exercises", complaint)


def test_a_chapter_is_cut_at_its_headings_and_not_in_its_code(tools, tmp_path):
    text = tmp_path / "99_x.md"
    text.write_text(
        "# Title\n\nAbove.\n\n```{code-cell} ipython3\n# no heading\n```\n\n"
        "```{code-block} python\n## no heading\n```\n\n"
        "## A $d_k$, and more\n\n[six\nlayers](#f-3.1.N_enc)\n"
    )
    first, second = tools("ledger").sections(text)
    assert first.heading == first.title == "Title"
    assert first.link == "[Title](../notebooks/99_x.ipynb)"
    assert "no heading" not in first.prose
    assert "99_x.html#a-d-k-and-more)" in second.link
    assert tools("ledger").LINK.findall(second.prose) == [
        ("six\nlayers", "3.1.N_enc")
    ]


@pytest.mark.parametrize(
    ("box", "claims"),
    [
        ("*It is so.* It is not.", ["*It is so.*"]),
        ("*One*, and *two*. No.", ["*One*, and *two*"]),
        ('"It is\nso." It is *not*.', ['"It is so."']),
        ("A tutorial writes $x$. No.", ["A tutorial writes $x$."]),
        ("\n*One.* No.\n\n*Two.* No.\n\nIn truth.", ["*One.*", "*Two.*"]),
        ("*Self-attention is in*variant. No.", None),
    ],
)
def test_a_claim_is_what_people_say(tools, box, claims):
    found = tools("ledger").claims(f":class: warning\n{box}\n")
    assert found == claims if claims else found[0].endswith("variant.")


def test_every_link_to_a_section_arrives():
    if not (HTML / "book" / "coverage.html").exists():
        pytest.skip("made by `make book`")
    for name in PAGES.values():
        page = (HTML / "book" / f"{name}.html").read_text(encoding="utf-8")
        links = re.findall(r'href="\.\./(notebooks/\w+\.html)#([^"]+)"', page)
        assert len(links) > 10
        for file, anchor in set(links):
            html = (HTML / file).read_text(encoding="utf-8")
            assert f'id="{anchor}"' in html, (name, file, anchor)


# The check of the readers' solutions ----------------------------------------


@pytest.mark.parametrize("label", REFERENCES)
def test_the_reference_is_right_by_its_own_standard(label, capsys):
    check_solution(label, REFERENCES[label].answer)
    assert capsys.readouterr().out == f"{label}: right\n"


@pytest.mark.parametrize("label", REFERENCES)
def test_another_answer_is_not_right(label):
    right = REFERENCES[label].answer

    def shifted(*given):
        value = right(*given)
        if isinstance(value, torch.Tensor):
            return ~value if value.dtype == torch.bool else value + 0.1
        if isinstance(value, tuple):
            return tuple(part + 0.1 for part in value)
        return value + 0.1

    if callable(right):
        wrong = shifted
    elif isinstance(right, tuple):
        wrong = (*right[:-1], right[-1] * 1.02)
    else:
        wrong = right * 1.02
    with pytest.raises(WrongAnswerError, match=f"^{label}: .*expected"):
        check_solution(label, wrong)


@pytest.mark.parametrize(
    ("mine", "wanted", "message"),
    [
        (1.0, 2.0, "1, expected 2"),
        (None, 2.0, "None, expected a number"),
        (math.nan, 2.0, "nan, expected 2"),
        (torch.ones(2), 2.0, "a Tensor, expected a number"),
        ([1, 2], torch.ones(2), "a list, expected a tensor"),
        (torch.ones(2, 3), torch.ones(3, 2), "shape [2, 3], expected [3, 2]"),
        (
            torch.ones(2).double(),
            torch.ones(2),
            "torch.float64, expected torch.float32",
        ),
        (
            torch.tensor([[1.0, 2.0], [0.0, math.nan]]),
            torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
            "at [1, 0]: 0, expected 3 (2 of 4 differ)",
        ),
        (
            torch.tensor([True, True]),
            torch.tensor([True, False]),
            "at [1]: True, expected False (1 of 2 differ)",
        ),
        ((1.0, 3.0, 4.0), (1.0, 2.0, 5.0), "value 1: 3, expected 2; value 2"),
        ((1.0,), (1.0, 2.0), "a tuple, expected 2 values"),
        (3.0, (1.0, 2.0), "a float, expected 2 values"),
    ],
)
def test_a_difference_is_told(mine, wanted, message):
    assert difference(mine, wanted).startswith(message)


def test_rounding_is_no_difference():
    torch.manual_seed(0)
    for dtype, digits in ((torch.float32, 3e-4), (torch.float64, 1e-8)):
        x = torch.randn(50, dtype=dtype)
        most = x.abs().max()
        assert difference(x + digits * most, x) == ""
        assert difference(x + 3 * digits * most, x)
    assert difference(torch.tensor(2, requires_grad=False), 2.0) == ""
    grown = torch.ones(2, requires_grad=True) * 1
    assert difference(grown, torch.ones(2)) == ""


def test_a_function_is_judged_from_outside():
    reference = REFERENCES["ex-check-1"]

    def in_place(x):
        x -= x.amax(-1, keepdim=True)
        return x.softmax(-1)

    def fails(x):
        raise RuntimeError("no")

    assert "it changed its input" in try_out(in_place, reference)
    assert "it raised RuntimeError: no" in try_out(fails, reference)
    assert "takes 1 positional" in try_out(
        lambda q: q, REFERENCES["ex-attention-window"]
    )
    assert try_out(0.5, reference) == "a float, expected a function"


def test_an_exercise_without_reference_is_named():
    with pytest.raises(ValueError, match=r"'ex-no'.*ex-attention-window"):
        check_solution("ex-no", 1)
    with pytest.raises(WrongAnswerError, match="a function, expected a number"):
        check_solution("ex-positions-1", lambda: 58)


def test_checking_leaves_the_global_generator_alone(capsys):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for label, reference in REFERENCES.items():
        check_solution(label, reference.answer)
    assert torch.equal(torch.rand(3), expected)
