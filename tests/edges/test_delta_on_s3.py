"""Delta's tables on S3: a commit stands on the version that it read, whoever else writes; links and vectors work."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.failpoints import watched
from lakeproof.lake.delta.apply import apply
from lakeproof.lake.delta.cleaned_log import clean_log
from lakeproof.lake.delta.column_types import new_fields
from lakeproof.lake.delta.commit import CommitInfo, CommitRequest, Hints, TableSpec, Unsupported
from lakeproof.lake.delta.files import remove_file, table_files, unneeded
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, linked_name, prepare_links
from lakeproof.lake.delta.links import LandedFile
from lakeproof.lake.delta.log import NO_VERSION, DeltaCommit, commit_name, log_files, newest_version
from lakeproof.lake.delta.log_restart import begin_at
from lakeproof.lake.delta.protocol import metadata_of
from lakeproof.lake.delta.reader_features import reader_features
from lakeproof.lake.rows.change import NetChange
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import open_store
from lakeproof.storage.parquet import bounded, open_parquet
from lakeproof.storage.store import Store
from tests.crashing_delta import Crash
from tests.fix_object_store import S3Server
from tests.linkable_rows import SPARK_TYPES, as_numbers, random_rows
from tests.object_proxy import Fault, object_proxy, putting

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


def test_landed_files_become_a_tables_files(spark: SparkSession, store: Store) -> None:
    """A first entry, a range with rows left out and rows of its own, and changes by Spark: each one commit."""
    parts = [random_rows(random.Random(n), 60, n * 60) for n in range(3)]
    files = [land(store, f"{n:06d}-ab.parquet", part) for n, part in enumerate(parts)]
    table = store.url("shop/current/public/t")
    assert link(spark, table, 1, [Link(files[0])]) == 0
    left_out = np.arange(10, dtype=np.int64)
    assert link(spark, table, 2, [Link(files[1], left_out)], rows=[parts[2]], row_count=60) == 1
    expected = pa.concat_tables([parts[0], parts[1].slice(10), parts[2]])
    assert rows_of(spark, table) == as_numbers(expected)
    assert "deletionVectors" in reader_features(table, 1).reasons
    gone = spark.createDataFrame(pa.table({"id": [0, 1]}), "id int")
    images = spark.createDataFrame(parts[0].slice(1, 1).to_pylist(), spark.read.format("delta").load(table).schema)
    for number, keys_max in ((3, None), (4, 2)):
        change = NetChange(("id",), gone, images)
        request = CommitRequest(table, change, info(number), Hints(max_keys=keys_max))
        assert apply(spark, request).version == number - 1
        assert rows_of(spark, table) == as_numbers(pa.concat_tables([expected.slice(1)]))


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
    remove_file(swept[0])
    assert not store.exists(stray)


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
    assert apply(spark.newSession(), request).version == 3
    assert link(spark, table, 3, [Link(files[2])]) == 4
    assert [row["id"] for row in rows_of(spark, table)] == [*range(10), *range(20, 30), *range(100, 110)]


def test_a_log_begins_again(spark: SparkSession, store: Store) -> None:
    """A version without rows follows, and needs nothing below it; rows come on top."""
    table = store.url("shop/current/public/t")
    link(spark, table, 1, [Link(land(store, "000001-ab.parquet", random_rows(random.Random(1), 10)))])
    Folder.at(table).delete(commit_name(0))
    begin_at(table, 1, metadata_of(new_fields(SPARK_TYPES), TableSpec().options(list(SPARK_TYPES))), "{}")
    assert spark.read.format("delta").load(table).count() == 0
    link(spark, table, 2, [Link(land(store, "000002-ab.parquet", random_rows(random.Random(2), 5)))])
    assert spark.read.format("delta").load(table).count() == 5


class Writer(threading.Thread):
    """Writes one version of a log by the log store, in a JVM's thread of its own; `error` is what became of it."""

    def __init__(self, spark: SparkSession, path: str, line: str, endpoint: str | None = None) -> None:
        super().__init__()
        self.spark, self.path, self.line, self.endpoint = spark, path, line, endpoint
        self.error: str | None = None
        self.start()

    def run(self) -> None:
        """Write it."""
        jvm: Any = self.spark._jvm
        conf = jvm.org.apache.hadoop.conf.Configuration(self.spark._jsc.hadoopConfiguration())
        if self.endpoint is not None:
            # A connection of its own, as another process has.
            conf.set("fs.s3a.endpoint", self.endpoint)
            conf.set("fs.s3a.impl.disable.cache", "true")
        lines = jvm.java.util.ArrayList()
        lines.add(self.line)
        log_store = jvm.lakeproof.ConditionalLogStore(conf)
        try:
            log_store.write(jvm.org.apache.hadoop.fs.Path(self.path), lines.iterator(), False, conf)
        except Py4JJavaError as error:
            self.error = str(error.java_exception.getClass().getName())

    def outcome(self) -> str | None:
        """Wait for it; return the error's class."""
        self.join()
        return self.error


TAKEN = "java.nio.file.FileAlreadyExistsException"


def test_one_of_several_writers_of_a_version_wins(spark: SparkSession, store: Store) -> None:
    """Each time exactly one, and the version is that one's."""
    for race in range(RACES):
        path = f"shop/t{race}/{COMMIT}"
        writers = [Writer(spark, store.url(path), f"writer {n}") for n in range(WRITERS)]
        outcomes = [writer.outcome() for writer in writers]
        assert sorted(map(str, outcomes)) == ["None", *[TAKEN] * (WRITERS - 1)]
        assert store.get(path) == f"{writers[outcomes.index(None)].line}\n".encode()


def test_a_writer_that_slept_does_not_replace_its_successors_commit(
    spark: SparkSession, store: Store, s3_server: S3Server
) -> None:
    """Its request is on its way while the other commits; Delta's own store would have looked before, and then written."""
    path = f"shop/t/{COMMIT}"
    with object_proxy(s3_server.port) as proxy:
        proxy.faults.append(Fault(putting(COMMIT), delay_s=3.0))
        zombie = Writer(spark, store.url(path), "zombie", proxy.endpoint)
        while not any(request.method == "PUT" for request in proxy.seen):
            time.sleep(0.01)
        assert Writer(spark, store.url(path), "successor").outcome() is None
        assert zombie.outcome() == TAKEN
        assert all(request.conditional for request in proxy.seen if request.method == "PUT")
    assert store.get(path) == b"successor\n"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(putting(COMMIT), lose=True, times=1), None),
        (Fault(putting(COMMIT), status=409, code="ConditionalRequestConflict"), None),
        (Fault(putting(COMMIT), status=503, code="SlowDown"), None),
        (Fault(putting(COMMIT), halve=True), None),
    ],
    ids=["answer lost", "409", "503", "cut in half"],
)
def test_a_commit_is_made_once_whatever_the_answer(
    spark: SparkSession, store: Store, s3_server: S3Server, fault: Fault, error: str | None
) -> None:
    """The object decides: with these very bytes it is ours."""
    path, fault = f"shop/t/{COMMIT}", replace(fault)
    with object_proxy(s3_server.port) as proxy:
        proxy.faults.append(fault)
        assert Writer(spark, store.url(path), "ours", proxy.endpoint).outcome() == error
        assert fault.times == 0
    assert store.get(path) == b"ours\n"
    assert Writer(spark, store.url(path), "another").outcome() == TAKEN


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
