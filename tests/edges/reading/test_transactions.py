"""`lakeproof.transactions`: every transaction whole and once, over all tables, in commit order, as soon as it has landed.

Changes from cut to cut are in `tests/properties/reading/test_readers.py`.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import datetime, timezone

import pytest
from psycopg.sql import SQL
from typing_extensions import LiteralString

import lakeproof
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Stop
from lakeproof.lake.read.arrow.transactions import Transaction
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.workloads.lake_workload import SEED

pytestmark = pytest.mark.postgres
ACCOUNTS = 40
TABLES = ("account", "Account two")
# Money moves between two tables in one transaction, so the sum of both is the same after each whole one.
MOVE: tuple[LiteralString, ...] = (
    "UPDATE account SET money = money - {n} WHERE id = {a}",
    'UPDATE "Account two" SET money = money + {n} WHERE id = {b}',
    "INSERT INTO note VALUES ({n}, 'moved')",
)


@pytest.fixture
def source(drained: Drained) -> Drained:
    """Two tables of accounts and a table without a key, before anything has landed."""
    drained.database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, money int, \"a, b\" text DEFAULT 'x')",
        'CREATE TABLE "Account two" (id int PRIMARY KEY, money int)',
        "CREATE TABLE note (n int, what text)",
    )
    drained.begin()
    with drained.database.connect() as conn:
        conn.execute("BEGIN")
        conn.execute("INSERT INTO account SELECT n, 100 FROM generate_series(1, %s::int) n", [ACCOUNTS])
        conn.execute('INSERT INTO "Account two" SELECT n, 100 FROM generate_series(1, %s::int) n', [ACCOUNTS])
        conn.execute("COMMIT")
    return drained


def _move(source: Drained, chance: random.Random, count: int) -> list[int]:
    """Move money in so many transactions; return their xids in order of their commits."""
    xids = []
    with source.database.connect() as conn:
        for _ in range(count):
            conn.execute("BEGIN")
            values = {"n": chance.randrange(1, 9), "a": chance.randint(1, ACCOUNTS), "b": chance.randint(1, ACCOUNTS)}
            for statement in MOVE:
                conn.execute(SQL(statement).format(**values))
            row = conn.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            conn.execute("COMMIT")
            assert row is not None
            xids.append(row[0] % 2**32)
    return xids


class Balances:
    """What the transactions add up to."""

    def __init__(self) -> None:
        self.money: dict[tuple[str, int], int] = {}
        self.notes: Counter[int] = Counter()

    def apply(self, transaction: Transaction) -> list[str]:
        """Apply one transaction whole; return the tables that it changed."""
        tables = []
        for change in transaction.changes:
            tables.append(change.table.name)
            for row in change.rows.to_pylist():
                assert row["_lp_lsn"] == int(transaction.position)
                if change.table.name == "note":
                    self.notes[row["n"]] += 1
                elif row["_lp_op"] != "before":
                    self.money[change.table.name, row["id"]] = row["money"]
        assert sum(self.money.values()) == 2 * ACCOUNTS * 100, f"{transaction.position}, seed {SEED}"
        return tables


def test_each_transaction_is_whole_and_comes_once_in_commit_order(source: Drained) -> None:
    """In segments that end anywhere; a reader that goes on from a position gets what follows it."""
    chance = random.Random(SEED)
    xids = []
    for _ in range(3):
        xids += _move(source, chance, 40)
        source.drain(flush_bytes=chance.choice([500, 5_000, 1 << 20]))
    balances, positions, actual = Balances(), [Lsn(0)], []
    for transaction in lakeproof.transactions(source.config(), SOURCE):
        assert transaction.position > positions[-1]
        assert transaction.commit_time is not None
        assert datetime.now(timezone.utc) > transaction.commit_time
        balances.apply(transaction)
        positions.append(transaction.position)
        actual.append(int(transaction.xid))
    assert actual[1:] == xids
    _equal(source, balances)
    middle = chance.randrange(1, len(positions) - 1)
    for since in (positions[middle], str(positions[middle]), Lsn(int(positions[middle]) + 1)):
        rest = [t.position for t in lakeproof.transactions(source.lake, SOURCE, since=since)]
        assert rest == positions[middle + 1 :]
    assert list(lakeproof.transactions(source.lake, SOURCE, since=positions[-1])) == []
    alone = list(lakeproof.transactions(source.lake, SOURCE, tables=["public.note"]))
    assert [int(t.xid) for t in alone] == xids


def _equal(source: Drained, balances: Balances) -> None:
    for name in TABLES:
        rows = source.source_rows(TableName("public", name), "id, money")
        assert sorted((k[1], money) for k, money in balances.money.items() if k[0] == name) == sorted(rows)
    assert balances.notes == Counter(row[0] for row in source.source_rows(TableName("public", "note"), "n"))


def test_a_reader_that_follows_gets_transactions_as_they_land(source: Drained) -> None:
    """Beside a drain: all of them, whole; it ends if it is asked to."""
    chance, stop = random.Random(SEED), Stop()
    balances, xids = Balances(), list[int]()

    def write() -> None:
        xids.extend(_move(source, chance, 60))

    writer = threading.Thread(target=write)
    with source.running("stopped", flush_interval_s=0.2) as process:
        writer.start()
        for count, transaction in enumerate(lakeproof.transactions(source.lake, SOURCE, follow=True, stop=stop)):
            balances.apply(transaction)
            if count == 60:
                stop.request()
        writer.join()
        process.terminate()
    assert len(xids) == 60
    _equal(source, balances)


def test_large_files_come_in_batches_and_many_small_ones_are_not_kept_open(source: Drained) -> None:
    """A transaction of more rows than a batch is one transaction, whose batches add up to it."""
    source.database.execute(
        "INSERT INTO note SELECT n, 'many' FROM generate_series(1, 30000) n", "INSERT INTO note VALUES (0, 'one')"
    )
    source.drain(Until.caught_up())
    _, many, one = [
        [change.rows.num_rows for change in transaction.changes]
        for transaction in lakeproof.transactions(source.lake, SOURCE)
    ]
    assert len(many) > 1
    assert sum(many) == 30_000
    assert one == [1]


def test_what_is_not_read_is_passed_over(source: Drained) -> None:
    """A caller that looks at no change, or at the first alone, gets every transaction."""
    xids = _move(source, random.Random(SEED), 20)
    source.drain()
    some = []
    for transaction in lakeproof.transactions(source.lake, SOURCE):
        next(transaction.changes)
        some.append(int(transaction.xid))
    assert some[1:] == [int(t.xid) for t in lakeproof.transactions(source.lake, SOURCE)][1:] == xids


def test_bad_input_is_one_error(source: Drained) -> None:
    """A position that is none, a source that is not there, changes that were removed."""
    source.drain()
    with pytest.raises(ConfigError, match="since"):
        next(lakeproof.transactions(source.lake, SOURCE, since="yesterday"))
    with pytest.raises(LakeError, match="landing: there is none"):
        next(lakeproof.transactions(source.lake, "other"))
    with pytest.raises(ConfigError, match=r"schema\.table"):
        next(lakeproof.transactions(source.lake, SOURCE, tables=["note"]))


def test_a_new_incarnation_ends_the_feed(source: Drained) -> None:
    """Changes between the lost slot and the new one may be missing, so nobody may go on as if they were not."""
    source.drain()
    feed = lakeproof.transactions(source.lake, SOURCE, follow=True)
    next(feed)
    old = source.chain()
    assert old.head.source is not None
    Chain.create(source.source_lake, Incarnation(2), NewHead(old.end, old.head.source, "0" * 32))
    with pytest.raises(LakeError, match="incarnation 2 has begun"):
        next(feed)
