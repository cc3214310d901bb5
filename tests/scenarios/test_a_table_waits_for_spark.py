"""A host that can't start Spark compacts all tables up to the first change that Spark has to write, and names its table.

What a host without Spark's packages does belongs to `test_install_without_spark.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError
from lakeproof.events import Event, Stop, silent
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, newest_number
from lakeproof.lake.spark_on_demand import AnySpark, NoSparkError, SparkOnDemand
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

ORDINARY, WAITING = TableName("public", "ordinary"), TableName("public", "waiting")
# A transaction that brings rows of two schemas: Spark reads the older ones.
_FOR_SPARK = (
    "BEGIN; INSERT INTO waiting VALUES (100, 'a'); ALTER TABLE waiting ADD COLUMN more int;"
    " INSERT INTO waiting VALUES (101, 'b', 7); COMMIT"
)


def _no_spark() -> NoReturn:
    raise ConfigError("Java", "there is none", "install it")


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A source with two tables, which are in the lake."""
    database.execute(
        "CREATE TABLE ordinary (id int PRIMARY KEY, v text)",
        "CREATE TABLE waiting (id int PRIMARY KEY, v text)",
        "INSERT INTO ordinary SELECT g, 'v' FROM generate_series(1, 9) g",
        "INSERT INTO waiting SELECT g, 'v' FROM generate_series(1, 9) g",
        "CREATE PUBLICATION pub FOR TABLE ordinary, waiting",
    )
    result = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(result, "shop")
    _land(result)
    compact(result, "shop", SparkOnDemand(_no_spark), silent, Stop())
    return result


def _land(config: Config) -> None:
    drain(config, "shop", Until.caught_up())


def _refused(config: Config) -> tuple[NoSparkError, list[Event]]:
    """Return the error of a compaction that can't start Spark, and what it reported before."""
    events: list[Event] = []
    with pytest.raises(NoSparkError) as refused:
        compact(config, "shop", SparkOnDemand(_no_spark), events.append, Stop())
    return refused.value, events


def _cut(config: Config) -> Cut:
    cut = newest_cut(SourceLake.open(config.location, "shop"))
    assert cut is not None
    return cut


def _is_equal(config: Config, database: Database, table: TableName) -> bool:
    """True if the lake's rows of a table are the source's."""
    lake, cut = SourceLake.open(config.location, "shop"), _cut(config)
    place, version = lake.url(lake.paths.current(table)), cut.tables[table].current_version
    columns, numbers = table_columns(database.dsn, table)
    return lake_rows(place, version, columns, numbers) == source_rows(database.dsn, (table,))[table]


def _ends_equal(config: Config, database: Database, spark: AnySpark) -> None:
    """Compact with Spark: both tables are as in the source, and the cut has who wrote the one that waited."""
    compact(config, "shop", spark, silent, Stop())
    assert all(_is_equal(config, database, table) for table in (ORDINARY, WAITING))
    assert _cut(config).held == {}
    assert _cut(config).tables[WAITING].written_by.engine == "spark"
    assert _cut(config).tables[ORDINARY].written_by.engine == "arrow"


@pytest.mark.spark
def test_tables_go_on_up_to_the_first_change_that_spark_has_to_write(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """All tables of the cut stand at one position; the error comes before any intent, and asks again without harm."""
    database.execute("UPDATE ordinary SET v = 'before' WHERE id < 4")
    _land(config)
    assert not _is_equal(config, database, ORDINARY)
    database.execute(_FOR_SPARK)
    _land(config)
    error, _ = _refused(config)
    assert error.thing == f"table {WAITING}"
    assert error.reason == "Spark has to write it (its changes have several schema versions), and Java: there is none"
    assert _is_equal(config, database, ORDINARY)
    cut, lake = _cut(config), SourceLake.open(config.location, "shop")
    assert {t.at_lsn for t in cut.tables.values()} == {cut.position}
    database.execute("DELETE FROM ordinary WHERE id = 9")
    _land(config)
    _refused(config)
    assert newest_number(lake.store, lake.paths.intents) == _cut(config).number, "no intent waits for Spark"
    assert not _is_equal(config, database, ORDINARY), "it does not pass the other table's change"
    _ends_equal(config, database, spark)


@pytest.mark.spark
def test_a_copy_that_is_compared_waits_and_holds_nobody_back(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """A table of large rows goes on with its changes, as all others do, until a host with Spark compares its copy."""
    database.execute("INSERT INTO waiting SELECT 10, string_agg(md5(g::text), '') FROM generate_series(1, 600000) g")
    _land(config)
    compact(config, "shop", SparkOnDemand(_no_spark), silent, Stop())
    bootstrap(config, "shop", [WAITING])
    database.execute("UPDATE ordinary SET v = 'after' WHERE id < 4", "UPDATE waiting SET v = 'after' WHERE id = 5")
    _land(config)
    error, events = _refused(config)
    reason = "a row has more than 16 MiB"
    assert reason in error.reason
    assert [e.fields["tables"] for e in events if e.kind == "compact.without_spark"] == [{str(WAITING): reason}]
    assert all(_is_equal(config, database, table) for table in (ORDINARY, WAITING))
    assert _cut(config).tables[WAITING].written_by.engine == "arrow"
    _ends_equal(config, database, spark)
