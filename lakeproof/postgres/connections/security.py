"""The exposure of a connection: its encryption, and the ways of authentication that it accepts.

libpq asks for TLS and continues without it if the server, or a machine that answers in its place, refuses; and it sends the
password in the clear if asked to. The second is refused unless the DSN allows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address

import psycopg

# These modes verify the server, so it may get a password in the clear.
_VERIFIED = ("verify-ca", "verify-full")
_REQUIRE_AUTH_SINCE = 160000
CLEAR_PASSWORD = "cleartext password"  # noqa: S105  libpq's words, or what it was asked for
UNVERIFIED_REMEDY = (
    "use sslmode=verify-full, so that only the server gets the password; or add require_auth=password to the dsn "
    "if you trust the network"
)


def authentication(parts: Mapping[str, object]) -> dict[str, str]:
    """Return the additions to a DSN's parts: no password in the clear, unless it or libpq's environment mentions that."""
    mode = parts.get("sslmode") or os.environ.get("PGSSLMODE") or ""
    spoken_of = (
        "require_auth" in parts or "PGREQUIREAUTH" in os.environ or "service" in parts or "PGSERVICE" in os.environ
    )
    if mode in _VERIFIED or spoken_of or psycopg.pq.version() < _REQUIRE_AUTH_SINCE:
        return {}
    return {"require_auth": "!password"}


def is_exposed(conn: psycopg.Connection[object]) -> bool:
    """True if rows travel in the clear to another machine."""
    return not conn.pgconn.ssl_in_use and not _is_local(conn.info.hostaddr, conn.info.host)


def _is_local(address: str, host: str) -> bool:
    # A socket's path, or one in the abstract namespace.
    if host.startswith(("/", "@")) or not (address or host):
        return True
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
