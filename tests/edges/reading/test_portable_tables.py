"""A table with `readers: portable` takes every change of rows and schema, and a reader without features reads it.

The reader is delta-rs's path to Arrow, which refuses deletion vectors and type widening, and reads no mapped column. Which
reader reads what is in `test_readers_page.py`; the ways to write are in `properties/cycles/test_ways_to_write.py`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from assets.cycles import totals
from lakeproof.cli.status_page import page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, TableConfig
from lakeproof.drain.until import Until
from lakeproof.events import Event, Stop, silent
from lakeproof.lake.delta.log.protocol import MAPPING, NO_ZONE, VECTORS, WIDENING, reader_features
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.held import HeldCause
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.snapshot.run import SnapshotIncompleteError
from lakeproof.state.source import TableReaders
from lakeproof.state.status import lake_status
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

KEYED, BAG = TableName("public", "keyed"), TableName("public", "bag")
PORTABLE = TableConfig(readers="portable")
MAKE: tuple[LiteralString, ...] = (
    "CREATE TABLE keyed (id int PRIMARY KEY, v int, w text, n numeric(8,2), f real, doc text)",
    "ALTER TABLE keyed ALTER doc SET STORAGE EXTERNAL",
    "INSERT INTO keyed SELECT i, i, 'w' || i, i / 3.0, i / 8.0, repeat('d', 3000) FROM generate_series(1, 20) i",
    "CREATE TABLE bag (v int, w text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "INSERT INTO bag SELECT i % 5, 'w' FROM generate_series(1, 20) i",
    "CREATE PUBLICATION pub FOR TABLE keyed, bag",
)
# Each is done, drained and compacted before the next; `made again` would show the old values of `w` if they came back.
STEPS: dict[str, tuple[LiteralString, ...]] = {
    "rows": (
        "UPDATE keyed SET v = 100 + v WHERE id < 6",
        "DELETE FROM keyed WHERE id = 7",
        "DELETE FROM bag WHERE v = 3",
    ),
    "key moved": ("UPDATE keyed SET id = 50 WHERE id = 8", "INSERT INTO keyed VALUES (8, 8)"),
    "added": ("ALTER TABLE keyed ADD x int", "ALTER TABLE bag ADD x int"),
    "dropped": ("ALTER TABLE keyed DROP w", "ALTER TABLE bag DROP w"),
    "made again": ("ALTER TABLE keyed ADD w int", "ALTER TABLE bag ADD w int"),
    "renamed": ("ALTER TABLE keyed RENAME v TO y", "ALTER TABLE bag RENAME v TO y"),
    "swapped": ("ALTER TABLE keyed RENAME x TO q; ALTER TABLE keyed RENAME y TO x; ALTER TABLE keyed RENAME q TO y",),
    "widened": ("ALTER TABLE keyed ALTER x TYPE bigint",),
    "more digits": ("ALTER TABLE keyed ALTER n TYPE numeric(12,2)",),
    "double": ("ALTER TABLE keyed ALTER f TYPE double precision",),
    "widened key": ("ALTER TABLE keyed ALTER id TYPE bigint",),
    # After the wider types: a rewrite takes the recorded default away, which alters another column's line in the catalog.
    "added with a value": ("ALTER TABLE keyed ADD z text DEFAULT 'zz'",),
    "truncated": ("TRUNCATE bag",),
}
TOUCH: tuple[LiteralString, ...] = (
    "UPDATE keyed SET n = n + 1 WHERE id IN (3, 4)",
    "INSERT INTO keyed (id, n) SELECT max(id) + 1, 5 FROM keyed",
    "INSERT INTO bag SELECT FROM generate_series(1, 2)",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
)


def begun(database: Database, folder: Path, **chosen: Any) -> Config:
    """Both tables, copied."""
    database.execute(*MAKE)
    config = configured(database, folder, **chosen)
    bootstrap(config, "shop")
    return config


def configured(database: Database, folder: Path, **chosen: Any) -> Config:
    """A lake with both tables, portable unless `chosen` has them otherwise."""
    chosen.setdefault("table", {KEYED: PORTABLE, BAG: PORTABLE})
    source = database.source(buckets=16, **chosen)
    return Config(path=folder / "w.yaml", lake=str(folder / "lake"), sources={"shop": source})


def needs(config: Config, table: TableName) -> dict[str, str]:
    """The features that readers of the table's history and current need, with the reasons."""
    lake, cut_table = SourceLake.open(config.lake, "shop"), cut_of(config).tables[table]
    places = {
        lake.paths.history(table): cut_table.history_version,
        lake.paths.current(table): cut_table.current_version,
    }
    return {n: r for key, version in places.items() for n, r in reader_features(lake.url(key), version).items()}


