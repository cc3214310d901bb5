"""Rules about generic classes: what mypy takes, and a Python that lakeproof runs on refuses when it gets there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scripts.source_trees import ROOT, nodes_of, python_files, text_of


def test_no_class_is_generic_that_python_3_10_has_not_as_such() -> None:
    """For mypy these are generic, for Python from 3.11 on: a module with such a base does not load on 3.10."""
    base = re.compile(r"^\s*class .*(StreamHandler|LoggerAdapter)\[", re.MULTILINE)
    actual = [str(path.relative_to(ROOT)) for path in python_files() if base.search(text_of(path))]
    assert actual == []


def test_no_frozen_value_is_made_with_type_arguments() -> None:
    """`Frozen[T](…)` of a dataclass with slots raises TypeError up to Python 3.11; `Frozen(…)` never does."""
    frozen = {node.name for path in python_files() for node in nodes_of(path, ast.ClassDef) if _is_frozen_generic(node)}
    assert "NetChange" in frozen
    actual = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in python_files()
        for node in nodes_of(path, ast.Call)
        if isinstance(node.func, ast.Subscript) and ast.unparse(node.func.value).rpartition(".")[2] in frozen
    ]
    assert actual == []


def _is_frozen_generic(node: ast.ClassDef) -> bool:
    return any("Generic[" in ast.unparse(base) for base in node.bases) and {"frozen", "slots"} <= {*_options(node)}


def _options(node: ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)
