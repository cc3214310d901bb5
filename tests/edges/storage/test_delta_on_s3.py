"""Delta's tables on S3: a commit stands on the version that it read, whoever else writes; links and vectors work."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.failpoints import watched
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.lake.delta.files.needed import remove_files, table_files, unneeded
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, linked_name, prepare_links
from lakeproof.lake.delta.log.cleaned import begin_at, clean_log
from lakeproof.lake.delta.log.commits import NO_VERSION, DeltaCommit, commit_name, log_files, newest_version
from lakeproof.lake.delta.log.protocol import TableSpec, metadata_of, new_fields, reader_features
from lakeproof.lake.rows.change import NetChange, Removed, Unsupported
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import open_store
from lakeproof.storage.parquet import bounded, open_parquet
from lakeproof.storage.store import Store
from tests.support.faults.crashes import Crash
from tests.support.lake.linkable_rows import SPARK_TYPES, as_numbers, random_rows

pytestmark = pytest.mark.spark
APP = "lakeproof/shop/1/current/shop.t"
COMMIT = f"_delta_log/{1:020d}.json"
RACES, WRITERS = 25, 4


@pytest.fixture
def store(s3_lake: LakeLocation) -> Store:
    """The lake's store."""
    return open_store(s3_lake)


def info(number: int) -> CommitInfo:
    """The identity of a cycle's commit."""
    return CommitInfo(APP, number, f'{{"cycle":{number}}}')


def land(store: Store, name: str, rows: pa.Table) -> LandedFile:
    """Write the rows into the lake as a landed file is written."""
    file = store.create(f"shop/landing/{name}")
    with open_parquet(file, rows.schema, statistics=bounded(rows.schema)) as writer:
        writer.write_table(rows)
    file.finish()
    return LandedFile(store.url(file.key), rows.num_rows, file.bytes_written, file.sha256)


def link(spark: SparkSession, table: str, number: int, links: Sequence[Link], **more: Any) -> int:
    """Commit files; return the version."""
    version = newest_version(table)
    create = NewTable(SPARK_TYPES, TableSpec()) if version == NO_VERSION else None
    request = LinkRequest(table, info(number), links, {name: name for name in SPARK_TYPES}, version, create=create)
    return prepare_links(replace(request, **more)).commit().version


def crash_at(step: str) -> Callable[[str], None]:
    """The end of the process at a failpoint."""

    def passing(name: str) -> None:
        if name == step:
            raise Crash(name)

    return passing


def rows_of(spark: SparkSession, table: str) -> list[dict[str, Any]]:
    """The table's rows by their numbers."""
    return as_numbers(spark.read.format("delta").load(table).toArrow())


@pytest.mark.full
def test_landed_files_become_a_tables_files(spark: SparkSession, store: Store) -> None:
    """A first entry, a range with rows left out and rows of its own, and changes by Spark: each one commit."""
    parts = [random_rows(random.Random(n), 60, n * 60) for n in range(3)]
    files = [land(store, f"{n:06d}-ab.parquet", part) for n, part in enumerate(parts)]
    table = store.url("shop/current/public/t")
    assert link(spark, table, 1, [Link(files[0])]) == 0
    left_out = np.arange(10, dtype=np.int64)
    assert link(spark, table, 2, [Link(files[1], left_out)], rows=[parts[2]]) == 1
    expected = pa.concat_tables([parts[0], parts[1].slice(10), parts[2]])
    assert rows_of(spark, table) == as_numbers(expected)
    assert "deletionVectors" in reader_features(table, 1)
    gone = spark.createDataFrame(pa.table({"id": [0, 1]}), "id int")
    images = spark.createDataFrame(parts[0].slice(1, 1).to_pylist(), spark.read.format("delta").load(table).schema)
    for number, keys_max in ((3, None), (4, 2)):
        change = NetChange(Removed(("id",), gone), images)
        request = CommitRequest(table, change, info(number), keys_max)
        assert apply_change(spark, request).version == number - 1
        assert rows_of(spark, table) == as_numbers(pa.concat_tables([expected.slice(1)]))


