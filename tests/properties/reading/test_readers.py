"""Readers: the lake at cuts and between them, by position, number and time, and in SQL, over random histories.

PostgreSQL itself is the source in the last test. `make test` looks at a few places of each history, `make test-all` at more.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

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
from lakeproof.lake.read.spark.as_of import LakeAsOf
from lakeproof.lake.read.spark.changes import CutChanges
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lake.records.cuts.choice import At
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.lake.compare import Rows, current_lsn, lake_rows, source_rows, table_columns
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.simulated_rows import Row, row_of, rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.servers.fix_postgres import Database
from tests.support.workloads.lake_workload import SEED, make_tables, random_row, run_transactions
from tests.support.workloads.pipeline_steps import pipeline_config, publish
from tests.support.workloads.random_workload import TABLES, RandomWorkload

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Past:
    """A source with some history in a lake of several cuts; `times` are the commits' times by position."""

    source: SimulatedSource
    lake: Path
    times: Mapping[int, datetime]


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Past:
    """A composite key, a bag, a table that enters late; four cuts, one of which ends inside a segment."""
    rng = random.Random(SEED)
    lake = tmp_path_factory.mktemp("readers")
    kinds = ("order lines", "bag", "log")
    source = SimulatedSource(lake, [t for t in make_tables() if t.version.table.name in kinds])
    config = make_config(lake)
    for name in kinds[:2]:
        table = source.table(name)
        rows = (random_row(rng, table) for _ in range(15))
        for row in rows:
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    run_transactions(rng, source, 5)
    source.snapshot(["order lines", "bag"])
    run_transactions(rng, source, 12)
    middle = sorted(source.states)[9]
    run_compact(spark, config, Lsn(middle + 3))
    run_compact(spark, config)
    run_transactions(rng, source, 12)
    run_compact(spark, config)
    source.snapshot(["log", "bag"])
    run_transactions(rng, source, 12)
    run_compact(spark, config)
    return Past(source, lake, dict(source.times))


def _places(past: Past, count: int) -> list[int]:
    commits = sorted(past.source.states)
    places = [p + d for p in commits for d in (0, 3) if p + d <= int(past.source.chain.end)]
    return random.Random(SEED).sample(places, count)


@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.full)])
def test_as_of_is_exact_at_any_position(spark: SparkSession, past: Past, count: int) -> None:
    """At cuts, between them and before the first one, every table copied by then equals the source."""
    for place in _places(past, count):
        actual = lakeproof.as_of(spark, past.lake, str(Lsn(place)))
        assert actual.position == Lsn(place)
        state = past.source.state_at(Lsn(place))
        for table in actual.tables:
            rows = rows_of(actual.table(table, hidden=True), past.source.tables[table].version)
            assert rows == state[table], f"{table} at {actual.position}, seed {SEED}"
    assert {t.name for t in lakeproof.as_of(spark, past.lake, past.source.chain.end).tables} == {
        t.name for t in past.source.tables
    }


@pytest.mark.full
@pytest.mark.parametrize("count", [5])
def test_a_time_is_the_prefix_before_the_first_later_commit(spark: SparkSession, past: Past, count: int) -> None:
    """Commit times are not in commit order: nothing of a later time is in it, and nothing before that is missing."""
    commits = sorted(past.times)
    chosen = random.Random(SEED + 1).sample(commits, min(count, len(commits)))
    first = read_cut(past.source.lake, cut_numbers(past.source.lake)[0])
    for commit in chosen:
        position = past.times[commit] + timedelta(microseconds=1)
        prefix = [p for p in commits if all(past.times[q] <= position for q in commits if q <= p)]
        if not prefix or Lsn(prefix[-1]) < first.position:
            continue
        actual = lakeproof.as_of(spark, past.lake, position)
        state = past.source.states[prefix[-1]]
        for table in actual.tables:
            rows = rows_of(actual.table(table, hidden=True), past.source.tables[table].version)
            assert rows == state[table], f"{table} at {position}, seed {SEED}"


def test_open_says_which_cut_it_gives(spark: SparkSession, past: Past) -> None:
    """Newest, number, position and time select the newest cut that is not later than requested."""
    lake = past.source.lake
    cuts = [read_cut(lake, n) for n in cut_numbers(lake)]
    assert [int(c.number) for c in cuts] == [1, 2, 3, 4]

    def given(position: At) -> int:
        return int(lakeproof.open(spark, past.lake, position).cut(SOURCE).number)

    assert given("newest") == 4
    assert given(2) == 2
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        assert given(cut.position) == given(str(Lsn(int(cut.position) + 1))) == cut.number
        assert cut.commit_time is not None
        position = datetime.fromisoformat(cut.commit_time)
        # Transactions of a later cut may all have committed by then.
        assert given(position) == max(c.number for c in cuts if c.commit_time == cut.commit_time), f"seed {SEED}"
        if following is not None and following.commit_time is not None and following.commit_time > cut.commit_time:
            assert given(datetime.fromisoformat(following.commit_time) - timedelta(microseconds=1)) == cut.number


