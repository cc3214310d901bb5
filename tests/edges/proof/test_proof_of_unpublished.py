"""A table that the lake has and the source publishes no more stands still: a proof of everything says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.mark.full
def test_a_table_taken_out_of_its_publication_is_held_and_not_passed_over(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """The table's changes stop without a message in the stream; the other tables are proved as usual."""
    database.execute(
        "CREATE TABLE kept (id int PRIMARY KEY)",
        "CREATE TABLE left_out (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE kept, left_out",
    )
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )
    bootstrap(config, "shop")
    assert prove(config, "shop", None, spark).equal
    database.execute("ALTER PUBLICATION pub DROP TABLE left_out", "INSERT INTO left_out VALUES (1)")
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE)
    kept, left_out = TableName("public", "kept"), TableName("public", "left_out")
    assert (actual.tables[kept].status, actual.tables[left_out].status) == ("equal", "held")
    assert "it is not published any more (noticed at" in (actual.tables[left_out].reason or "")
    assert not actual.equal
    named = prove(config, "shop", [left_out], spark, request=TABLES_ALONE).tables[left_out]
    assert (named.status, named.reason) == ("held", actual.tables[left_out].reason)
