"""DDL at random among changes of rows, through the whole pipeline: the lake follows, or the table is held until a snapshot.

One kind of change at a time is in `tests/edges/test_schema_change.py`. `WAL2DELTA_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Composed, Identifier, Literal
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from tests.fix_drain import wait_until
from tests.fix_postgres import Database
from wal2delta.config.model import Config, DrainConfig
from wal2delta.drain.until import Until
from wal2delta.names import TableName
from wal2delta.pipeline.bootstrap import bootstrap
from wal2delta.pipeline.compact import compact
from wal2delta.pipeline.drain import drain
from wal2delta.pipeline.prove import prove
from wal2delta.report import Stop, silent

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SEED = int(os.environ.get("WAL2DELTA_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_TYPES: dict[LiteralString, LiteralString] = {
    "int2": "int4",
    "int4": "int8",
    "float4": "float8",
    "numeric(8,2)": "numeric(12,2)",
    "text": "text",
}
_VALUES: dict[LiteralString, LiteralString] = {
    "int2": "{n}",
    "int4": "{n}",
    "int8": "{n}",
    "float4": "{n} + 0.5",
    "float8": "{n} / 3.0",
    "text": "'t' || {n}",
}
_VALUES |= {"numeric(8,2)": "{n} / 7.0", "numeric(12,2)": "{n} + 0.2"}


class Altering:
    """One table whose columns come, go and change; what it has is known from what was done. `bag`: without a key."""

    def __init__(self, database: Database, name: str, chance: random.Random, *, bag: bool) -> None:
        self.table = Identifier(name)
        self.chance = chance
        self.bag = bag
        self.columns: dict[str, LiteralString] = {"a": "int2", "b": "text", "c": "numeric(8,2)"}
        self.made = 0
        self.rows = 0
        listed = SQL(", ").join(SQL("{} {}").format(Identifier(c), _sql(t)) for c, t in self.columns.items())
        key = SQL("") if bag else SQL(" PRIMARY KEY")
        database.execute(SQL("CREATE TABLE {} (id int{}, {})").format(self.table, key, listed))
        if bag:
            database.execute(SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(self.table))

    def step(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        """A transaction: rows, and often DDL before, between or after them."""
        with cursor.connection.transaction():
            for _ in range(self.chance.randrange(1, 5)):
                if self.chance.random() < 0.3:
                    cursor.execute(self._ddl())
                cursor.execute(self._dml())

    def touch(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        """One row more, so that the newest shape is sent."""
        cursor.execute(self._insert())

    def _ddl(self) -> Composed:
        way = self.chance.choice(("add", "add", "default", "drop", "rename", "widen", "again"))
        name = self.chance.choice(list(self.columns)) if self.columns else ""
        if way in ("add", "default") or not self.columns:
            self.made += 1
            return self._add(f"x{self.made}", default=way == "default")
        if way == "drop":
            del self.columns[name]
            return SQL("ALTER TABLE {} DROP {}").format(self.table, Identifier(name))
        if way == "again":
            del self.columns[name]
            dropped = SQL("ALTER TABLE {} DROP {}; ").format(self.table, Identifier(name))
            return dropped + self._add(name, default=False)
        if way == "rename":
            self.made += 1
            self.columns = {(f"y{self.made}" if c == name else c): t for c, t in self.columns.items()}
            renamed = Identifier(f"y{self.made}")
            return SQL("ALTER TABLE {} RENAME {} TO {}").format(self.table, Identifier(name), renamed)
        self.columns[name] = _TYPES.get(self.columns[name], self.columns[name])
        return SQL("ALTER TABLE {} ALTER {} TYPE {}").format(self.table, Identifier(name), _sql(self.columns[name]))

    def _add(self, name: str, *, default: bool) -> Composed:
        self.columns[name] = self.chance.choice(list(_TYPES))
        given = SQL(" DEFAULT {}").format(self._value(self.columns[name])) if default else SQL("")
        return SQL("ALTER TABLE {} ADD {} {}{}").format(self.table, Identifier(name), _sql(self.columns[name]), given)

    def _dml(self) -> Composed:
        way = self.chance.random()
        row = SQL("id = {}").format(Literal(self.chance.randrange(max(1, self.rows))))
        if way < 0.5 or not self.columns:
            return self._insert()
        if way < 0.8:
            name, kind = self.chance.choice(list(self.columns.items()))
            change = SQL("UPDATE {} SET {} = {} WHERE ").format(self.table, Identifier(name), self._value(kind))
            return change + row
        return SQL("DELETE FROM {} WHERE ").format(self.table) + row

    def _insert(self) -> Composed:
        self.rows += 1
        names = SQL(", ").join(map(Identifier, ["id", *self.columns]))
        values = SQL(", ").join([Literal(self.rows), *map(self._value, self.columns.values())])
        return SQL("INSERT INTO {} ({}) VALUES ({})").format(self.table, names, values)

    def _value(self, kind: LiteralString) -> SQL | Composed:
        if self.chance.random() < 0.2:
            return SQL("NULL")
        return SQL(_VALUES[kind]).format(n=Literal(self.chance.randrange(100)))


def _sql(text: LiteralString) -> SQL:
    # From the tables above, and numbers.
    return SQL(text)


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
    ("number", "steps"), [(0, 12), *(pytest.param(n, 40, marks=pytest.mark.full) for n in range(1, 6))]
)
def test_a_lake_under_random_ddl_ends_equal(
    database: Database, spark: SparkSession, tmp_path: Path, number: int, steps: int
) -> None:
    """Whatever could not be followed is held alone; a snapshot of it ends that. Then a proof finds nothing."""
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
            chance.choice(tables).step(cursor)
        for table in tables:
            table.touch(cursor)
        drain(config, "shop", Until.caught_up(), silent, Stop())
    compact(config, "shop", spark, silent, Stop())
    told = {}
    for _ in range(2):
        proof = prove(config, "shop", None, spark).tables
        told = {str(t): (p.status, p.reason) for t, p in proof.items()}
        held = [t for t in names if proof[t].status == "held"]
        assert {p.status for p in proof.values()} <= {"equal", "held"}, f"{told}, WAL2DELTA_SEED={SEED}"
        if held:
            bootstrap(config, "shop", held)
    assert {status for status, _ in told.values()} == {"equal"}, f"{told}, WAL2DELTA_SEED={SEED}"
