"""Rules about files: a lake's are reached through its store, frames made in one place, a room's modules in its head."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.source_trees import nodes_of, text_of, tree_of

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("lakeproof", "resources", "assets", "jobs")
# Files that are no lake's, or that a person has named on this machine.
_LOCAL_FILES = {
    "lakeproof/cli/": "the terminal, and tracebacks",
    "lakeproof/config/": "the configuration and the secrets that it names",
    "lakeproof/state/machine.py": "it looks at this machine's disk",
    "lakeproof/drain/transactions/spill.py": "transactions in progress wait in temporary files",
    "lakeproof/failpoints.py": "a test holds a process by a file",
    "lakeproof/lake/records/lease.py": "processes, in /proc",
    "lakeproof/lake/spark/": "jars, Java and the driver's settings",
    "lakeproof/landing/inspect.py": "a person names a file on this machine",
    "lakeproof/storage/": "the stores: a local folder, and what an object store keeps on disk meanwhile",
    "resources/compute.py": "the configuration",
    "resources/run_session.py": "the configuration",
    "resources/settings.py": "the configuration",
}
_TOUCHES_A_FILE = re.compile(
    r"Path|open|(pq|parquet)\.(ParquetFile|read_\w+|write_\w+)|shutil\.(?!which|get_terminal_size)\w+"
    r"|os\.(fsync|link|listdir|makedirs|mkdir|open|remove|rename|replace|rmdir|scandir|stat|unlink|walk|path\.\w+)"
)


def _calls() -> list[tuple[str, str]]:
    """The calls that touch a local file: the module's name, and the place."""
    return [
        (name, f"{name}:{node.lineno}: {called}")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for name in [str(path.relative_to(ROOT))]
        for node in nodes_of(path, ast.Call)
        if _TOUCHES_A_FILE.fullmatch(called := ast.unparse(node.func))
    ]


def test_files_of_a_lake_are_reached_through_its_store() -> None:
    """A store of another kind has no folder: whoever turns a key into a path, or opens a URL, would go past it."""
    calls = _calls()
    past = [place for name, place in calls if not name.startswith(tuple(_LOCAL_FILES))]
    if past:
        pytest.fail("a file that is reached past the store:\n  " + "\n  ".join(past), pytrace=False)
    unused = [room for room in _LOCAL_FILES if not any(name.startswith(room) for name, _ in calls)]
    assert unused == [], "excused, and not needed"


# Each makes frames of another kind, or of rows that are in one piece.
_FRAMES = {
    "lakeproof/lake/rows/columns.py",
}


def test_rows_of_arrow_become_a_frame_in_one_place() -> None:
    """`rows.columns.relation`: of a table in pieces Spark 4.2 leaves out whatever comes after an empty one."""
    faults = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "lakeproof").rglob("*.py"))
        if ".createDataFrame(" in text_of(path)
    ]
    assert set(faults) <= _FRAMES


_IN_A_LIST = re.compile(r"(?:^|\s{2,})([a-z_0-9]+(?:\.py|/))(?=\s+\S)", re.MULTILINE)


def test_a_rooms_head_lists_its_modules() -> None:
    """All of them, and none that was moved or merged away; the picture of all rooms is in ARCHITECTURE.md."""
    faults = []
    for head in sorted((ROOT / "lakeproof").rglob("*/__init__.py")):
        text = ast.get_docstring(tree_of(head), clean=False) or ""
        listed = set(_IN_A_LIST.findall("\n".join(line for line in text.split("\n") if line.startswith("    "))))
        actual = {path.name for path in head.parent.glob("*.py")} - {head.name}
        actual |= {f"{path.parent.name}/" for path in head.parent.glob("*/__init__.py")}
        if head.parent.name != "lakeproof" and listed != actual:
            faults.append(f"{head.parent.relative_to(ROOT)}: {', '.join(sorted(listed ^ actual))}")
    assert faults == []


def test_a_module_that_prose_names_exists() -> None:
    """A module's file, in the head of another one: a reader opens it."""
    names = {
        path.name for room in (*ROOMS, "orchestration", "tests", "scripts") for path in (ROOT / room).rglob("*.py")
    }
    faults = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in (*ROOMS, "orchestration")
        for path in sorted((ROOT / room).rglob("*.py"))
        for name in re.findall(r"(?<![\w/.*{])([a-z_][a-z_0-9]*\.py)\b", ast.get_docstring(tree_of(path)) or "")
        if name not in names
    ]
    assert faults == []
