"""A slot as a DBA makes one."""

from __future__ import annotations

from pydantic import SecretStr

from lakeproof.lsn import Lsn
from lakeproof.postgres.connections.connect import connect


def create_slot(dsn: SecretStr, name: str) -> Lsn:
    """Make a lasting slot in SQL, without a snapshot, and return its position."""
    query = "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')"
    with connect(dsn) as conn:
        row = conn.execute(query, (name,)).fetchone()
    assert row is not None
    return Lsn.parse(row[0])
