"""Somebody asks for the proof of a history or a view that is not there: nothing was compared, so nothing is called equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import place_of

pytestmark = pytest.mark.postgres


def test_what_is_not_there_is_not_equal(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing mistake is refused, and so is a view of another source; a table on its way into the lake is named."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE items")
    assert place.run("bootstrap")[0] == 0
    status, text = place.run("prove", "--histories", "public.items")
    assert (status, "history of public.items: not compared: the lake does not have it yet" in text) == (1, True)
    assert place.run("compact")[0] == 0
    status, text = place.run("prove", "--histories", "public.items")
    assert (status, "histories: 1 of 1 compared are equal" in text) == (0, True)
    status, text = place.run("prove", "--histories", "public.item")
    assert (status, "source shop does not have it; did you mean public.items?" in text) == (2, True)

    (tmp_path / "v.sql").write_text("SELECT * FROM i", encoding="utf-8")
    with place.file.open("a", encoding="utf-8") as file:
        file.write('  other: {dsn: "host=127.0.0.1 port=1 dbname=x", tables: [public.items]}\n')
        file.write("views:\n  v: {sql: v.sql, reads: {i: other/public.items}}\n")
    status, text = place.run("prove", "shop", "--views", "v")
    assert (status, "view v: it does not read source shop" in text) == (2, True)


def test_days_that_nobody_asks_for_start_no_spark(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistake is named at once, and not by a JVM."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    status, text = place.run("daily", "--days", "2026-01-01")
    assert (status, "`daily` of source shop selects no known table" in text) == (2, True)
    assert "Spark" not in text
    place.configure("tables: [public.items]", "daily: [public.items]")
    status, text = place.run("daily", "--days", "2999-01-01")
    assert (status, "it has not begun" in text, "Spark" in text) == (2, True, False)


def test_a_restore_without_an_archive_says_so(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to restore from, and that is what the error says."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE items")
    assert place.run("bootstrap")[0] == place.run("compact")[0] == 0
    status, text = place.run("maintain", "--restore", "public.items", "--nothing-else")
    assert (status, "no archive is configured" in text) == (2, True)
