"""A landed file becomes a table's file by a link and a commit: every reader reads it, and Delta's commands work on it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable as DeltaCommands
from deltalake import DeltaTable, QueryBuilder
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import LakeError
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.lake.delta.files.needed import counted_again, sync_commits, table_files, unneeded
from lakeproof.lake.delta.files.statistics import statistics_text
from lakeproof.lake.delta.link_commit import Link, linked_name, prepare_links
from lakeproof.lake.delta.log.cleaned import clean_log
from lakeproof.lake.delta.log.commits import NO_VERSION, commit_name, newest_version, read_actions, read_commit
from lakeproof.lake.rows.change import NetChange, Removed, Unsupported
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import open_store
from tests.support.lake.link_steps import (
    APP,
    DAMAGE,
    ROWS,
    expected,
    flip,
    info,
    land_three,
    read,
    request,
    three_files,
)
from tests.support.lake.linkable_rows import SPARK_TYPES, as_numbers, land, landed

pytestmark = pytest.mark.spark


@pytest.fixture
def rows() -> list[pa.Table]:
    """Three files' rows of every type."""
    return three_files()


@pytest.fixture
def files(rows: list[pa.Table], tmp_path: Path) -> list[LandedFile]:
    """The files, in several row groups."""
    return land_three(tmp_path, rows)


