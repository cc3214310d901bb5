"""The page of the tests against the tests: what it leaves to `make test-all`, and what finds the same defects until then."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from scripts.source_trees import tree_of

ROOT = Path(__file__).resolve().parents[3]
_ROW = re.compile(r"^\| `(?P<file>[\w/]+/test_\w+\.py)::(?P<test>test_\w+)` \| (?P<beside>.*) \|$", re.MULTILINE)
_NAMED = re.compile(r"`(?P<file>[\w/]+/test_\w+\.py)?(?:::)?(?P<test>test_\w+)?`")


@functools.cache
def _tests(file: str) -> dict[str, bool]:
    """Return the tests of a file, and True for those that `make test` runs, in one of their cases at least."""
    tree = tree_of(ROOT / "tests" / file)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    marks = [
        ast.unparse(n) for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"
    ]
    runs = not any("mark.full" in mark for mark in marks)
    return {f.name: runs and "pytest.mark.full" not in map(ast.unparse, f.decorator_list) for f in functions}


def test_what_is_left_to_the_whole_run_has_a_test_beside_it_that_runs() -> None:
    """Each test on the left is marked full, each on the right is not; a file on the right has some that are not."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    rows = list(_ROW.finditer(page))
    assert rows
    for row in rows:
        assert _tests(row["file"])[row["test"]] is False, f"{row['test']} runs in make test"
        for beside in _NAMED.finditer(row["beside"]):
            tests = _tests(beside["file"] or row["file"])
            runs = tests[beside["test"]] if beside["test"] else any(tests.values())
            assert runs, f"{beside[0]}, beside {row['test']}, is in make test-all alone"
