"""The house: one version, one address, what the package carries."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

import transformer_lit as tl
from transformer_lit.records import load_record

ROOT = Path(__file__).resolve().parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
SHIPPED = ROOT / "transformer_lit" / "models" / "numbers"


def tracked():
    """The text files of the repository."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    names = subprocess.check_output(command, text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    assert tl.__version__ == version
    assert CONFIG["html"]["extra_footer"].endswith(f" {version}")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version


def test_the_address_stands_in_one_place():
    # Notebooks carry it, written there by tools/pair.py.
    holders = [
        path.relative_to(ROOT).as_posix()
        for path in tracked()
        if path.suffix in {".md", ".yml", ".py", ".toml", ".cff", ""}
        and CONFIG["repository"]["url"] in path.read_text(errors="ignore")
    ]
    assert holders == ["_config.yml"]


def test_every_chapter_is_in_the_table_of_contents():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = [entry["file"] for entry in toc["chapters"]]
    chapters = [f"notebooks/{p.stem}" for p in ROOT.glob("book/[0-9]*.md")]
    assert [f for f in listed if f.startswith("notebooks/")] == sorted(chapters)


def test_a_chapter_imports_only_from_earlier_ones():
    homes, position = {}, {}
    for number, path in enumerate(sorted(ROOT.glob("book/[0-9]*.md"))):
        position[path.stem] = number
    for path in (ROOT / "transformer_lit").glob("[a-z]*.py"):
        source = path.read_text(encoding="utf-8")
        homes[path.stem] = re.search(r"^From book/(\w+)\.md", source, re.M)[1]
    for path in (ROOT / "transformer_lit").glob("[a-z]*.py"):
        source = path.read_text(encoding="utf-8")
        for name in re.findall(
            r"^\s*from transformer_lit\.(\w+)", source, re.M
        ):
            assert position[homes[name]] <= position[homes[path.stem]], path


def test_the_workflow_is_the_ci_script():
    workflow = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "test.yml").read_text()
    )
    runs = [s["run"] for s in workflow["jobs"]["test"]["steps"] if "run" in s]
    assert runs == ["bash .ci/run"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_the_readme_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "make book" in readme
    assert "make test" in readme
    for link in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / link).exists(), link


def test_the_miniature_is_small_and_has_no_pickle():
    files = sorted(path.name for path in SHIPPED.iterdir())
    assert files == ["config.json", "vocabulary.json", "weights.safetensors"]
    assert sum(p.stat().st_size for p in SHIPPED.iterdir()) < 400_000
    weights = load_file(SHIPPED / "weights.safetensors")
    total = sum(tensor.numel() for tensor in weights.values())
    assert total == 61_504


def test_the_record_belongs_to_the_shipped_weights():
    import hashlib

    record = load_record("numbers")
    weights = (SHIPPED / "weights.safetensors").read_bytes()
    assert record["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert len({run["seed"] for run in record["runs"]}) == 3
    for run in record["runs"]:
        assert run["tested_on"] == 20_000
        assert run["exact_match"] >= 0.999
        assert run["seconds"] <= 120


def test_the_shipped_miniature_is_as_good_as_recorded():
    from transformer_lit.numbers import held_out_sample

    record = load_record("numbers")
    numbers = held_out_sample(20_000, seed=0)
    match = tl.exact_match(tl.Translator.load("numbers"), numbers)
    [run] = [
        run for run in record["runs"] if run["seed"] == record["shipped_seed"]
    ]
    # Another processor may round a rare near-tie the other way.
    assert abs(match - run["exact_match"]) <= 0.0002


def test_every_small_number_is_right():
    from transformer_lit.numbers import english, german

    outputs = tl.Translator.load("numbers").translate(
        [english(number) for number in range(1000)]
    )
    assert outputs == [german(number) for number in range(1000)]


def test_an_unknown_record_is_named():
    with pytest.raises(ValueError, match="results/nothing"):
        load_record("nothing")


def test_results_are_json():
    for path in (ROOT / "results").glob("*.json"):
        json.loads(path.read_text())


def test_no_upper_bounds_and_no_pin():
    # Installing the package must not replace a torch that is there.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for need in project["dependencies"]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+", need), need


def test_no_text_names_a_folder_of_one_machine():
    folder = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/\w")
    for path in tracked():
        if path.suffix in {".md", ".ipynb", ".json", ".yml", ".toml", ".sh"}:
            found = folder.search(path.read_text(encoding="utf-8"))
            assert not found, f"{path}: {found}"
