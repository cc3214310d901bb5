"""Rules about generic classes: what mypy takes, and a Python that lakeproof runs on refuses when it gets there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.source_trees import nodes_of, text_of

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "lakeproof", "lakeproof_dagster", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests",
)  # fmt: skip


def _python() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def _none(actual: list[str], rule: str) -> None:
    if actual:
        pytest.fail(rule + ":\n  " + "\n  ".join(actual), pytrace=False)


def test_no_class_is_generic_that_python_3_10_has_not_as_such() -> None:
    """For mypy these are generic, for Python from 3.11 on: a module with such a base does not load on 3.10."""
    base = re.compile(r"^\s*class .*(StreamHandler|LoggerAdapter)\[", re.MULTILINE)
    actual = [str(path.relative_to(ROOT)) for path in _python() if base.search(text_of(path))]
    _none(actual, "a base that Python 3.10 can't load")


def test_no_frozen_value_is_made_with_type_arguments() -> None:
    """`Frozen[T](…)` of a dataclass with slots raises TypeError up to Python 3.11; `Frozen(…)` never does."""
    frozen = {node.name for path in _python() for node in nodes_of(path, ast.ClassDef) if _is_frozen_generic(node)}
    assert "NetChange" in frozen
    actual = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in _python()
        for node in nodes_of(path, ast.Call)
        if isinstance(node.func, ast.Subscript) and ast.unparse(node.func.value).rpartition(".")[2] in frozen
    ]
    _none(actual, "a frozen value that Python 3.11 can't make")


def _is_frozen_generic(node: ast.ClassDef) -> bool:
    return any("Generic[" in ast.unparse(base) for base in node.bases) and {"frozen", "slots"} <= {*_options(node)}


def _options(node: ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)
