"""Opens connections to a source, ordinary and replicating, with every setting that affects how a value is written pinned.

The statements belong to the callers. Each error of libpq and of the server becomes one of `lakeproof.errors`, without the
password and without a row's value: only the primary message is passed on, never a DETAIL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.sql import SQL, Composed, Identifier, Literal
from pydantic import SecretStr

from lakeproof.errors import LakeproofError, SourceError, TransientError, manual
from lakeproof.events import Stop
from lakeproof.postgres.connections.pooler import a_pooler, pooler_at, pooler_in
from lakeproof.postgres.connections.refusals import refusal_error
from lakeproof.postgres.connections.security import authentication
from lakeproof.postgres.connections.timeouts import ASKED_TO_STOP, TimedConnection, Timeout, use_timeout
from lakeproof.values.pinned_settings import PINNED_SETTINGS

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
# A row by the names of its columns; the query beside it says what they are.
Row: TypeAlias = dict[str, Any]

OLDEST_VERSION = 140000
_CONNECT_TIMEOUT_S = 10
# How often a server looks if the client of a long statement is there.
_CLIENT_CHECK_S = 5
# Even reading pg_publication_tables blocks on an exclusively locked table. Fail and retry rather than block for ever.
LOCK_TIMEOUT_S = 10.0
# A dead connection is noticed within half a minute; the kernel's default is two hours.
_KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "4"}

# The settings that must be in force on every connection: the values' PINNED_SETTINGS, and no limit on our transactions.
_IN_FORCE = {**PINNED_SETTINGS, "transaction_timeout": "0"}
# NULL for a setting that this server does not have: transaction_timeout came with PostgreSQL 17.
_SETTINGS = SQL("""
SELECT s.name, pg_catalog.current_setting(s.name, true) AS value FROM pg_catalog.unnest({names}::text[]) AS s (name)
""")

# libpq's own words if it could not talk to the server: nothing is wrong with the request.
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
    # This word is the same in every language; so is the next.
    "max_wal_senders",
    "pg_use_reserved_connections",
    "terminating connection",
    "ssl syscall error",
    "host is down",
    "broken pipe",
    # A socket's, if the server is stopped; libpq uses other words for a missing file that a DSN names.
    "failed: no such file or directory",
    "connection is lost",
    "connection is closed",
    ASKED_TO_STOP,
)

# A server may refuse a connection in any language, and libpq does not pass on the SQLSTATE. Two blanks separate the
# severity from the server's message; libpq's own messages contain no two blanks.
_SERVER_SAID = re.compile(r'failed: [^:"]+:  (?P<text>.+)')
# A message about something that a person must correct names it: a role, a database or a setting in quotes (in any
# language), a file, or one of these words. Messages about passing states (starting, recovering, full) name nothing.
_NAMES_SOMETHING = re.compile(
    r"""["«»„“”「」]|pg_hba|certifi|zertifi|wal[\ -]?sender|replication\ role|authenticat|permission|password
    |invalid|unsupported|specified|not\ allowed|not\ found|no\ such""",
    re.IGNORECASE | re.VERBOSE,
)

# SQLSTATEs and classes after which the same request may succeed: connection trouble, not enough resources, shutdown,
# a rolled back transaction, a busy slot, a lock timeout, a cancelled statement.
_TRANSIENT_STATES = frozenset({"55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_TRANSIENT_CLASSES = frozenset({"08", "40", "53"})
# Also of class 53, but a person has to make room.
_DEFINITE_STATES = frozenset({"53400"})


def connect(
    dsn: SecretStr, application_name: str = "lakeproof", *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> Connection:
    """Open an ordinary connection in autocommit mode.

    A statement fails if it waits for a lock longer than `lock_timeout_s`. The timeout in force limits every wait for an
    answer on this connection (`lakeproof.postgres.connections.timeouts`). Raises SourceError if the DSN, the role or the
    database is wrong, TransientError if the server can't be reached just now.
    """
    return _open(dsn, application_name, {}, f"-c lock_timeout={max(1, int(lock_timeout_s * 1000))}ms")


def connect_for_long_statements(dsn: SecretStr, application_name: str, stop: Stop) -> Connection:
    """Open a connection as `connect`, for statements that work for long before they send a row.

    A wait for an answer is given up if `stop` is requested, and a statement ends soon after its client: the server would
    see that only at its first row, and keep the statement's snapshot until then.
    """
    with use_timeout(Timeout(math.inf, stop)):
        conn = connect(dsn, application_name)
    # Not every system can tell a server that a client has gone: then its statements end as they always did.
    with suppress(psycopg.Error):
        set_for_session(conn, {"client_connection_check_interval": f"{_CLIENT_CHECK_S}s"})
    return conn


def connect_replication(dsn: SecretStr, application_name: str = "lakeproof") -> Connection:
    """Open a walsender connection in the DSN's database (`replication=database`).

    It speaks only the simple protocol: statements without parameters (`execute(SQL(...).format(Literal(...)))`), the
    replication commands, and through `.pgconn` COPY BOTH. Raises as `connect`.
    """
    return _open(dsn, application_name, {"replication": "database"}, "")


def dsn_in_words(dsn: SecretStr) -> str:
    """Return `user@host:port/database` for messages, never a password."""
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
    """Return `error` as a LakeproofError about `thing`: transient or definite by its SQLSTATE."""
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
        return TransientError(
            thing, "a lock could not be taken in time", "let the ALTER or LOCK finish, then try again"
        )
    if state in _TRANSIENT_STATES or (state[:2] in _TRANSIENT_CLASSES and state not in _DEFINITE_STATES):
        return TransientError(thing, f"{reason} (SQLSTATE {state})", "try again")
    return SourceError(thing, f"{reason} (SQLSTATE {state})", _REMEDIES.get(state, _remedy_of_class(state)))


def rows(
    conn: Connection, query: SQL | Composed, values: Mapping[str, object] | None = None, *, about: str | None = None
) -> list[Row]:
    """Return all rows of `query`, its `{name}` placeholders filled in with literals; each row is a dict by column name.

    Works on both kinds of connection. Raises psycopg.Error; with `about`, as `source_errors` about that thing.
    """
    filled = query.format(**{k: Literal(v) for k, v in values.items()}) if values and isinstance(query, SQL) else query
    with nullcontext() if about is None else source_errors(about), conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(filled, prepare=False).fetchall()


@contextmanager
def one_snapshot(conn: Connection) -> Iterator[None]:
    """Let the statements inside see one state of the database; an open transaction stays as it is. Raises psycopg.Error."""
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
    """Let a database in SQL_ASCII send its bytes as they are, rather than fail at bytes that are not UTF-8.

    psycopg then returns bytes for text, so the setting is undone if the block fails; if it does not fail, it lasts.
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
    """Close the connection in whatever state it is; ignore one that is already broken."""
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
    thing = f"source {dsn_in_words(dsn)}"
    pooler = pooler_at(parts)
    if pooler is not None:
        raise a_pooler(thing, parts, pooler)
    try:
        conn = TimedConnection.open(make_conninfo("", **own))
    except psycopg.Error as error:
        raise _refused(error, thing, parts) from None
    except UnicodeError:
        raise SourceError(thing, "the host is not a valid name", "correct the DSN") from None
    try:
        _pin(conn, thing, parts)
    except BaseException:
        close_quietly(conn)
        raise
    return conn


def _pin(conn: Connection, thing: str, parts: Mapping[str, str | int | None]) -> None:
    """Check the settings in force, and set the wrong ones: libpq sends PGTZ after ours, and a pooler may send none of them.

    Costs one query if all settings are right.
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
        reason = f"{', '.join(sorted(wrong))} could not be set on its connection"
        raise a_pooler(thing, parts, "something between", reason)


def _not_in_force(conn: Connection) -> dict[str, str]:
    settings = {row["name"]: row["value"] for row in rows(conn, _SETTINGS, {"names": list(_IN_FORCE)})}
    # DateStyle has a second part (`ISO, MDY`), which only affects how a text is read; an empty search_path may be `""`.
    values = {name: value.split(",")[0].strip('"') for name, value in settings.items() if value is not None}
    return {name: value for name, value in _IN_FORCE.items() if values.get(name, value) != value}


def _parse(dsn: SecretStr) -> dict[str, str | int | None]:
    text = dsn.get_secret_value()
    bad = "it can't be read as a libpq connection string"
    remedy = "correct it; in a URI percent-encode each special character of the password"
    try:
        parts = conninfo_to_dict(text)
    except (psycopg.Error, UnicodeError):
        # libpq's message quotes the position of the mistake, which may be inside the password.
        raise SourceError("the source's dsn", bad, remedy) from None
    # An unescaped '/' or '@' in a URI's password moves its tail into these.
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


def _refused(error: psycopg.Error, thing: str, parts: Mapping[str, str | int | None]) -> LakeproofError:
    reason, password = _first_line(str(error)), str(parts.get("password") or "")
    if password:
        reason = reason.replace(password, "***")
    pooler = pooler_in(reason)
    return _lost(thing, reason, parts) if pooler is None else a_pooler(thing, parts, pooler, reason)


def _lost(thing: str, reason: str, parts: Mapping[str, str | int | None] | None = None) -> LakeproofError:
    lower = reason.lower()
    if any(words in lower for words in _UNREACHABLE):
        return TransientError(thing, reason, "check host and port in the DSN and that the server runs, then try again")
    answer = _SERVER_SAID.search(reason)
    if answer and not _NAMES_SOMETHING.search(answer["text"]):
        return TransientError(thing, reason, "try again; if it persists, see the server's log")
    return refusal_error(thing, reason, parts or {})


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # If several addresses were tried, psycopg lists each; the last one decided.
    errors = [line for line in lines if "failed:" in line or "error" in line.lower()] or lines
    return errors[0].removeprefix("- ") if errors else "the connection was lost"


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