def assert_read_as_in_the_source(database: Database, config: Config, step: str) -> None:
    """A reader without features reads current as the source has it, and all of history."""
    lake, cut = SourceLake.open(config.lake, "shop"), cut_of(config)
    assert not cut.held, step
    for table in (KEYED, BAG):
        cut_table = cut.tables[table]
        names = [c.name for c in cut_table.version.columns]
        listed = SQL(", ").join(map(Identifier, names))
        expected = Counter(database.rows(SQL("SELECT {} FROM {}").format(listed, Identifier(table.name))))
        assert Counter(
            zip(*columns(lake, lake.paths.current(table), cut_table.current_version, names), strict=True)
        ) == (expected), (step, table)
        read = DeltaTable(lake.url(lake.paths.history(table)), version=cut_table.history_version).to_pyarrow_table()
        assert set(names) < set(read.column_names), step
        assert read.num_rows == cut_table.history_sum.rows, step
        assert needs(config, table) == {}, step


def columns(lake: SourceLake, key: str, version: int, names: list[str]) -> list[list[Any]]:
    """The columns of a table, read by that reader."""
    read: pa.Table = DeltaTable(lake.url(key), version=version).to_pyarrow_table(columns=names)
    return [read.column(name).to_pylist() for name in names]


def assert_equal(config: Config, spark: SparkSession) -> None:
    """Both tables and both histories are proved."""
    proof = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {one.status for one in proof.tables.values()} == {"equal"}, proof.tables
    assert proof.lake is not None
    assert {one.status for one in proof.lake.histories.values()} == {"equal"}, proof.damaged


@pytest.mark.parametrize(
    "steps",
    [
        ("rows", "added", "renamed"),
        pytest.param(tuple(STEPS), marks=pytest.mark.full),
    ],
    ids=["some", "all"],
)
def test_a_reader_without_features_reads_after_each_change(
    database: Database, tmp_path: Path, spark: SparkSession, steps: tuple[str, ...]
) -> None:
    """Changes of rows and columns; at the end both sides are proved equal, history too, and the first cut is as it was."""
    config = begun(database, tmp_path)
    into_the_lake(config, spark)
    assert_read_as_in_the_source(database, config, "the first copy")
    first = cut_of(config)
    for step in steps:
        database.execute(*STEPS[step], *TOUCH)
        into_the_lake(config, spark)
        assert_read_as_in_the_source(database, config, step)
    opened = open_lake(spark, config, int(first.number))
    assert opened.table("shop", KEYED).columns == [c.name for c in first.tables[KEYED].version.columns]
    assert opened.table("shop", KEYED).where("w IS NULL").count() == 0, "an old cut reads what it was"
    assert_equal(config, spark)