@pytest.mark.parametrize(
    ("position", "error", "reason"),
    [
        (9, LakeError, "there is no such cut"),
        (Lsn(1), LakeError, "no cut at or before"),
        (datetime(2001, 1, 1, tzinfo=timezone.utc), LakeError, "no cut at or before 2001"),
        (datetime(2001, 1, 1), ConfigError, "time without a zone"),  # noqa: DTZ001  that is the point
        ("yesterday", ConfigError, "not an LSN"),
    ],
)
def test_what_can_not_be_opened_says_why(
    spark: SparkSession, past: Past, position: Any, error: type[Exception], reason: str
) -> None:
    """A place that the lake does not have is refused, never replaced by a near one that is later."""
    with pytest.raises(error, match=reason):
        lakeproof.open(spark, past.lake, position)


def test_as_of_refuses_what_the_lake_does_not_reach(spark: SparkSession, past: Past) -> None:
    """A position after the newest cut, a table before it was copied, a number."""
    with pytest.raises(LakeError, match="the lake has come to"):
        lakeproof.as_of(spark, past.lake, Lsn(int(past.source.chain.end) + 1))
    early = lakeproof.as_of(spark, past.lake, Lsn(sorted(past.source.states)[7]))
    with pytest.raises(LakeError, match="it is not in the lake at"):
        early.table("app.log")
    with pytest.raises(ConfigError, match="takes a position or a time"):
        lakeproof.as_of(spark, past.lake, "newest")


def test_views_in_sql_stay_at_their_cut(spark: SparkSession, past: Past) -> None:
    """No hidden column; all at one cut; made again at another one they show that; SQL joins them."""
    table = past.source.table("order lines").version
    for number in (1, 4):
        opened: OpenedLake = lakeproof.open(spark, past.lake, number)
        names = lakeproof.register(opened, "at_a_cut")
        assert names[table.table] == "`at_a_cut`.`app_order_lines`"
        view = spark.table("at_a_cut.app_order_lines")
        assert view.columns == [c.name for c in table.columns]
        expected = Counter(repr(tuple(r)) for r in opened.table(SOURCE, table.table).collect())
        assert Counter(repr(tuple(r)) for r in view.collect()) == expected
        joined = spark.sql("SELECT count(*) FROM at_a_cut.app_order_lines CROSS JOIN at_a_cut.app_bag").collect()[0][0]
        assert joined == sum(expected.values()) * opened.table(SOURCE, "app.bag").count()
        message = {r[0]: r[1] for r in spark.sql("SHOW TBLPROPERTIES at_a_cut.app_bag").collect()}
        assert message["lakeproof.cut"] == str(number)
    spark.sql("DROP SCHEMA at_a_cut CASCADE")


def test_two_tables_with_one_view_name_are_refused(spark: SparkSession, past: Past) -> None:
    """`a.b c` and `a.b_c` would be one view: nothing is guessed."""
    opened: OpenedLake = lakeproof.open(spark, past.lake)
    cut = opened.cut(SOURCE)
    tables = {**cut.tables, TableName("app", "order_lines"): cut.tables[TableName("app", "bag")]}
    opened = replace(opened, cuts={SOURCE: replace(cut, tables=tables)})
    with pytest.raises(ConfigError, match=re.escape("app.order lines and app.order_lines")):
        lakeproof.register(opened, "at_a_cut")


def _delivered(given: CutChanges, past: Past) -> dict[tuple[str, int], list[tuple[str, Row | None, Row | None]]]:
    """A batch's changes by table and cut."""
    actual: dict[tuple[str, int], list[tuple[str, Row | None, Row | None]]] = {}
    for table, simulated in past.source.tables.items():
        try:
            frame = given.table(table, exact_texts=True)
        except LakeError as error:
            assert "no cut of the range has this table" in str(error)  # noqa: PT017  a table that enters later
            continue
        for r in frame.toArrow().to_pylist():
            images = [None if i is None else row_of(i, simulated.version) for i in (r["before"], r["after"])]
            actual.setdefault((table.name, r["cut"]), []).append((r["kind"], images[0], images[1]))
    return actual


@pytest.fixture(scope="module")
def whole(spark: SparkSession, past: Past) -> Mapping[tuple[str, int], list[tuple[str, Row | None, Row | None]]]:
    """All changes from nothing to the newest cut, read at once."""
    return _delivered(lakeproof.changes(spark, past.lake, 0), past)


def test_changes_cut_by_cut_add_up_to_every_cut(
    past: Past, whole: Mapping[tuple[str, int], list[tuple[str, Row | None, Row | None]]]
) -> None:
    """Starting from nothing, each cut's changes lead to the next cut, and only existing rows are deleted."""
    for table in past.source.tables:
        rows: Counter[Row] = Counter()
        for number in cut_numbers(past.source.lake):
            for kind, before, after in whole.get((table.name, number), []):
                assert (before is None, after is None) == (kind == "insert", kind == "delete")
                rows.subtract([] if before is None else [before])
                assert min(rows.values(), default=0) >= 0, f"{table} at cut {number}, seed {SEED}"
                rows.update([] if after is None else [after])
            cut = read_cut(past.source.lake, number)
            if table in cut.tables:
                assert +rows == past.source.state_at(cut.position)[table], f"{table} at cut {number}, seed {SEED}"


