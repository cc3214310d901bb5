"""Reads what the catalog proves about tables' files: partitions attached without a row, and who gave a table its file.

Conclusions from it do not belong here (`lakeproof.drain.new_files`).
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from psycopg.sql import SQL

from lakeproof.names import Oid
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

# The first command of a transaction has attached them (`cmin`), so they were made in an earlier one. The transaction that
# makes a table may cut its file to nothing in place; any later TRUNCATE or rewriting gives it another file than its first.
_EMPTY = SQL("""
SELECT c.oid::bigint AS oid, i.xmin::text AS xid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE c.oid = ANY ({oids}::oid[]) AND c.relkind = 'r' AND c.relfilenode = c.oid
  AND i.cmin::text = '0' AND i.xmax = '0'::xid AND NOT i.inhdetachpending
  AND pg_catalog.pg_relation_size(c.oid) = 0
""")
_WRITER = SQL("""
SELECT c.xmin::text AS xid FROM pg_catalog.pg_class c WHERE c.oid = {oid}::oid AND c.relfilenode = {file}::oid
""")


def attached_empty(conn: Connection, oids: Collection[int]) -> dict[int, str]:
    """Return the partitions among `oids` that have no row and had none that is still theirs, with the xid of their link.

    A row that they had when they were attached was deleted since, in the stream. None is returned if a lock is in the way:
    the size is asked of the file. Raises as `source_errors`.
    """
    with source_errors("the source's catalog"):
        try:
            return {int(row["oid"]): str(row["xid"]) for row in rows(conn, _EMPTY, {"oids": sorted(oids)})}
        except psycopg.errors.LockNotAvailable:
            return {}


def writer_of(conn: Connection, oid: Oid, file: int) -> str | None:
    """Return the xid that wrote a table's line in the catalog last; None if it has another file by now.

    Raises as `source_errors`.
    """
    with source_errors("the source's catalog"):
        return next((str(row["xid"]) for row in rows(conn, _WRITER, {"oid": int(oid), "file": file})), None)
