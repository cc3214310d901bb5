"""`lakeproof.transactions` of what the landing no longer has: histories give the same transactions, whole and in order.

Transactions that the landing has are in `test_transactions.py`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.events import Event, RunControl, Stop, silent
from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.read.arrow.transactions import past_changes
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter
from tests.support.lake.maintain_steps import MUCH_LATER
from tests.support.lake.repair_steps import REPAIR, Keyed, largest_file, make_config, run
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake
from tests.support.workloads.lake_workload import SEED
from tests.support.workloads.pipeline_steps import pipeline_config, publish

pytestmark = [pytest.mark.postgres]
SOURCE = "shop"
LATER = MaintenanceRequest(now=MUCH_LATER)
NUMBERED = Keyed("numbered", "id int", "id", "i")
TABLES = tuple(TableName("public", name) for name in ("account", "Account two", "note"))


def _write(database: Database, rng: random.Random, count: int) -> None:
    """Commit so many transactions over some of the tables, with updates, deletes and a truncate among them."""
    with database.connect() as conn:
        for _ in range(count):
            conn.execute("BEGIN")
            for _ in range(rng.randrange(1, 4)):
                number, account = rng.randrange(1, 9), rng.randrange(1, 12)
                match rng.randrange(6):
                    case 0:
                        conn.execute("INSERT INTO note VALUES (%s, 'moved')", (number,))
                    case 1:
                        conn.execute("DELETE FROM account WHERE id = %s", (account,))
                        conn.execute("INSERT INTO account VALUES (%s, %s)", (account, number))
                    case 2:
                        conn.execute('UPDATE "Account two" SET money = money + %s WHERE id > %s', (number, account))
                    case 3:
                        conn.execute("DELETE FROM note WHERE n = %s", (number,))
                    case _:
                        conn.execute("UPDATE account SET money = %s WHERE id = %s", (number, account))
            if rng.random() < 0.05:
                conn.execute("TRUNCATE note")
            conn.execute("COMMIT")


def _feed(config: Config, since: Lsn, tables: list[TableName | str] | None = None) -> list[tuple[Any, ...]]:
    """Return each transaction with its rows: operation and the table's own columns, as they are for users."""
    given = []
    for transaction in lakeproof.transactions(config, SOURCE, since=since, tables=tables):
        rows: dict[TableName, list[Any]] = {}
        for change in transaction.changes:
            own = [name for name in change.rows.schema.names if not name.startswith(HIDDEN_PREFIX)]
            values = change.rows.select(["_lp_op", *own]).to_pylist()
            rows.setdefault(change.table, []).extend(tuple(value.values()) for value in values)
        given.append((transaction.position, transaction.xid, transaction.commit_time, rows))
    return given


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Config:
    """Five cycles of transactions over three tables, one without a key: a landing's last three segments always stay."""
    rng = random.Random(SEED)
    database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, money int)",
        'CREATE TABLE "Account two" (id int PRIMARY KEY, money int)',
        "CREATE TABLE note (n int, what text)",
        "ALTER TABLE note REPLICA IDENTITY FULL",
        "INSERT INTO account SELECT n, 100 FROM generate_series(1, 12) n",
        'INSERT INTO "Account two" SELECT n, 100 FROM generate_series(1, 12) n',
    )
    publish(database, TABLES)
    config = pipeline_config(database, tmp_path / "lake")
    bootstrap(config, SOURCE, None, silent, Stop())
    for _ in range(5):
        _write(database, rng, 15)
        drain(config, SOURCE, Until.caught_up(), silent, Stop())
        compact(config, SOURCE, spark, silent, Stop())
    return config


def _without_landing(config: Config, **retention: Any) -> Config:
    kept = RetentionConfig.model_validate({"cuts_s": 0, "landing_s": 0, "small_files": 2, **retention})
    source = config.sources[SOURCE].model_copy(update={"retention": kept})
    return config.model_copy(update={"sources": {SOURCE: source}})


def _chain(config: Config) -> Chain:
    chain = Chain.open_newest(SourceLake.open(config.location, SOURCE))
    assert chain is not None
    return chain


def _landing_begins(config: Config) -> Lsn:
    return _chain(config).kept_from


