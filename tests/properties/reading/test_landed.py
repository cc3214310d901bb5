"""Fresh reads: the lake at its landing's end equals the source there, whatever has landed since the newest cut.

Cuts and positions between them are in `test_readers.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Stop, silent
from lakeproof.lake.read.arrow.open import LandedReadLake
from lakeproof.lake.read.spark import open as read_landed
from lakeproof.lake.read.spark.open import LandedLake
from lakeproof.lake.read.spark.subscribe import LandedBatch
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.rows.change import Unsupported
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.lake.compare import current_lsn, lake_rows, source_rows, table_columns
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.simulated_rows import row_of, rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.servers.fix_postgres import Database
from tests.support.workloads.lake_workload import SEED, make_tables, random_row, run_transactions
from tests.support.workloads.pipeline_steps import pipeline_config, publish
from tests.support.workloads.random_workload import TABLES, RandomWorkload

pytestmark = pytest.mark.spark
NAMES = ["order lines", "rates", "bag", "full", "log"]


def begun(lake: Path, rng: random.Random) -> SimulatedSource:
    """A source with a table of each kind, copied."""
    source = SimulatedSource(lake, make_tables())
    for name in NAMES:
        table = source.table(name)
        for row in (random_row(rng, table) for _ in range(12)):
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    source.snapshot(NAMES)
    return source


def check(source: SimulatedSource, landed: LandedLake) -> None:
    """Every table equals the source's at the position."""
    state = source.state_at(landed.position(SOURCE))
    for name in NAMES:
        table = TableName("app", name)
        rows = rows_of(landed.table(SOURCE, table, hidden=True), source.tables[table].version)
        assert rows == state[table], f"{name} at {landed.position(SOURCE)}, seed {SEED}"


def check_without_spark(source: SimulatedSource, landed: LandedReadLake) -> None:
    """Do the same without Spark."""
    state = source.state_at(landed.position(SOURCE))
    for name in NAMES:
        table = TableName("app", name)
        version, rows = source.tables[table].version, landed.table(SOURCE, table, hidden=True)
        assert Counter(row_of(row, version) for row in rows.arrow().to_pylist()) == state[table], f"{name}, seed {SEED}"
        few = rows.select(version.columns[-1].name)
        assert few.arrow().num_rows == state[table].total()


@pytest.fixture(params=["in memory", pytest.param("by Spark", marks=pytest.mark.full)])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small ranges are added up in memory, larger ones by Spark."""

    def too_large(*_: object) -> None:
        raise Unsupported("it is too large")

    if request.param == "by Spark":
        monkeypatch.setattr(read_landed, "landed_net", too_large)  # inside: its real limit takes 128 MiB
    return str(request.param)


@pytest.mark.full
@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.full)])
def test_the_landings_end_is_the_source_there(spark: SparkSession, tmp_path: Path, road: str, rounds: int) -> None:
    """Unchanged values, moved and swapped keys, bags, truncates, cuts inside a segment; a cycle disturbs nothing."""
    rng = random.Random(SEED + len(road))
    source, config = begun(tmp_path, rng), make_config(tmp_path)
    run_transactions(rng, source, 4)
    run_compact(spark, config)
    for _ in range(rounds):
        run_transactions(rng, source, 14)
        newest = newest_cut(source.lake)
        assert newest is not None
        if rng.random() < 0.5:
            # A cut inside of a segment.
            places = [lsn for lsn in source.states if lsn > int(newest.position)]
            run_compact(spark, config, Lsn(rng.choice(places)))
        landed = lakeproof.open(spark, config, at="landing")
        assert isinstance(landed, LandedLake)
        assert (landed.position(SOURCE), landed.stopped(SOURCE)) == (source.chain.end, None)
        check_without_spark(source, lakeproof.read(config, at="landing"))
        before = sorted(path.as_posix() for path in tmp_path.rglob("*"))
        check(source, landed)
        assert sorted(path.as_posix() for path in tmp_path.rglob("*")) == before, "nothing is written"
        run_transactions(rng, source, 2)
        run_compact(spark, config)
        check(source, landed)
        assert lakeproof.open(spark, config, at="landing").position(SOURCE) == source.chain.end


def test_what_is_at_cuts_alone_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """History, views and SQL views are had at cuts; a lake without a cut has no tables."""
    rng = random.Random(SEED)
    source, config = begun(tmp_path, rng), make_config(tmp_path)
    empty = lakeproof.open(spark, config, at="landing")
    with pytest.raises(LakeError, match="no cut of this source"):
        empty.position(SOURCE)
    run_compact(spark, config)
    run_transactions(rng, source, 3)
    landed = lakeproof.open(spark, config, at="landing")
    assert str(source.chain.end) in repr(landed)
    assert [table.name for table in landed.tables()] == sorted(NAMES)
    with pytest.raises(ConfigError, match="current tables alone"):
        landed.table(SOURCE, "app.bag", layer="history")
    with pytest.raises(LakeError, match="views are computed at cuts"):
        landed.view("any")
    with pytest.raises(ConfigError, match="not the landing's end"):
        lakeproof.register(landed, "fresh")
    with pytest.raises(LakeError, match="it is not in the lake"):
        landed.table(SOURCE, "app.other")


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.parametrize(("count", "looks"), [(3, 2), pytest.param(4, 3, marks=pytest.mark.full)])
def test_fresh_reads_are_what_postgresql_has(
    database: Database, spark: SparkSession, tmp_path: Path, count: int, looks: int
) -> None:
    """A random workload at rest, drained and not compacted: what is read is what PostgreSQL has; a schema change ends it."""
    rng = random.Random(SEED + 3)
    tables = (TABLES[0], *rng.sample(TABLES[1:], count - 1))
    config = pipeline_config(database, tmp_path / "lake")
    workload = RandomWorkload(database.dsn, SEED + 3)
    workload.create_tables()
    publish(database, tables)
    bootstrap(config, "shop", None, silent, Stop())
    compact(config, "shop", spark, silent, Stop())
    for look in range(looks):
        for _ in range(rng.randrange(20, 60)):
            workload.step()
        drain(config, "shop", Until.caught_up(), silent, Stop())
        expected = source_rows(database.dsn, tables)
        landed = lakeproof.open(spark, config, at="landing")
        assert landed.stopped("shop") is None
        assert landed.position("shop") > landed.cut("shop").position
        check_postgres(database, landed, expected, tmp_path / str(look))
        if look % 2:
            compact(config, "shop", spark, silent, Stop())
    workload.close()


def check_postgres(database: Database, landed: LandedLake, expected: Mapping[TableName, object], place: Path) -> None:
    """Compare by delta-rs and SQL, not by lakeproof's own forms."""
    for number, table in enumerate(expected):
        folder = place / str(number)
        landed.table("shop", table, hidden=True).write.format("delta").save(str(folder))
        rows = lake_rows(folder, 0, *table_columns(database.dsn, table))
        assert rows == expected[table], f"{table} at {landed.position('shop')}, LAKEPROOF_SEED={SEED}"


