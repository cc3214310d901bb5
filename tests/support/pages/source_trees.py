"""The source's files as text and as syntax trees, each read once in a process: for the rules that are tests."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def text_of(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(text_of(path))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a module's syntax tree."""
    return list(ast.walk(tree_of(path)))
