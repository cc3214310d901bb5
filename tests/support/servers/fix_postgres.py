"""A real PostgreSQL for the tests: one embedded server per run and version, a new database per test.

What a test puts in it belongs to the test; a landing to drain into to `fix_drain.py`. A run is on PostgreSQL 18; with
`--servers 14,17` (or LAKEPROOF_SERVERS) on those, one after the other, and without the tests that use no server.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Composed, Identifier
from pydantic import SecretStr
from typing_extensions import LiteralString

from demo.server import EmbeddedPostgres
from lakeproof.config.model import SourceConfig
from lakeproof.lsn import Lsn
from scripts.fetch.servers import fetch

NEWEST = 18
VARIABLE = "LAKEPROOF_SERVERS"

_CONF = {
    # A test's data is thrown away: only a server that is killed on purpose would miss what was not synced.
    "fsync": "off",
    "max_prepared_transactions": "5",
    "max_connections": "60",
}


@dataclass
class Database:
    """A database of the embedded server; `dsn` is a superuser's."""

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
        """Each statement is a separate transaction."""
        with self.connect() as conn:
            for statement in statements:
                conn.execute(statement)

    def rows(self, query: LiteralString | SQL | Composed, values: Any = None) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.connect() as conn:
            return conn.execute(query, values).fetchall()

    def drop_slot(self, slot: str) -> None:
        """Drop a slot as soon as it is free: a walsender may outlive its client for a moment."""
        active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        deadline = time.monotonic() + 90
        while self.value(active, [slot]) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.value("SELECT pg_drop_replication_slot(%s)::text", [slot])

    def value(self, query: LiteralString | SQL | Composed, values: Any = None) -> Any:
        """The first column of the first row; raises IndexError if there is none."""
        return self.rows(query, values)[0][0]

    def end_of_wal(self) -> Lsn:
        """Everything committed so far ends at or before this."""
        return Lsn.parse(self.value("SELECT pg_current_wal_insert_lsn()::text"))

    def end_of_flushed_wal(self) -> Lsn:
        """Each commit so far ends at or before this. A drain up to now need not come to what readers have just written."""
        return Lsn.parse(self.value("SELECT pg_current_wal_flush_lsn()::text"))

    def flush_wal(self) -> None:
        """Commit something: what readers of the catalog have written is flushed and sent with it, not in half a minute."""
        self.execute("SELECT pg_logical_emit_message(true, 'flush', '')")

    def slots(self) -> set[str]:
        """The names of this database's slots."""
        query: LiteralString = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        return {name for (name,) in self.rows(query)}

    def role(self, attributes: LiteralString = "LOGIN") -> str:
        """Make a role of this database's tests, with a password, and return its DSN; it goes with the database."""
        name = f"role_{secrets.token_hex(6)}"
        secret = "its secret/@:%"
        with self.connect() as conn:
            result = SQL("CREATE ROLE {} {} PASSWORD {}").format(Identifier(name), SQL(attributes), secret)
            conn.execute(result)
        self.roles.append(name)
        return psycopg.conninfo.make_conninfo(self.dsn, user=name, password=secret)

    def source(self, **settings: Any) -> SourceConfig:
        """A source on this database: publication `pub`, slot named after the database, by default."""
        given = {"name": "shop", "dsn": self.secret, "publication": "pub", "slot": self.name, **settings}
        return SourceConfig(**given)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the servers that the tests run on."""
    help_text = f"PostgreSQL versions, as 14,17: only tests that use a server, on each of these ({VARIABLE})"
    parser.addoption("--servers", default=os.environ.get(VARIABLE, ""), help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """The marker that says which versions a test is about."""
    config.addinivalue_line("markers", "since(major): what it is about came with this version of PostgreSQL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a server once per version."""
    majors = _majors(metafunc.config)
    if majors and "server_version" in metafunc.fixturenames:
        metafunc.parametrize("server_version", majors, indirect=True, scope="session", ids=lambda major: f"pg{major}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run on named servers is about servers, and about what each of them has."""
    if not _majors(config):
        return
    left_out = {item for item in items if not _is_about_its_server(item)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _is_about_its_server(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "server_version" not in callspec.params:
        return False
    since = item.get_closest_marker("since")
    return since is None or bool(callspec.params["server_version"] >= since.args[0])


def _majors(config: pytest.Config) -> list[int]:
    return [int(part) for part in config.getoption("--servers").split(",") if part.strip()]


@pytest.fixture(scope="session")
def server_version(request: pytest.FixtureRequest) -> int:
    """The major version that this test's servers have."""
    major: int = getattr(request, "param", NEWEST)
    return major


MakeServer = Callable[..., EmbeddedPostgres]


@pytest.fixture(scope="session")
def make_server(server_version: int) -> MakeServer:
    """Makes servers of the run's version, not started; takes what `EmbeddedPostgres` takes."""

    def made(**given: Any) -> EmbeddedPostgres:
        return EmbeddedPostgres(install=None if server_version == NEWEST else fetch(server_version), **given)

    return made


@pytest.fixture(scope="session")
def postgres(make_server: MakeServer) -> Iterator[EmbeddedPostgres]:
    """The run's server, with wal_level=logical."""
    with make_server(conf=_CONF) as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A new, empty database, dropped with its slots and roles at the end."""
    with new_database(postgres) as result:
        yield result


@contextmanager
def new_database(server: EmbeddedPostgres, encoding: str = "UTF8") -> Iterator[Database]:
    """Make a database and drop it at the end, with whatever still hangs on to it."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        # Copied file by file: the WAL of a template's copy would be decoded with everything else.
        strategy = SQL("STRATEGY file_copy" if admin.info.server_version >= 150000 else "")
        made_as = SQL("CREATE DATABASE {} {}").format(Identifier(name), strategy)
        if encoding != "UTF8":
            made_as += SQL(" ENCODING {} LOCALE 'C' TEMPLATE template0").format(encoding)
        admin.execute(made_as)
    result = Database(server, name, server.dsn(name))
    try:
        yield result
    finally:
        _drop(result)


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
