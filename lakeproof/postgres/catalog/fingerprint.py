"""Reads the catalog's fingerprint in three queries, for any number of tables; none of them waits for a table's lock.

The fingerprint as a value does not belong here (`lakeproof.catalog.fingerprint`), nor does the time of a reading
(`lakeproof.drain.catalog.watch`).

A reading is made now, not at a place in the stream, and an ordinary snapshot has no LSN. So it comes with two positions:

    lower_lsn   every commit that ends at or before it is in the reading
    upper_lsn   every commit in the reading ends at or before it

A commit's record is in the WAL before the commit is visible (it waits for the disk, perhaps for a standby), so the end of
WAL right before the reading is no lower bound. A transaction that has written its commit record keeps its xid lock until it
becomes visible. So the end of WAL is read first, and then the holders of such locks; that end is a lower bound once none of
these holders is left, at once or at a later reading (`CommitVisibility`).

Only tables of pg_catalog are read, under one snapshot. The server's functions that answer for the present
(`pg_get_publication_tables`, `pg_partition_tree`) would open and lock every table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.sql import SQL

from lakeproof.catalog.differences import TableCreated
from lakeproof.catalog.fingerprint import Fingerprint, PublicationFacts, TableFacts, TypeFacts
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.origins import KEEPS_COLUMNS, read_horizon, read_rules
from lakeproof.postgres.catalog.published import read_types
from lakeproof.postgres.connections.connect import Connection, Row, one_snapshot, rows, source_errors
from lakeproof.values.catalog_kinds import CatalogType

# OIDs below this are PostgreSQL's own.
_FIRST_NORMAL_OID = 16384
# How long a reading waits for transactions that may just be committing; a later reading handles slower ones.
_VISIBLE_S = 0.1
_VISIBLE_STEP_S = 0.01
# The limit of positions whose writers have not all ended; beyond it the second oldest is dropped.
_WAITING_MAX = 32

# All writers in this database, prepared transactions too.
_WRITERS = SQL("""
SELECT l.transactionid::text AS xid
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND (a.datname IS NULL OR a.datname = pg_catalog.current_database())
""")
_NOW = SQL("SELECT pg_catalog.pg_current_wal_insert_lsn()::text AS at")
_EXISTING = SQL("SELECT c.oid::bigint AS oid FROM pg_catalog.pg_class c WHERE c.oid = ANY ({oids}::oid[])")

_PUBLICATIONS = """
SELECT p.oid::bigint AS oid, p.pubname::text AS name, p.pubowner::bigint AS owner,
       pg_catalog.concat(CASE WHEN p.pubinsert THEN 'i' END, CASE WHEN p.pubupdate THEN 'u' END,
                         CASE WHEN p.pubdelete THEN 'd' END, CASE WHEN p.pubtruncate THEN 't' END) AS operations,
       p.pubviaroot AS via_root, p.puballtables AS all_tables, {generated} AS generated, p.xmin::text AS epoch
