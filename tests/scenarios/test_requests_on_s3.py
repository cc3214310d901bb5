"""How many requests the pipeline sends to S3, Spark's own too: for a segment, a first entry, a cycle, and for nothing to do.

A budget is a tenth above what was counted. Whoever needs more changes it here and in docs/scaling.md, which has what they
cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, DrainConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database
from tests.support.stores.fix_object_store import S3Server, storage
from tests.support.stores.object_proxy import Proxied
from tests.support.stores.request_budget import within

pytestmark = pytest.mark.postgres
TABLES = 20


def configured(database: Database, bucket: str, proxied: Proxied, place: Path, tables: int) -> Config:
    """So many tables of 2,000 rows, and a lake behind the proxy."""
    for name in map(Identifier, names(tables)):
        database.execute(
            SQL("CREATE TABLE {} (id int PRIMARY KEY, price numeric(10, 2), note text)").format(name),
            SQL("INSERT INTO {} SELECT n, n * 1.5, 'x' FROM generate_series(1, 2000) n").format(name),
        )
    database.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    return Config(
        path=place / "lakeproof.yaml",
        lake=f"s3://{bucket}/data/lake",
        storage=storage(proxied.endpoint),
        # A slow machine gets one segment, too.
        sources={"shop": database.source(buckets=8, drain=DrainConfig(flush_interval_s=600, progress_interval_s=3600))},
    )


def names(tables: int) -> list[str]:
    """The tables' names."""
    return [f"t{number}" for number in range(tables)]


def change(database: Database, tables: int, number: int) -> None:
    """Every kind of change in every table."""
    statements = (
        "UPDATE {} SET price = price + 1 WHERE id % 40 = {n}",
        "INSERT INTO {} SELECT n, 7, 'y' FROM generate_series({n} * 100 + 3000, {n} * 100 + 3049) n",
        "DELETE FROM {} WHERE id % 97 = {n}",
    )
    for name in map(Identifier, names(tables)):
        database.execute(*(SQL(statement).format(name, n=number) for statement in statements))


def _no_jvm() -> Any:
    """Fail: what Spark sends is not counted here."""
    pytest.fail("a JVM was asked for")


def test_a_drain_sends_a_few_requests_for_a_segment(
    database: Database, bucket: str, proxied: Proxied, tmp_path: Path
) -> None:
    """A put for each file, one for the manifest, and the fence's look; all else is the drain's start, and one reading."""
    config = configured(database, bucket, proxied, tmp_path, 3)
    bootstrap(config, "shop")
    drain(config, "shop", Until.caught_up())
    # One manifest more than its changes need: the server itself writes WAL now and then.
    with within(proxied, "a drain of nothing", LIST=17, GET=12, HEAD=3, PUT=1):
        drain(config, "shop", Until.caught_up())
    for number in range(2):
        change(database, 3, number)
        with within(proxied, "a drain of one segment", LIST=18, GET=14, HEAD=3, PUT=5):
            drain(config, "shop", Until.caught_up())


@pytest.mark.full
def test_a_cycle_over_twenty_tables_keeps_its_budget(
    database: Database, bucket: str, proxied: Proxied, s3_server: S3Server, tmp_path: Path
) -> None:
    """Both Delta tables of each get a commit, with a checksum file and a deletion vector; then the lake is the source."""
    config = configured(database, bucket, proxied, tmp_path, TABLES)

    def compacted() -> None:
        compact(config, "shop", SparkOnDemand(_no_jvm), silent, Stop())

    bootstrap(config, "shop")
    with within(proxied, "a first entry", LIST=178, GET=230, HEAD=51, PUT=160, DELETE=22):
        compacted()
    for number in range(2):
        change(database, TABLES, number)
        drain(config, "shop", Until.caught_up())
        with within(proxied, "a cycle", LIST=78, GET=215, HEAD=109, PUT=180, DELETE=22):
            compacted()
    with within(proxied, "nothing to do", LIST=17, GET=13, HEAD=18, PUT=2):
        compacted()
    tables = tuple(TableName("public", name) for name in names(TABLES))
    assert in_lake(config, database, s3_server, tables) == source_rows(database.dsn, tables)


def in_lake(config: Config, database: Database, server: S3Server, tables: tuple[TableName, ...]) -> object:
    """The newest cut's rows, read by delta-rs, past the proxy: that is in this process, and delta-rs lets no thread work."""
    lake = SourceLake.open(config.location, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    assert not cut.held
    options = {"aws_endpoint_url": server.endpoint, "aws_region": str(config.storage.region)}
    options["aws_allow_http"] = "true"
    return {
        table: lake_rows(
            lake.url(lake.paths.current(table)),
            cut.tables[table].current_version,
            *table_columns(database.dsn, table),
            options,
        )
        for table in tables
    }
