"""Says what to correct if a server or libpq definitely refuses a connection: host, TLS, database, role, password."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakeproof.errors import SourceError
from lakeproof.postgres.connections.security import CLEAR_PASSWORD, UNVERIFIED_REMEDY

_NO_PASSWORD = "no password supplied"  # noqa: S105  libpq's words
_HOST = "check the host's name in the DSN, or the resolver of this machine"
_ROLE = "check the role's name, and its password (`password` of the source)"
_REPLICATION = "ALTER ROLE <role> REPLICATION (on RDS: GRANT rds_replication TO <role>)"
# Words in lower case, which libpq and an English server use → what to correct.
_REMEDIES: Mapping[str, str] = {
    # Of libpq, which does not even ask the server.
    CLEAR_PASSWORD: UNVERIFIED_REMEDY,
    "root certificate file": "name the CA's certificate with sslrootcert= (sslrootcert=system: those of this machine)",
    "certificate verify failed": "name the CA that signed the server's certificate with sslrootcert=",
    "does not match host name": "name the server as its certificate does, or give it another certificate",
    "does not support ssl": "switch TLS on at the server (ssl = on), or take sslmode out of the DSN",
    "requires a valid client certificate": "name the role's certificate and key with sslcert= and sslkey=",
    "channel binding": "take channel_binding out of the DSN, or let the server authenticate by SCRAM over TLS",
    "wal sender": _REPLICATION,
    "wal-sender": _REPLICATION,
    "walsender": _REPLICATION,
    "could not translate host name": _HOST,
    "failed to resolve host": _HOST,
    _NO_PASSWORD: "the server asks for a password: name the variable that has it, `password: {env: NAME}` of the source",
    "password authentication failed": _ROLE,
    "authentication failed": "check the role's name, and how pg_hba.conf lets it in",
    "is not permitted to log in": "ALTER ROLE <role> LOGIN, or name another role in the DSN",
    "pg_hba.conf": "add a line for this role, database and address to pg_hba.conf, then SELECT pg_reload_conf()",
    "invalid port": "correct the port in the DSN",
    "invalid connection option": "correct the DSN: libpq has no such parameter",
}
_QUOTED = re.compile(r"[\"«„“]\s*([^\"»“”]*?)\s*[\"»“”]")


class PasswordMissingError(SourceError):
    """The server asks for a password, and there is none."""


def refusal_error(thing: str, text: str, parts: Mapping[str, object]) -> SourceError:
    """Return the error of a definite refusal, whose words `text` are; `parts` are the DSN's."""
    kind = PasswordMissingError if _NO_PASSWORD in text else SourceError
    return kind(thing, text, _remedy_of(text, parts))


def _remedy_of(text: str, parts: Mapping[str, object]) -> str:
    """Return what to correct: by words, or else by the name in quotes, which shows it in any language."""
    lower = text.lower()
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in lower), None)
    if remedy is not None:
        return remedy
    named = set(_QUOTED.findall(text.rpartition(" failed: ")[2]))
    user = str(parts.get("user") or "")
    database = str(parts.get("dbname") or user)
    if database in named and database != user:
        return f"check the database's name in the DSN: dbname={database}"
    if user in named and database != user:
        return f"check the role's name in the DSN (user={user}), and its password"
    if "database" in lower:
        return f"check the database's name in the DSN: dbname={database}"
    if "role" in lower:
        return f"check the role's name in the DSN: user={user}"
    return "correct the DSN, the password or pg_hba.conf"
