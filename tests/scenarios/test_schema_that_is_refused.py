"""A snapshot of another schema than the lake's waits for a table that can't be given it: the table alone is held.

Seen once: each cycle tried the schema again at the same position, so that a compaction had no end and no other table moved.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.columns import quoted
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

A, GOOD = TableName("public", "a"), TableName("public", "good")
# What makes Delta refuse to go back to the version that the newest cut names: its files are gone.
_STRAYS = (
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')",
    "OPTIMIZE {}",
    "DELETE FROM {} WHERE id > 0",
    "VACUUM {} RETAIN 0 HOURS",
)


@pytest.mark.full
def test_a_schema_that_is_refused_is_tried_once(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """The compaction ends, the other table goes on, and the held one says why."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE good (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT i, i FROM generate_series(1, 10) i",
        "INSERT INTO good SELECT i, i FROM generate_series(1, 10) i",
        "CREATE PUBLICATION pub FOR TABLE a, good",
    )
    source = database.source(buckets=16)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    lake = SourceLake.open(config.lake, "shop")
    for statement in _STRAYS:
        spark.newSession().sql(statement.format(f"delta.{quoted(lake.url(lake.paths.current(A)))}"))
    database.execute("UPDATE a SET v = 0 WHERE id = 1", "UPDATE good SET v = 0 WHERE id = 1")
    into_the_lake(config, spark)
    bootstrap(config, "shop", [A])
    database.execute("ALTER TABLE a ADD z int DEFAULT 4", "UPDATE good SET v = 1 WHERE id = 6")
    bootstrap(config, "shop", [A])
    result = into_the_lake(config, spark)
    assert len(result) <= 3, [int(cut.number) for cut in result]
    assert "someone else" in cut_of(config).held[A].reason
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE).tables
    assert (actual[A].status, actual[GOOD].status) == ("held", "equal")
