"""The SQL that reads the catalog for `published.py`, which explains the rows.

Functions that ignore the transaction's snapshot do not belong here: `pg_partition_tree` and `regclass` casts answer for the
present. Only tables of pg_catalog and functions that see the snapshot are asked for schemas.
"""

from __future__ import annotations

from psycopg.sql import SQL

PUBLICATIONS = SQL("SELECT pubname::text FROM pg_catalog.pg_publication WHERE pubname = ANY ({names}::name[])")

# `sent_as` and `apart` are of a partition that another publication has by its root, and of that root: a name of the other.
_PUBLISHED = """
WITH RECURSIVE published AS MATERIALIZED (
SELECT p.pubname::text, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, p.puballtables,
       EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid) AS by_name,
       c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name, {columns}
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE p.pubname = ANY ({{names}}::name[])
), above AS (
  SELECT p.oid, i.inhparent AS parent
  FROM (SELECT DISTINCT oid FROM published) p
  JOIN pg_catalog.pg_class c ON c.oid = p.oid AND c.relispartition
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = p.oid AND NOT i.inhdetachpending
  UNION ALL
  SELECT a.oid, i.inhparent
  FROM above a
  JOIN pg_catalog.pg_class c ON c.oid = a.parent AND c.relispartition
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.parent AND NOT i.inhdetachpending
), in_two_forms AS MATERIALIZED (
  SELECT a.oid, p.schema, p.name, r.oid AS root, r.schema AS root_schema, r.name AS root_name
  FROM above a JOIN published r ON r.oid = a.parent AND r.pubviaroot JOIN published p ON p.oid = a.oid
)
SELECT p.*,
       (SELECT ARRAY[t.root_schema, t.root_name] FROM in_two_forms t WHERE t.oid = p.oid LIMIT 1) AS sent_as,
       (SELECT ARRAY[t.schema, t.name] FROM in_two_forms t WHERE t.root = p.oid LIMIT 1) AS apart
FROM published p
ORDER BY p.pubname, p.oid
"""
# Without a column list, `attnames` has all columns. Only a filter's parsed form shows the columns that it reads: its
# dependencies include the columns of a column list.
_PUBLISHED_15 = SQL(
    _PUBLISHED.format(
        columns="""COALESCE(t.attnames::text[], ARRAY[]::text[]) AS attnames, t.rowfilter,
       EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s
               WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid) AS by_schema,
       EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
               WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND r.prattrs IS NOT NULL) AS column_list,
       ARRAY(SELECT DISTINCT a.attname::text
             FROM pg_catalog.pg_publication_rel r
             CROSS JOIN pg_catalog.regexp_matches(r.prqual::text, ':varattno ([0-9]+)', 'g') AS v (found)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = v.found[1]::int
             WHERE r.prpubid = p.oid AND r.prrelid = c.oid ORDER BY 1) AS filtered_by"""
    )
)
_PUBLISHED_14 = SQL(
    _PUBLISHED.format(
        columns="""NULL::text[] AS attnames, NULL::text AS rowfilter, false AS by_schema, false AS column_list,
       ARRAY[]::text[] AS filtered_by"""
    )
)

RELATIONS = SQL("""
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text, c.relreplident::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY ({oids}::oid[])
""")

COLUMNS = SQL("""
SELECT a.attrelid::bigint, a.attname::text, a.attnum, a.atttypid::bigint, a.atttypmod, a.attgenerated::text
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY ({oids}::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
""")

# Every line of these tables, also those of dropped columns, which keep their number; in the order of the last write. A new
# column is counted in pg_class; a rename leaves that line alone. ADD COLUMN writes both in one command, and the column's
# line once more two commands later if it has a default: a rename later in the same transaction is a later command.
LINES = SQL("""
SELECT a.attrelid::bigint AS oid, a.attnum, a.attname::text AS name, a.atttypid::bigint AS type_oid, a.atttypmod AS typmod,
       a.attgenerated::text AS generated, a.attisdropped AS dropped,
       a.attnum = c.relnatts AND a.xmin = c.xmin
         AND a.cmin::text::bigint - c.cmin::text::bigint = CASE WHEN a.atthasdef THEN 2 ELSE 0 END AS as_added
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = ANY ({oids}::oid[]) AND a.attnum > 0
ORDER BY a.attrelid, pg_catalog.age(a.xmin) DESC, a.cmin::text::bigint, a.attnum
""")