@pytest.mark.full
def test_a_table_keeps_its_features_until_it_begins_again(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """Configured as portable later it is written as before, and `status` says so; moved away and copied it is portable."""
    config = begun(database, tmp_path, table={})
    for statements in ((*STEPS["rows"], *STEPS["dropped"]), ("ALTER TABLE keyed ALTER v TYPE bigint",)):
        database.execute(*statements, *TOUCH)
        into_the_lake(config, spark)
    assert needs(config, KEYED).keys() == {VECTORS, MAPPING, WIDENING}
    config = configured(database, tmp_path)
    assert compact(config, "shop", spark, silent, Stop()) == [], "nothing is written for the setting's sake"
    keeps = "  readers    public.keyed: it has these since before it was configured as portable, and keeps them"
    database.execute("UPDATE keyed SET v = 1000 WHERE id = 4", *STEPS["renamed"], *TOUCH)
    into_the_lake(config, spark)
    assert needs(config, KEYED).keys() == {VECTORS, MAPPING, WIDENING}
    assert keeps in page(lake_status(config))
    assert_equal(config, spark)
    lake = SourceLake.open(config.lake, "shop")
    for key in (lake.paths.history(KEYED), lake.paths.current(KEYED)):
        shutil.move(lake.url(key), tmp_path / key.replace("/", "-"))
    database.execute(*TOUCH)
    into_the_lake(config, spark)
    assert {table: held.cause for table, held in cut_of(config).held.items()} == {KEYED: HeldCause.LOG_DAMAGED}
    bootstrap(config, "shop", [KEYED])
    into_the_lake(config, spark)
    assert needs(config, KEYED) == {}
    assert keeps not in page(lake_status(config))
    database.execute(*TOUCH)
    into_the_lake(config, spark)
    assert_equal(config, spark)


@pytest.mark.full
def test_names_that_need_mapping_hold_a_portable_table(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """One is refused before its first copy, one held when a column is renamed: the reason and the way out are named."""
    database.execute('CREATE TABLE odd ("a b" int PRIMARY KEY, v int)', *MAKE, "ALTER PUBLICATION pub ADD TABLE odd")
    odd = TableName("public", "odd")
    config = configured(database, tmp_path, table={odd: PORTABLE, KEYED: PORTABLE})
    refused = {finding.table: finding.reason for finding in check_source(config, "shop").findings if finding.table}
    assert "without column mapping a file can't have the names `a b`" in refused[odd]
    with pytest.raises(SnapshotIncompleteError, match="a file can't have the names `a b`"):
        bootstrap(config, "shop")
    database.execute('ALTER TABLE keyed RENAME w TO "w, x"', "UPDATE keyed SET v = 5 WHERE id = 5")
    into_the_lake(config, spark)
    ((table, held),) = cut_of(config).held.items()
    assert (table, held.cause) == (KEYED, HeldCause.NAMES_NOT_PORTABLE)
    assert held.reason.endswith("a file can't have the names `w, x`")
    database.execute('ALTER TABLE odd RENAME "a b" TO a', "INSERT INTO odd VALUES (1)")
    config = configured(database, tmp_path, table={odd: PORTABLE})
    drain(config, "shop", Until.caught_up())
    bootstrap(config, "shop", [odd, KEYED])
    into_the_lake(config, spark)
    assert not cut_of(config).held
    assert (needs(config, odd), needs(config, KEYED)) == ({}, {MAPPING: "a file can't have the name w, x"})
    assert_equal(config, spark)


def test_a_feature_is_switched_on_only_by_what_needs_it(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """A column that is added needs none, not even after a drop; the cycle of one that does says so."""
    config = begun(database, tmp_path, table={})
    expected: dict[tuple[LiteralString, ...], dict[str, str]] = {
        (): {},
        STEPS["added"]: {},
        ("ALTER TABLE keyed DROP w",): {MAPPING: "w was dropped"},
        ("ALTER TABLE keyed ADD more int",): {},
        ("ALTER TABLE keyed ADD t timestamp",): {NO_ZONE: "t is a timestamp without a time zone"},
        ("ALTER TABLE keyed ALTER v TYPE bigint",): {WIDENING: "v was integer"},
    }
    all_of_them: dict[str, str] = {VECTORS: "deleted rows are marked, and stay in their files"}
    for statements, switched in expected.items():
        database.execute(*statements, "UPDATE keyed SET n = n + 1 WHERE id = 3")
        drain(config, "shop", Until.caught_up())
        events: list[Event] = []
        cuts = compact(config, "shop", spark, events.append, Stop())
        assert [dict(e.fields["features"]) for e in events if e.kind == "compact.readers"] == (
            [switched] if switched else []
        )
        metadata = totals(cuts).get(KEYED)
        assert metadata is not None
        assert metadata.features == switched
        all_of_them |= switched
        assert needs(config, KEYED) == all_of_them
    report = lake_status(config)
    assert report.sources["shop"].readers[KEYED] == TableReaders(all_of_them, keeps=False)
    text = page(report)
    assert "  readers    must know columnMapping for public.keyed (w was dropped)" in text
    assert f"  readers    must know deletionVectors for 2 of 2 tables ({all_of_them[VECTORS]})" in text
    assert_equal(config, spark)
