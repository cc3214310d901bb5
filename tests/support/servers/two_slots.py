"""Two sources over one database, each with a slot and tables of its own, and transactions that write to the tables of both.

Tests do not belong here. Every transaction writes its number into a log of each slot, and moves an amount from an account of
one to an account of the other. `TwoSlots.states` has what PostgreSQL had after each transaction.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.sql import SQL, Identifier, Literal

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.load import load
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.lake.read.arrow.open import ReadLake
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lsn import Lsn
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database

GROUP = "shop"
SOURCES = ("one", "two")
ACCOUNTS = 4
BALANCE = 1000


@dataclass(frozen=True)
class State:
    """The numbers in each log, and the balances of each side's accounts."""

    logs: tuple[frozenset[int], frozenset[int]]
    balances: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def whole(self) -> bool:
        """True if no transaction is in one side alone."""
        total = sum(map(sum, self.balances))
        return self.logs[0] == self.logs[1] and total == 2 * ACCOUNTS * BALANCE


@dataclass
class TwoSlots:
    """The database, its configuration, and the states after each transaction, each with the end of the WAL after it."""

    database: Database
    config: Config
    rng: random.Random
    states: list[tuple[Lsn, State]] = field(default_factory=list)

    @classmethod
    def make(cls, database: Database, folder: Path, seed: int, place: LakeLocation | None = None) -> TwoSlots:
        """Create tables, publications and the configuration; copy both sources. The lake is in `folder` or at `place`."""
        for name in SOURCES:
            log, account = Identifier(f"{name}_log"), Identifier(f"{name}_account")
            fill = SQL("INSERT INTO {} SELECT i, {} FROM generate_series(1, {}) i")
            publish = SQL("CREATE PUBLICATION {} FOR TABLE {}, {}")
            database.execute(
                SQL("CREATE TABLE {} (n int PRIMARY KEY)").format(log),
                SQL("CREATE TABLE {} (id int PRIMARY KEY, balance int NOT NULL)").format(account),
                fill.format(account, Literal(BALANCE), Literal(ACCOUNTS)),
                publish.format(Identifier(f"lakeproof_{name}"), log, account),
            )
        lines = ["lake: ./lake" if place is None else f"lake: {place.url}"]
        if place is not None and place.storage.endpoint is not None:
            lines += [f"storage: {place.storage.model_dump_json(exclude_none=True)}"]
        lines += ["sources:"]
        for name in SOURCES:
            lines += [f"  {name}:", "    dsn: {file: dsn}", f"    slot: {database.name}_{name}"]
            lines += ["    drain: {flush_interval_s: 0.2, flush_rows: 7, progress_interval_s: 0.5}"]
            lines += [f"    tables: [public.{name}_log, public.{name}_account]"]
        lines += ["groups:", f"  {GROUP}: [{', '.join(SOURCES)}]"]
        file = folder / "lakeproof.yaml"
        (folder / "dsn").write_text(database.dsn, encoding="utf-8")
        file.write_text("\n".join(lines), encoding="utf-8")
        slots = cls(database, load(file), random.Random(seed))
        slots.remember()
        for name in SOURCES:
            bootstrap(slots.config, name)
        return slots

    def remember(self) -> None:
        """Record what the database has now."""
        self.states.append((self.database.end_of_wal(), self.state()))

    def state(self) -> State:
        """Return what the database has."""
        logs, balances = [], []
        with self.database.connect(autocommit=False) as conn:
            for name in SOURCES:
                numbers = conn.execute(SQL("SELECT n FROM {}").format(Identifier(f"{name}_log")))
                logs.append(frozenset(n for (n,) in numbers))
                rows = conn.execute(SQL("SELECT balance FROM {} ORDER BY id").format(Identifier(f"{name}_account")))
                balances.append(tuple(balance for (balance,) in rows))
        return State((logs[0], logs[1]), (balances[0], balances[1]))

    def transactions(self, count: int) -> None:
        """Commit so many transactions over both slots, with some that roll back in between."""
        with self.database.connect(autocommit=False) as conn:
            for _ in range(count):
                number, amount = len(self.states), self.rng.randrange(1, 50)
                order = self.rng.sample(SOURCES, 2)
                for name, sign in zip(order, (-1, 1), strict=True):
                    insert = SQL("INSERT INTO {} VALUES (%s)").format(Identifier(f"{name}_log"))
                    move = SQL("UPDATE {} SET balance = balance + %s WHERE id = %s")
                    conn.execute(insert, [number])
                    account = self.rng.randrange(1, ACCOUNTS + 1)
                    conn.execute(move.format(Identifier(f"{name}_account")), [sign * amount, account])
                if self.rng.random() < 0.15:
                    conn.rollback()
                    continue
                conn.commit()
                self.remember()

    def drain(self, name: str, end: Lsn | None = None) -> None:
        """Land what there is, or up to a position."""
        drain(self.config, name, Until.caught_up() if end is None else Until.lsn(end))

    def killed(self, *arguments: str, failpoint: str) -> int:
        """Run a command in a process of its own that is killed at a failpoint; return its exit status."""
        environment = {**os.environ, "LAKEPROOF_FAILPOINT": failpoint, "PYTHONPATH": str(Path(__file__).parents[3])}
        command = [sys.executable, "-m", "lakeproof", "-c", str(self.config.path), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=240).returncode

    def half_a_minute_later(self) -> None:
        """As if so much time had passed: locks of killed processes have expired."""
        for name in SOURCES:
            lake = SourceLake.open(self.config.location, name)
            if lake.store.holders_may_sleep:
                lake.store.delete(lake.paths.lease_lock)

    def allowed(self, position: Lsn) -> list[State]:
        """Return what PostgreSQL can have had at a position: two states if a commit ended around there."""
        before = [state for end, state in self.states if end <= position]
        after = [state for end, state in self.states if end > position]
        return [*before[-1:], *after[:1]]


def lake_state(lake: OpenedLake | ReadLake) -> State:
    """Return what an opened lake has, read by Spark or by this process."""
    logs, accounts = [], []
    for name in SOURCES:
        log, account = (_rows(lake, name, f"public.{name}_{table}") for table in ("log", "account"))
        logs.append(frozenset(row["n"] for row in log))
        accounts.append(tuple(row["balance"] for row in sorted(account, key=lambda row: int(row["id"]))))
    return State((logs[0], logs[1]), (accounts[0], accounts[1]))


def _rows(lake: OpenedLake | ReadLake, source: str, table: str) -> list[dict[str, int]]:
    if isinstance(lake, ReadLake):
        rows: list[dict[str, int]] = lake.table(source, table).arrow().to_pylist()
        return rows
    return [row.asDict() for row in lake.table(source, table).collect()]
