"""Each planted fault of mutants.py turns its named test red."""

import ast
import re

import mutants
import pytest
from mutants import MUTANTS, TESTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_turns_its_test_red(mutant, tmp_path):
    outcome = mutants.run(tmp_path, [mutant.test], mutant)
    assert outcome.red, outcome.text


def test_without_a_fault_the_same_way_of_running_is_green(tmp_path):
    # Were it not, red would mean nothing. That all named tests are green on
    # the package itself is what the rest of the suite shows.
    quick = sorted({m.test for m in MUTANTS if "test_masks" in m.test})
    outcome = mutants.run(tmp_path, quick)
    assert outcome.green, outcome.text
    assert outcome.passed == len(quick)


def test_an_error_is_no_red_test(tmp_path):
    # A fault that breaks the import must not count as found.
    broken = mutants.Mutant(
        "a missing name", "masks", "import torch\n", "", MUTANTS[0].test, "-"
    )
    outcome = mutants.run(tmp_path, [broken.test], broken)
    assert not outcome.red
    assert not outcome.green


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_table_fits_the_package(mutant):
    ast.parse(mutant.source())  # finds the snippet exactly once, or raises
    file, _, test = mutant.test.partition("::")
    names = re.findall(r"^def (test_\w+)", (TESTS / file).read_text(), re.M)
    assert test.partition("[")[0] in names


def test_the_table_has_no_double_and_prints():
    assert len(MUTANTS) >= 24
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    changes = {(m.module, m.snippet, m.replacement) for m in MUTANTS}
    assert len(changes) == len(MUTANTS)
    lines = mutants.table().splitlines()
    assert len(lines) == 2 + len(MUTANTS)
    assert all(line.count("|") == 5 for line in lines)
