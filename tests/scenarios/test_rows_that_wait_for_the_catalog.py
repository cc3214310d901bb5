"""A table is made in the stream and its rows have landed, but the landing has not come to the reading of the catalog.

A compaction makes its cut without it: `compact`, `status` and `bootstrap --held` name it, with what brings it in. On its way
into the lake it is lacking twice, without its rows and without a proof, and nothing else is when it has both.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact
from lakeproof.commands.prove import prove
from lakeproof.commands.refresh import refresh
from lakeproof.config import load
from lakeproof.config.model import Config
from lakeproof.events import Stop, silent
from lakeproof.lake.records.view_cuts import view_path
from lakeproof.storage.open import open_store
from tests.fix_lake import TABLES_ALONE, into_the_lake
from tests.fix_postgres import Database
from tests.foreign_commits import foreign_commit
from tests.typed_commands import Place, place_of

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A place with one table that is not published yet."""
    return place_of(database, tmp_path, monkeypatch, capsys)


def _config(place: Place) -> Config:
    """Publish everything, with a view over the first table."""
    place.database.execute(f"CREATE PUBLICATION {place.database.name} FOR ALL TABLES")
    place.configure()
    (place.file.parent / "v.sql").write_text("SELECT name, count(*) AS n FROM i GROUP BY name")
    with place.file.open("a") as file:
        file.write("views:\n  v: {sql: v.sql, reads: {i: shop/public.items}}\n")
    return load(place.file)


def _equal(config: Config, spark: SparkSession) -> None:
    """Every table of the lake has the source's rows."""
    proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
    assert {table.status for table in proof.tables.values()} == {"equal"}


def test_landed_rows_without_their_table_are_named_until_they_are_in_the_lake_and_proved(
    place: Place, spark: SparkSession
) -> None:
    """Status 1 of `status` and `compact` all the while, and 0 at the end; a view that somebody else wrote is no other."""
    config = _config(place)
    assert place.run("bootstrap")[0] == 0
    into_the_lake(config, spark)
    status, lacking = place.lacking()
    assert (status, lacking["unproved"]) == (1, ["public.items"])
    assert (
        "lacking    never compared with the source: public.items; run `lakeproof prove shop`" in place.run("status")[1]
    )
    _equal(config, spark)
    assert place.run("status")[0] == 0

    place.database.execute(
        "CREATE TABLE another (id int PRIMARY KEY, v text)",
        "ALTER TABLE another RENAME TO fresh",
        "INSERT INTO fresh VALUES (1, 'a')",
    )
    end = place.database.value("SELECT pg_current_wal_lsn()::text")
    # Log that no stream has: the catalog is read past the table's rows.
    place.database.execute("SELECT pg_create_restore_point('p') FROM generate_series(1, 200)")
    assert place.run("drain", "--until-lsn", end)[0] == 0
    compact(config, "shop", spark, silent, Stop())
    words = "its rows come from the stream, and it waits until the landing has passed"
    for command, expected in ((("compact",), 1), (("status",), 1), (("bootstrap", "--held"), 0)):
        status, text = place.run(*command)
        assert (status, words in text, "run `lakeproof drain shop --once`" in text) == (expected, True, True), text

    into_the_lake(config, spark)
    status, lacking = place.lacking()
    assert (status, lacking["absent"], lacking["unproved"]) == (1, {}, ["public.fresh"])
    assert "1 of 2 tables equal" in place.run("status")[1]
    _equal(config, spark)
    assert [place.run(command)[0] for command in ("compact", "status", "check")] == [0, 0, 0]

    refresh(config, "v", spark, silent)
    assert place.run("status")[0] == 0
    path = view_path(open_store(config.location), "v")
    foreign_commit(spark, "DELETE FROM THE_TABLE WHERE name = 'item 1'", f"delta.`{path}`")
    status, text = place.run("status")
    assert status == 1
    assert "lacking    view v: somebody else wrote its table: version 1 was committed by someone else; run" in text
    refresh(config, "v", spark, silent)
    assert place.run("status")[0] == 0
