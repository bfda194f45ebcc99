"""Settings for every test: one thread, the same examples each time."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, settings

# `reference` is imported by its name, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))
# Failed comparisons in there shall show their values, as in the tests.
pytest.register_assert_rewrite("reference")

# The tests are many small sums: threads would only get in each other's way.
torch.set_num_threads(1)

settings.register_profile(
    "book",
    derandomize=True,  # the same examples on every machine, on every day
    deadline=None,  # no test may depend on time
    max_examples=20,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
# For tests/mutants.py: a red test is enough, its smallest example is not
# asked for.
settings.register_profile(
    "mutants",
    settings.get_profile("book"),
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("book")


@pytest.fixture(scope="session")
def tools():
    """A module of tools/ by its name, for tests that call its functions."""
    folder = str(Path(__file__).resolve().parents[1] / "tools")

    def load(name):
        # The tools stay out of the path: their names are common words.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [folder, *sys.path])
            return importlib.import_module(name)

    return load


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start every test from the same random numbers, in any order."""
    torch.manual_seed(0)