FROM pg_catalog.pg_publication p WHERE p.pubname = ANY ({{names}}::name[])
"""

# The tables of each publication: by their own line, by their schema, or because all are published. As the server does it, a
# root with publish_via_partition_root stands for its partitions in every publication; without it the partitions stand for
# the root.
_TABLES = """
WITH RECURSIVE publishable AS MATERIALIZED (
  SELECT c.oid, c.relnamespace, c.relkind FROM pg_catalog.pg_class c
  WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
), named AS MATERIALIZED (
  SELECT p.oid AS publication, p.pubviaroot AS via_root, r.prrelid AS oid, 'r' || r.oid AS entry, {filter} AS filter,
         {listed} AS listed
  FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
  WHERE p.pubname = ANY ({{names}}::name[])
  {by_schema}
  UNION ALL
  SELECT p.oid, p.pubviaroot, c.oid, 'a' || p.oid, NULL, NULL
  FROM pg_catalog.pg_publication p JOIN publishable c ON p.puballtables
  WHERE p.pubname = ANY ({{names}}::name[])
), inherits AS MATERIALIZED (
  SELECT i.inhrelid, i.inhparent, i.xmin::text AS xid,
         -- CREATE TABLE ... PARTITION OF links a table two or three commands after it made it.
         i.xmin = a.xmin AND i.cmin::text::int8 - a.cmin::text::int8 BETWEEN 0 AND 3
         AND {keeps_columns} AS made
  FROM pg_catalog.pg_inherits i
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  JOIN pg_catalog.pg_attribute a ON a.attrelid = i.inhrelid AND a.attnum = -6
  WHERE NOT i.inhdetachpending
), above AS (
  SELECT inhrelid AS oid, inhparent AS parent, ARRAY[xid] AS links FROM inherits
  UNION ALL
  SELECT a.oid, i.inhparent, a.links || i.xid FROM above a JOIN inherits i ON i.inhrelid = a.parent
), below_a_root AS MATERIALIZED (
  SELECT DISTINCT a.oid FROM above a JOIN named n ON n.oid = a.parent AND n.via_root
), entries AS MATERIALIZED (
  SELECT n.publication, n.oid, n.entry, n.filter, n.listed, ARRAY[]::text[] AS links
  FROM named n
  WHERE n.via_root AND n.oid NOT IN (SELECT oid FROM below_a_root)
  UNION ALL
  -- Of several ways by which one line has a table, the shortest counts: its own is none.
  SELECT * FROM (
    SELECT DISTINCT ON (m.publication, m.oid, m.entry) m.publication, m.oid, m.entry, m.filter, m.listed, m.links
    FROM (SELECT n.publication, n.oid, n.entry, n.filter, n.listed, ARRAY[]::text[] AS links
          FROM named n WHERE NOT n.via_root
          UNION ALL
          SELECT n.publication, a.oid, n.entry, n.filter, n.listed, a.links FROM named n JOIN above a ON a.parent = n.oid
          WHERE NOT n.via_root) m
    JOIN publishable c ON c.oid = m.oid AND c.relkind = 'r'
    WHERE m.oid NOT IN (SELECT oid FROM below_a_root)
    ORDER BY m.publication, m.oid, m.entry, pg_catalog.cardinality(m.links)) u
), down AS (
  SELECT e.oid AS root, e.oid, ARRAY[]::oid[] AS attached, ARRAY[]::text[] AS links
  FROM (SELECT DISTINCT oid FROM entries) e JOIN publishable c ON c.oid = e.oid AND c.relkind = 'p'
  UNION ALL
  SELECT d.root, i.inhrelid, CASE WHEN i.made THEN d.attached ELSE d.attached || i.inhrelid END, d.links || i.xid
  FROM down d JOIN inherits i ON i.inhparent = d.oid
), partitions AS MATERIALIZED (
  SELECT d.root, pg_catalog.json_agg(pg_catalog.json_build_array(
           c.oid::bigint, c.relfilenode::bigint, c.relreplident::text, c.xmin::text, d.attached::bigint[], d.links,
           ARRAY(SELECT a.attname::text
                 FROM pg_catalog.pg_index i
                 JOIN pg_catalog.pg_attribute a
                   ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                 WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
                   AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'd' THEN i.indisprimary ELSE false END
                 ORDER BY a.attname))
         ORDER BY c.oid)::text AS leaves
  FROM down d JOIN pg_catalog.pg_class c ON c.oid = d.oid AND c.relkind = 'r' AND c.relpersistence = 'p'
  GROUP BY d.root
)
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       c.relreplident::text AS identity, c.relfilenode::bigint AS file, c.relnatts::int AS last,
       e.entries, COALESCE(l.leaves, '[]') AS leaves,
       (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
                 a.attnum, a.attname::text, a.atttypid::bigint, a.atttypmod, a.attgenerated::text, a.xmin::text,
                 CASE WHEN a.atthasmissing THEN a.attmissingval::text
                      -- A partitioned table has no rows: its partitions keep what theirs read.
                      WHEN c.relkind = 'p' THEN (
                        SELECT m.attmissingval::text
                        FROM down d JOIN pg_catalog.pg_attribute m ON m.attrelid = d.oid AND m.attname = a.attname
                        WHERE d.root = c.oid AND m.atthasmissing ORDER BY m.attrelid LIMIT 1)
                 END, v.oid::bigint) ORDER BY a.attnum)::text
        FROM pg_catalog.pg_attribute a
        LEFT JOIN pg_catalog.pg_attrdef v ON v.adrelid = a.attrelid AND v.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(i.indnkeyatts, i.indkey::text))::text
        FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
          AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END) AS key
FROM (SELECT oid, pg_catalog.json_agg(pg_catalog.json_build_array(publication::bigint, entry, filter, listed, links)
                                      ORDER BY publication, entry)::text AS entries
      FROM entries GROUP BY oid) e
JOIN pg_catalog.pg_class c ON c.oid = e.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN partitions l ON l.root = c.oid
WHERE {{only}}::oid[] IS NULL OR c.oid = ANY ({{only}}::oid[])
"""
_BY_SCHEMA = """
  UNION ALL
  SELECT p.oid, p.pubviaroot, c.oid, 's' || s.oid, NULL, NULL
  FROM pg_catalog.pg_publication p
  JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
  JOIN publishable c ON c.relnamespace = s.pnnspid
  WHERE p.pubname = ANY ({{names}}::name[])
