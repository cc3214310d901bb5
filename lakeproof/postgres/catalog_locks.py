"""Who keeps everybody else away from a table of the publication, where a query of the catalog waited for it in vain.

The catalog itself is read by `catalog.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from lakeproof.config.model import SourceConfig
from lakeproof.errors import TransientError
from lakeproof.names import TableName
from lakeproof.postgres import catalog_queries as queries
from lakeproof.postgres.connection import connect, rows, source_errors

_LOCKED_SHOWN = 5


@contextmanager
def locks_named(source: SourceConfig) -> Iterator[None]:
    """The server opens every table of a publication to say what is published, and says of none that it waited for it."""
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        thing = f"publication {source.publication}"
        with connect(source.dsn, "lakeproof locks") as conn, source_errors(thing):
            found = rows(conn, queries.LOCKED)
        told = [f"{TableName(r['schema'], r['name'])} (process {r['pid']})" for r in found[:_LOCKED_SHOWN]]
        who = f": locked are {', '.join(told)}" if told else ", and nothing is locked any more"
        reason = f"a lock was not to be had in time on one of its tables{who}"
        raise TransientError(thing, reason, "let the ALTER or LOCK finish, then try again") from None
