"""Names the holders of exclusive locks on published tables, if a query of the catalog timed out on one.

Reading the catalog does not belong here (`published.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from lakeproof.config.model import SourceConfig
from lakeproof.errors import TransientError
from lakeproof.names import TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.connections.connect import connect, rows, source_errors

_LOCKED_SHOWN = 5


@contextmanager
def naming_lock_holders(source: SourceConfig) -> Iterator[None]:
    """Name the locked tables if a query inside times out: the server opens a publication's tables without naming any."""
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        thing = f"publication {source.publication}"
        with connect(source.dsn, "lakeproof locks") as conn, source_errors(thing):
            locked = rows(conn, queries.LOCKED)
        holders = [f"{TableName(r['schema'], r['name'])} (process {r['pid']})" for r in locked[:_LOCKED_SHOWN]]
        detail = f": locked are {', '.join(holders)}" if holders else ", and nothing is locked any more"
        reason = f"a lock on one of its tables could not be taken in time{detail}"
        raise TransientError(thing, reason, "let the ALTER or LOCK finish, then try again") from None
