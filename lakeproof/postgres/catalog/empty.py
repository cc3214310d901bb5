"""Finds tables that have no row at a position of the stream, so that it does not matter what was done to their rows before.

`lakeproof.drain.catalog.empty_tables` chooses the tables.

A file without a page has no row, neither of a transaction that has ended nor of one that is open. While a table is locked in
ACCESS SHARE mode, its file gets no shorter and is not replaced: TRUNCATE, a rewriting ALTER and the end of a VACUUM all need
ACCESS EXCLUSIVE. So if the file has no page after the end of WAL was read under that lock, it had none at that position, and
every row that comes later is behind it in the stream. The lock is waited for briefly; without it nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

import psycopg
from psycopg.sql import SQL, Identifier

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.catalog.fingerprint import read_at_snapshot
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

# How long one table's lock is waited for, and all of them; the server has room for so many locks and more.
_LOCK_TIMEOUT_MS = 500
_LOCKS_S = 5.0
_LOCKS_MAX = 500

_LOCK = SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE")
_EMPTY = SQL("""
SELECT c.oid::bigint AS oid
FROM pg_catalog.pg_class c WHERE c.oid = ANY ({oids}::oid[]) AND pg_catalog.pg_relation_size(c.oid) = 0
""")
_NOW = SQL("SELECT pg_catalog.pg_current_wal_insert_lsn()::text AS at")


def empty_tables(
    conn: Connection, names: Iterable[str], reading: Fingerprint, oids: Collection[Oid]
) -> tuple[Lsn, frozenset[Oid]]:
    """Return those of the tables that are as in the `reading` and have no row at a position, which comes first.

    `oids` are ordinary tables of the reading, none of which has partitions. Raises as `source_errors`.
    """
    with source_errors("the source's catalog"), conn.transaction():
        conn.execute(SQL("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
        conn.execute(SQL("SET LOCAL lock_timeout = {}").format(_LOCK_TIMEOUT_MS))
        locked = _locked(conn, reading, oids)
        at_lsn = Lsn.parse(str(rows(conn, _NOW)[0]["at"]))
        now = read_at_snapshot(conn, names, locked).tables
        empty = {Oid(int(row["oid"])) for row in rows(conn, _EMPTY, {"oids": sorted(locked)})}
        return at_lsn, frozenset(oid for oid in empty if now.get(oid) == reading.tables[oid])


def _locked(conn: Connection, reading: Fingerprint, oids: Collection[Oid]) -> list[Oid]:
    """Lock the tables until the transaction ends; return those that could be locked."""
    deadline = time.monotonic() + _LOCKS_S
    locked: list[Oid] = []
    for oid in sorted(oids):
        if time.monotonic() > deadline or len(locked) == _LOCKS_MAX:
            break
        table = reading.tables[oid].table
        try:
            with conn.transaction():
                conn.execute(_LOCK.format(Identifier(table.schema, table.name)))
        except psycopg.Error as error:
            # Somebody else has it, it is gone or has another name, or the role may not read it.
            if error.sqlstate is None or conn.broken:
                raise
        else:
            locked.append(oid)
    return locked
