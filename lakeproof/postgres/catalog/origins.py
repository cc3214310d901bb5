"""Reads what the catalog proves about a table's origin: its creation, its rule of publication, and later alterations.

Conclusions from it do not belong here (`lakeproof.drain.catalog.created_tables`, `lakeproof.lake.planning.entries`);
docs/decisions/0023-tables-created-in-the-stream.md says why it is enough.

A rule publishes tables that nobody has named: all tables, those of a schema, the partitions of a table. A table younger than
its rule has been published for all of its life. Xids tell which of the two came first: the rule was read together with a
*horizon*, an xid that no transaction had written with by then. The end of an ordinary snapshot is no horizon, since
transactions beyond it may be at work; so the locks that every writer holds on its own xid are read too.

A table's lines in the catalog keep the xid that wrote them (`xmin`) and the number of the command in it (`cmin`). A line
with the xid of the table's creation, written in that command or the one right after it, has not been touched since the table
had rows: an INSERT takes a number too. ALTER, RENAME, SET SCHEMA, ATTACH and DETACH rewrite the lines that they concern.
(`cmin` and `cmax` share a field, so a line that somebody has begun to delete says nothing.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from psycopg.sql import SQL

from lakeproof.names import Oid
from lakeproof.postgres.connections.connect import Connection, Row, rows

_XIDS = 1 << 32

_WRITERS = SQL("""
SELECT l.transactionid::text AS xid FROM pg_catalog.pg_locks l
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
""")
_NEXT = SQL("SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text AS xid")

# A partitioned table stands for its partitions only if these are published under their own names.
_RULES = """
SELECT 'a' || p.oid AS entry, p.oid::bigint AS publication
FROM pg_catalog.pg_publication p WHERE p.puballtables AND p.pubname = ANY ({{names}}::name[])
{by_schema}
UNION ALL
SELECT 'r' || r.oid, p.oid::bigint
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid AND c.relkind = 'p'
WHERE NOT p.pubviaroot AND p.pubname = ANY ({{names}}::name[])
"""
_RULES_BY_SCHEMA = """
UNION ALL
SELECT 's' || s.oid, p.oid::bigint
FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
WHERE p.pubname = ANY ({{names}}::name[])
"""

# `original`: nobody has written this line since the table's creation, `b` (its system columns, all of them the same).
_ORIGINAL = "{line}.xmin = b.xid AND {line}.xmax = '0'::xid AND {line}.cmin::text::bigint - b.cid BETWEEN 0 AND 1"
# `i` is the link of a table that CREATE TABLE ... PARTITION OF made: columns keep the lines that it made the table with. An
# ATTACH, which may come as few commands after CREATE TABLE, and rows in between, writes all of them anew, with the link.
KEEPS_COLUMNS = """EXISTS (SELECT FROM pg_catalog.pg_attribute k
                WHERE k.attrelid = i.inhrelid AND k.attnum > 0 AND NOT k.attisdropped
                  AND k.xmin = i.xmin AND k.cmin::text::bigint < i.cmin::text::bigint)"""
_ORIGINS = """
WITH RECURSIVE making AS MATERIALIZED (
  SELECT a.attrelid AS oid, pg_catalog.min(a.xmin::text)::xid AS xid, pg_catalog.min(a.cmin::text::bigint) AS cid
  FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = ANY ({{oids}}::oid[]) AND a.attnum < 0
  GROUP BY a.attrelid
  HAVING pg_catalog.count(DISTINCT ROW(a.xmin::text, a.cmin::text, a.xmax::text)) = 1
     AND pg_catalog.min(a.xmax::text) = '0' AND pg_catalog.count(*) > 1
), above AS (
  SELECT i.inhrelid AS oid, i.inhparent AS parent
  FROM pg_catalog.pg_inherits i JOIN making m ON m.oid = i.inhrelid
  WHERE i.xmin = m.xid AND i.xmax = '0'::xid AND i.cmin::text::bigint - m.cid BETWEEN 0 AND 3 AND {keeps_columns}
  UNION ALL
  SELECT a.oid, i.inhparent
  FROM above a
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.parent
  JOIN pg_catalog.pg_attribute s ON s.attrelid = i.inhrelid AND s.attnum = -6
  WHERE i.xmin = s.xmin AND i.xmax = '0'::xid AND i.cmin::text::bigint - s.cmin::text::bigint BETWEEN 0 AND 3
    AND {keeps_columns}
)
SELECT c.oid::bigint AS oid, b.xid::text AS xid,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text AS next,
       c.relkind = 'r' AND c.relfilenode = c.oid AS own_file,
       EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = c.reltype AND {type_line}) AS named,
       ARRAY(SELECT a.attnum::int8 FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND {column_line}
             ORDER BY a.attnum) AS anchored,
       EXISTS (SELECT FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attisdropped) AS has_dropped,
       ARRAY(SELECT 'a' || p.oid FROM pg_catalog.pg_publication p WHERE p.puballtables
             UNION ALL
             SELECT 'r' || r.oid FROM above u
             JOIN pg_catalog.pg_publication_rel r ON r.prrelid = u.parent
             JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid AND NOT p.pubviaroot
             WHERE u.oid = c.oid
             {by_schema}) AS entries
