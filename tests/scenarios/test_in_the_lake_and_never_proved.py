"""A table comes into the lake and no proof has compared it, somebody else writes a view: `status` ends with 1 for either."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL
from pyspark.sql import SparkSession

from lakeproof.commands.prove import prove
from lakeproof.commands.refresh import refresh
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.events import silent
from lakeproof.lake.records.views.cuts import view_path
from lakeproof.storage.open import open_store
from tests.support.faults.foreign_commits import foreign_commit
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

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


@pytest.mark.full
def test_what_is_not_proved_and_what_somebody_else_wrote_is_lacking(place: Place, spark: SparkSession) -> None:
    """A proof ends the one and a refresh the other; a table that was made in the stream is as new as a copied one."""
    config = _config(place)
    assert place.run("bootstrap")[0] == 0
    into_the_lake(config, spark)
    status, lacking = place.lacking()
    assert (status, lacking["unproved"]) == (1, ["public.items"])
    text = place.run("status")[1]
    assert "lacking    never compared with the source: public.items; run `lakeproof prove shop`" in text
    _equal(config, spark)
    assert place.run("status")[0] == 0

    place.database.execute("CREATE TABLE fresh (id int PRIMARY KEY, v text)", "INSERT INTO fresh VALUES (1, 'a')")
    for number in range(2):
        place.database.execute(SQL("INSERT INTO items VALUES ({}, 'new')").format(100 + number))
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
