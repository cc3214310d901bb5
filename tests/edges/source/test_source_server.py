"""Connections, server identity and slots against a real server.

What the stream brings is in test_stream.py, what `check` finds in test_source_checks.py.
"""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from demo.server import free_port
from lakeproof.errors import LakeproofError, SourceError, TransientError
from lakeproof.postgres.connections.connect import _pin, connect, connect_replication, dsn_in_words, source_errors
from lakeproof.postgres.replication_slot import create_slot, drop_slot, name_problem, read_slot, slot_problem
from lakeproof.postgres.server import identify
from lakeproof.values.pinned_settings import PINNED_SETTINGS
from tests.support.servers.fix_postgres import Database
from tests.support.servers.slots import create_slot as new_slot

PASSWORD = "pa55/w@rd:#%"


def test_a_server_says_who_it_is_on_both_makes_of_connection(database: Database) -> None:
    """An ordinary and a walsender connection give the same system, timeline, database and version."""
    with connect(database.secret) as ordinary, connect_replication(database.secret) as walsender:
        one, other = identify(ordinary), identify(walsender)
        row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    assert (row[0], int(row[1]), row[3]) == (one.system_id, one.timeline, one.database)
    assert (one.system_id, one.timeline, one.version) == (other.system_id, other.timeline, other.version)
    assert one.major >= 14
    assert not one.in_recovery


@pytest.mark.parametrize("make", [connect, connect_replication])
def test_settings_of_database_and_role_do_not_reach_our_connections(database: Database, make: type) -> None:
    """ALTER DATABASE … SET changes what texts look like everywhere but on a connection of lakeproof."""
    hostile = ["DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'"]
    hostile += ["client_min_messages = 'error'", "statement_timeout = '1h'", "idle_session_timeout = '1h'"]
    has_limit = database.value("SELECT current_setting('transaction_timeout', true)") is not None
    for setting in [*hostile, *(["transaction_timeout = '1h'"] if has_limit else [])]:
        database.execute(psycopg.sql.SQL(f"ALTER DATABASE {database.name} SET {setting}"))
    with make(database.secret) as conn:
        assert_pinned(conn)
        assert conn.execute("SELECT current_setting('transaction_timeout', true)").fetchone() in [("0",), (None,)]


@pytest.mark.parametrize("make", [connect, connect_replication])
def test_settings_of_the_environment_do_not_reach_our_connections(
    database: Database, monkeypatch: pytest.MonkeyPatch, make: type
) -> None:
    """Libpq sends these after what was asked for with the connection: a tstzrange would land with another offset."""
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    monkeypatch.setenv("PGDATESTYLE", "German")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGOPTIONS", "-c IntervalStyle=iso_8601 -c search_path=public -c row_security=on")
    with psycopg.connect(database.dsn) as other:
        assert other.execute("SHOW TimeZone").fetchone() == ("Asia/Kolkata",)
    with make(database.secret) as conn:
        assert_pinned(conn)


def test_settings_that_a_connection_came_without_are_set_on_it(database: Database) -> None:
    """A pooler may drop the settings that were asked for."""
    for make in ("", "database"):
        dsn = psycopg.conninfo.make_conninfo(database.dsn, **({"replication": make} if make else {}))
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("SET extra_float_digits = 0")
            _pin(conn, "source", {})
            assert_pinned(conn)