def test_history_has_the_transactions_that_the_landing_had(
    shop: Config, database: Database, spark: SparkSession
) -> None:
    """The same positions, xids, times and rows; files that maintenance put together, and some landed since, among them."""
    start = _landing_begins(shop)
    expected = _feed(shop, start)
    assert len(expected) > 50
    maintain(_without_landing(shop), SOURCE, spark, silent, LATER)
    middle = _landing_begins(shop)
    assert middle > start
    _write(database, random.Random(SEED + 1), 10)
    drain(shop, SOURCE, Until.caught_up(), silent, Stop())
    expected += _feed(shop, expected[-1][0])
    assert _feed(shop, start) == expected, f"LAKEPROOF_SEED={SEED}"
    assert _feed(shop, Lsn(1)) == expected, "the copies are no transactions"
    place = random.Random(SEED).randrange(len(expected))
    assert _feed(shop, expected[place][0]) == expected[place + 1 :]
    alone = [(*head, {TABLES[1]: rows[TABLES[1]]}) for *head, rows in expected if TABLES[1] in rows]
    assert _feed(shop, start, [TABLES[1]]) == alone


@pytest.mark.full
def test_a_history_that_begins_later_is_named(shop: Config, spark: SparkSession) -> None:
    """What maintenance has removed of history is in no feed, and nobody gets the rest as if it were all."""
    start = _landing_begins(shop)
    maintain(_without_landing(shop, history_s=0.001), SOURCE, spark, silent, LATER)
    with pytest.raises(LakeError, match=r"its history begins at .*begin with its position"):
        _feed(shop, start)


def test_a_table_that_a_copy_put_right_is_named(shop: Config, database: Database, spark: SparkSession) -> None:
    """Its changes may be missing; without it the others' are whole."""
    start = _landing_begins(shop)
    database.execute(
        'ALTER PUBLICATION pub DROP TABLE "Account two"',
        'DELETE FROM "Account two" WHERE id = 3',
        'ALTER PUBLICATION pub ADD TABLE "Account two"',
    )
    drain(shop, SOURCE, Until.caught_up(), silent, Stop())
    bootstrap(shop, SOURCE, [TABLES[1]], silent, Stop())
    drain(shop, SOURCE, Until.caught_up(), silent, Stop())
    compact(shop, SOURCE, spark, silent, Stop())
    chain, end = _chain(shop), lakeproof.read(shop).position(SOURCE)
    # The landing still has these transactions; the part of the feed that is history's refuses what it can't give.
    with pytest.raises(LakeError, match=r"Account two: .*a copy came at .*leave the table out"):
        next(past_changes(chain, start, end, None))
    others = [*past_changes(chain, start, end, {TABLES[0], TABLES[2]})]
    assert {name for batches in others for name, _ in batches} == {TABLES[0], TABLES[2]}


@pytest.mark.parametrize("copied", [True, False], ids=["late", "never"])
def test_a_table_without_a_copy_at_that_time_is_named(
    database: Database, no_spark: SparkOnDemand, tmp_path: Path, *, copied: bool
) -> None:
    """Its changes landed, no cycle took them, and the landing has gone; without it the transactions are no whole ones."""
    account, note = TABLES[0], TABLES[2]
    database.execute("CREATE TABLE account (id int PRIMARY KEY)", "CREATE TABLE note (id int PRIMARY KEY)")
    publish(database, (account, note))
    config = pipeline_config(database, tmp_path / "lake")
    bootstrap(config, SOURCE, [account], silent, Stop())
    start = _landing_begins(config)
    for number in range(10):
        with database.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("INSERT INTO account VALUES (%s)", (number,))
            conn.execute("INSERT INTO note VALUES (%s)", (number,))
            conn.execute("COMMIT")
        drain(config, SOURCE, Until.caught_up(), silent, Stop())
        if copied and number == 4:
            bootstrap(config, SOURCE, [note], silent, Stop())
    compact(config, SOURCE, no_spark, silent, Stop())
    expected = _feed(config, start)
    assert len(expected) == 10
    maintain(_without_landing(config), SOURCE, no_spark, silent, LATER)
    reason = r"public\.note: .*a copy came at" if copied else r"public\.note: .*no history has them"
    with pytest.raises(LakeError, match=reason):
        _feed(config, start)
    assert _feed(config, start, [account]) == [(*head, {account: rows[account]}) for *head, rows in expected]
    if copied:
        assert _feed(config, expected[5][0]) == expected[6:]