"""

# The components of the columns' types, if they are not built in.
_TYPES = SQL("""
WITH RECURSIVE made AS (
  SELECT o.oid FROM pg_catalog.unnest({oids}::oid[]) AS o (oid)
  UNION
  SELECT x.of
  FROM made m
  JOIN pg_catalog.pg_type t ON t.oid = m.oid AND t.oid >= 16384
  LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
  LEFT JOIN pg_catalog.pg_range mr ON pg_catalog.to_jsonb(mr) ->> 'rngmultitypid' = t.oid::text
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  CROSS JOIN LATERAL (VALUES (t.typelem), (t.typbasetype), (r.rngsubtype), (mr.rngsubtype), (a.atttypid)) AS x (of)
  WHERE x.of >= 16384
)
SELECT t.oid::bigint AS oid, t.typtype::text AS kind,
       CASE t.typtype
         WHEN 'e' THEN (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
                          e.oid::bigint, e.enumlabel::text, e.xmin::text) ORDER BY e.oid)
                        FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid)
         WHEN 'c' THEN (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attnum, a.attname::text,
                                                   a.atttypid::bigint, a.atttypmod) ORDER BY a.attnum)
                        FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0)
       END::text AS parts,
       ARRAY(SELECT DISTINCT x.of FROM (
               SELECT t.typelem::bigint UNION ALL SELECT t.typbasetype::bigint
               UNION ALL SELECT r.rngsubtype::bigint FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
               UNION ALL SELECT r.rngsubtype::bigint FROM pg_catalog.pg_range r
                         WHERE pg_catalog.to_jsonb(r) ->> 'rngmultitypid' = t.oid::text
               UNION ALL SELECT a.atttypid::bigint FROM pg_catalog.pg_attribute a
                         WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
             ) AS x (of) WHERE x.of >= 16384 ORDER BY 1) AS of
