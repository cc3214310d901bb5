"""The whole pipeline on S3: copy, drain, cycles by links and vectors, a view, maintenance and proof; the source is compared.

Nothing of the lake is on a disk: whatever went past the store would miss its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from psycopg.sql import SQL
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import MaintenanceRequest, lake_sizes, maintain
from lakeproof.commands.prove import prove
from lakeproof.commands.refresh import refresh
from lakeproof.commands.status import status
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import Rows, lake_rows, source_rows, table_columns
from tests.support.lake.maintain_steps import MUCH_LATER
from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_lake import options_of
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
ITEMS, LOG, NOTES = (TableName("public", name) for name in ("items", "log", "notes"))
TABLES = (ITEMS, LOG, NOTES)
NOTHING_KEPT = RetentionConfig(cuts_s=0, landing_s=0, small_files=2)


@pytest.fixture
def config(database: Database, s3_lake: LakeLocation, tmp_path: Path) -> Config:
    """A table with a key, one with large values, and one without a key; a view over the first."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2), at timestamptz DEFAULT now())",
        "CREATE TABLE log (n int, what text)",
        "ALTER TABLE log REPLICA IDENTITY FULL",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text STORAGE EXTERNAL, seen bool)",
        "INSERT INTO items SELECT n, n * 1.5 FROM generate_series(1, 2000) n",
        "INSERT INTO log SELECT n % 7, 'x' FROM generate_series(1, 50) n",
        "INSERT INTO notes SELECT n, repeat(md5(n::text), 200), false FROM generate_series(1, 20) n",
        "CREATE PUBLICATION pub FOR TABLE items, log, notes",
    )
    query = tmp_path / "dear.sql"
    query.write_text("SELECT id, price FROM items WHERE price > 100", encoding="utf-8")
    source = database.source(tables=TABLES, buckets=8).model_copy(update={"retention": NOTHING_KEPT})
    view = ViewConfig(name="dear", sql_file=query, reads={"items": ("shop", ITEMS)})
    return Config(
        path=tmp_path / "lakeproof.yaml",
        lake=s3_lake.url,
        storage=s3_lake.storage,
        sources={"shop": source},
        views={"dear": view},
    )


def in_lake(config: Config, database: Database) -> Mapping[TableName, Rows]:
    """The newest cut's rows, read by delta-rs."""
    lake = SourceLake.open(config.location, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    assert not cut.held
    options = options_of(config.storage)
    actual = {}
    for table in TABLES:
        columns, attnums = table_columns(database.dsn, table)
        place = lake.url(lake.paths.current(table))
        actual[table] = lake_rows(place, cut.tables[table].current_version, columns, attnums, options)
    return actual


def change(database: Database, first: int) -> None:
    """Transactions of every kind of change, and a file most of whose rows are new."""
    statements = (
        "INSERT INTO items SELECT n, 7 FROM generate_series({first}, {first} + 1999) n",
        "UPDATE items SET price = price + 1 WHERE id % 97 = {first} % 97",
        "UPDATE items SET id = -id WHERE id = {first} + 3",
        "DELETE FROM items WHERE id % 89 = {first} % 89",
        "UPDATE notes SET seen = true WHERE id % 3 = {first} % 3",
        "DELETE FROM log WHERE ctid IN (SELECT ctid FROM log LIMIT 3)",
        "INSERT INTO log VALUES (1, 'y'), (1, 'y')",
    )
    database.execute(*(SQL(statement).format(first=first) for statement in statements))


@pytest.mark.full
def test_the_lake_on_s3_is_the_source(config: Config, database: Database, spark: SparkSession) -> None:
    """After the copy, after cycles, after a new column, and after maintenance; proved, and read as users do."""
    bootstrap(config, "shop")
    for first in (3000, 6000):
        change(database, first)
        assert into_the_lake(config, spark)
        assert in_lake(config, database) == source_rows(database.dsn, TABLES)
    database.execute("ALTER TABLE items ADD more int DEFAULT 5", "UPDATE items SET more = id WHERE id < 50")
    change(database, 9000)
    into_the_lake(config, spark)
    (report,) = refresh(config, None, spark)
    assert (report.view, report.stands_still) == ("dear", None)
    maintain(config, "shop", spark, silent, MaintenanceRequest(now=MUCH_LATER))
    change(database, 12000)
    drain(config, "shop", Until.caught_up())
    compact(config, "shop", spark, silent, Stop())
    assert in_lake(config, database) == source_rows(database.dsn, TABLES)
    proof = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {table: p.status for table, p in proof.tables.items()} == dict.fromkeys(TABLES, "equal")
    opened = lakeproof.open(spark, config)
    assert opened.table("shop", "public.items").count() == database.value("SELECT count(*) FROM items")
    assert status(config)
    assert lake_sizes(config, "shop", plan=True).damaged == {}