# The columns of the identity's indexes, by number.
IDENTITY_NUMBERS = SQL("""
SELECT i.indrelid::bigint AS oid, i.indisprimary, i.indisreplident, (i.indkey::int2[])[0:i.indnkeyatts - 1] AS numbers
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY ({oids}::oid[]) AND (i.indisprimary OR i.indisreplident) AND i.indimmediate AND i.indisvalid
""")

# A domain stands for the type below all domains, with the nearest modifier on the way. A type with elements is an array if
# it is its element's array type: int2vector, point and name have elements too.
TYPES = SQL("""
WITH RECURSIVE down AS (
  SELECT t.oid AS of, t.typbasetype AS base, t.typtypmod AS typmod
  FROM pg_catalog.pg_type t WHERE t.typtype = 'd' AND t.oid = ANY ({oids}::oid[])
  UNION ALL
  SELECT d.of, t.typbasetype, CASE WHEN d.typmod = -1 THEN t.typtypmod ELSE d.typmod END
  FROM down d JOIN pg_catalog.pg_type t ON t.oid = d.base AND t.typtype = 'd'
)
SELECT t.oid::bigint AS oid, n.nspname::text AS schema, t.typname::text AS name, t.typtype::text,
       COALESCE(d.base, 0)::bigint AS base_oid, COALESCE(d.typmod, -1) AS base_typmod,
       COALESCE(b.typtype::text, '') AS base_typtype, COALESCE(e.oid, 0)::bigint AS elem_oid
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN down d ON d.of = t.oid
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_type b WHERE b.oid = d.base AND b.typtype = 'd')
LEFT JOIN pg_catalog.pg_type b ON b.oid = d.base
LEFT JOIN pg_catalog.pg_type e ON e.oid = COALESCE(b.typelem, t.typelem) AND e.typarray = COALESCE(b.oid, t.oid)
WHERE t.oid = ANY ({oids}::oid[])
""")

# A deferrable or invalid index is no identity, whatever the table says.
INDEXES = SQL("""
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident,
       ARRAY(SELECT a.attname::text
             FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ordinal)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.ordinal <= i.indnkeyatts ORDER BY k.ordinal) AS columns
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY ({oids}::oid[]) AND (i.indisprimary OR i.indisreplident) AND i.indimmediate AND i.indisvalid
""")

LEAVES = SQL("""
WITH RECURSIVE tree AS (
  SELECT c.oid AS root, c.oid AS oid FROM pg_catalog.pg_class c WHERE c.oid = ANY ({oids}::oid[])
  UNION ALL
  SELECT t.root, i.inhrelid
  FROM tree t
  JOIN pg_catalog.pg_class parent ON parent.oid = t.oid AND parent.relkind = 'p'
  JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending
)
SELECT t.root::bigint AS root, c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name,
       c.relreplident::text, c.relpages AS pages, m.amname = 'heap' AS heap,
       c.relkind = 'r' AND c.relpersistence = 'p' AS sent, c.relkind::text
FROM tree t
JOIN pg_catalog.pg_class c ON c.oid = t.oid AND c.relkind IN ('r', 'f')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
ORDER BY 1, 2
""")

# The current size; unlike the catalog's estimate, it waits for an exclusive lock on the relation.
PAGES = SQL("""
SELECT c.oid::bigint AS oid,
       pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint AS pages,
       pg_catalog.pg_relation_size(c.reltoastrelid) / pg_catalog.current_setting('block_size')::bigint AS toast_pages
FROM pg_catalog.pg_class c WHERE c.oid = ANY ({oids}::oid[])
""")

# `file_then` is the snapshot's; the other two columns answer for the present.
FILES = SQL("""
SELECT c.oid::bigint AS oid, c.relfilenode::bigint AS file_then,
       pg_catalog.pg_relation_filenode(c.oid)::bigint AS file_now,
       pg_catalog.to_regclass(pg_catalog.format('%I.%I', n.nspname, c.relname))::oid IS NOT DISTINCT FROM c.oid AS same_name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY ({oids}::oid[])
""")

