"""Small figures that can be touched, in a notebook and in a page.

    import transformer_lit as tl

    tl.viz.show("heads", tokens, attention)  # of any model
    tl.viz.show("rate", warmup=2000)

A figure is one self-contained output: nothing is loaded, stored or sent. Its
picture and its table are made by Python and stand without JavaScript; with
it, the controls redraw both.
"""

import html
import json
import os
from collections.abc import Callable
from importlib import resources
from typing import Any

from transformer_lit.viz import (
    ablations,
    beam,
    curves,
    heads,
    masks,
    rate,
    rotation,
    softmax,
)
from transformer_lit.viz.story import Story, number_text

KINDS: dict[str, Callable[..., Story]] = {
    "heads": heads.heads,
    "masks": masks.masks,
    "rotation": rotation.rotation,
    "softmax": softmax.softmax,
    "rate": rate.rate,
    "beam": beam.beam,
    "curves": curves.curves,
    "ablations": ablations.ablations,
}
"""Every kind of figure: what makes its story."""

PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title><style>{css}</style></head><body>
<figure data-viz="{kind}" data-state="static">
<figcaption>{title}</figcaption>
<p class="reading">{reading} <span class="trying">{trying}</span></p>
<form></form>
<div class="picture static">{picture}</div>
<p class="summary" role="status">{summary}</p>
<details><summary>The values as a table</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Values">{table}</div>
</details>
</figure>
<script type="application/json">{data}</script>
<script>{js}</script>
</body></html>
"""
"""The figure as a document of its own."""

START = """\
TL.start(document.querySelector("figure"),
  document.querySelector("[type='application/json']").textContent);
"""
"""The last line of its script."""

OUTPUT = """\
<figure style="display: grid; width: 100%; max-width: 752px; margin: 0 auto">
<div style="grid-area: 1 / 1; min-width: 0"><img alt="{alt}" style="width: 100%" \
src='data:image/svg+xml,{image}'><p>{reading} {summary}</p></div>
<iframe title="{title}" style="grid-area: 1 / 1; width: 100%; border: 0; \
height: {height}px" srcdoc='{page}'></iframe>
</figure>
"""
"""What a notebook keeps: a picture, and over it the document in a frame. Who
takes frames away, as GitHub's viewer does, shows the picture."""

CONTROLS = 300
"""Pixels of height that controls, text and table take beside the picture,
until the page itself has measured them."""


def shipped(name: str) -> str:
    """The text of a file that lies beside this one."""
    return resources.files(__name__).joinpath(name).read_text("utf-8")


def table_html(story: Story) -> str:
    """The table of values; each number also in full, as `data-value`."""
    cells = "".join(
        f'<th scope="col">{html.escape(h)}</th>' for h in story.head
    )
    lines = [f"<thead><tr>{cells}</tr></thead><tbody>"]
    for first, *rest in story.rows:
        line = f'<th scope="row">{html.escape(str(first))}</th>'
        for value in rest:
            shown = html.escape(number_text(value, story.digits))
            full = "" if isinstance(value, str) else f' data-value="{value!r}"'
            line += f"<td{full}>{shown}</td>"
        lines.append(f"<tr>{line}</tr>")
    return "<table>" + "".join(lines) + "</tbody></table>"


class Live:
    """A figure that can be touched; Jupyter shows it.

    Args:
        story: what it shows, from one of `KINDS`.

    Attributes:
        story: the same.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.picture, self.height = story.svg()

    def page(self) -> str:
        """The figure as one HTML document that needs nothing else."""
        data = json.dumps(self.story.data, ensure_ascii=False, allow_nan=False)
        return PAGE.format(
            kind=self.story.kind,
            title=html.escape(self.story.title),
            reading=html.escape(self.story.reading),
            trying=html.escape(self.story.trying),
            css=shipped("figures.css"),
            picture=self.picture,
            summary=html.escape(self.story.summary),
            table=table_html(self.story),
            data=data.replace("<", "\\u003c"),  # nothing there is a tag
            js=shipped("core.js") + shipped(f"{self.story.kind}.js") + START,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `page()` to a file, to be opened, sent or embedded."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page())

    def output(self) -> str:
        """The HTML of a notebook's output."""
        return OUTPUT.format(
            alt=html.escape(f"{self.story.title}. {self.story.summary}"),
            image=data_uri(self.picture),
            reading=html.escape(self.story.reading),
            summary=html.escape(self.story.summary),
            title=html.escape(self.story.title),
            height=self.height + CONTROLS,
            page=quoted(self.page()),
        )

    def __repr__(self) -> str:
        lines = [self.story.title, self.story.summary]
        for row in [self.story.head, *self.story.rows[:8]]:
            shown = [number_text(value, self.story.digits) for value in row[:8]]
            lines.append("  ".join(f"{text:>8}" for text in shown).rstrip())
        return "\n".join(lines)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """What Jupyter asks for."""
        return {"text/html": self.output(), "text/plain": repr(self)}


def data_uri(svg: str) -> str:
    """A picture as the end of a `data:` address inside an attribute."""
    for sign, code in (("%", "%25"), ("#", "%23"), ("\n", "%0A")):
        svg = svg.replace(sign, code)
    return quoted(svg)


def quoted(text: str) -> str:
    """A text for an attribute in single quotes: little has to be escaped."""
    return text.replace("&", "&amp;").replace("'", "&#39;")


def show(kind: str, /, *arguments: Any, **options: Any) -> Live:
    """A figure to look at and to touch.

    Args:
        kind: one of `KINDS`; `help(tl.viz.KINDS["heads"])` tells what it takes.
        arguments, options: what to show, see there.

    Raises:
        ValueError: there is no such kind, or nothing can be shown of what
            was given; the message says what to give instead.
    """
    import matplotlib.pyplot as plt

    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is none of {', '.join(KINDS)}")
    with plt.rc_context({"text.parse_math": False}):  # a token may have a $
        return Live(KINDS[kind](*arguments, **options))


__all__ = ["KINDS", "Live", "Story", "show"]
