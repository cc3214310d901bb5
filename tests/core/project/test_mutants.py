"""The mutants of `scripts/mutants.py`: each is a program that differs from the file in one place of one line."""

from __future__ import annotations

import ast

from scripts.mutants import ROOT, mutants


def test_each_mutant_is_a_program_that_differs_in_one_line() -> None:
    """Comparisons, operators, constants and calls of a real file; one that is no program would count as noticed."""
    path = ROOT / "lakeproof" / "drain" / "transactions" / "units.py"
    text = path.read_text(encoding="utf-8")
    every = list(mutants(path))
    assert len(every) > 10
    for mutant in every:
        changed = mutant.apply(text)
        ast.parse(changed)
        differing = [pair for pair in zip(text.split("\n"), changed.split("\n"), strict=True) if pair[0] != pair[1]]
        assert len(differing) == 1, mutant
    assert {mutant.after for mutant in every} & {"<=", ">=", "or", "and", "!="}


def test_what_no_test_of_behaviour_looks_at_is_left_alone() -> None:
    """Annotations, failpoints and the texts of errors are no mutants."""
    path = ROOT / "lakeproof" / "lake" / "delta" / "committer.py"
    lines = path.read_text(encoding="utf-8").split("\n")
    assert not [mutant for mutant in mutants(path) if "failpoint(" in lines[mutant.line - 1]]