FROM making b JOIN pg_catalog.pg_class c ON c.oid = b.oid
"""
_ORIGINS_BY_SCHEMA = """
             UNION ALL
             SELECT 's' || s.oid FROM pg_catalog.pg_publication_namespace s
             JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid
             WHERE s.pnnspid = c.relnamespace AND NOT (p.pubviaroot AND c.relispartition)
               AND EXISTS (SELECT FROM pg_catalog.pg_depend d
                           WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                             AND d.refclassid = 'pg_catalog.pg_namespace'::regclass AND {schema_line})
"""
# Enums whose labels are all from their creation, which the line of the enum's array shows.
_LABELLED = SQL("""
SELECT t.oid::bigint AS oid
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_depend b ON b.refclassid = 'pg_catalog.pg_type'::regclass AND b.refobjid = t.oid
 AND b.classid = 'pg_catalog.pg_type'::regclass AND b.objid = t.typarray AND b.deptype = 'i'
WHERE t.oid = ANY ({oids}::oid[]) AND t.typtype = 'e'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_enum e
                  WHERE e.enumtypid = t.oid
                    AND NOT (e.xmin = b.xmin AND e.xmax = '0'::xid AND b.xmax = '0'::xid
                             AND e.cmin::text::bigint - b.cmin::text::bigint BETWEEN 0 AND 1))
""")


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """A table's creation, as its lines in the catalog show it.

    `xid` is the full xid (64 bits) of the transaction or subtransaction that created it; `own_file`: the rows are in the
    file that it was created with. `named`: never renamed or moved since; `anchored` are the attribute numbers of the columns
    that are as they were created; `has_dropped`: a column was dropped. `entries` are the rules that publish it.
    """

    xid: int
    own_file: bool
    named: bool
    anchored: tuple[int, ...]
    has_dropped: bool
    entries: frozenset[str]


def read_rules(conn: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the rules of these publications: the catalog's line of each → the publication's OID. Raises psycopg.Error."""
    by_schema = _RULES_BY_SCHEMA.format() if conn.info.server_version >= 150000 else ""
    query = SQL(_RULES.format(by_schema=by_schema))
    return {row["entry"]: int(row["publication"]) for row in rows(conn, query, {"names": list(names)})}


def writing_xids(conn: Connection) -> set[str]:
    """Return the xids of the transactions that are open, or commit and can't be seen yet. Raises psycopg.Error."""
    return {str(row["xid"]) for row in rows(conn, _WRITERS)}


def read_horizon(conn: Connection) -> int:
    """Return an xid (64 bits) that nobody had written with at the time of the call. Raises psycopg.Error.

    Must run outside of a transaction: two statements, the writers first, then the ended ones.
    """
    writers = [int(xid) for xid in writing_xids(conn)]
    ended = int(rows(conn, _NEXT)[0]["xid"])
    half = _XIDS // 2
    return max([ended, *(ended + (xid - ended + half) % _XIDS - half + 1 for xid in writers)])


def read_origins(conn: Connection, oids: Collection[Oid]) -> dict[Oid, TableOrigin]:
    """Return the origins of these tables, without tables whose lines do not show theirs. Raises psycopg.Error."""
    if not oids:
        return {}
    by_schema = ""
    if conn.info.server_version >= 150000:
        by_schema = _ORIGINS_BY_SCHEMA.format(schema_line=_ORIGINAL.format(line="d"))
    text = _ORIGINS.format(
        type_line=_ORIGINAL.format(line="t"),
        column_line=_ORIGINAL.format(line="a"),
        by_schema=by_schema,
        keeps_columns=KEEPS_COLUMNS,
    )
    return {Oid(int(row["oid"])): _origin(row) for row in rows(conn, SQL(text), {"oids": sorted(oids)})}


def never_relabelled(conn: Connection, enums: Collection[int]) -> set[int]:
    """Return the enums among these whose labels are as they were created. Raises psycopg.Error."""
    return {int(row["oid"]) for row in rows(conn, _LABELLED, {"oids": sorted(enums)})} if enums else set()


def _origin(row: Row) -> TableOrigin:
    after = int(row["next"])
    return TableOrigin(
        xid=after - (after - int(row["xid"])) % _XIDS,
        own_file=bool(row["own_file"]),
        named=bool(row["named"]),
        anchored=tuple(int(number) for number in row["anchored"]),
        has_dropped=bool(row["has_dropped"]),
        entries=frozenset(row["entries"]),
    )
