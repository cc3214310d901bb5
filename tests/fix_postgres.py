"""A real PostgreSQL for the tests: one embedded server per run, a new database per test.

What a test puts in it belongs to the test; a landing to drain into to `fix_drain.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Composed, Identifier
from pydantic import SecretStr
from typing_extensions import LiteralString

from demo.server import EmbeddedPostgres
from wal2delta.config.model import SourceConfig
from wal2delta.lsn import Lsn

_CONF = {
    # A test's data is thrown away: only a server that is killed on purpose would miss what was not synced.
    "fsync": "off",
    "max_prepared_transactions": "5",
    "max_connections": "60",
}


@dataclass
class Database:
    """One database of the embedded server; `dsn` is a superuser's."""

    server: EmbeddedPostgres
    name: str
    dsn: str
    roles: list[str] = field(default_factory=list)

    @property
    def secret(self) -> SecretStr:
        """The DSN as configuration holds it."""
        return SecretStr(self.dsn)

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
        """A psycopg connection with default settings; the caller closes it."""
        return psycopg.connect(self.dsn, autocommit=autocommit)

    def execute(self, *statements: LiteralString | SQL | Composed) -> None:
        """Each statement is a transaction of its own."""
        with self.connect() as conn:
            for statement in statements:
                conn.execute(statement)

    def rows(self, query: LiteralString | SQL | Composed, values: Any = None) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.connect() as conn:
            return conn.execute(query, values).fetchall()

    def value(self, query: LiteralString | SQL | Composed, values: Any = None) -> Any:
        """The first column of the first row; raises IndexError where there is none."""
        return self.rows(query, values)[0][0]

    def end_of_wal(self) -> Lsn:
        """Everything committed so far ends at or before this."""
        return Lsn.parse(self.value("SELECT pg_current_wal_insert_lsn()::text"))

    def slots(self) -> set[str]:
        """The names of this database's slots."""
        query: LiteralString = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        return {name for (name,) in self.rows(query)}

    def role(self, attributes: LiteralString = "LOGIN") -> str:
        """Make a role of this database's tests, with a password, and return its DSN; it goes with the database."""
        name = f"role_{secrets.token_hex(6)}"
        secret = "its secret/@:%"
        with self.connect() as conn:
            made = SQL("CREATE ROLE {} {} PASSWORD {}").format(Identifier(name), SQL(attributes), secret)
            conn.execute(made)
        self.roles.append(name)
        return psycopg.conninfo.make_conninfo(self.dsn, user=name, password=secret)

    def source(self, **settings: Any) -> SourceConfig:
        """A source on this database: publication `pub`, slot named after the database, as long as nothing else is said."""
        given = {"name": "shop", "dsn": self.secret, "publication": "pub", "slot": self.name, **settings}
        return SourceConfig(**given)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The run's server: PostgreSQL 18 with wal_level=logical."""
    with EmbeddedPostgres(conf=_CONF) as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A new, empty database, dropped with its slots and roles at the end."""
    with new_database(postgres) as made:
        yield made


@contextmanager
def new_database(server: EmbeddedPostgres) -> Iterator[Database]:
    """Make a database and drop it at the end, with whatever still hangs on to it."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        # Copied file by file: the WAL of a template's copy would be decoded with everything else.
        admin.execute(SQL("CREATE DATABASE {} STRATEGY file_copy").format(Identifier(name)))
    made = Database(server, name, server.dsn(name))
    try:
        yield made
    finally:
        _drop(made)


def _drop(database: Database) -> None:
    with psycopg.connect(database.server.dsn(), autocommit=True) as admin:
        _drop_prepared(database, admin)
        slots = admin.execute(
            "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s", (database.name,)
        ).fetchall()
        for _, pid in slots:
            if pid is not None:
                admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        for name, _ in slots:
            admin.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
            )
        admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(database.name)))
        for role in database.roles:
            admin.execute(SQL("DROP ROLE {}").format(Identifier(role)))


def _drop_prepared(database: Database, admin: psycopg.Connection[tuple[Any, ...]]) -> None:
    left = admin.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (database.name,)).fetchall()
    if not left:
        return
    with database.connect() as conn:
        for (gid,) in left:
            conn.execute(SQL("ROLLBACK PREPARED {}").format(gid))