def test_every_type_is_read_back_and_the_file_is_the_landed_one(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """Made in one commit that carries its identity, read by Spark and delta-rs; two tables have the same bytes on disk."""
    layers = [tmp_path / "history", tmp_path / "current"]
    prepared = [prepare_links(request(table, 7, [Link(f) for f in files])) for table in layers]
    assert [newest_version(str(table)) for table in layers] == [NO_VERSION, NO_VERSION]
    for table, one in zip(layers, prepared, strict=True):
        applied = one.commit()
        assert (applied.version, applied.inserted) == (0, 3 * ROWS)
        assert as_numbers(read(spark, table).toArrow()) == expected(*rows)
        assert read(spark, table).count() == 3 * ROWS  # from the statistics alone
        commit = read_commit(str(table), 0)
        assert commit is not None
        assert (commit.txns, commit.user_metadata) == ({APP: 7}, info(7).user_metadata)
        described = dict(read_actions(Folder.at(str(table)), commit_name(0)))["commitInfo"]
        assert described["operationMetrics"]["numOutputRows"] == str(3 * ROWS)
        others = (
            QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT id, note, money FROM t").read_all()
        )
        assert sorted(others["id"].to_pylist()) == [row["id"] for row in expected(*rows)]
    assert {Path(f.url).stat().st_nlink for f in files} == {3}
    on_disk = sum(f.bytes for f in files)
    assert counted_again({str(table): table_files(str(table), 0) for table in layers}) == 2 * on_disk
    assert counted_again({str(layers[0]): table_files(str(layers[0]), 0)}) == on_disk
    assert sync_commits({str(table): NO_VERSION for table in layers}, open_store(tmp_path)) >= 2 * len(files)


def _same_bounds(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, spark_type in SPARK_TYPES.items():
        if spark_type.startswith("array") or spark_type in {"float", "double"}:
            continue
        assert ours["nullCount"][name] == theirs["nullCount"][name]
        assert ours["minValues"].get(name) == theirs["minValues"].get(name)
        if spark_type.startswith("timestamp"):
            # Ours is rounded up, theirs down; the last millisecond of 9999 has no successor.
            assert name not in ours["maxValues"] or ours["maxValues"][name] >= theirs["maxValues"][name]
        elif name in ours["maxValues"]:
            assert ours["maxValues"][name] == theirs["maxValues"][name]
        elif name in theirs["maxValues"]:
            # Delta looks for a character that can be raised behind the 32nd, too.
            assert theirs["maxValues"][name].startswith("x" * 32)


def test_the_statistics_are_those_that_spark_writes_for_the_same_rows(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """Exactly, but for floats and lists, which have none, and the upper bound of times."""
    for n, file in enumerate(files):
        table = tmp_path / f"spark{n}"
        spark.read.parquet(file.url).coalesce(1).write.format("delta").save(str(table))
        add = next(
            json.loads(line)["add"] for line in (table / commit_name(0)).read_bytes().split(b"\n") if b'"add"' in line
        )
        ours = json.loads(statistics_text(pq.read_metadata(file.url), SPARK_TYPES), parse_float=Decimal)
        theirs = json.loads(add["stats"], parse_float=Decimal)
        assert ours["numRecords"] == theirs["numRecords"] == rows[n].num_rows
        _same_bounds(ours, theirs)


CONDITIONS = (
    "id = 17", f"id >= {2 * ROWS}", "small = 0", "whole < 0", "money > 9999998", "finer = 0", "widest < 0", "note = ''",
    "note > 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'", "note = concat(repeat('x', 32), 'a')", "day = date'9999-12-31'",
    "day < date'1582-10-04'", "at = timestamp_ntz'1969-12-31 23:59:59.9985'",
    "instant >= timestamp'9999-12-31 23:59:59.9999Z'",
    "instant = timestamp'1970-01-01 00:00:00.000999Z'", "ratio8 > 1e300", "ratio8 = double('NaN')", "isnan(ratio4)",
    "ratio4 > 100", "nothing is null", "nothing is not null", "note is null",
    "numbers is null", "flag", "octets is not null",
)  # fmt: skip


@pytest.mark.full
def test_skipping_files_loses_no_row(spark: SparkSession, tmp_path: Path, files: list[LandedFile]) -> None:
    """Each condition as a filter, which leaves out files and row groups, and as a count over all rows."""
    table = tmp_path / "t"
    prepare_links(request(table, 1, [Link(f) for f in files])).commit()
    truth = read(spark, table).selectExpr(*(f"count_if({c}) AS c{i}" for i, c in enumerate(CONDITIONS))).collect()[0]
    frame = read(spark, table)
    counted = [frame.where(condition).count() for condition in CONDITIONS]
    assert dict(zip(CONDITIONS, counted, strict=True)) == dict(zip(CONDITIONS, truth, strict=True))
    assert len(frame.where("id = 17").inputFiles()) == 1
    assert frame.where("nothing is not null").inputFiles() == []


def test_rows_of_linked_files_are_deleted_by_vectors(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """By ours, in the next cycle; what Delta's commands do with such files takes as long as all else here, and is below."""
    table = tmp_path / "t"
    prepare_links(request(table, 1, [Link(f) for f in files[:2]])).commit()
    gone = spark.createDataFrame(pa.table({"id": [2, 2 + ROWS]}))
    change = NetChange(Removed(("id",), gone), read(spark, table).where("id = 2"))
    applied = apply_change(spark, CommitRequest(str(table), change, info(2), max_keys=2))
    assert applied.deleted == 2
    assert sum(file.vector is not None for file in table_files(str(table), applied.version).newest) == 2
    left = [row for row in expected(*rows[:2]) if row["id"] != 2 + ROWS]
    assert as_numbers(read(spark, table).toArrow()) == left


@pytest.mark.full
def test_deltas_commands_are_right_on_linked_files(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """DELETE by a vector, our vectors, OPTIMIZE, RESTORE, VACUUM, a checkpoint; the landed files stay."""
    table, sql_name = tmp_path / "t", f"delta.`{tmp_path / 't'}`"
    prepare_links(request(table, 1, [Link(f) for f in files])).commit()
    target = DeltaCommands.forPath(spark, str(table))
    target.delete("id % 10 = 3")
    assert sum(file.vector is not None for file in table_files(str(table), 1).newest) == 3
    left = [row for row in expected(*rows) if row["id"] % 10 != 3]
    assert as_numbers(read(spark, table).toArrow()) == left
    for number, keys_max in ((2, 2), (4, None)):
        gone = spark.createDataFrame([(number,), (number + ROWS,)], "id bigint")
        images = read(spark, table).where(f"id = {number}")
        change = NetChange(Removed(("id",), gone), images)
        applied = apply_change(spark, CommitRequest(str(table), change, info(number), keys_max))
        assert applied.deleted == 2
    left = [row for row in left if row["id"] not in {2 + ROWS, 4 + ROWS}]
    assert as_numbers(read(spark, table).toArrow()) == left
    spark.sql(f"OPTIMIZE {sql_name}")
    assert as_numbers(read(spark, table).toArrow()) == left
    assert len(read(spark, table).inputFiles()) == 1
    spark.sql(f"RESTORE TABLE {sql_name} TO VERSION AS OF 0")
    assert as_numbers(read(spark, table).toArrow()) == expected(*rows)
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(table)).checkpoint()
    assert as_numbers(read(spark, table).toArrow()) == expected(*rows)
    assert as_numbers(read(spark, table, 1).toArrow()) == [r for r in expected(*rows) if r["id"] % 10 != 3]
    target.delete()
    spark.sql(f"ALTER TABLE {sql_name} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM {sql_name} RETAIN 0 HOURS")
    assert not list(table.glob("cycle-*.parquet"))
    assert {Path(f.url).stat().st_nlink for f in files} == {1}
    assert [landed(Path(f.url)) for f in files] == files


@pytest.mark.full
def test_a_range_that_ends_inside_a_file_takes_it_in_two_parts(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """Under two names, each without the other's rows; a file may have a vector from its first commit on."""
    table = tmp_path / "t"
    first, second = np.arange(200, ROWS), np.arange(200)
    assert prepare_links(request(table, 1, [Link(files[0], first)])).commit().inserted == 200
    assert as_numbers(read(spark, table).toArrow()) == expected(rows[0].slice(0, 200))
    beside = rows[0].slice(5, 1)
    beside = beside.set_column(0, "id", pa.array([5 + 2 * ROWS], beside.schema.field("id").type))
    both = [Link(files[0], second), Link(files[1])]
    applied = prepare_links(replace(request(table, 2, both), rows=[beside])).commit()
    assert applied.inserted == 100 + ROWS + 1
    of_spark = next(row for row in expected(rows[0]) if row["id"] == 5) | {"id": 5 + 2 * ROWS}
    assert as_numbers(read(spark, table).toArrow()) == [*expected(*rows[:2]), of_spark]


def test_killed_between_link_and_commit_it_is_run_again(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """Links that no commit names are found again, taken away by maintenance, or made anew after half a copy."""
    table, links = tmp_path / "t", [Link(f) for f in files[:2]]
    prepare_links(request(table, 1, links))
    (table / linked_name(info(1), files[1])).unlink()
    (table / linked_name(info(1), files[1])).write_bytes(b"half")
    prepare_links(request(table, 1, links)).commit()
    assert as_numbers(read(spark, table).toArrow()) == expected(*rows[:2])
    # Commit made and cut not: the log is cleared of it, and the next attempt makes it again.
    prepare_links(request(table, 2, [Link(files[2])])).commit()
    assert clean_log(str(table), 0, info(2).is_in).base == 2, "it is taken back by a commit above it"
    assert as_numbers(read(spark, table).toArrow()) == expected(*rows[:2])
    left = {path.rpartition("/")[2] for path, _ in unneeded(str(table), table_files(str(table), 2))}
    assert left == {name for n in (linked_name(info(2), files[2]),) for name in (n, f".{n}.crc")}
    prepare_links(request(table, 2, [Link(files[2])])).commit()
    assert as_numbers(read(spark, table).toArrow()) == expected(*rows)


@pytest.mark.full
def test_a_file_on_another_file_system_is_copied(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`link()` refuses; the copy is verified like a link, and found again."""
    link = os.link

    def refused(source: Path, target: Path) -> None:
        if source.parent == target.parent:
            return link(source, target)
        if target.exists():
            raise FileExistsError(17, "there", str(source))
        raise OSError(18, "Invalid cross-device link", str(source))

    # inside: no second file system that a test may write to is sure to be there
    monkeypatch.setattr(os, "link", refused)
    table = tmp_path / "t"
    prepare_links(request(table, 1, [Link(files[0])]))
    prepare_links(request(table, 1, [Link(files[0])])).commit()
    assert Path(files[0].url).stat().st_nlink == 1
    Path(files[0].url).unlink()
    assert as_numbers(read(spark, table).toArrow()) == expected(rows[0])


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused_before_anything_is_committed(
    spark: SparkSession, tmp_path: Path, files: list[LandedFile], kind: str
) -> None:
    """The files beside it are taken away again."""
    DAMAGE[kind](Path(files[1].url))
    with pytest.raises(LakeError, match="landed file"):
        prepare_links(request(tmp_path / "t", 1, [Link(f) for f in files]))
    assert not list((tmp_path / "t").iterdir())


def test_damage_after_the_commit_is_seen_by_spark(spark: SparkSession, tmp_path: Path, files: list[LandedFile]) -> None:
    """Hadoop's checksums are beside a linked file, as beside Spark's own."""
    table = tmp_path / "t"
    prepare_links(request(table, 1, [Link(files[0])])).commit()
    flip(Path(files[0].url))
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
        read(spark, table).collect()


def _renamed(spark: SparkSession, table: Path) -> None:
    name = f"delta.`{table}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN whole TO entire")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN (whole int)")


def test_what_does_not_fit_is_left_to_spark(spark: SparkSession, tmp_path: Path, files: list[LandedFile]) -> None:
    """Another type, a missing column, physical names after a rename, odd names, bounds of floats, no calendar."""
    table, link = tmp_path / "t", Link(files[0])
    wider, fewer = SPARK_TYPES | {"whole": "bigint"}, {"id": "bigint"}
    other = {"and the table has none": fewer, "whole is": wider, "more": SPARK_TYPES | {"more": "int"}}
    for reason, columns in (other | {"another name": {"a b": "int"}}).items():
        with pytest.raises(Unsupported, match=reason):
            prepare_links(request(table, 1, [link], columns))
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"day": pa.array([-200_000], pa.int32()).cast(pa.date32())}), bare)
    with pytest.raises(Unsupported, match="Spark's version"):
        prepare_links(request(table, 1, [Link(landed(bare))], {"day": "date"}))
    pq.write_table(pa.table({"ratio": [1.0, float("nan")]}), bare)
    with pytest.raises(Unsupported, match="bounds of floats"):
        prepare_links(request(table, 1, [Link(landed(bare))], {"ratio": "double"}))
    prepare_links(request(table, 1, [link])).commit()
    _renamed(spark, table)
    with pytest.raises(Unsupported, match=r"whole has another name|is the table's entire"):
        prepare_links(request(table, 2, [Link(files[1])]))
    assert not [p for p in table.glob("cycle-*") if "000000000001" not in p.name]


def test_columns_that_a_file_lacks_are_null(spark: SparkSession, tmp_path: Path) -> None:
    """As history's hidden columns are in a snapshot's files; columns of the file that a table lacks are not read."""
    place = land(
        tmp_path,
        "a.parquet",
        pa.table({"id": pa.array([1, 2]), "_lp_ord": pa.array([5, 6]), "_lp_unchanged": ["a", "b"]}),
    )
    table, columns = (
        tmp_path / "t",
        {"id": "bigint", "_lp_ord": "bigint", "_lp_seq": "bigint", "_lp_commit_time": "timestamp"},
    )
    link_request = replace(request(table, 1, [Link(place)], columns), required={"id": "id", "_lp_ord": "_lp_ord"})
    prepare_links(link_request).commit()
    assert [tuple(row) for row in read(spark, table).orderBy("id").collect()] == [
        (1, 5, None, None),
        (2, 6, None, None),
    ]
    assert read(spark, table).where("_lp_seq is not null").inputFiles() == []
