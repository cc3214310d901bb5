"""A table that no snapshot can copy is dropped: once the drain has seen it, its snapshot is read no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.server import EmbeddedPostgres
from lakeproof.config.load import load
from lakeproof.names import Incarnation
from lakeproof.snapshot.folder import settled_folders, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import new_database
from tests.support.servers.typed_commands import place_of

pytestmark = pytest.mark.postgres


def test_its_snapshot_is_settled_with_the_next_copy(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then the table is missing, and the source's `status` says so."""
    with new_database(postgres, "SQL_ASCII") as database:
        place = place_of(database, tmp_path, monkeypatch, capsys)
        database.execute(
            "CREATE TABLE bad (id int PRIMARY KEY, v text)",
            "INSERT INTO bad VALUES (1, convert_from('\\x636166e9', 'SQL_ASCII'))",
            f"CREATE PUBLICATION {database.name} FOR ALL TABLES",
        )
        place.configure()
        lake = SourceLake.open(load(place.file).location, "shop")

        def settled() -> list[bool]:
            marks = settled_folders(lake, Incarnation(1))
            return [folder in marks for folder in snapshot_folders(lake, Incarnation(1))]

        assert place.run("bootstrap")[0] != 0
        assert place.run("drain", "--once")[0] == 0
        status, text = place.run("compact")
        assert (status, "public.bad: it is published and not in the lake" in text) == (1, True)
        assert settled() == [False]
        assert place.lacking()[0] == 1
        database.execute("DROP TABLE bad", "UPDATE items SET name = 'later' WHERE id = 1")
        assert place.run("drain", "--once")[0] == 0
        assert place.run("bootstrap", "shop", "--tables", "public.items", "--again")[0] == 0
        assert place.catch_up() == [0] * 4
        assert settled() == [True, True]
        assert place.run("prove", "shop")[0] == 0
        assert place.run("status")[0] == 0
