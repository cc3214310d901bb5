"""The packages that a command loads: help loads none, and a status of a lake with tables none that compute.

What needs no Spark is in `tests/core/cli/test_imports_without_spark.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakeproof.cli.main import main
from tests.support.servers.fix_postgres import Database

# Prints the packages that are loaded at the command's end, and how many of our modules.
_PROGRAM = """
import json, sys
from lakeproof.cli.main import main
status = main(sys.argv[1:])
ours = [name for name in sys.modules if name.partition(".")[0] == "lakeproof"]
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules}), len(ours)]))
"""
_COMPUTING = {"pyarrow", "pandas", "numpy", "numba", "pyspark", "py4j", "delta", "obstore"}


def _loaded(*words: str) -> tuple[int, set[str], int]:
    """The exit status of a command, what is loaded at its end, and the number of our modules."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, check=True)
    status, packages, ours = json.loads(done.stdout.splitlines()[-1])
    return status, set(packages), ours


@pytest.mark.parametrize("words", [["--help"], ["compact", "--help"], ["--version"], ["drian"]])
def test_help_and_mistakes_of_the_command_line_load_nothing(words: list[str]) -> None:
    """Code that reads the configuration or asks a server stays out: help is there in a tenth of a second."""
    _, packages, ours = _loaded(*words)
    assert not packages & (_COMPUTING | {"pydantic", "yaml", "psycopg", "asyncio", "importlib_metadata"})
    assert ours < 25


@pytest.mark.postgres
def test_a_status_loads_nothing_that_computes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads documents and asks the server, also if changes wait for a compaction."""
    monkeypatch.setenv("SOURCE_DSN", database.dsn)
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)", "CREATE PUBLICATION pub FOR TABLE orders")
    file = tmp_path / "lakeproof.yaml"
    file.write_text(
        "lake: lake\nsources:\n  shop:\n    dsn: {env: SOURCE_DSN}\n    buckets: 4\n"
        f"    publication: pub\n    slot: {database.name}\n"
    )
    assert main(["-c", str(file), "bootstrap"]) == 0
    for note in ("a", "b"):
        database.execute(f"INSERT INTO orders SELECT count(*), '{note}' FROM orders")  # noqa: S608  (a letter)
        assert main(["-c", str(file), "drain", "--once"]) == 0
        assert main(["-c", str(file), "compact"]) == 0
    database.execute("INSERT INTO orders VALUES (7, 'c')")
    assert main(["-c", str(file), "drain", "--once"]) == 0
    _, packages, ours = _loaded("-c", str(file), "status")
    assert not packages & _COMPUTING
    assert ours < 170
