"""Recognises a pooler of connections in the place of a server, and says where the server itself is.

A pooler gives each transaction, or each session, one of its own connections: settings, locks, temporary slots and
replication do not work as PostgreSQL's do. Opening connections does not belong here (`connect.py`).

A pooler is recognised by its words, by its address, and by what it answers: the process that it named at the start of a
connection is not the one that a query meets. (That alone refuses nothing: some providers have a proxy before every server,
which passes all on.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from lakeproof.errors import SourceError

_PGBOUNCER, _ODYSSEY, _RDS_PROXY, _SUPAVISOR = "PgBouncer", "Odyssey", "RDS Proxy", "Supavisor"
# Words of errors, in lower case → whose they are. PostgreSQL has none of them.
_WORDS: Mapping[str, str] = {
    "unsupported startup parameter": _PGBOUNCER,
    "unsupported options startup parameter": _PGBOUNCER,
    "pgbouncer": _PGBOUNCER,
    "bouncer config error": _PGBOUNCER,
    "query_wait_timeout": _PGBOUNCER,
    "server_login_retry": _PGBOUNCER,
    "client_login_timeout": _PGBOUNCER,
    "no such database: ": _PGBOUNCER,
    "odyssey: ": _ODYSSEY,
    "rds proxy": _RDS_PROXY,
    "supavisor": _SUPAVISOR,
    "tenant or user not found": _SUPAVISOR,
    "no tenant identifier provided": _SUPAVISOR,
    "max clients reached in session mode": _SUPAVISOR,
    "maxclientsinsessionmode": _SUPAVISOR,
    "edbhandlerexited": _SUPAVISOR,
}
_QUOTED = re.compile(r'"[^"]*"')
_SERVER_PORT = (
    "connect to the server itself: its own host and port (5432 as a rule; poolers often have 6432), not the pooler's"
)


@dataclass(frozen=True, slots=True)
class _Provider:
    """The address of a provider's pooler, as patterns of host and port, and the server's own, as a template of both."""

    name: str
    host: re.Pattern[str]
    port: str | None
    server: str
    # A host alone shows that it is a pooler's.
    certain: bool = True


def _host(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_PROVIDERS = (
    _Provider("Supabase", _host(r".+\.pooler\.supabase\.com"), None, "db.{ref}.supabase.co, port 5432, as user {user}"),
    _Provider("Neon", _host(r"(?P<name>[^.]+)-pooler(?P<rest>\..+\.neon\.tech)"), None, "{name}{rest}"),
    _Provider(
        "Amazon RDS",
        _host(r".+\.proxy-(?P<rest>[^.]+\..+\.rds\.amazonaws\.com(\.cn)?)"),
        None,
        "the endpoint of the instance, or of the cluster's writer, which ends in {rest}",
    ),
    _Provider(
        "Azure", _host(r"(?P<all>.+\.postgres\.database\.azure\.com)"), "6432", "{all}, port 5432", certain=False
    ),
    _Provider(
        "DigitalOcean",
        _host(r"(?P<all>.+\.ondigitalocean\.com)"),
        "25061",
        "{all}, port 25060, with the database's own name",
        certain=False,
    ),
    _Provider("Crunchy Bridge", _host(r"(?P<all>.+\.postgresbridge\.com)"), "5431", "{all}, port 5432", certain=False),
    _Provider(
        "Aiven",
        _host(r"(?P<all>.+\.aivencloud\.com)"),
        None,
        "host, port and database of the service's own URI, not of a connection pool",
        certain=False,
    ),
)


def pooler_at(parts: Mapping[str, object]) -> str | None:
    """Return whose pooler the address of a DSN is, None if it does not say."""
    for provider, _ in _matching(parts):
        if provider.certain or (provider.port is not None and _port(parts) == provider.port):
            return f"{provider.name}'s pooler"
    return None


def pooler_in(text: str) -> str | None:
    """Return whose words an error has, None if they are a server's or libpq's."""
    # Neither names in quotes (of a database, say) nor the host's.
    lower = _QUOTED.sub("", text.rpartition(" failed: ")[2]).lower()
    return next((name for words, name in _WORDS.items() if words in lower), None)


def is_pooled(conn: psycopg.Connection[tuple[object, ...]]) -> bool:
    """True if queries are not answered by the process that was named when the connection began; raises psycopg.Error."""
    row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return row is not None and row[0] != conn.info.backend_pid


def a_pooler(thing: str, parts: Mapping[str, object], who: str, reason: str = "") -> SourceError:
    """Return the error that names the pooler and the server's own address."""
    what = f"it is {who}, a pooler of connections, through which nobody can read the log"
    return SourceError(thing, f"{reason}: {what}" if reason else what, server_of(parts))


def server_of(parts: Mapping[str, object]) -> str:
    """Return the remedy: where the server itself is, as far as the address of its pooler says."""
    for provider, match in _matching(parts):
        user, _, ref = str(parts.get("user") or "").partition(".")
        values = {"user": user or "postgres", "ref": ref or "<project>", **match.groupdict(default="")}
        return f"connect to the server itself, at {provider.name}: {provider.server.format_map(values)}"
    return _SERVER_PORT


def _matching(parts: Mapping[str, object]) -> list[tuple[_Provider, re.Match[str]]]:
    host = str(parts.get("host") or "").split(",")[0]
    matches = [(provider, provider.host.fullmatch(host)) for provider in _PROVIDERS]
    return [(provider, match) for provider, match in matches if match is not None]


def _port(parts: Mapping[str, object]) -> str:
    return str(parts.get("port") or "5432").split(",")[0]
