"""The options added to a connection, so that no password goes in the clear to whoever answers.

That a server is refused by it is in `tests/edges/source/test_tls_server.py`.
"""

from __future__ import annotations

import pytest

from lakeproof.postgres.connections.security import authentication

_VARIABLES = ("PGSSLMODE", "PGREQUIREAUTH", "PGSERVICE")


@pytest.mark.parametrize(
    ("parts", "environment", "added"),
    [
        ({"host": "db"}, {}, True),
        ({"host": "db", "sslmode": "require"}, {}, True),
        ({"host": "db", "sslmode": "verify-full"}, {}, False),
        ({"host": "db"}, {"PGSSLMODE": "verify-ca"}, False),
        ({"host": "db", "require_auth": "none"}, {}, False),
        ({"host": "db"}, {"PGREQUIREAUTH": "password"}, False),
        # A service file may say any of it.
        ({"service": "shop"}, {}, False),
        ({"host": "db"}, {"PGSERVICE": "shop"}, False),
    ],
)
def test_nothing_is_added_to_what_somebody_has_decided(
    parts: dict[str, str], environment: dict[str, str], added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user decides in the DSN, in libpq's environment or in a service file."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert authentication(parts) == ({"require_auth": "!password"} if added else {})
