"""Finds tables and partitions without a row, for which it does not matter what was done to their rows; and tables' writers.

`lakeproof.drain.catalog` chooses the tables (`empty_tables`) and draws conclusions (`new_files`).

A file without a page has no row, neither of a transaction that has ended nor of one that is open. While a table is locked in
ACCESS SHARE mode, its file gets no shorter and is not replaced: TRUNCATE, a rewriting ALTER and the end of a VACUUM all need
ACCESS EXCLUSIVE. So if the file has no page after the end of WAL was read under that lock, it had none at that position, and
every row that comes later is behind it in the stream. The lock is waited for briefly; without it nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

import psycopg
from psycopg.sql import SQL

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.catalog.fingerprint import end_of_wal, read_at_snapshot
from lakeproof.postgres.catalog.tables import identifier
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
# The first command of a transaction has attached them (`cmin`), so they were made in an earlier one. The transaction that
# makes a table may cut its file to nothing in place; any later TRUNCATE or rewriting gives it another file than its first.
# Values that its own rows would read in an added column look like those that the root's older rows read.
_ATTACHED_EMPTY = SQL("""
SELECT c.oid::bigint AS oid, i.xmin::text AS xid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE c.oid = ANY ({oids}::oid[]) AND c.relkind = 'r' AND c.relfilenode = c.oid
  AND i.cmin::text = '0' AND i.xmax = '0'::xid AND NOT i.inhdetachpending
  AND pg_catalog.pg_relation_size(c.oid) = 0
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.atthasmissing)
""")
_WRITER = SQL("""
SELECT c.xmin::text AS xid FROM pg_catalog.pg_class c WHERE c.oid = {oid}::oid AND c.relfilenode = {file}::oid
""")


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
        at_lsn = end_of_wal(conn)
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
        try:
            with conn.transaction():
                conn.execute(_LOCK.format(identifier(reading.tables[oid].table)))
        except psycopg.Error as error:
            # Somebody else has it, it is gone or has another name, or the role may not read it.
            if error.sqlstate is None or conn.broken:
                raise
        else:
            locked.append(oid)
    return locked


def attached_empty(conn: Connection, oids: Collection[int]) -> dict[int, str]:
    """Return the partitions among `oids` that have no row and had none that is still theirs, with the xid of their link.

    A row that they had when they were attached was deleted since, in the stream. None is returned if a lock is in the way:
    the size is asked of the file. Raises as `source_errors`.
    """
    with source_errors("the source's catalog"):
        try:
            return {int(row["oid"]): str(row["xid"]) for row in rows(conn, _ATTACHED_EMPTY, {"oids": sorted(oids)})}
        except psycopg.errors.LockNotAvailable:
            return {}


def writer_of(conn: Connection, oid: Oid, file: int) -> str | None:
    """Return the xid that wrote a table's line in the catalog last; None if it has another file by now.

    Raises as `source_errors`.
    """
    lines = rows(conn, _WRITER, {"oid": int(oid), "file": file}, about="the source's catalog")
    return next((str(row["xid"]) for row in lines), None)
