"""How to reach a source, without its password: secrets are read from the environment when they are used.

Connecting belongs to `wal2delta.postgres`. Nothing here reads the environment while a configuration is loaded, so a code
location loads with no secret present; nothing here prints a secret.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from wal2delta.errors import ConfigError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# libpq's parameters whose value is a secret.
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
# Set on every connection by the engine, which depends on them.
_OURS = ("replication", "client_encoding")


@dataclass(frozen=True, slots=True)
class EnvSecret:
    """The name of an environment variable, and the place in the configuration that wants it."""

    variable: str
    place: str

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.variable):
            raise ValueError("env must name an environment variable (letters, digits and _)")

    @property
    def is_set(self) -> bool:
        """Whether the variable has a value now."""
        return bool(os.environ.get(self.variable))

    def resolve(self) -> str:
        """The value; raises ConfigError, naming the variable, where it is not set or empty."""
        value = os.environ.get(self.variable, "")
        if not value:
            state = "is empty" if self.variable in os.environ else "is not set"
            raise ConfigError(
                self.place,
                f"the environment variable {self.variable} {state}",
                f"set {self.variable} for this process, without writing its value into the configuration",
            )
        return value


class Dsn(SecretStr):
    """A conninfo that is put together when it is asked for.

    `conninfo` is libpq's text or an `EnvSecret` that holds it; `password` is added to it. It is a `SecretStr`, so who
    connects calls `get_secret_value`; `repr`, `str` and comparison never read the environment.
    """

    def __init__(self, conninfo: str | EnvSecret, password: EnvSecret | None = None, place: str = "dsn") -> None:
        super().__init__(conninfo if isinstance(conninfo, str) else "")
        self._conninfo = conninfo
        self._password = password
        self._place = place

    def get_secret_value(self) -> str:
        """The whole conninfo; raises ConfigError where a variable is not set or holds no conninfo with a database."""
        base = self._conninfo
        text = base.resolve() if isinstance(base, EnvSecret) else base
        if isinstance(base, EnvSecret):
            try:
                check_conninfo(text, secrets_allowed=True)
            except ValueError as error:
                reason = f"the value of {base.variable} {error}"
                raise ConfigError(self._place, reason, f"correct {base.variable}") from None
        return text if self._password is None else str(make_conninfo(text, password=self._password.resolve()))

    def resolve(self) -> SecretStr:
        """The whole conninfo as an ordinary `SecretStr`; raises as `get_secret_value` does."""
        return SecretStr(self.get_secret_value())

    @property
    def variables(self) -> tuple[EnvSecret, ...]:
        """The environment variables it needs."""
        return tuple(part for part in (self._conninfo, self._password) if isinstance(part, EnvSecret))

    @property
    def server(self) -> tuple[str, ...] | None:
        """What tells servers apart (host, address, port, service), None where only the environment knows."""
        if isinstance(self._conninfo, EnvSecret):
            return (f"${self._conninfo.variable}",)
        try:
            parts = conninfo_to_dict(self._conninfo)
        except ProgrammingError:
            return None
        return tuple(str(parts.get(key, "")) for key in ("host", "hostaddr", "port", "service"))

    def _parts(self) -> tuple[object, ...]:
        return (self._conninfo, self._password)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dsn) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __len__(self) -> int:
        # SecretStr's would read the environment; the length says nothing anyone needs.
        return 10

    def _display(self) -> str:
        return "**********"


def check_conninfo(text: str, *, secrets_allowed: bool = False) -> None:
    """Raise ValueError, as a phrase, where `text` is not a conninfo for one database.

    libpq's own message is never repeated: it may quote a piece of a password.
    """
    try:
        parts = conninfo_to_dict(text)
    except ProgrammingError:
        raise ValueError("is not a libpq connection string or URI") from None
    found = [key for key in _SECRETS if key in parts]
    if found and not secrets_allowed:
        raise ValueError(f"carries a secret ({', '.join(found)}); write password: {{env: NAME}} or dsn: {{env: NAME}}")
    ours = [key for key in _OURS if key in parts]
    if ours:
        raise ValueError(f"sets {', '.join(ours)}, which wal2delta sets itself")
    if not parts.get("dbname") and not parts.get("service"):
        raise ValueError("names no database (dbname=…)")
