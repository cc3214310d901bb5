"""Random transactions over all tables of any schema, by its catalog, in several sessions; a seed decides everything.

What the server refuses (a constraint, a lock that another session has) is taken back to a savepoint.
DDL is for `alterations.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from lakeproof.names import TableName
from tests.applications.random_values import RandomValues
from tests.applications.source_tables import SourceColumn, SourceTable, quoted, read_tables
from tests.support.servers.fix_postgres import Database

# One thread runs all sessions: who waits for a lock waits for itself.
_SESSION = "-c lock_timeout=40ms -c client_min_messages=error"
_SESSIONS = 3
# Not the application's: it shows that the stream goes on.
HEARTBEAT = TableName("public", "heartbeat")
_PREPARED_MAX = 2


@dataclass
class _Session:
    connection: psycopg.Connection[Any]
    savepoints: list[str] = field(default_factory=list)
    open: bool = False
    # It holds a lock that readers wait for.
    truncates: bool = False


class Mutator:
    """Sessions with transactions over the tables of a database; `tick` does one thing in one of them."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database = database
        self.rng = random.Random(seed)
        self.values = RandomValues(self.rng)
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.tables: list[SourceTable] = []
        self.prepared: list[str] = []
        self._serial = 0
        self._sessions = [
            _Session(psycopg.connect(database.dsn, options=_SESSION, autocommit=True)) for _ in range(_SESSIONS)
        ]
        self._ways: tuple[tuple[Callable[[SourceTable], str | None], float], ...] = (
            (self._insert, 30),
            (self._upsert, 6),
            (self._bulk_insert, 2),
            (self._update, 26),
            (self._bulk_update, 4),
            (self._same, 3),
            (self._enlarge, 8),
            (self._move, 9),
            (self._swap, 3),
            (self._shift, 1),
            (self._delete, 9),
            (self._bulk_delete, 0.7),
            (self._truncate, 0.25),
        )

    def reload(self) -> None:
        """Read the catalog again."""
        connection = self._sessions[0].connection
        self.tables = read_tables(connection, [HEARTBEAT])
        self.values.reload(connection)

    def close(self) -> None:
        """End all sessions; what is open in them is rolled back."""
        for session in self._sessions:
            session.connection.close()

    def ticks(self, number: int, tables: list[SourceTable] | None = None) -> None:
        """Do so many things."""
        for _ in range(number):
            self.tick(tables)

    def tick(self, tables: list[SourceTable] | None = None) -> None:
        """Begin or end a transaction or a savepoint in one of the sessions, or change rows of one of the tables."""
        session, way = self.rng.choice(self._sessions), self.rng.random()
        if not session.open:
            session.connection.execute("BEGIN")
            session.open = True
        elif way < 0.16:
            self._end(session)
            return
        elif way < 0.22:
            self._serial += 1
            session.savepoints.append(f"s{self._serial}")
            session.connection.execute(f"SAVEPOINT s{self._serial}".encode())
        elif way < 0.28 and session.savepoints:
            place = self.rng.randrange(len(session.savepoints))
            name = session.savepoints[place]
            kept = self.rng.random() < 0.5
            session.connection.execute(f"{'RELEASE' if kept else 'ROLLBACK TO'} {name}".encode())
            del session.savepoints[place + (0 if kept else 1) :]
        elif self.prepared and way < 0.34:
            self._decide()
        table = self.rng.choice(tables or self.tables)
        statement = self._change(table)
        if statement is None or not statement.startswith("TRUNCATE"):
            self.attempt(session.connection, statement)
        elif table.partitioned:
            # After a SAVEPOINT the table would be held (docs/schema-changes.md).
            self._end(session)
            session.connection.execute("BEGIN")
            with suppress(psycopg.errors.LockNotAvailable):
                session.connection.execute(statement.encode())
            session.connection.execute("COMMIT")
        else:
            session.truncates = self.attempt(session.connection, statement) or session.truncates

    def let_read(self) -> None:
        """End the transactions that readers would wait for; others stay open."""
        for session in self._sessions:
            if session.open and session.truncates:
                self._end(session)

    def settle(self) -> None:
        """End every transaction, also those that are prepared."""
        for session in self._sessions:
            if session.open:
                session.truncates = True
                self._end(session)
        while self.prepared:
            self._decide()

    def attempt(self, connection: psycopg.Connection[Any], statement: str | None) -> bool:
        """Run a statement in the open transaction; if it is refused, take it back, and return false."""
        if statement is None:
            return False
        connection.execute("SAVEPOINT attempt")
        try:
            connection.execute(statement.encode())
        except psycopg.Error as error:
            if connection.broken:
                raise
            connection.execute("ROLLBACK TO attempt")
            self.refused[type(error).__name__] += 1
            if isinstance(error, (psycopg.errors.SyntaxError, psycopg.errors.UndefinedFunction)):
                raise
            return False
        connection.execute("RELEASE attempt")
        return True

    def _end(self, session: _Session) -> None:
        way, connection, prepare = self.rng.random(), session.connection, not session.truncates
        session.open, session.savepoints, session.truncates = False, [], False
        try:
            if way < 0.1:
                connection.execute("ROLLBACK")
            elif way < 0.2 and prepare and len(self.prepared) < _PREPARED_MAX:
                self._serial += 1
                name = f"{self.database.name}_{self._serial}"
                connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
                self.prepared.append(name)
            else:
                connection.execute("COMMIT")
        except (psycopg.IntegrityError, psycopg.errors.LockNotAvailable):
            # A constraint that is checked at the end, or a lock for it: everything is rolled back.
            self.refused["at the end"] += 1

    def _decide(self) -> None:
        name = self.prepared.pop(self.rng.randrange(len(self.prepared)))
        word = "COMMIT" if self.rng.random() < 0.7 else "ROLLBACK"
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            connection.execute(f"{word} PREPARED '{name}'".encode())

    def _change(self, table: SourceTable) -> str | None:
        ways, weights = zip(*self._ways, strict=True)
        way: Callable[[SourceTable], str | None] = self.rng.choices(ways, weights)[0]
        if not table.key and way not in {self._insert, self._bulk_insert, self._truncate}:
            return None
        self.done[way.__name__] += 1
        return way(table)

    def _rows(self, table: SourceTable, number: int) -> str:
        """Return a condition for some rows, which the salt decides."""
        keys = ", ".join(c.sql for c in table.key)
        salt = self.rng.getrandbits(32)
        return (
            f"({keys}) IN (SELECT {keys} FROM {table.sql} ORDER BY md5(concat({keys}, {salt})), {keys} LIMIT {number})"
        )

    def _value(self, column: SourceColumn, *, few: bool = False) -> str:
        null = 0.0 if column.not_null else 0.15
        return self.values.value(
            column.type_oid, column.type_text, null=null, few=few or column.key or column.partitions
        )

    def _row(self, table: SourceTable) -> dict[str, str]:
        """Return a new row's columns and values; those of foreign keys are of rows that exist."""
        row: dict[str, str] = {}
        for key in table.foreign:
            salt = self.rng.getrandbits(32)
            names = ", ".join(map(quoted, key.referred))
            own = {c.attnum: c for c in table.columns}
            free = not any(own[n].not_null for n in key.columns)
            none = free and self.rng.random() < 0.3
            for number, name in zip(key.columns, key.referred, strict=True):
                order = f"ORDER BY md5(concat({names}, {salt})) LIMIT 1"
                row[own[number].name] = "NULL" if none else f"(SELECT {quoted(name)} FROM {key.table} {order})"
        for column in table.columns:
            if column.name in row or column.generated or column.identity == "a":
                continue
            if (column.identity or column.default) and self.rng.random() < 0.7:
                continue
            row[column.name] = self._value(column)
        return row

    def _insert(self, table: SourceTable) -> str:
        row = self._row(table)
        names = ", ".join(map(quoted, row))
        if not row:
            return f"INSERT INTO {table.sql} DEFAULT VALUES"
        return f"INSERT INTO {table.sql} ({names}) VALUES ({', '.join(row.values())}) ON CONFLICT DO NOTHING"

    def _bulk_insert(self, table: SourceTable) -> str:
        row = self._row(table)
        for column in table.key:
            if self.values.base(column.type_oid) in {"int4", "int8"} and column.attnum not in table.foreign_columns:
                row[column.name] = f"({self.rng.randrange(100, 5000)} + g)"
        if not row:
            return f"INSERT INTO {table.sql} DEFAULT VALUES"
        names = ", ".join(map(quoted, row))
        number = self.rng.choice((5, 30, 150))
        values = ", ".join(row.values())
        rows = f"SELECT {values} FROM generate_series(1, {number}) g"
        return f"INSERT INTO {table.sql} ({names}) {rows} ON CONFLICT DO NOTHING"

    def _upsert(self, table: SourceTable) -> str | None:
        settings = [f"{c.sql} = excluded.{c.sql}" for c in table.plain if self.rng.random() < 0.5]
        if not settings:
            return None
        keys = ", ".join(c.sql for c in table.key)
        inserted = self._insert(table).removesuffix("ON CONFLICT DO NOTHING")
        return f"{inserted} ON CONFLICT ({keys}) DO UPDATE SET {', '.join(settings)}"

    def _set(self, columns: list[SourceColumn]) -> str:
        return ", ".join(f"{c.sql} = {self._value(c)}" for c in columns)

    def _update(self, table: SourceTable) -> str | None:
        if not table.plain:
            return None
        columns = self.rng.sample(table.plain, min(len(table.plain), self.rng.randrange(1, 4)))
        return f"UPDATE {table.sql} SET {self._set(columns)} WHERE {self._rows(table, self.rng.choice((1, 1, 2, 5)))}"

    def _bulk_update(self, table: SourceTable) -> str | None:
        return f"UPDATE {table.sql} SET {self._set([self.rng.choice(table.plain)])}" if table.plain else None

    def _same(self, table: SourceTable) -> str:
        """Update rows to what they are: PostgreSQL sends them all the same."""
        column = self.rng.choice(table.key)
        return f"UPDATE {table.sql} SET {column.sql} = {column.sql} WHERE {self._rows(table, 3)}"

    def _enlarge(self, table: SourceTable) -> str | None:
        able = [(c, v) for c in table.plain if (v := self.values.large(c.type_oid)) is not None]
        if not able:
            return None
        column, value = self.rng.choice(able)
        return f"UPDATE {table.sql} SET {column.sql} = ({value})::{column.type_text} WHERE {self._rows(table, 2)}"

    def _free_key(self, table: SourceTable) -> SourceColumn | None:
        columns = [c for c in table.key if c.attnum not in table.foreign_columns and c.identity != "a"]
        return self.rng.choice(columns) if columns else None

    def _move(self, table: SourceTable) -> str | None:
        column = self._free_key(table)
        if column is None:
            return None
        return f"UPDATE {table.sql} SET {column.sql} = {self._value(column)} WHERE {self._rows(table, 1)}"

    def _swap(self, table: SourceTable) -> str | None:
        """Give one row the key of a row that is deleted, in one statement."""
        column = self._free_key(table)
        if column is None or len(table.key) > 1:
            return None
        gone = f"DELETE FROM {table.sql} WHERE {self._rows(table, 1)} RETURNING {column.sql} INTO freed"
        moved = f"UPDATE {table.sql} SET {column.sql} = freed WHERE freed IS NOT NULL AND {self._rows(table, 1)}"
        return f"DO $do$ DECLARE freed {column.type_text}; BEGIN {gone}; {moved}; END $do$"

    def _shift(self, table: SourceTable) -> str | None:
        column = self._free_key(table)
        if column is None or self.values.base(column.type_oid) not in {"int4", "int8"}:
            return None
        return f"UPDATE {table.sql} SET {column.sql} = {column.sql} + {self.rng.choice((1, 100, -100))}"

    def _delete(self, table: SourceTable) -> str:
        return f"DELETE FROM {table.sql} WHERE {self._rows(table, self.rng.choice((1, 1, 3)))}"

    def _bulk_delete(self, table: SourceTable) -> str:
        return f"DELETE FROM {table.sql} WHERE {self._rows(table, 1000)}"

    def _truncate(self, table: SourceTable) -> str:
        return f"TRUNCATE {table.sql} {self.rng.choice(('CASCADE', 'CASCADE', 'RESTART IDENTITY CASCADE'))}"
