"""A partitioned table with an unlogged partition is equal to its source in what is sent; the partition is named beside it.

Seen once: the proof read the root with all of its partitions, so the rows of an unlogged one, which neither a copy nor the
stream has, were differences in every proof; a repair by keys took them into the lake.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.lake_commands import proof_page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.copying.keys import keys_query
from lakeproof.proof.compare import rows_in
from lakeproof.proof.source.side import source_buckets
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.lake.compare import lake_rows, table_columns
from tests.support.lake.lake_cuts import cut_of
from tests.support.lake.repair_steps import REPAIR
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]
ROOT, LIGHT = TableName("public", "root"), TableName("public", "light")


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A root with two partitions, of which one is unlogged; both have rows."""
    database.execute(
        "CREATE TABLE root (id int PRIMARY KEY, v text, pad text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (500)",
        "CREATE UNLOGGED TABLE light PARTITION OF root FOR VALUES FROM (500) TO (1000)",
        "INSERT INTO root SELECT i, 'v', md5(i::text) FROM generate_series(0, 999, 2) i",
        "CREATE PUBLICATION pub FOR TABLE root WITH (publish_via_partition_root = true)",
    )
    source = database.source(buckets=16)
    return Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})


def _assert_equal(config: Config, database: Database) -> None:
    """The lake has the rows of the partition that is logged, and no other."""
    cut, lake = cut_of(config), SourceLake.open(config.lake, "shop")
    columns, attnums = table_columns(database.dsn, ROOT)
    path = lake.url(lake.paths.current(ROOT))
    actual = lake_rows(path, cut.tables[ROOT].current_version, columns, attnums)
    expected = database.rows("SELECT id::text, v, pad FROM low")
    assert sorted(actual.elements()) == sorted(expected)


def test_the_source_s_side_reads_the_partitions_that_are_sent(database: Database, config: Config) -> None:
    """For the buckets and for the rows of single keys; a root whose partitions are all unlogged has none."""
    source = config.source("shop")
    with connect(source.dsn) as conn:
        [table] = read_tables(conn, source).values()
        assert table.outside == {LIGHT: "unlogged"}
        assert [rows_in(buckets) for buckets in source_buckets(conn, [(table, 16)])] == [250]
        assert conn.execute(keys_query(table, [("10",), ("600",)])).fetchall()[0][:2] == (10, "v")
        database.execute("DROP TABLE low")
        [table] = read_tables(conn, source).values()
        assert source_buckets(conn, [(table, 16)]) == [{}]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.slow
def test_each_proof_is_equal_and_a_repair_leaves_those_rows_out(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """Whatever happens in the unlogged partition; a damaged row is repaired by its key."""
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    database.execute("INSERT INTO root VALUES (701, 'new')", "UPDATE root SET v = 'w' WHERE id % 4 = 0")
    # It leaves the partition that is logged: for the stream it is deleted.
    database.execute("UPDATE root SET id = 801 WHERE id = 20", "UPDATE root SET id = 21 WHERE id = 800")
    report = prove(config, "shop", None, spark, request=TABLES_ALONE)
    proof = report.tables[ROOT]
    assert (proof.status, proof.outside, proof.source_rows) == ("equal", (LIGHT,), 250)
    assert "public.root: unlogged or foreign, so neither in the lake nor compared: partition public.light" in (
        proof_page(report)
    )

    def damage(rows: pa.Table) -> pa.Table:
        for name, value in (("v", "wrong"), ("pad", "")):
            altered = pc.if_else(pc.equal(rows["id"], 22), value, rows[name]).cast(rows[name].type)
            rows = rows.set_column(rows.column_names.index(name), name, altered)
        return rows

    lake = SourceLake.open(config.lake, "shop")
    alter(max(data_files(Path(lake.url(lake.paths.current(ROOT)))), key=lambda file: file.stat().st_size), damage)
    assert prove(config, "shop", None, spark, request=TABLES_ALONE).tables[ROOT].status == "differs"
    repaired = prove(config, "shop", None, spark, request=REPAIR).tables[ROOT]
    assert repaired.status == "equal"
    _assert_equal(config, database)