def test_a_table_that_lived_only_in_the_landing_is_named(
    database: Database, no_spark: SparkOnDemand, tmp_path: Path
) -> None:
    """It was made, filled and dropped before any copy: where the landing goes, its changes do."""
    account, brief = TABLES[0], TableName("public", "brief")
    database.execute("CREATE TABLE account (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR ALL TABLES")
    config = pipeline_config(database, tmp_path / "lake")
    bootstrap(config, SOURCE, None, silent, Stop())
    compact(config, SOURCE, no_spark, silent, Stop())
    start = _landing_begins(config)
    database.execute("CREATE TABLE brief (id int PRIMARY KEY)")
    for number in range(8):
        with database.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("INSERT INTO account VALUES (%s)", (number,))
            if number < 2:
                conn.execute("INSERT INTO brief VALUES (%s)", (number,))
            conn.execute("COMMIT")
        if number == 1:
            drain(config, SOURCE, Until.caught_up(), silent, Stop())
            database.execute("DROP TABLE brief")
        drain(config, SOURCE, Until.caught_up(), silent, Stop())
    compact(config, SOURCE, no_spark, silent, Stop())
    expected = _feed(config, start)
    assert sum(brief in rows for *_, rows in expected) == 2
    maintain(_without_landing(config), SOURCE, no_spark, silent, LATER)
    with pytest.raises(LakeError, match=r"public\.brief: .*no history has them"):
        _feed(config, start)
    assert _feed(config, expected[2][0]) == expected[3:]
    assert _feed(config, start, [account]) == [(*head, {account: rows[account]}) for *head, rows in expected]


@pytest.mark.parametrize("held", [pytest.param(True, marks=pytest.mark.full), False], ids=["held", "dropped"])
def test_a_held_table_is_named_where_its_changes_went(
    shop: Config, database: Database, spark: SparkSession, *, held: bool
) -> None:
    """A dropped table is held as well, for ever, but has no changes any more: the feed goes on over all tables."""
    start, note = _landing_begins(shop), TABLES[2]
    database.execute("ALTER TABLE note ALTER n TYPE text USING n || '!'" if held else "DROP TABLE note")
    for number in range(6):
        if held:
            database.execute(f"INSERT INTO note VALUES ('{number}', 'later')")  # noqa: S608  the test's own
        database.execute(f"UPDATE account SET money = {number} WHERE id = 1")  # noqa: S608  the test's own
        drain(shop, SOURCE, Until.caught_up(), silent, Stop())
        compact(shop, SOURCE, spark, silent, Stop())
    expected = _feed(shop, start)
    assert note in lakeproof.read(shop).cut(SOURCE).held
    maintain(_without_landing(shop), SOURCE, spark, silent, LATER)
    assert expected[0][0] < _landing_begins(shop)
    if held:
        with pytest.raises(LakeError, match=r"public\.note: .*no history has them"):
            _feed(shop, start)
        assert _feed(shop, start, [TABLES[0]]) == [
            (*head, {TABLES[0]: rows[TABLES[0]]}) for *head, rows in expected if TABLES[0] in rows
        ]
    else:
        assert _feed(shop, start) == expected, f"LAKEPROOF_SEED={SEED}"


@pytest.mark.full
def test_a_repair_whose_changes_did_not_fit_is_named_while_the_landing_begins_among_them(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """History has no update of the lost row that left its large value as it was: only what the repair made of it."""
    config = make_config(database, tmp_path, [NUMBERED])
    into_the_lake(config, spark)
    gone = pq.read_table(largest_file(config, NUMBERED)).filter(pc.field("n") == 50)
    run(database, "DELETE FROM numbered WHERE id = 50")
    into_the_lake(config, spark)
    start = _landing_begins(config)
    alter(largest_file(config, NUMBERED), lambda rows: _in_place_of(rows, 3, gone))

    def beside(event: Event) -> None:
        if event.kind == "prove.repair" and "keys" in event.fields:
            for number in (3, 8):
                for value in range(8):
                    database.execute(f"UPDATE numbered SET v = 'n{value}' WHERE id = {number}")  # noqa: S608  the test's own
                    drain(config, SOURCE, Until.caught_up(), silent, Stop())

    prove(config, SOURCE, None, spark, RunControl(beside), REPAIR)
    assert len(_feed(config, start)) == 17
    maintain(_without_landing(config), SOURCE, spark, silent, LATER)
    place = lakeproof.read(config).position(SOURCE)
    assert start < _landing_begins(config) < place, "the landing begins within the range of the repair's cycle"
    with pytest.raises(LakeError, match=rf"a copy came at {place}"):
        _feed(config, start)


def _in_place_of(rows: pa.Table, number: int, other: pa.Table) -> pa.Table:
    """Put another row in the place of one."""
    kept = rows.filter(pc.field("n") != number)
    return pa.concat_tables([kept, other.select(rows.column_names).cast(rows.schema)])