def assert_pinned(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Each of the pinned settings is in force."""
    for name, value in PINNED_SETTINGS.items():
        row = conn.execute(psycopg.sql.SQL("SHOW {}").format(psycopg.sql.SQL(name))).fetchone()
        assert row is not None
        assert str(row[0]).strip('"').startswith(value), name
        assert value != "" or row[0] in ("", '""'), name


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://someone:{PASSWORD}@localhost:1/db",
        "postgresql://someone:pa55@w@rd@localhost:1/db",
        "postgresql://someone:12/w@rd@localhost:1/db",
        "host=localhost port=1 dbname=db user=someone password=pa55 w@rd",
        "host=localhost port=pa55 dbname=db",
    ],
)
def test_a_malformed_dsn_is_refused_without_a_word_of_it(dsn: str) -> None:
    """The place where libpq stumbled, which it quotes, may lie inside the password: its text is not used."""
    with pytest.raises(SourceError) as refusal:
        connect(SecretStr(dsn))
    assert not any(part in str(refusal.value) for part in ("pa55", "w@rd", "12/"))


def test_a_wrong_password_is_definite_and_not_shown(database: Database) -> None:
    """A refused log-in is a SourceError that names the user, not the password."""
    dsn = psycopg.conninfo.make_conninfo(database.dsn, password=PASSWORD)
    with pytest.raises(SourceError, match="password authentication failed") as refusal:
        connect(SecretStr(dsn))
    assert PASSWORD not in str(refusal.value)
    assert "postgres@127.0.0.1" in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"port": "closed"}, TransientError),
        ({"dbname": "no_such_database"}, SourceError),
        ({"user": "no_such_role"}, SourceError),
        ({"host": "no-such-host.invalid", "hostaddr": None}, LakeproofError),
    ],
)
def test_each_wrong_part_of_a_dsn_has_its_error(
    database: Database, change: dict[str, str | None], kind: type[LakeproofError]
) -> None:
    """A port nobody listens on may be tried again; a database or role that does not exist may not."""
    given = {k: (str(free_port()) if v == "closed" else v) for k, v in change.items()}
    with pytest.raises(kind) as refusal:
        connect(SecretStr(psycopg.conninfo.make_conninfo(database.dsn, **given)))
    assert "password=" not in str(refusal.value)


def test_a_source_is_described_without_its_password(database: Database) -> None:
    """The name for messages has user, host, port and database."""
    assert dsn_in_words(database.secret) == f"postgres@127.0.0.1:{database.server.port}/{database.name}"


def test_errors_are_sorted_by_their_sqlstate(database: Database) -> None:
    """A timeout may be tried again, a missing table not, and no DETAIL with a row's values travels."""
    with connect(database.secret) as conn:
        conn.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
        conn.execute("INSERT INTO public.t VALUES (4711)")
        with pytest.raises(SourceError, match="42P01"), source_errors("x"):
            conn.execute("SELECT 1 FROM public.nothing")
        with pytest.raises(SourceError) as refusal, source_errors("x"):
            conn.execute("INSERT INTO public.t VALUES (4711)")
        assert "4711" not in str(refusal.value)
        conn.execute("SET statement_timeout = 20")
        with pytest.raises(TransientError, match="57014"), source_errors("x"):
            conn.execute("SELECT pg_sleep(5)")


@pytest.mark.since(17)
def test_a_transaction_that_the_server_ended_for_its_age_may_be_tried_again(database: Database) -> None:
    """Somebody set a limit on a connection of ours, which none has by itself."""
    with connect(database.secret) as conn:
        conn.execute("SET transaction_timeout = 20")
        with pytest.raises(TransientError, match="25P04"), source_errors("x"):
            conn.execute("SELECT pg_sleep(5)")


def test_a_role_without_replication_is_refused_with_what_it_lacks(database: Database) -> None:
    """The walsender is refused with the ALTER ROLE that would help."""
    with pytest.raises(SourceError, match="REPLICATION"):
        connect_replication(SecretStr(database.role("LOGIN")))


def test_a_slot_is_read_as_it_stands(database: Database) -> None:
    """read_slot gives plugin, database, position and what it holds back; None once it is dropped."""
    with connect(database.secret) as conn:
        assert read_slot(conn, database.name) is None
        point = new_slot(database.secret, database.name)
        state = read_slot(conn, database.name)
        assert state is not None
        assert (state.plugin, state.database, state.confirmed_flush_lsn) == ("pgoutput", database.name, point)
        assert (state.active, state.two_phase, state.temporary, state.lost) == (False, False, False, False)
        assert slot_problem(state, database.name) is None
        assert "belongs to database" in str(slot_problem(state, "another"))
        assert drop_slot(conn, database.name)
        assert not drop_slot(conn, database.name)


def test_slots_that_can_not_serve_are_distinguished(database: Database) -> None:
    """Another plugin, a physical slot and two_phase each have their own reason."""
    name = database.name
    for statement, reason in (
        ("pg_create_logical_replication_slot(%s, 'test_decoding')", "output plugin test_decoding"),
        ("pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", "two_phase"),
        ("pg_create_physical_replication_slot(%s)", "physical"),
    ):
        with connect(database.secret) as conn:
            conn.execute(f"SELECT {statement}", (name,))
            state = read_slot(conn, name)
            assert state is not None
            assert reason in str(slot_problem(state, database.name))
            drop_slot(conn, name)


@pytest.mark.parametrize("name", ["", "Upper", "with-dash", "sp ace", "ü", "x" * 64])
def test_a_slot_name_that_postgres_would_cut_or_refuse_is_refused_before(database: Database, name: str) -> None:
    """A longer name would be cut silently, and the slot then not be found again."""
    assert name_problem(name) is not None
    with connect_replication(database.secret) as walsender, pytest.raises(SourceError):
        create_slot(walsender, name, temporary=True)
