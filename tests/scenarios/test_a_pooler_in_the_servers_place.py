"""The DSN leads to a pooler of connections: whoever answers is named, and where the server itself is.

Debian's PgBouncer stands before the run's server; the words of the other poolers are theirs, from reports of their users.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from lakeproof.commands.check import check_source
from lakeproof.commands.init import init
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError, SourceError
from lakeproof.postgres.connections.connect import connect, connect_replication
from lakeproof.postgres.connections.pooler import is_pooled, pooler_at, pooler_in, server_of
from tests.support.servers.fix_pooler import pooled
from tests.support.servers.fix_postgres import Database

_ITSELF = "connect to the server itself"


def _config(database: Database, dsn: str, lake: Path) -> Config:
    source = database.source(dsn=SecretStr(dsn))
    return Config(path=lake / "w.yaml", lake=str(lake), sources={"shop": source})


@pytest.mark.postgres
def test_pgbouncer_is_named_by_its_refusal(database: Database, tmp_path: Path) -> None:
    """As it comes: it refuses `options`, before it has asked for a password."""
    with pooled(database) as dsn:
        for opened in (connect, connect_replication):
            with pytest.raises(SourceError, match="PgBouncer, a pooler of connections") as refused:
                opened(SecretStr(dsn))
            assert _ITSELF in refused.value.remedy
        (finding,) = check_source(_config(database, dsn, tmp_path), "shop").findings
        assert _ITSELF in finding.remedy


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_pgbouncer_that_ignores_parameters_is_named(database: Database, tmp_path: Path, mode: str) -> None:
    """Queries work through it, and `check` says what answers; a replication connection is refused with the same words."""
    with pooled(database, ignore_startup_parameters="options,extra_float_digits", pool_mode=mode) as dsn:
        with connect(SecretStr(dsn)) as conn:
            assert is_pooled(conn)
        findings = check_source(_config(database, dsn, tmp_path), "shop").findings
        assert [_ITSELF in f.remedy for f in findings if "a pooler of connections" in f.reason] == [True]
        with pytest.raises(SourceError, match="PgBouncer, a pooler of connections"):
            connect_replication(SecretStr(dsn))


@pytest.mark.postgres
def test_a_server_is_no_pooler(database: Database, tmp_path: Path) -> None:
    """A server that answers itself is not taken for one, nor one that does not know the database `pgbouncer`."""
    with connect(database.secret) as conn:
        assert not is_pooled(conn)
    findings = check_source(_config(database, database.dsn, tmp_path), "shop").findings
    assert not [f for f in findings if "pooler" in f.reason]
    with pytest.raises(SourceError) as refused:
        connect(SecretStr(psycopg.conninfo.make_conninfo(database.dsn, dbname="pgbouncer")))
    assert "pooler" not in str(refused.value)


SENT = {
    "unsupported startup parameter: options": "PgBouncer",
    "unsupported startup parameter in options: lock_timeout. Please use unpooled connection": "PgBouncer",
    "bouncer config error": "PgBouncer",
    "odyssey: c2a3d6c0b5e1f: route for 'shop.app' is not found": "Odyssey",
    "Feature not supported: RDS Proxy currently does not support command-line options.": "RDS Proxy",
    "Tenant or user not found": "Supavisor",
    "MaxClientsInSessionMode: max clients reached - in Session mode max clients are limited to pool_size": "Supavisor",
    'database "pgbouncer" does not exist': None,
    'password authentication failed for user "odyssey: "': None,
}


@pytest.mark.parametrize(("words", "name"), SENT.items())
def test_each_pooler_is_known_by_its_words(words: str, name: str | None) -> None:
    """A host that is called so is none."""
    assert pooler_in(f'connection to server at "pgbouncer.internal", port 5432 failed: FATAL:  {words}') == name


ADDRESSES = {
    "host=aws-0-eu-west-1.pooler.supabase.com user=postgres.abcdef": "db.abcdef.supabase.co, port 5432, as user postgres",
    "host=ep-cool-sun-123456-pooler.eu-central-1.aws.neon.tech": "ep-cool-sun-123456.eu-central-1.aws.neon.tech",
    "host=shop.proxy-abc123.eu-west-1.rds.amazonaws.com": "which ends in abc123.eu-west-1.rds.amazonaws.com",
    "host=shop.postgres.database.azure.com port=6432": "shop.postgres.database.azure.com, port 5432",
    "host=db-a-do-user-1.b.db.ondigitalocean.com port=25061": "port 25060",
    "host=p.abc.db.postgresbridge.com port=5431": "p.abc.db.postgresbridge.com, port 5432",
}


@pytest.mark.parametrize(("dsn", "server"), ADDRESSES.items())
def test_an_address_says_whose_pooler_it_is(dsn: str, server: str) -> None:
    """Nothing is connected to: the address is enough; the server's own is no pooler."""
    with pytest.raises(SourceError, match="'s pooler, a pooler of connections") as refused:
        connect(SecretStr(dsn))
    assert server in refused.value.remedy


@pytest.mark.parametrize(
    "parts",
    [
        {"host": "db.abcdef.supabase.co"},
        {"host": "ep-cool-sun-123456.eu-central-1.aws.neon.tech"},
        {"host": "shop.abc123.eu-west-1.rds.amazonaws.com"},
        {"host": "shop.postgres.database.azure.com"},
        {"host": "localhost", "port": "6432"},
        {},
    ],
)
def test_a_servers_address_is_no_poolers(parts: dict[str, str]) -> None:
    """The remedy without a provider names hosts and ports in general."""
    assert pooler_at(parts) is None
    assert _ITSELF in server_of(parts)


@pytest.mark.postgres
def test_each_mistake_in_a_dsn_has_its_own_remedy(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host, database, role and password; and `init` names the variable that is not set."""
    right = psycopg.conninfo.conninfo_to_dict(database.role())
    wrong: dict[str, str] = {
        "host": "db.nowhere.invalid",
        "dbname": "sass",
        "user": "nobody_is_called_so",
        "password": "wrong",
    }
    expected = {
        "host": "check the host's name",
        "dbname": "check the database's name in the DSN: dbname=sass",
        "user": "check the role's name, and its password",
        "password": "check the role's name, and its password",
    }
    for name, value in wrong.items():
        failure = _failure(partial(connect, SecretStr(psycopg.conninfo.make_conninfo("", **{**right, name: value}))))
        assert expected[name] in failure.remedy, name
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    without = psycopg.conninfo.conninfo_to_dict(database.dsn)
    without.pop("password")
    failure = _failure(lambda: init(tmp_path / "l.yaml", psycopg.conninfo.make_conninfo("", **without), "shop"))
    assert failure.remedy.startswith("set SHOP_PASSWORD")


def _failure(call: Callable[[], object]) -> LakeproofError:
    with pytest.raises(LakeproofError) as failed:
        call()
    return failed.value
