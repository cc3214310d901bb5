"""Connection strings without passwords: secrets are read from the environment or a file when they are used.

Nothing here connects (`lakeproof.postgres` does), and nothing prints a secret or reads one while a configuration is loaded:
a code location loads even if no secret is present.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from lakeproof.errors import ConfigError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# libpq's parameters whose value is a secret.
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
# Set on every connection by the engine, which depends on them.
_OURS = ("replication", "client_encoding")
# A large file given by mistake is not read whole; certificates and tokens are far smaller.
_SECRET_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class EnvSecret:
    """The name of an environment variable, and the place in the configuration that refers to it."""

    variable: str
    place: str

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.variable):
            raise ValueError("env must name an environment variable (letters, digits and _)")

    @property
    def is_set(self) -> bool:
        return bool(os.environ.get(self.variable))

    def resolve(self) -> str:
        """Return the value; raises ConfigError, naming the variable, if it is not set or empty."""
        value = os.environ.get(self.variable, "")
        if not value:
            state = "is empty" if self.variable in os.environ else "is not set"
            raise ConfigError(
                self.place,
                f"the environment variable {self.variable} {state}",
                f"set {self.variable} for this process, without writing its value into the configuration",
            )
        return value


@dataclass(frozen=True, slots=True)
class FileSecret:
    """A file that holds one secret, as containers get theirs, and the place in the configuration that refers to it."""

    file: Path
    place: str

    @property
    def variable(self) -> str:
        """The file's path, which errors name."""
        return str(self.file)

    def resolve(self) -> str:
        """Return the file's text without the line's end; raises ConfigError, naming the file, if there is none."""
        remedy = "write the secret into it, readable by this process alone"
        try:
            with self.file.open("rb") as stream:
                data = stream.read(_SECRET_BYTES_MAX + 1)
            value = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise ConfigError(self.place, f"the file {self.file} can't be read ({error.strerror})", remedy) from None
        except UnicodeDecodeError:
            raise ConfigError(self.place, f"the file {self.file} is not UTF-8", remedy) from None
        if not value or len(data) > _SECRET_BYTES_MAX or "\0" in value:
            state = "has no text" if not value else "is no secret: it is too large, or binary"
            raise ConfigError(self.place, f"the file {self.file} {state}", remedy)
        return value


Secret: TypeAlias = EnvSecret | FileSecret


class Dsn(SecretStr):
    """A conninfo that is assembled when it is asked for.

    `conninfo` is libpq's text or a `Secret` that holds it; `password` is added to it. It is a `SecretStr`, so a caller that
    connects calls `get_secret_value`; `repr`, `str` and comparison never read a secret.
    """

    def __init__(self, conninfo: str | Secret, password: Secret | None = None, place: str = "dsn") -> None:
        super().__init__(conninfo if isinstance(conninfo, str) else "")
        self._conninfo = conninfo
        self._password = password
        self._place = place

    def get_secret_value(self) -> str:
        """Return the whole conninfo; raises ConfigError if a variable is not set or has no conninfo with a database."""
        base = self._conninfo
        text = base.resolve() if not isinstance(base, str) else base
        if not isinstance(base, str):
            try:
                check_conninfo(text, secrets_allowed=True)
            except ValueError as error:
                reason = f"the value of {base.variable} {error}"
                raise ConfigError(self._place, reason, f"correct {base.variable}") from None
        return text if self._password is None else str(make_conninfo(text, password=self._password.resolve()))

    def resolve(self) -> SecretStr:
        """Return the whole conninfo as an ordinary `SecretStr`; raises as `get_secret_value` does."""
        return SecretStr(self.get_secret_value())

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables that hold one of its secrets."""
        return frozenset(part.variable for part in (self._conninfo, self._password) if isinstance(part, EnvSecret))

    @property
    def server(self) -> tuple[str, ...] | None:
        """The parameters that identify a server (host, address, port, service), None if libpq can't parse the text."""
        if not isinstance(self._conninfo, str):
            return (f"${self._conninfo.variable}",)
        parts = self._parameters()
        return (
            None if parts is None else tuple(str(parts.get(key, "")) for key in ("host", "hostaddr", "port", "service"))
        )

    @property
    def database(self) -> str | None:
        """The database's name, None if the text does not say it."""
        name = (self._parameters() or {}).get("dbname")
        return None if name is None else str(name)

    def _parameters(self) -> dict[str, Any] | None:
        """Return the parameters in the text, None if libpq can't parse it, or if it is a secret's."""
        try:
            return conninfo_to_dict(self._conninfo) if isinstance(self._conninfo, str) else None
        except ProgrammingError:
            return None

    def _parts(self) -> tuple[object, ...]:
        return (self._conninfo, self._password)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dsn) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __len__(self) -> int:
        # SecretStr's `__len__` would read the environment, and nobody needs the length.
        return 10

    def _display(self) -> str:
        return "**********"


def secret_variables(dsns: Iterable[SecretStr]) -> frozenset[str]:
    """Return the environment variables that hold a secret of one of them."""
    return frozenset(name for dsn in dsns if isinstance(dsn, Dsn) for name in dsn.variables)


def check_conninfo(text: str, *, secrets_allowed: bool = False) -> None:
    """Raise ValueError, as a phrase, if `text` is not a conninfo for one database.

    libpq's own message is never repeated: it may quote a piece of a password.
    """
    try:
        parts = conninfo_to_dict(text)
    except ProgrammingError:
        raise ValueError("is not a libpq connection string or URI") from None
    secrets = [key for key in _SECRETS if key in parts]
    if secrets and not secrets_allowed:
        raise ValueError(f"carries a secret ({', '.join(secrets)}); write password: {{env: NAME}} or {{file: PATH}}")
    ours = [key for key in _OURS if key in parts]
    if ours:
        raise ValueError(f"sets {', '.join(ours)}, which lakeproof sets itself")
    if not parts.get("dbname") and not parts.get("service"):
        raise ValueError("names no database (dbname=…)")


def connection_secret(value: object) -> SecretStr:
    """Return a connection string as a value that never prints it."""
    if isinstance(value, SecretStr):
        return value
    if isinstance(value, str):
        return Dsn(value)
    raise ValueError("must be a connection string, {env: NAME} or {file: PATH}")
