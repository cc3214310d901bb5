"""Updates leave large arrays out, and by the range's end no row lacks one any more: the table goes on.

An empty column of another type was put behind the rows' own, and a list can't be made of that: the table was held.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.errors import ConfigError
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.lake.compare import lake_rows, source_rows, table_columns

pytestmark = pytest.mark.postgres
T = TableName("public", "t")


def _no_spark() -> SparkSession:
    raise ConfigError("Spark", "none is here", "run this test with one")


@pytest.mark.parametrize(
    "end", ["DELETE FROM t WHERE id = 1", "UPDATE t SET tags = '{a}', numbers = '{1}' WHERE id = 1"]
)
def test_a_row_without_its_array_goes_before_the_range_ends(drained: Drained, end: str) -> None:
    """It is deleted, or gets a new array; another row comes in the same range."""
    database, config = drained.database, drained.config()
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, tags text[], numbers bigint[])",
        "ALTER TABLE t ALTER tags SET STORAGE EXTERNAL, ALTER numbers SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT i, 0, array_agg('tag ' || g), array_agg(g) FROM generate_series(1, 2) i,"
        " generate_series(1, 900) g GROUP BY i",
    )
    bootstrap(config, SOURCE)
    compact(config, SOURCE, SparkOnDemand(_no_spark), silent, Stop())
    database.execute("UPDATE t SET v = 1 WHERE id = 1", end, "INSERT INTO t VALUES (3, 3, '{x}', '{3}')")
    drained.drain()
    compact(config, SOURCE, SparkOnDemand(_no_spark), silent, Stop())
    cut, lake = newest_cut(drained.source_lake), drained.source_lake
    assert cut is not None
    assert dict(cut.held) == {}
    path, version = lake.url(lake.paths.current(T)), cut.tables[T].current_version
    assert lake_rows(path, version, *table_columns(database.dsn, T)) == source_rows(database.dsn, (T,))[T]
