"""What a room shows to the others: the modules that its `__init__` names in `__all__`, and no others.

How rooms are layered is in the import contracts of pyproject.toml. Tests may look into a room.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from scripts.source_trees import nodes_of

ROOT = Path(__file__).resolve().parent.parent
# The rooms that say what is public. A further room gets its `__all__`, and a place here.
ROOMS = (
    *("commands", "compaction", "config", "continuity", "drain", "follow", "landing", "metrics", "pgoutput", "proof"),
    *("publication", "snapshot", "state", "storage"),
)
_READERS = ("lakeproof", "lakeproof_dagster", "resources", "assets", "jobs", "orchestration", "bench", "demo")


def _imported(path: Path) -> Iterator[str]:
    yield from (alias.name for node in nodes_of(path, ast.Import) for alias in node.names)
    yield from (f"{node.module}.{alias.name}" for node in nodes_of(path, ast.ImportFrom) for alias in node.names)


def _used_from_outside(room: str) -> set[str]:
    """Return the modules and sub-rooms of a room that others import."""
    folder = ROOT / "lakeproof" / room
    files = (file for reader in _READERS for file in (ROOT / reader).rglob("*.py") if folder not in file.parents)
    names = {name.split(".")[2] for file in files for name in _imported(file) if name.startswith(f"lakeproof.{room}.")}
    return {name for name in names if (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_the_modules_that_others_import_and_no_others(room: str) -> None:
    """So a person who changes a module knows if anybody outside of its room is concerned."""
    assert sorted(import_module(f"lakeproof.{room}").__all__) == sorted(_used_from_outside(room))
