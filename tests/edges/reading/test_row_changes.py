"""The rows that came and went between two versions, for Spark: the difference of the versions, in both ways of reading."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import WriterProperties, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import CAME
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.versions import RowLimits, read_at, row_changes
from lakeproof.lake.rows.columns import relation
from lakeproof.lake.spark.jvm import counting, note_scans

pytestmark = pytest.mark.spark
_OPTIONS = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}


def _rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(str, frame.collect()))


def _net(changes: DataFrame) -> Counter[str]:
    net = Counter[str]()
    for row in changes.collect():
        values = row.asDict()
        came = values.pop(CAME)
        net[str(type(row)(**values))] += 1 if came else -1
    return Counter({row: count for row, count in net.items() if count})


def _check(spark: SparkSession, path: str, pairs: list[tuple[int, int]], limits: RowLimits) -> None:
    for first, last in pairs:
        now = read_at(spark, path, last)
        then = read_at(spark, path, first).select(*now.columns)
        expected = _rows(now)
        expected.subtract(_rows(then))
        changes = row_changes(spark, path, first, last, now.columns, limits=limits)
        assert changes.dtypes == [*now.dtypes, (CAME, "boolean")]
        assert _net(changes) == Counter({row: n for row, n in expected.items() if n}), (first, last)


@pytest.mark.full
@pytest.mark.parametrize("limits", [RowLimits(), RowLimits(collected_bytes=-1)], ids=["in memory", "by Spark"])
def test_the_changes_are_the_difference_of_the_versions(spark: SparkSession, tmp_path: Path, limits: RowLimits) -> None:
    """Vectors, files that come and go, files put together, a widened and a renamed column, odd names, nested values."""
    path = str(tmp_path / "a table, 50%")
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "int(id) AS id", "named_struct('a b', id, 'c', array(id)) AS nested", "if(id % 3 = 0, NULL, 'v') AS `odd name`"
    )
    if limits == RowLimits():
        rows = rows.drop("nested")
    options = {**_OPTIONS, "delta.columnMapping.mode": "name"}
    rows.coalesce(2).write.format("delta").options(**options).save(path)
    table, place = DeltaTable.forPath(spark, path), f"delta.`{path}`"
    table.delete("id < 5")
    table.update("id % 10 = 7", {"`odd name`": "'w'"})
    spark.sql(f"ALTER TABLE {place} ALTER COLUMN id TYPE bigint")
    spark.sql(f"ALTER TABLE {place} RENAME COLUMN `odd name` TO `odder, name`")
    renamed, table = newest_version(path), DeltaTable.forPath(spark, path)
    spark.createDataFrame([(1 << 40, "far")], "id bigint, `odder, name` string").write.format("delta").mode(
        "append"
    ).save(path)
    table.delete("id = 20")
    before_optimize = newest_version(path)
    spark.sql(f"OPTIMIZE {place}")
    table.delete("id IN (21, 22)")
    spark.sql(f"RESTORE TABLE {place} TO VERSION AS OF {before_optimize}")
    last = newest_version(path)
    _check(spark, path, [(n, n + 1) for n in range(renamed, last)] + [(renamed, last), (renamed, last - 1)], limits)
    unnamed = [name for name in read_at(spark, path, last).columns if name not in {"id", "odder, name"}]
    assert row_changes(spark, path, 0, 1, ["id", "odd name", *unnamed]).count() == 5
    with pytest.raises(ChangesUnavailableError, match="its column id was another one"):
        row_changes(spark, path, 0, last, ["id"])
    with pytest.raises(ChangesUnavailableError, match="does not tell"):
        row_changes(spark, path, last, last + 1, ["id"])


def test_a_partitioned_table_of_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    """Its files lack the columns that it is partitioned by: their values stand in the log, of every type as a text."""
    path = str(tmp_path / "parted")
    rows = spark.range(0, 20).selectExpr(
        "id", "if(id < 4, NULL, date_add(DATE'2026-01-01', int(id % 3))) AS `a day`", "string(id % 2) || '=%' AS p"
    )
    rows.write.format("delta").options(**_OPTIONS).partitionBy("a day", "p").option(
        "delta.columnMapping.mode", "name"
    ).save(path)
    table = DeltaTable.forPath(spark, path)
    table.delete("id = 3")
    table.delete("p = '0=%'")
    spark.range(50, 60).selectExpr("id", "DATE'2027-01-01' AS `a day`", "'' AS p").write.format("delta").mode(
        "append"
    ).save(path)
    _check(spark, path, [(1, 2), (0, 3)], RowLimits())


def test_an_empty_batch_of_arrow_hides_no_row(spark: SparkSession) -> None:
    """Spark 4.2 ends there; a file none of whose rows changed is one."""
    parts = [pa.record_batch([pa.array(ids, pa.int64())], ["id"]) for ids in ([1], [], [2])]
    assert relation(spark, pa.Table.from_batches(parts)).count() == 2


def test_few_changes_read_few_rows(spark: SparkSession, tmp_path: Path) -> None:
    """They are held, whatever the number of versions; too many to be named one by one are no changes at all."""
    path = str(tmp_path / "t")
    groups = WriterProperties(max_row_group_size=1_000)
    write_deltalake(path, pa.table({"id": pa.array(range(20_000), pa.int64())}), writer_properties=groups)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    table = DeltaTable.forPath(spark, path)
    for key in range(3):
        table.delete(f"id = {key}")
    with counting() as scanned:
        changes = row_changes(spark, path, 0, 4, ["id"])
        assert sorted(row[0] for row in changes.collect()) == [0, 1, 2]
        note_scans(changes)
    assert scanned.rows <= 1_000
    with pytest.raises(ChangesUnavailableError, match="more than 2 rows"):
        row_changes(spark, path, 0, 4, ["id"], limits=RowLimits(collected_bytes=-1, places=2))
