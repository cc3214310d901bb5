"""DDL at random among changes of rows, through the whole pipeline: the lake follows, or the table is held until a snapshot.

One kind of change at a time is in `tests/edges/schema/test_schema_change.py`. `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, DrainConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.failpoints import watched
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE
from tests.support.workloads.altering import Altering

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
# Where a drain is killed, or nowhere.
_PLACES = ("", "drain.before_fingerprint", "drain.after_fingerprint", "drain.decoded", "drain.after_manifest")


@contextmanager
def _draining(config: Config, database: Database) -> Iterator[None]:
    """A drain for as long as the block lasts, which begins once it has the slot."""
    stop, slot = Stop(), config.source("shop").slot
    thread = threading.Thread(target=drain, args=(config, "shop", Until.stopped(), silent, stop))
    thread.start()
    try:
        wait_until(lambda: bool(database.value("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot])))
        yield
    finally:
        stop.request()
        thread.join(60)


@pytest.mark.parametrize(
    ("number", "steps"), [(0, 6), *(pytest.param(n, 40, marks=pytest.mark.full) for n in range(1, 4))]
)
def test_a_lake_under_random_ddl_ends_equal(
    database: Database, spark: SparkSession, tmp_path: Path, number: int, steps: int
) -> None:
    """Only tables that could not be followed are held; a snapshot ends that. Then a proof finds no difference."""
    chance = random.Random(SEED + number)
    tables = [Altering(database, f"t{i}", chance, bag=i == 2) for i in range(3)]
    names = [TableName("public", f"t{i}") for i in range(3)]
    database.execute("CREATE PUBLICATION pub FOR TABLE t0, t1, t2")
    source = database.source(drain=DrainConfig(flush_interval_s=0.2, flush_rows=50), buckets=8)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    with _draining(config, database), database.connect() as connection, connection.cursor() as cursor:
        for table in tables:
            table.touch(cursor)
        drain(config, "shop", Until.caught_up(), silent, Stop())
        for _ in range(steps):
            chance.choice(tables).step(cursor, lambda _: None)
        for table in tables:
            table.touch(cursor)
        drain(config, "shop", Until.caught_up(), silent, Stop())
    compact(config, "shop", spark, silent, Stop())
    message = {}
    for _ in range(2):
        report = prove(config, "shop", None, spark, request=ProofRequest(history=True))
        assert report.damaged == {}, f"LAKEPROOF_SEED={SEED}"
        proof = report.tables
        message = {str(t): (p.status, p.reason) for t, p in proof.items()}
        held = [t for t in names if proof[t].status == "held"]
        assert {p.status for p in proof.values()} <= {"equal", "held"}, f"{message}, LAKEPROOF_SEED={SEED}"
        if not held:
            break
        bootstrap(config, "shop", held)
    assert {status for status, _ in message.values()} == {"equal"}, f"{message}, LAKEPROOF_SEED={SEED}"


class KilledError(Exception):
    """Stands for a drain that was killed: nothing after this place was done."""


@contextmanager
def _killed_at(place: str) -> Iterator[None]:
    """Raise KilledError at the failpoint `place`."""

    def fail(name: str) -> None:
        if name == place:
            raise KilledError(name)

    with watched(fail):
        yield


@pytest.mark.full
@pytest.mark.parametrize("rounds", [1, 25])
def test_a_lake_that_is_drained_now_and_then_costs_no_copy(
    database: Database, spark: SparkSession, tmp_path: Path, rounds: int
) -> None:
    """Rows of several schemas wait at each drain, whose catalog has gone on; drains stop midway, or are killed."""
    chance = random.Random(SEED)
    tables = [Altering(database, f"t{i}", chance, bag=i == 2) for i in range(3)]
    database.execute("CREATE PUBLICATION pub FOR TABLE t0, t1, t2")
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=8)})
    bootstrap(config, "shop")
    for number in range(rounds):
        for table in tables:
            table.apart()
        with database.connect() as connection, connection.cursor() as cursor:
            for part in range(3):
                for _ in range(5):
                    chance.choice(tables).step(cursor, lambda _: None)
                if part == 0:
                    middle = Lsn.parse(database.value("SELECT pg_current_wal_lsn()::text"))
            for table in tables:
                table.touch(cursor)
        with _killed_at(chance.choice(_PLACES)), suppress(KilledError):
            drain(config, "shop", Until.lsn(middle), silent, Stop())
        message = {
            str(t): (p.status, p.reason)
            for t, p in prove(config, "shop", None, spark, request=TABLES_ALONE).tables.items()
        }
        assert set(message.values()) == {("equal", None)}, f"{message}, round {number}, LAKEPROOF_SEED={SEED}"