def test_without_spark_the_changes_are_the_same(
    past: Past, whole: Mapping[tuple[str, int], list[tuple[str, Row | None, Row | None]]]
) -> None:
    """Each table and cut has the same changes; only tables that changed are named; a range in the middle; the newest cut."""
    actual: dict[tuple[str, int], Counter[str]] = {}
    for step in lakeproof.read_changes(past.lake, 0):
        for table in step.cut.tables:
            version = past.source.tables[table].version
            rows = step.table(table, exact_texts=True).arrow().to_pylist()
            changes = [
                (r["kind"], *(None if i is None else row_of(i, version) for i in (r["before"], r["after"])))
                for r in rows
            ]
            assert table in step.tables or not changes
            if changes:
                actual[table.name, int(step.cut.number)] = Counter(map(repr, changes))
    assert actual == {place: Counter(map(repr, rows)) for place, rows in whole.items()}, f"seed {SEED}"
    assert [int(step.cut.number) for step in lakeproof.read_changes(past.lake, 2, 3)] == [3]
    assert list(lakeproof.read_changes(past.lake, 4)) == []
    with pytest.raises(ConfigError, match="does not lie before"):
        list(lakeproof.read_changes(past.lake, 5))


@pytest.mark.full
@pytest.mark.parametrize("cuts", [2, pytest.param(1, marks=pytest.mark.full)])
def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession,
    past: Past,
    tmp_path: Path,
    whole: Mapping[tuple[str, int], list[tuple[str, Row | None, Row | None]]],
    cuts: int,
) -> None:
    """The stream breaks off in a batch, which comes again with the same cuts; the total is the batch result."""
    first, second, *others = [(low, low + cuts) for low in range(0, 4, cuts)]
    given: list[tuple[int, int]] = []
    kept: dict[tuple[int, int], object] = {}

    def deliver(batch: CutChanges) -> None:
        given.append((int(batch.first), int(batch.last)))
        actual = _delivered(batch, past)
        if given == [first, second]:
            raise OSError("the subscriber's disk is full")
        kept[given[-1]] = actual

    def run() -> None:
        query = lakeproof.subscribe(
            spark, past.lake, deliver, checkpoint=tmp_path / "checkpoint", cuts_per_batch=cuts, available_now=True
        )
        query.awaitTermination(300)
        assert not query.isActive

    with pytest.raises(StreamingQueryException, match="disk is full"):
        run()
    run()
    assert given == [first, second, second, *others]
    run()
    assert given[3:] == others, "nothing comes again"
    together = {place: rows for actual in kept.values() for place, rows in actual.items()}  # type: ignore[attr-defined]  # a dict
    assert {p: Counter(map(repr, r)) for p, r in together.items()} == {
        p: Counter(map(repr, r)) for p, r in whole.items()
    }


def _rows_at(actual: LakeAsOf, database: Database, table: TableName, place: Path) -> Rows:
    actual.table(table, hidden=True).write.format("delta").save(str(place))
    return lake_rows(place, 0, *table_columns(database.dsn, table))


@pytest.mark.full
@pytest.mark.parametrize(("count", "looks"), [(2, 2), pytest.param(4, 3, marks=pytest.mark.full)])
def test_as_of_is_what_postgresql_was(
    database: Database, spark: SparkSession, tmp_path: Path, count: int, looks: int
) -> None:
    """PostgreSQL's own state, recorded at random places of a random workload, read back after one compaction of it all."""
    rng = random.Random(SEED + 2)
    tables = (TABLES[0], *rng.sample(TABLES[1:], count - 1))
    config = pipeline_config(database, tmp_path / "lake")
    workload = RandomWorkload(database.dsn, SEED + 2)
    workload.create_tables()
    publish(database, tables)
    bootstrap(config, SOURCE, None, silent, Stop())
    recorded: dict[Lsn, Mapping[TableName, Rows]] = {}
    for _ in range(looks):
        for _ in range(rng.randrange(20, 60)):
            workload.step()
        recorded[Lsn.parse(current_lsn(database.dsn))] = source_rows(database.dsn, tables)
    for _ in range(20):
        workload.step()
    workload.close()
    drain(config, SOURCE, Until.caught_up(), silent, Stop())
    compact(config, SOURCE, spark, silent, Stop())
    for position, expected in recorded.items():
        actual = lakeproof.as_of(spark, config, position)
        for number, table in enumerate(tables):
            rows = _rows_at(actual, database, table, tmp_path / f"{int(position)}-{number}")
            assert rows == expected[table], f"{table} at {position}, LAKEPROOF_SEED={SEED}"
