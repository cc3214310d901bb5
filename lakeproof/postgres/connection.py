"""Connections to a source, ordinary and replicating, with every setting that shapes a value pinned.

What is asked over them belongs to the other modules of this room. Each error of libpq and of the server becomes one of
`lakeproof.errors`, without the password and without a row's value: only the primary message travels, never a DETAIL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.sql import SQL, Composed, Identifier, Literal
from pydantic import SecretStr

from lakeproof.errors import LakeproofError, SourceError, TransientError, manual
from lakeproof.postgres.connection_security import CLEAR_PASSWORD, UNVERIFIED_REMEDY, authentication
from lakeproof.postgres.connection_timeouts import ASKED_TO_STOP, PatientConnection
from lakeproof.values.cast import PINNED_SETTINGS

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

OLDEST_VERSION = 140000
_CONNECT_TIMEOUT_S = 10
# Even pg_publication_tables waits for whoever holds a table exclusively: rather an error to be tried again than for ever.
LOCK_TIMEOUT_S = 10.0
# Found dead within half a minute, where the kernel's default is two hours.
_KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "4"}

# What has to be in force on every connection. The server's own are PINNED_SETTINGS; none of them ends a transaction of ours.
_IN_FORCE = {**PINNED_SETTINGS, "transaction_timeout": "0"}
# NULL for what this server does not have: transaction_timeout came with PostgreSQL 17.
_SETTINGS = SQL("""
SELECT s.name, pg_catalog.current_setting(s.name, true) AS value FROM pg_catalog.unnest({names}::text[]) AS s (name)
""")

# What libpq itself says where the server could not be talked to: nothing is wrong with what was asked for.
_UNREACHABLE = (
    "connection refused",
    "timeout expired",
    "timed out",
    "connection timeout",
    "server closed the connection",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "temporary failure in name resolution",
    "the database system is",
    "too many clients",
    "too many connections",
    "remaining connection slots",
    # In every language; so is the next.
    "max_wal_senders",
    "pg_use_reserved_connections",
    "terminating connection",
    "ssl syscall error",
    "host is down",
    "broken pipe",
    # A socket's, where the server is stopped; a file that a DSN names is missed in other words.
    "failed: no such file or directory",
    "connection is lost",
    "connection is closed",
    ASKED_TO_STOP,
)

# A server may refuse a connection in any language, and libpq keeps the SQLSTATE to itself. Two blanks stand between the
# severity and what the server said, and nowhere in libpq's own words.
_SERVER_SAID = re.compile(r'failed: [^:"]+:  (?P<text>.+)')
# What a person must put right names itself: a role, a database, a setting, in any language in quotes; a file; or by these
# words. What passes (starting, shutting down, recovering, full) names nothing.
_NAMES_SOMETHING = re.compile(
    r"""["«»„“”「」]|pg_hba|certifi|zertifi|wal[\ -]?sender|replication\ role|authenticat|permission|password
    |invalid|unsupported|specified|not\ allowed|not\ found|no\ such""",
    re.IGNORECASE | re.VERBOSE,
)

# What libpq says if it does not even ask → what to do.
_REFUSALS: Mapping[str, str] = {
    CLEAR_PASSWORD: UNVERIFIED_REMEDY,
    "could not translate host name": "check the host's name in the DSN, or the resolver of this machine",
    "root certificate file": "name the CA's certificate with sslrootcert= (sslrootcert=system: those of this machine)",
    "certificate verify failed": "name the CA that signed the server's certificate with sslrootcert=",
    "does not match host name": "name the server as its certificate does, or give it another certificate",
    "does not support ssl": "switch TLS on at the server (ssl = on), or take sslmode out of the DSN",
    "requires a valid client certificate": "name the role's certificate and key with sslcert= and sslkey=",
    "channel binding": "take channel_binding out of the DSN, or let the server authenticate by SCRAM over TLS",
}

# SQLSTATEs and classes after which the same request may succeed: connection trouble, not enough resources, shutdown,
# a rolled back transaction, a busy slot, a lock not to be had in time, a cancelled statement.
_TRANSIENT_STATES = frozenset({"55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_TRANSIENT_CLASSES = frozenset({"08", "40", "53"})
# Class 53 too, but a person has to make room.
_DEFINITE_STATES = frozenset({"53400"})


def connect(
    dsn: SecretStr, application_name: str = "lakeproof", *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> Connection:
    """Open an ordinary connection in autocommit mode; whoever waits for a lock longer than `lock_timeout_s` gets an error.

    How long answers are waited for over it says the patience in force (`lakeproof.postgres.connection_timeouts`).
    Raises SourceError where the DSN, the role or the database is wrong, TransientError where the server can't be
    reached just now.
    """
    return _open(dsn, application_name, {}, f"-c lock_timeout={max(1, int(lock_timeout_s * 1000))}ms")


def connect_replication(dsn: SecretStr, application_name: str = "lakeproof") -> Connection:
    """Open a walsender connection in the DSN's database (`replication=database`).

    It speaks the simple protocol only: statements without parameters (`execute(SQL(...).format(Literal(...)))`), the
    replication commands, and through `.pgconn` COPY BOTH. Raises as `connect`.
    """
    return _open(dsn, application_name, {"replication": "database"}, "")


def describe(dsn: SecretStr) -> str:
    """`user@host:port/database` for messages, never a password."""
    try:
        parts = _parse(dsn)
    except SourceError:
        return "the source's dsn"
    user, host = parts.get("user", ""), parts.get("host") or parts.get("hostaddr") or "local socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"{user}{'@' if user else ''}{host}{port}/{parts.get('dbname', user)}"


@contextmanager
def source_errors(thing: str) -> Iterator[None]:
    """Turn any psycopg error inside into a LakeproofError about `thing`."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, thing) from None


def translate(error: psycopg.Error, thing: str) -> LakeproofError:
    """The LakeproofError that says what `error` says about `thing`: transient or definite by its SQLSTATE."""
    state = error.sqlstate
    reason = _first_line(error.diag.message_primary or str(error))
    if state is None:
        return _lost(thing, reason)
    if state[:2] == "22":
        # The messages of this class quote the value.
        name = type(error).__name__
        return SourceError(
            thing, f"PostgreSQL could not give a value: {name} (SQLSTATE {state})", "correct it in the source"
        )
    if state == "55P03":
        return TransientError(thing, "a lock was not to be had in time", "let the ALTER or LOCK finish, then try again")
    if state in _TRANSIENT_STATES or (state[:2] in _TRANSIENT_CLASSES and state not in _DEFINITE_STATES):
        return TransientError(thing, f"{reason} (SQLSTATE {state})", "try again")
    return SourceError(thing, f"{reason} (SQLSTATE {state})", _REMEDIES.get(state, _remedy_of_class(state)))


def rows(conn: Connection, query: SQL | Composed, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """All rows of `query`, its `{name}` placeholders filled in with literals, each row a dict by column name.

    Works on both makes of connection. Raises psycopg.Error; wrap in `source_errors`.
    """
    filled = query.format(**{k: Literal(v) for k, v in values.items()}) if values and isinstance(query, SQL) else query
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(filled, prepare=False).fetchall()


@contextmanager
def one_snapshot(conn: Connection) -> Iterator[None]:
    """Statements inside see one state of the database, as they do anyway in an open transaction. Raises psycopg.Error."""
    if conn.info.transaction_status != TransactionStatus.IDLE:
        yield
        return
    conn.execute(SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), prepare=False)
    try:
        yield
    finally:
        with suppress(psycopg.Error):
            conn.execute(SQL("ROLLBACK"), prepare=False)


def set_for_session(conn: Connection, settings: Mapping[str, str]) -> None:
    """SET each of `settings` on this connection; raises psycopg.Error."""
    for name, value in settings.items():
        conn.execute(SQL("SET {} = {}").format(Identifier(name), Literal(value)), prepare=False)


@contextmanager
def unconverted(conn: Connection) -> Iterator[None]:
    """A database in SQL_ASCII sends the octets it has, rather than end with an error at those that are not UTF-8.

    psycopg gives bytes for text then, so it is undone where the block fails; where it does not, it lasts.
    """
    if conn.info.parameter_status("server_encoding") != "SQL_ASCII":
        yield
        return
    set_for_session(conn, {"client_encoding": "SQL_ASCII"})
    try:
        yield
    except psycopg.Error:
        with suppress(psycopg.Error):
            set_for_session(conn, {"client_encoding": "UTF8"})
        raise


def close_quietly(conn: Connection | None) -> None:
    """Close, whatever state it is in; a connection that is already broken is no news."""
    if conn is not None:
        with suppress(psycopg.Error, OSError):
            conn.close()


def _open(dsn: SecretStr, application_name: str, extra: Mapping[str, str], defaults: str) -> Connection:
    parts = _parse(dsn)
    own = {
        **_KEEPALIVES,
        "connect_timeout": str(_CONNECT_TIMEOUT_S),
        **authentication(parts),
        **parts,
        **extra,
        "application_name": application_name,
        "options": _options(f"{defaults} {parts.get('options') or ''}"),
        "client_encoding": "UTF8",
    }
    thing = f"source {describe(dsn)}"
    try:
        conn = PatientConnection.open(make_conninfo("", **own))
    except psycopg.Error as error:
        raise _refused(error, thing, str(parts.get("password") or "")) from None
    except UnicodeError:
        raise SourceError(thing, "the host is not a valid name", "correct the DSN") from None
    try:
        _pin(conn, thing)
    except BaseException:
        close_quietly(conn)
        raise
    return conn


def _pin(conn: Connection, thing: str) -> None:
    """What was asked for with a connection may not be in force: libpq sends PGTZ after it, a pooler may send none of it.

    One question where all is as it should be.
    """
    if conn.info.server_version < OLDEST_VERSION:
        reason = f"PostgreSQL {conn.info.server_version // 10000} is not supported"
        raise SourceError(thing, reason, "upgrade the source to PostgreSQL 14 or later")
    with source_errors(thing):
        wrong = _not_in_force(conn)
        if wrong:
            set_for_session(conn, wrong)
            wrong = _not_in_force(conn)
    if wrong:
        raise SourceError(
            thing, f"{', '.join(sorted(wrong))} could not be set on its connection", "connect to the server directly"
        )


def _not_in_force(conn: Connection) -> dict[str, str]:
    found = {row["name"]: row["value"] for row in rows(conn, _SETTINGS, {"names": list(_IN_FORCE)})}
    # DateStyle has a second part (`ISO, MDY`), which only says how a text is read; an empty search_path may be `""`.
    given = {name: value.split(",")[0].strip('"') for name, value in found.items() if value is not None}
    return {name: value for name, value in _IN_FORCE.items() if given.get(name, value) != value}


def _parse(dsn: SecretStr) -> dict[str, Any]:
    text = dsn.get_secret_value()
    bad = "it can't be read as a libpq connection string"
    remedy = "correct it; in a URI percent-encode each special character of the password"
    try:
        parts = conninfo_to_dict(text)
    except (psycopg.Error, UnicodeError):
        # libpq's message quotes the place it stumbled at, which may be inside the password.
        raise SourceError("the source's dsn", bad, remedy) from None
    # A '/' or '@' left raw in a URI's password moves its tail into these.
    ports = str(parts.get("port") or "0").split(",")
    names = f"{parts.get('host') or ''}{parts.get('dbname') or ''}" if "://" in text[:14] else ""
    if "@" in names or not all(port.isdigit() or not port for port in ports):
        raise SourceError("the source's dsn", bad, remedy)
    return dict(parts)


def _options(theirs: str) -> str:
    pinned = " ".join(
        f"-c {name}={_escaped(value)}" for name, value in PINNED_SETTINGS.items() if name != "client_encoding"
    )
    return f"{theirs} {pinned}".strip()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _refused(error: psycopg.Error, thing: str, password: str) -> LakeproofError:
    reason = _first_line(str(error))
    if password:
        reason = reason.replace(password, "***")
    return _lost(thing, reason)


def _lost(thing: str, reason: str) -> LakeproofError:
    lower = reason.lower()
    if any(words in lower for words in _UNREACHABLE):
        return TransientError(thing, reason, "check host and port in the DSN and that the server runs, then try again")
    said = _SERVER_SAID.search(reason)
    if said and not _NAMES_SOMETHING.search(said["text"]):
        return TransientError(thing, reason, "try again; where it stays so, see the server's log")
    remedy = next((text for words, text in _REFUSALS.items() if words in lower), None)
    if remedy is not None:
        return SourceError(thing, reason, remedy)
    if "wal sender" in lower or "wal-sender" in lower or "walsender" in lower:
        return SourceError(thing, reason, "ALTER ROLE <role> REPLICATION (on RDS: GRANT rds_replication TO <role>)")
    return SourceError(thing, reason, "correct the DSN, the password or pg_hba.conf")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Where several addresses were tried, psycopg lists each; the last is the one that decided.
    wanted = [line for line in lines if "failed:" in line or "error" in line.lower()] or lines
    return wanted[0].removeprefix("- ") if wanted else "the connection was lost"


def _remedy_of_class(state: str) -> str:
    return "grant what is missing or correct the configuration" if state[:2] == "42" else "see the server's log"


_REMEDIES: Mapping[str, str] = {
    "42501": (
        f"grant the role what it lacks ({manual('Running it', 'The least privileges')}), or let the owner run what "
        "`lakeproof plan` prints"
    ),
    "42704": "create it, or correct its name in the configuration",
    "42P01": "create the table, or take it out of the configuration",
    "53400": "raise max_replication_slots, or drop a slot that nobody needs",
    "55000": "run `lakeproof check` for the state of the slot",
}
