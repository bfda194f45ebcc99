"""Write the page `machine`: the miniature, computed and drawn in a browser.

    python tools/machine.py            write what is out of date
    python tools/machine.py --check    exit 1 and name what is out of date
    python tools/machine.py --picture  take book/machine.png, through Chromium

From machine/ (scripts, style), book/machine.md (the walk), book/ledger.yml and
the shipped weights come, in book/_extra:

    machine/data.js       sizes, vocabulary, weights and their checksum
    machine/machine.js    every script, and the style
    machine.html          all of it in one file that needs nothing else
"""

import base64
import hashlib
import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import yaml
from chapters import BOOK, PACKAGE, ROOT
from markdown_it import MarkdownIt
from safetensors.numpy import load_file

from transformer_lit.numbers import NumberVocabulary

MODEL = PACKAGE / "models" / "numbers"
EXTRA = BOOK / "_extra"
SCRIPTS = (
    "numbers forward search layout explain steps paint stage tree page".split()
)
FACT = re.compile(r'<a href="#f-([^"]+)">')
CHAPTER = re.compile(r'<a href="\.\./[^"]*">(.*?)</a>', re.S)
LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)
FENCE = re.compile(r"^```.*?^```\n", re.M | re.S)


def names(n_layers: int) -> dict[str, str]:
    """The page's short names of the weights, and the model's."""
    found = {"E": "output.weight"}
    parts = {"encoder": ["self", "ffn"], "decoder": ["self", "cross", "ffn"]}
    for stack, layer in ((s, n) for s in parts for n in range(n_layers)):
        for number, part in enumerate(parts[stack], start=1):
            there = f"{stack}.layers.{layer}"
            here = f"{stack}.{layer + 1}.{part}"
            ffn = part == "ffn"
            module = "feed_forward" if ffn else f"{part}_attention"
            for x in "12" if ffn else "qkvo":
                found[f"{here}.{x}.w"] = f"{there}.{module}.w_{x}.weight"
                found[f"{here}.{x}.b"] = f"{there}.{module}.w_{x}.bias"
            for x in ("gain", "bias"):
                found[f"{here}.{x}"] = f"{there}.residual_{number}.norm.{x}"
    return found


def data() -> str:
    """The model as a script: one string of base64 float32, and its parts."""
    config = json.loads((MODEL / "config.json").read_text("utf-8"))["model"]
    weights = load_file(MODEL / "weights.safetensors")
    here = names(config["n_layers"])
    assert set(here.values()) == set(weights), "a weight has no name"
    tensors, at = [], 0
    for name, there in here.items():
        tensors.append([name, list(weights[there].shape), at])
        at += weights[there].size
    flat = np.concatenate([weights[there].ravel() for there in here.values()])
    file = (MODEL / "weights.safetensors").read_bytes()
    found = {
        "config": config,
        "tokens": NumberVocabulary().tokens,
        "sha256": hashlib.sha256(file).hexdigest(),
        "tensors": tensors,
        "weights": base64.b64encode(flat.astype("<f4").tobytes()).decode(),
    }
    return f"TL.data = {json.dumps(found, ensure_ascii=False)};\n"


def scripts() -> str:
    """All scripts in one; the first makes the global name TL."""
    parts = [(ROOT / "machine" / f"{s}.js").read_text("utf-8") for s in SCRIPTS]
    style = (ROOT / "machine" / "machine.css").read_text("utf-8")
    return "".join([*parts, f"TL.style = {json.dumps(style)};\n"])


def walk() -> str:
    """The walk as HTML: a section for each step, facts with their words."""
    rows = {r["id"]: r for r in yaml.safe_load((BOOK / "ledger.yml").open())}
    used: list[str] = []

    def fact(match: re.Match[str]) -> str:
        name = match.group(1)
        used.append(name)
        words = html.escape(rows[name].get("quote") or rows[name]["what"])
        return f'<a class="fact" href="#f-{name}" title="{words}">'

    text = (BOOK / "machine.md").read_text("utf-8")
    plain = LABEL.sub("", FENCE.sub("", text))
    body = MarkdownIt().enable("table").render(plain)
    body = CHAPTER.sub(r"\1", FACT.sub(fact, body))
    head, *steps = body.split("<h2>")
    facts = "".join(
        f'<li id="f-{name}"><b>{name}</b> {html.escape(str(rows[name]["what"]))}.'
        f" “{html.escape(rows[name].get('quote', ''))}”</li>\n"
        for name in sorted(set(used))
    )
    sections = [
        f'<section id="step-{n}"><h2>{step}</section>\n'
        for n, step in enumerate(steps, start=1)
    ]
    return (
        f"<header>{head}</header>\n{''.join(sections)}"
        "<details><summary>Facts of the paper used here, in its words"
        f"</summary><ul>\n{facts}</ul></details>\n"
    )


def whole() -> str:
    """The one file."""
    page = (ROOT / "machine" / "machine.html").read_text("utf-8")
    parts = {"WALK": walk(), "SCRIPTS": scripts() + data()}
    for name, part in parts.items():
        page = page.replace(f"<!-- {name} -->", part)
    return page


def picture() -> None:
    """What stands where no script runs: the stage at rest."""
    from chromium import started
    from PIL import Image

    file = BOOK / "machine.png"
    view = {"width": 1500, "height": 1000}
    with started() as browser:
        tab = browser.new_page(viewport=view, reduced_motion="reduce")
        tab.goto((EXTRA / "machine.html").as_uri())
        tab.wait_for_selector("[data-state=ready]")
        tab.wait_for_timeout(500)
        tab.locator("canvas").screenshot(path=file)
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


def main() -> int:
    written = {
        EXTRA / "machine" / "data.js": data(),
        EXTRA / "machine" / "machine.js": scripts(),
        EXTRA / "machine.html": whole(),
    }
    stale = [p for p, text in written.items() if not same(p, text)]
    for path in stale:
        if "--check" in sys.argv:
            print(
                f"{path.relative_to(ROOT)} is out of date; run tools/machine.py"
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written[path], encoding="utf-8")
    if "--picture" in sys.argv:
        picture()
    return 1 if stale and "--check" in sys.argv else 0


def same(path: Path, text: str) -> bool:
    """Whether a file holds a text."""
    return path.is_file() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
