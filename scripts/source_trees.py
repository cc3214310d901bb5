"""The source's files as text and as syntax trees, each read once in a process: for the rules and pages made of the source.

Rules are in `tests/test_*.py`, the texts that a page takes from the source in `error_texts.py`.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

ROOT = Path(__file__).resolve().parent.parent
# The folders that have Python.
ROOMS = (
    "lakeproof", "lakeproof_dagster", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests",
)  # fmt: skip
_A = TypeVar("_A", bound=ast.AST)
_B = TypeVar("_B", bound=ast.AST)
# A string with whatever is in it, or a comment: the tokens of Python in which a `#` stands.
_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|(#[^\n]*)',
    re.DOTALL,
)


@functools.cache
def python_files() -> list[Path]:
    """Return all modules, room by room."""
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@functools.cache
def text_of(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    with _no_collection():
        return ast.parse(text_of(path))


@overload
def nodes_of(path: Path, kind: type[_A], /) -> list[_A]: ...
@overload
def nodes_of(path: Path, kind: type[_A], other: type[_B], /) -> list[_A | _B]: ...
@overload
def nodes_of(path: Path, /, *kinds: type[ast.AST]) -> list[ast.AST]: ...
def nodes_of(path: Path, /, *kinds: type[ast.AST]) -> list[Any]:
    """Return the nodes of these kinds in a module's syntax tree, those of one kind from the outermost in."""
    return [node for kind in kinds for node in _by_kind(path).get(kind, ())]


@functools.cache
def docstrings_of(path: Path) -> list[tuple[int, str]]:
    """Return the docstrings of a module, its classes and functions, each with its line."""
    owners = [tree_of(path), *nodes_of(path, ast.ClassDef), *nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef)]
    return [(getattr(owner, "lineno", 1), text) for owner in owners if (text := ast.get_docstring(owner))]


def comments_of(path: Path) -> list[str]:
    """Return the comments of a module."""
    return [match[1] for match in _COMMENT.finditer(text_of(path)) if match[1]]


@functools.cache
def _by_kind(path: Path) -> dict[type[ast.AST], list[ast.AST]]:
    kinds: dict[type[ast.AST], list[ast.AST]] = {}
    # As `ast.walk` does it, which takes three times as long.
    waiting: list[ast.AST] = [tree_of(path)]
    with _no_collection():
        for node in waiting:
            kinds.setdefault(type(node), []).append(node)
            for part in node.__dict__.values():
                if isinstance(part, ast.AST):
                    waiting.append(part)
                elif isinstance(part, list):
                    waiting += [each for each in part if isinstance(each, ast.AST)]
    return kinds


@contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no cycles meanwhile: a tree has none, and with a million nodes each look takes longer than a parse."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