# The holders of xids in the cluster: creating a slot waits for each of them. A prepared transaction has no process. Read
# from pg_locks, since pg_stat_activity hides the xids of other roles.
WRITERS = SQL("""
SELECT l.pid, pg_catalog.min(l.transactionid::text) AS xid, p.gid,
       pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.min(a.xact_start)))::bigint AS age_s
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
GROUP BY l.pid, p.gid
ORDER BY 4 DESC NULLS FIRST
""")

# The holders of exclusive locks on tables of this database.
LOCKED = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name, l.pid
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.granted AND c.relkind IN ('r', 'p')
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
ORDER BY 1, 2
""")

# Relations by name, published or not.
NAMED = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name, c.oid::bigint AS oid, c.relkind::text, c.relpersistence::text,
       CASE c.relreplident
         WHEN 'f' THEN true
         WHEN 'd' THEN EXISTS (SELECT FROM pg_catalog.pg_index i
                               WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid)
         WHEN 'i' THEN EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
         ELSE false
       END AS has_identity,
       EXISTS (SELECT FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = c.oid AND a.attgenerated = 's' AND NOT a.attisdropped) AS has_stored
FROM ROWS FROM (pg_catalog.unnest({schemas}::text[]), pg_catalog.unnest({names}::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
""")

SCHEMAS = SQL("SELECT nspname::text AS name FROM pg_catalog.pg_namespace WHERE nspname = ANY ({names}::name[])")

# All tables but the system's.
TABLES = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
""")

# All tables in a person's sense, in these schemas or (NULL) in all but the system's, with the tables they are partitions of.
USER_RELATIONS = SQL("""
WITH RECURSIVE listed AS (
  SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text, c.relpersistence::text, c.relispartition
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
    AND CASE WHEN {schemas}::text[] IS NULL THEN n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
             ELSE n.nspname = ANY ({schemas}::text[]) END
), up AS (
  SELECT l.oid AS of, i.inhparent AS oid
  FROM listed l JOIN pg_catalog.pg_inherits i ON i.inhrelid = l.oid
  WHERE l.relispartition
  UNION ALL
  SELECT u.of, i.inhparent
  FROM up u
  JOIN pg_catalog.pg_class c ON c.oid = u.oid AND c.relispartition
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = u.oid
), above AS (
  SELECT u.of, pg_catalog.array_agg(n.nspname::text ORDER BY c.oid) AS schemas,
         pg_catalog.array_agg(c.relname::text ORDER BY c.oid) AS names
  FROM up u
  JOIN pg_catalog.pg_class c ON c.oid = u.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  GROUP BY u.of
)
SELECT l.schema, l.name, l.relkind, l.relpersistence,
       COALESCE(a.schemas, ARRAY[]::text[]) AS ancestor_schemas, COALESCE(a.names, ARRAY[]::text[]) AS ancestor_names
FROM listed l LEFT JOIN above a ON a.of = l.oid
ORDER BY 1, 2
""")

# The rights of this connection's role on each relation.
ACCESS = SQL("""
SELECT c.oid::bigint AS oid, current_user::text AS role,
       pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') AS may_use_schema,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AS may_select,
       pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AS may_select_some,
       pg_catalog.row_security_active(c.oid) AS hides_rows
FROM pg_catalog.pg_class c WHERE c.oid = ANY ({oids}::oid[])
""")

# Publications that send no generated column; before 18 the setting does not exist, and none can.
WITHOUT_GENERATED = SQL("""
SELECT p.pubname::text FROM pg_catalog.pg_publication p
WHERE p.pubname = ANY ({names}::name[]) AND pg_catalog.to_jsonb(p) ->> 'pubgencols' IS DISTINCT FROM 's'
""")

FOR_ALL_TABLES = SQL("""
SELECT pubname::text FROM pg_catalog.pg_publication WHERE puballtables AND (pubupdate OR pubdelete) ORDER BY 1
""")


def published(server_version: int) -> SQL:
    """Return the query for the tables of publications; 14 has neither column lists nor row filters."""
    return _PUBLISHED_15 if server_version >= 150000 else _PUBLISHED_14
