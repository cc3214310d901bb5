"""A large value that updates leave alone is once in history, and everywhere in what readers are given.

Random workloads with such values are in `tests/properties`; that both roads of a range give the same is there, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import LiteralString

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.events import Stop, silent
from lakeproof.hidden_columns import FROM, ORD
from lakeproof.lake.columns import in_lake
from lakeproof.lake.fold import unchanged_values as holders
from lakeproof.lake.fold.unchanged_values import ranges_of, resolve_history
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import Identity
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from tests.support.lake.compare import Rows, current_lsn, source_rows
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.maintain_steps import policy
from tests.support.lake.simulated_rows import Row, rows_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = pytest.mark.spark
DOCS = TableName("public", "docs")
LARGE = 300_000  # md5 9,375 times
UPDATES = 100


def files_of(config: Config, source: str, table: TableName) -> dict[Path, int]:
    """The data files of a table's history and their sizes."""
    lake = SourceLake.open(config.lake, source)
    return {f: f.stat().st_size for f in Path(lake.url(lake.paths.history(table))).glob("*.parquet")}


def as_rows(frame: DataFrame) -> Rows:
    """The rows of `docs` as PostgreSQL prints them."""
    return Counter(tuple(None if v is None else str(v) for v in row) for row in frame.collect())


@pytest.mark.full
def test_a_counter_beside_a_large_value_costs_what_the_counter_does(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """By each road: this process, and Spark.

    Each position read back is what PostgreSQL was, and history has the value in every image.
    """
    database.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, n int, doc text)",
        "ALTER TABLE docs ALTER COLUMN doc SET STORAGE EXTERNAL",
        "INSERT INTO docs SELECT i, 0, repeat(md5(i::text), 9375) FROM generate_series(1, 3) i",
        "CREATE PUBLICATION pub FOR TABLE docs",
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path), sources={"shop": database.source(buckets=16)})
    bootstrap(config, "shop", None, silent, Stop())
    into_the_lake(config, spark)
    states: dict[Lsn, Rows] = {}

    def update(times: int) -> None:
        with database.connect() as connection:
            for _ in range(times):
                connection.execute("UPDATE docs SET n = n + 1 WHERE id IN (1, 2)")
        states[Lsn.parse(current_lsn(database.dsn))] = source_rows(database.dsn, (DOCS,))[DOCS]

    engines: list[Literal["auto", "spark"]] = ["auto", "spark", "auto"]
    for engine in engines:
        shop = database.source(buckets=16, compaction=CompactionConfig(engine=engine))
        config = config.model_copy(update={"sources": {"shop": shop}})
        before = files_of(config, "shop", DOCS)
        update(UPDATES // 2)
        # Its own value, a key move that leaves it alone, a row that is new.
        database.execute("UPDATE docs SET doc = reverse(doc) WHERE id = 2", "UPDATE docs SET id = 9 WHERE id = 2")
        database.execute("INSERT INTO docs SELECT 2, 0, repeat(md5(max(n)::text), 9375) FROM docs")
        update(UPDATES // 2)
        database.execute("UPDATE docs SET id = (SELECT 100 + max(id) FROM docs) WHERE id = 9")
        into_the_lake(config, spark)
        added = {f: size for f, size in files_of(config, "shop", DOCS).items() if f not in before}
        # Two values came; 200 images and 2 key moves name them.
        assert sum(added.values()) < 2 * LARGE + 100 * UPDATES, added
        assert as_rows(lakeproof.open(spark, config).table("shop", DOCS)) == source_rows(database.dsn, (DOCS,))[DOCS]

    # By each engine one, since each takes as long as a cycle.
    for position, expected in list(states.items())[1::2]:
        assert as_rows(lakeproof.as_of(spark, config, position).table(DOCS)) == expected, position
    history = lakeproof.open(spark, config).table("shop", DOCS, layer="history", hidden=True)
    images = history.where("_lp_op IN ('snapshot', 'insert', 'update')").selectExpr("length(doc) n", "_lp_from f")
    actual = Counter((row["n"], row["f"] is None) for row in images.collect())
    # Copied or sent: the first three, and by each road one given anew and one inserted.
    assert actual == {(LARGE, True): 9, (LARGE, False): 6 * UPDATES + 6}


@pytest.mark.full
def test_values_are_known_by_their_column_after_any_change_of_the_table(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Renamed, beside dropped and added columns, in a table that has no key meanwhile; the proof compares each schema."""
    database.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, n int, x text, doc text)",
        "ALTER TABLE docs ALTER COLUMN doc SET STORAGE EXTERNAL, ALTER COLUMN x SET STORAGE EXTERNAL",
        "INSERT INTO docs SELECT i, 0, repeat('x', 4000), repeat('d', 5000) FROM generate_series(1, 3) i",
        "CREATE PUBLICATION pub FOR TABLE docs",
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path), sources={"shop": database.source(buckets=16)})
    bootstrap(config, "shop", None, silent, Stop())
    into_the_lake(config, spark)
    steps: tuple[tuple[LiteralString, ...], ...] = (
        ("UPDATE docs SET n = 1 WHERE id < 3",),
        ("ALTER TABLE docs RENAME doc TO body", "ALTER TABLE docs DROP x"),
        (
            "ALTER TABLE docs ADD late text DEFAULT repeat('l', 3000)",
            "ALTER TABLE docs ALTER late SET STORAGE EXTERNAL",
        ),
        # A bag in between: its rows are identified by their values, and keep their places.
        ("ALTER TABLE docs DROP CONSTRAINT docs_pkey", "ALTER TABLE docs REPLICA IDENTITY FULL"),
        ("ALTER TABLE docs ADD PRIMARY KEY (id)", "ALTER TABLE docs REPLICA IDENTITY DEFAULT"),
    )
    for number, statements in enumerate(steps, start=2):
        database.execute(*statements)
        with database.connect() as connection:
            connection.execute("UPDATE docs SET n = %s WHERE id < 3", [number])
        (proof,) = prove(config, "shop", None, spark, request=TABLES_ALONE).tables.values()
        assert (proof.status, proof.reason) == ("equal", None), statements
    history = lakeproof.open(spark, config).table("shop", DOCS, layer="history", hidden=True)
    (away,) = (name for name in history.columns if name.startswith("_lp_dropped_"))
    columns = ("n", "left(body, 1)", "length(body)", "length(late)", f"length({away})", "_lp_from IS NOT NULL")
    actual = history.where("_lp_op = 'update' AND id = 1").orderBy(ORD).selectExpr(*columns).collect()
    assert [tuple(row) for row in actual] == [
        (1, "d", 5000, None, 4000, True),
        (2, "d", 5000, None, 4000, True),
        (3, "d", 5000, None, None, True),
        (4, "d", 5000, 3000, None, True),
        (5, "d", 5000, 3000, None, False),
        (6, "d", 5000, 3000, None, True),
    ]


def notes() -> SimulatedTable:
    """Two columns that may be left out of an update."""
    return SimulatedTable(
        schema("notes", {"id": "int8", "n": "int4", "a": "text", "b": "exact_text"}, ("id",), Identity.DEFAULT, 7),
        large=(2, 3),
    )


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedSource:
    """Return a source with a table of two rows, and its snapshot."""
    source = SimulatedSource(tmp_path, [notes()])
    source.table("notes").rows += [(1, 0, "a1", "b1"), (2, 0, "a2", None)]
    source._remember()
    source.snapshot(["notes"])
    return source


def change(source: SimulatedSource, key: int, *values: object) -> None:
    """Commit a row's new values under its key (`...`: the old one), in its own segment."""
    table = source.table("notes")
    old = next(row for row in table.rows if row[0] == key)
    source.update(table, old, tuple(o if v is ... else v for o, v in zip(old, values, strict=True)))
    source.commit(random.Random(key))
    source.flush()


def history_of(spark: SparkSession, config: Config) -> DataFrame:
    """History of the table as it stands, marks included."""
    lake = SourceLake.open(config.lake, SOURCE)
    return spark.read.format("delta").load(lake.url(lake.paths.history(notes().version.table)))


def test_only_rows_with_a_mark_are_looked_up_and_only_where_their_holders_are(
    spark: SparkSession, simulated: SimulatedSource
) -> None:
    """Rows without one come back as they are; of four files of history the one with the holder is read."""
    config = make_config(simulated.folder)
    run_compact(spark, config)
    for n in range(1, 4):
        change(simulated, 1, ..., n, ..., f"b{n}")
        run_compact(spark, config)
    table = in_lake(notes().version)
    history = history_of(spark, config)
    plain = history.where(f"{FROM} IS NULL")
    assert resolve_history(table, plain, history) is plain
    newest = history.orderBy(ORD, ascending=False).limit(1).localCheckpoint()
    named = newest.select(FROM).collect()[0][0]
    assert named == '{"3":' + str(history.agg({ORD: "min"}).collect()[0][0]) + "}"
    assert len(history.inputFiles()) == 4
    actual = resolve_history(table, newest, history)
    assert (len(actual.inputFiles()), actual.select("id", "n", "a", "b").collect()) == (1, [(1, 3, "a1", "b3")])


@pytest.mark.full
def test_more_holders_than_the_driver_takes_are_joined(
    spark: SparkSession, simulated: SimulatedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The join gives the same rows."""
    config = make_config(simulated.folder)
    run_compact(spark, config)
    for key, n in ((1, 1), (2, 2), (1, 3)):
        change(simulated, key, ..., n, ..., ...)
    run_compact(spark, config)
    expected = _images(spark, config)
    monkeypatch.setattr(holders, "HOLDERS_MAX", 1)  # inside: its real limit takes 10,000 rows that hold values
    assert _images(spark, config) == expected
    assert expected["update", 1, 3, "a1", "b1"] == expected["update", 2, 2, "a2", None] == 1


def _images(spark: SparkSession, config: Config) -> Counter[tuple[object, ...]]:
    actual = open_lake(spark, config).table(SOURCE, notes().version.table, layer="history", hidden=True)
    return Counter(tuple(row) for row in actual.select("_lp_op", "id", "n", "a", "b").collect())


def test_what_nobody_holds_is_refused(spark: SparkSession, simulated: SimulatedSource) -> None:
    """A history that has lost the row: a query fails, and gives no NULL instead."""
    config = make_config(simulated.folder)
    run_compact(spark, config)
    change(simulated, 1, ..., 1, ..., ...)
    run_compact(spark, config)
    history = history_of(spark, config)
    lost = history.where("_lp_op != 'snapshot'")
    with pytest.raises(PySparkException, match="an unchanged large value would come from is not in the lake"):
        resolve_history(in_lake(notes().version), lost, lost).collect()


@pytest.mark.full
def test_what_should_hold_a_value_and_is_null_holds_the_table(spark: SparkSession, simulated: SimulatedSource) -> None:
    """Current that went wrong: an unchanged value is never NULL, so nothing is guessed; the next snapshot heals it."""
    config = make_config(simulated.folder)
    run_compact(spark, config)
    table = simulated.table("notes")
    # The row has no value of b in the lake; the source sends none either.
    table.rows = [(2, 0, "a2", "unseen") if row[0] == 2 else row for row in table.rows]
    change(simulated, 2, ..., 1, ..., ...)
    run_compact(spark, config)
    cut = open_lake(spark, config).cut(SOURCE)
    assert "unchanged large value" in cut.held[table.version.table].reason
    simulated.snapshot(["notes"])
    change(simulated, 2, ..., 2, ..., ...)
    run_compact(spark, config)
    opened = open_lake(spark, config)
    assert not opened.cut(SOURCE).held
    state = simulated.state_at(opened.position(SOURCE))[table.version.table]
    assert rows_of(opened.table(SOURCE, table.version.table, hidden=True), table.version) == state
    # The correction holds what it brought, and a later row names it.
    last = history_of(spark, config).orderBy(ORD, ascending=False).limit(1).collect()[0]
    assert last["_lp_op"] in {"update", "correct_insert"}


def moments(source: SimulatedSource, since: Lsn, count: int) -> Iterator[tuple[Lsn, Mapping[TableName, Counter[Row]]]]:
    """The source's states at its last commits."""
    for place in [p for p in sorted(source.states) if Lsn(p) >= since][-count:]:
        yield Lsn(place), source.state_at(Lsn(place))


@pytest.mark.full
def test_values_stay_when_the_rows_that_brought_them_leave_history(
    spark: SparkSession, simulated: SimulatedSource
) -> None:
    """Trimmed twice: what stays holds the value for all who name it; an archive that comes back is complete again."""
    lake, name = simulated.folder, notes().version.table
    config = make_config(lake)
    for n in range(1, 7):
        change(simulated, 1, ..., n, ..., f"b{n}" if n == 3 else ...)
        change(simulated, 2, ..., n, ..., ...)
        run_compact(spark, config)
    whole = _images(spark, config)
    now = datetime.now(timezone.utc)
    for last in (2, 4):
        end = open_lake(spark, lake, last).position(SOURCE)
        age = (now - time_of(open_lake(spark, lake, last).cut(SOURCE).created_at)).total_seconds()
        unchanged = [r[0] for r in history_of(spark, config).where("a IS NULL AND id = 1").select("_lp_lsn").collect()]
        keeping = policy(lake, history_s=age - 0.0001, archive=str(lake / "archive"), small_files=1000)
        assert maintain(keeping, SOURCE, spark, silent, MaintenanceRequest(now=now)).trimmed == (name,)
        low = open_lake(spark, lake).cut(SOURCE).tables[name].history_low
        assert low is not None
        assert low.at_lsn >= end
        left = history_of(spark, config).where("a IS NULL AND id = 1").count()
        assert left == sum(place > int(low.at_lsn) for place in unchanged)
        for position, state in moments(simulated, low.at_lsn, 3):
            actual = lakeproof.as_of(spark, lake, position).table(name, hidden=True)
            assert rows_of(actual, notes().version) == state[name], position
        assert _images(spark, config) <= whole
        # Current says where its values are as history does: nothing differs.
        before = open_lake(spark, lake).cut(SOURCE).tables[name].current_version
        maintain(policy(lake, small_files=1000), SOURCE, spark, silent, MaintenanceRequest(rebuild=[name]))
        assert open_lake(spark, lake).cut(SOURCE).tables[name].current_version == before
    back = policy(lake, archive=str(lake / "archive"), small_files=1000)
    maintain(back, SOURCE, spark, silent, MaintenanceRequest(restore=[name]))
    assert _images(spark, config) == whole
    change(simulated, 1, ..., 99, ..., ...)
    run_compact(spark, config)
    assert _images(spark, config)["update", 1, 99, "a1", "b3"] == 1


@pytest.mark.full
def test_a_new_snapshot_leaves_rows_where_they_are_held(spark: SparkSession, simulated: SimulatedSource) -> None:
    """Equal rows of a table copied again name the rows that history has, those corrected the correction's own."""
    config = make_config(simulated.folder)
    run_compact(spark, config)
    change(simulated, 1, ..., 1, ..., ...)
    run_compact(spark, config)
    table = simulated.table("notes")
    lost = (3, 0, "a3", "b3")
    simulated.insert(table, lost, lost=True)
    simulated.commit(random.Random(3))
    simulated.snapshot(["notes"])
    for key in (1, 2, 3):
        change(simulated, key, ..., 2, ..., ...)
    run_compact(spark, config)
    for key in (1, 2, 3):
        change(simulated, key, ..., 3, ..., ...)
    run_compact(spark, config)
    history = history_of(spark, config)
    there = {row[0] for row in history.where(f"{FROM} IS NULL").select(ORD).collect()}
    named = history.where(f"{FROM} IS NOT NULL").selectExpr(f"explode(from_json({FROM}, 'map<string,bigint>'))")
    assert {row["value"] for row in named.collect()} <= there
    images = _images(spark, config)
    assert [images["update", k, 3, f"a{k}", b] for k, b in ((1, "b1"), (2, None), (3, "b3"))] == [1, 1, 1]
    opened = open_lake(spark, config)
    state = simulated.state_at(opened.position(SOURCE))[table.version.table]
    assert rows_of(opened.table(SOURCE, table.version.table, hidden=True), table.version) == state


def test_ordinals_are_looked_for_in_few_ranges() -> None:
    """The widest gaps are left out."""
    assert ranges_of([5]) == [(5, 5)]
    assert ranges_of([1, 2, 9]) == [(1, 1), (2, 2), (9, 9)]
    assert ranges_of([1, 2, 9, 12], ranges_max=2) == [(1, 2), (9, 12)]