FROM made m JOIN pg_catalog.pg_type t ON t.oid = m.oid
WHERE t.oid >= 16384
""")


@dataclass(frozen=True, slots=True)
class CatalogReading:
    """A fingerprint and its two positions, the rules of publication in force, and the tables created under them.

    Of a created table None is known if its rows need not be in the stream. A rule is the catalog's line for it, with its
    publication's OID; no transaction had written with the xid `horizon` yet (`lakeproof.postgres.catalog.origins`).
    """

    fingerprint: Fingerprint
    lower_lsn: Lsn
    upper_lsn: Lsn
    rules: Mapping[str, int] = field(default_factory=dict)
    horizon: int = 0
    created: Mapping[Oid, TableCreated | None] = field(default_factory=dict)


@dataclass(slots=True)
class CommitVisibility:
    """Ends of WAL before readings, each with the writers of that moment, until these have ended.

    All commits up to `lower_lsn` are visible.
    """

    lower_lsn: Lsn
    _waiting: list[tuple[Lsn, frozenset[str]]] = field(default_factory=list)

    def observe(self, conn: Connection) -> None:
        """Add the end of WAL and its writers; wait a little for those that may be committing. Raises psycopg.Error."""
        deadline = time.monotonic() + _VISIBLE_S
        position, writers = _writers(conn)
        self._waiting.append((position, writers))
        while writers and self._waiting[-1][1] & writers and time.monotonic() < deadline:
            time.sleep(_VISIBLE_STEP_S)
            writers = _writers(conn)[1]
        self._update(writers)

    def _update(self, writers: frozenset[str]) -> None:
        ended = [position for position, pending in self._waiting if not pending & writers]
        self.lower_lsn = max([self.lower_lsn, *ended])
        self._waiting = [(position, pending) for position, pending in self._waiting if position > self.lower_lsn]
        if len(self._waiting) > _WAITING_MAX:
            del self._waiting[1]


def observe_catalog(
    conn: Connection,
    names: Iterable[str],
    visibility: CommitVisibility,
    created: Callable[
        [Fingerprint, Mapping[str, int]], Mapping[Oid, TableCreated | None]
    ] = lambda _reading, _rules: {},
) -> CatalogReading:
    """Read the catalog as it is now, for the publications of these names; `created` is called under the same snapshot.

    Raises as `source_errors`.
    """
    names = list(names)
    with source_errors("the source's catalog"):
        visibility.observe(conn)
        with one_snapshot(conn):
            # This statement takes the snapshot before it calls the function: what the snapshot sees is in the WAL by then.
            upper_lsn = end_of_wal(conn)
            fingerprint = read_at_snapshot(conn, names)
            rules = read_rules(conn, names)
            created_tables = created(fingerprint, rules)
        return CatalogReading(fingerprint, visibility.lower_lsn, upper_lsn, rules, read_horizon(conn), created_tables)


def read_at_snapshot(conn: Connection, names: Iterable[str], only: Iterable[Oid] | None = None) -> Fingerprint:
    """Read the catalog as the transaction of `conn` sees it (only tables `only`, if given). Raises as `source_errors`."""
    version, values = conn.info.server_version, {"names": list(names)}
    filters = version >= 150000
    generated = "p.pubgencols::text" if version >= 180000 else "'n'"
    query = _sql(
        _TABLES,
        filter="pg_catalog.md5(r.prqual::text)" if filters else "NULL::text",
        listed="r.prattrs::int2[]" if filters else "NULL::int2[]",
        by_schema=_BY_SCHEMA.format() if filters else "",
        keeps_columns=KEEPS_COLUMNS,
    )
    with source_errors("the source's catalog"):
        publications = rows(conn, _sql(_PUBLICATIONS, generated=generated), values)
        lines = rows(conn, query, {**values, "only": None if only is None else sorted(only)})
        tables = [_table(row) for row in lines]
        types = _types(conn, tables)
    return Fingerprint(
        {table.oid: table for table in tables},
        types,
        {
            int(row["oid"]): PublicationFacts(
                row["name"], int(row["owner"]), row["operations"], row["via_root"], row["all_tables"],
                row["generated"], row["epoch"],
            )
            for row in publications
        },
    )  # fmt: skip


def existing(conn: Connection, oids: Iterable[Oid]) -> frozenset[Oid]:
    """Return the tables among these that the catalog has. Raises as `source_errors`."""
    sorted_oids = sorted(oids)
    if not sorted_oids:
        return frozenset()
    lines = rows(conn, _EXISTING, {"oids": sorted_oids}, about="the source's catalog")
    return frozenset(Oid(row["oid"]) for row in lines)


def _writers(conn: Connection) -> tuple[Lsn, frozenset[str]]:
    # Two statements: the position first, then the holders of xids.
    position = end_of_wal(conn)
    return position, frozenset(row["xid"] for row in rows(conn, _WRITERS))


def end_of_wal(conn: Connection) -> Lsn:
    """Return the end of the WAL written so far. Raises psycopg.Error."""
    return Lsn.parse(str(rows(conn, _NOW)[0]["at"]))


def _sql(template: str, **parts: str) -> SQL:
    return SQL(template.format(**parts))


def _table(row: Row) -> TableFacts:
    return TableFacts(
        oid=Oid(int(row["oid"])),
        table=TableName(row["schema"], row["name"]),
        kind=row["kind"],
        identity=row["identity"],
        key=row["key"] or "[]",
        file=int(row["file"]),
        columns_text=row["columns"] or "[]",
        leaves_text=row["leaves"],
        entries_text=row["entries"],
        last=int(row["last"]),
    )


def _types(conn: Connection, tables: Iterable[TableFacts]) -> dict[int, TypeFacts]:
    oids = sorted({c.type_oid for table in tables for c in table.columns if c.type_oid >= _FIRST_NORMAL_OID})
    if not oids:
        return {}
    types = rows(conn, _TYPES, {"oids": oids})
    lines = {oid: type_line(type_) for oid, type_ in read_types(conn, [int(row["oid"]) for row in types]).items()}
    return {
        int(row["oid"]): TypeFacts(
            row["kind"], row["parts"] or "", tuple(int(o) for o in row["of"]), lines[int(row["oid"])]
        )
        for row in types
    }


def type_line(type_: CatalogType) -> str:
    """Return the type, with its element, as JSON."""
    return json.dumps(_fields(type_), separators=(",", ":"), ensure_ascii=False)


def type_of_line(line: str) -> CatalogType:
    """Parse the form of `type_line`; raise ValueError for another text."""
    try:
        return _type(json.loads(line))
    except (TypeError, ValueError) as error:
        raise ValueError(f"it is no line of a type ({type(error).__name__})") from None


def _fields(type_: CatalogType) -> list[Any]:
    element = None if type_.element is None else _fields(type_.element)
    base = [int(type_.base_oid), type_.base_typmod, type_.base_typtype]
    return [int(type_.oid), type_.schema, type_.name, type_.typtype, *base, element]


def _type(fields: list[Any]) -> CatalogType:
    oid, schema, name, typtype, base_oid, base_typmod, base_typtype, element = fields
    below = None if element is None else _type(element)
    return CatalogType(Oid(oid), schema, name, typtype, Oid(base_oid), base_typmod, base_typtype, below)
