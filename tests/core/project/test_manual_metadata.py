"""docs/dagster.md has every metadata key that the assets give, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.source_trees import nodes_of, text_of

ROOT = Path(__file__).parents[3]
# Values as metadata (`assets/support/metadata.py`): the keywords of these are keys.
_GIVE = {"lsns", "optional", "times"}
# They are in the metadata of checks, definitions and failed runs, which the page has elsewhere.
_ELSEWHERE = {"thing", "reason_for_end", "remedy", "sql_file", "source", "publication", "configuration", "type"}


def _keys() -> Iterator[str]:
    for path in sorted((ROOT / "assets").rglob("*.py")):
        for node in nodes_of(path, ast.Call):
            called = ast.unparse(node.func)
            if called.startswith("md.") and called[3:] in _GIVE:
                yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            given = node.args if called == "md.merged" else [k.value for k in node.keywords if k.arg == "metadata"]
            yield from (
                str(key.value)
                for argument in given
                for part in ast.walk(argument)
                if isinstance(part, ast.Dict)
                for key in part.keys
                if isinstance(key, ast.Constant)
            )


def _section() -> str:
    return (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8").split("\n## Metadata\n")[1].split("\n## ")[0]


def _texts() -> set[str]:
    """Return every name and text in the assets and in the engine's reports, which give keys of their own."""
    return {
        text
        for folder in ("assets", "lakeproof")
        for path in (ROOT / folder).rglob("*.py")
        for text in re.findall(r"[\w/]+", text_of(path))
    }


def test_the_page_has_every_key() -> None:
    """A value without a meaning on the page would be a riddle in the UI."""
    named = set(re.findall(r"`([\w/…<>]+)`", _section()))
    endings = tuple(name.lstrip("…") for name in named if name.startswith("…"))
    beginnings = tuple(name.rstrip("…") for name in named if name.endswith("…"))
    keys = set(_keys()) - _ELSEWHERE
    assert len(keys) > 40
    assert sorted(key for key in keys - named if not key.endswith(endings) and not key.startswith(beginnings)) == []


def test_the_page_has_no_key_that_is_gone() -> None:
    """Every name in the table is somewhere in the code that gives metadata."""
    rows = [line.split(" | ", 1)[1] for line in _section().splitlines() if line.startswith("| `") or "| all |" in line]
    named = {name.removesuffix("_int") for row in rows for name in re.findall(r"`([a-z_/]+)`", row)}
    texts = _texts()
    assert sorted(name for name in named if not {name, name.removesuffix("_at")} & texts) == []
