"""`lakeproof compact` of ordinary tables: it ends with status 0 and a table of its cuts, and starts no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeproof
from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.load import load
from lakeproof.drain.until import Until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres]


def test_it_ends_with_a_table_of_its_cuts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy, changes, and nothing to do: each with its text and status 0."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE PUBLICATION pub FOR TABLE orders",
    )
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    path = write_source(tmp_path, database, "    tables: [public.orders]\n")
    config = load(path)
    bootstrap(config, "shop")
    assert _compacted(path, capsys).split() == ["1", "1", "3", "0", "0"]
    database.execute("UPDATE orders SET v = 10 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    drain(config, "shop", Until.caught_up())
    assert _compacted(path, capsys).split() == ["2", "1", "0", "2", "0"]
    assert "nothing to do" in _compacted(path, capsys)
    rows = lakeproof.read(config).table("shop", "public.orders").arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == database.rows("SELECT id, v FROM orders ORDER BY id")


def _compacted(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Compact, and return the last line without its position."""
    assert main(["--config", str(path), "compact", "shop"]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    return " ".join(word for word in last.split() if "/" not in word)