@pytest.mark.postgres
def test_a_schema_change_ends_a_fresh_read(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """All tables stand right before the transaction with another schema, and the lake says why; a cycle leads beyond it."""
    config = pipeline_config(database, tmp_path / "lake")
    with database.connect() as conn:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
        conn.execute("CREATE TABLE b (id int PRIMARY KEY)")
        conn.execute("CREATE PUBLICATION pub FOR TABLE a, b")
        conn.execute("INSERT INTO a VALUES (1, 'x'), (2, 'y')")
    bootstrap(config, "shop", None, silent, Stop())
    compact(config, "shop", spark, silent, Stop())
    with database.connect() as conn:
        conn.execute("UPDATE a SET v = 'z' WHERE id = 1")
        conn.execute("INSERT INTO b VALUES (1)")
    before = Lsn.parse(current_lsn(database.dsn))
    with database.connect() as conn:
        conn.execute("ALTER TABLE a ADD n int")
        conn.execute("INSERT INTO a VALUES (3, 'w', 7)")
        conn.execute("INSERT INTO b VALUES (2)")
    drain(config, "shop", Until.caught_up(), silent, Stop())
    landed = lakeproof.open(spark, config, at="landing")
    assert "public.a changes right after it" in (landed.stopped("shop") or "")
    assert landed.cut("shop").position < before <= landed.position("shop")
    assert sorted(map(tuple, landed.table("shop", "public.a").collect())) == [(1, "z"), (2, "y")]
    assert sorted(map(tuple, landed.table("shop", "public.b").collect())) == [(1,)]
    compact(config, "shop", spark, silent, Stop())
    after = lakeproof.open(spark, config, at="landing")
    assert after.stopped("shop") is None
    assert sorted(map(tuple, after.table("shop", "public.a").collect())) == [
        (1, "z", None),
        (2, "y", None),
        (3, "w", 7),
    ]
    assert after.table("shop", "public.b").count() == 2


@pytest.mark.full
def test_a_stream_follows_the_landing(spark: SparkSession, tmp_path: Path) -> None:
    """Whole transactions in order, each once; a batch that broke off comes again, and the checkpoint is gone on from."""
    rng = random.Random(SEED)
    source, config = begun(tmp_path / "lake", rng), make_config(tmp_path / "lake")
    run_transactions(rng, source, 25)
    batches: list[tuple[Lsn, Lsn]] = []
    taken: dict[Lsn, list[tuple[Lsn, Counter[str]]]] = {}

    def deliver(batch: LandedBatch) -> None:
        batches.append((batch.first, batch.last))
        taken[batch.first] = [
            (t.position, Counter(repr(row) for change in t.changes for row in change.rows.to_pylist()))
            for t in batch.transactions()
        ]
        if len(batches) == 2:
            raise OSError("the subscriber's disk is full")

    def run() -> None:
        lakeproof.subscribe(
            spark,
            config,
            deliver,
            checkpoint=tmp_path / "checkpoint",
            from_landing=True,
            segments_per_batch=2,
            available_now=True,
        ).awaitTermination(300)

    with pytest.raises(StreamingQueryException, match="disk is full"):
        run()
    run()
    run_transactions(rng, source, 5)
    run()
    assert batches[1] == batches[2], "the batch that was interrupted comes again"
    ends = [batches[0], *batches[2:]]
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    assert ends[-1][1] == source.chain.end
    streamed = [transaction for first, _ in ends for transaction in taken[first]]
    expected = [
        (t.position, Counter(repr(row) for change in t.changes for row in change.rows.to_pylist()))
        for t in lakeproof.transactions(config)
    ]
    assert streamed == expected, f"seed {SEED}"
    assert [int(position) for position, _ in streamed] == sorted(source.times)