@pytest.mark.full
def test_a_file_that_was_placed_before_is_taken_over(spark: SparkSession, store: Store) -> None:
    """An attempt that was killed after its copy; what has the name and is another file gives way."""
    file = land(store, "000001-ab.parquet", random_rows(random.Random(1), 20))
    table = store.url("shop/current/public/t")
    name = linked_name(info(1), file)
    store.put(f"shop/current/public/t/{name}", b"half of it")
    assert link(spark, table, 1, [Link(file)]) == 0
    assert len(rows_of(spark, table)) == 20
    stray = f"shop/current/public/t/{linked_name(info(9), file)}"
    store.link("shop/landing/000001-ab.parquet", stray)
    swept = [url for url, _ in unneeded(table, table_files(table, 0))]
    assert swept == [store.url(stray)]
    remove_files([(swept[0], 0)])
    assert not store.exists(stray)


@pytest.mark.full
def test_commits_that_no_cut_names_are_taken_back(spark: SparkSession, store: Store) -> None:
    """No version is made twice: whoever made it may sleep, and write for it when it wakes."""
    table = store.url("shop/history/public/t")
    files = [land(store, f"{n:06d}-ab.parquet", random_rows(random.Random(n), 10, n * 10)) for n in range(3)]
    for number, file in enumerate(files[:2]):
        link(spark, table, number + 1, [Link(file)])
    folder = Folder.at(table)
    log = {name: folder.get(f"_delta_log/{name}") for name in log_files(folder)}
    assert f"{0:020d}.crc" not in log, "a first commit is removed, so nothing may be written for it late"

    def ours(commit: DeltaCommit) -> bool:
        return APP in commit.txns

    with pytest.raises(Crash), watched(crash_at("cycle.before_taken_back")):
        clean_log(table, 0, ours)
    assert newest_version(table) == 1
    taken_back = clean_log(table, 0, ours)
    assert (taken_back.base, taken_back.foreign) == (2, ())
    assert [row["id"] for row in rows_of(spark, table)] == [*range(10)]
    assert clean_log(table, 0, ours) == taken_back, "once is enough"
    assert {name: folder.get(f"_delta_log/{name}") for name in log if name[:1].isdigit()} == {
        name: data for name, data in log.items() if name[:1].isdigit()
    }
    # The cycle is made again, with the number that the log has already seen, by Spark, which would skip a repeat.
    images = spark.read.format("delta").load(table).withColumn("id", F.col("id") + 100)
    request = CommitRequest(table, NetChange(images=images), info(2), expected_version=2)
    assert apply_change(spark.newSession(), request).version == 3
    assert link(spark, table, 3, [Link(files[2])]) == 4
    assert [row["id"] for row in rows_of(spark, table)] == [*range(10), *range(20, 30), *range(100, 110)]


@pytest.mark.full
def test_a_log_begins_again(spark: SparkSession, store: Store) -> None:
    """A version without rows follows, and needs nothing below it; rows come on top."""
    table = store.url("shop/current/public/t")
    link(spark, table, 1, [Link(land(store, "000001-ab.parquet", random_rows(random.Random(1), 10)))])
    Folder.at(table).delete(commit_name(0))
    begin_at(table, 1, metadata_of(new_fields(SPARK_TYPES), TableSpec().options(list(SPARK_TYPES))), "{}")
    assert spark.read.format("delta").load(table).count() == 0
    link(spark, table, 2, [Link(land(store, "000002-ab.parquet", random_rows(random.Random(2), 5)))])
    assert spark.read.format("delta").load(table).count() == 5


def test_the_second_of_two_commits_on_one_version_is_refused(spark: SparkSession, store: Store) -> None:
    """Both have prepared on the same version; the second one's files stay unnamed, and the table is the first one's."""
    table = store.url("shop/current/public/t")
    files = [land(store, f"{n:06d}-ab.parquet", random_rows(random.Random(n), 10, n * 10)) for n in range(3)]
    link(spark, table, 1, [Link(files[0])])
    columns = {name: name for name in SPARK_TYPES}
    prepared = [prepare_links(LinkRequest(table, info(2 + n), [Link(files[1 + n])], columns, 0)) for n in (0, 1)]
    assert prepared[0].commit().version == 1
    with pytest.raises(Exception, match=r"version|commit") as refused:
        prepared[1].commit()
    assert not isinstance(refused.value, Unsupported)
    assert newest_version(table) == 1
    assert [row["id"] for row in rows_of(spark, table)] == [*range(20)]
