"""The privileges that a role lacks for `apply` or `teardown`, and the grants that it lacks to follow a source.

Whether a role may follow a source is checked in `source.py` and `tables.py`. A role can't give itself what it lacks:
somebody else runs the statements.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.events import listed
from lakeproof.names import TableName
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

_NAMED_MAX = 5
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
# The words that PostgreSQL takes as a name in quotes alone.
_RESERVED = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
returning right select session_user similar some symmetric system_user table tablesample then to trailing true
union unique user using variadic verbose when where window with
"""

_ROLE = SQL("""
SELECT r.rolname::text AS role, r.rolsuper AS is_superuser, r.rolreplication, r.rolbypassrls,
       pg_catalog.current_database()::text AS database,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may_create,
       EXISTS (SELECT FROM pg_catalog.pg_roles h WHERE h.rolname = 'rds_replication') AS on_rds,
       EXISTS (SELECT FROM pg_catalog.pg_roles h
               WHERE h.rolname = 'rds_replication' AND pg_catalog.pg_has_role(h.oid, 'USAGE')) AS rds_replication
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
""")
# A role with the owner's privileges counts as the owner, and a superuser as everybody.
_PUBLICATIONS = SQL("""
SELECT p.pubname::text AS name FROM pg_catalog.pg_publication p
WHERE p.pubname = ANY ({names}::name[]) AND NOT pg_catalog.pg_has_role(p.pubowner, 'USAGE') ORDER BY 1
""")
_TABLES = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM ROWS FROM (pg_catalog.unnest({schemas}::text[]), pg_catalog.unnest({names}::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') ORDER BY 1, 2
""")
# The tables and all partitions below: the copy reads each of these by its name.
_READ = SQL("""
WITH RECURSIVE tree AS (
  SELECT o.oid FROM pg_catalog.unnest({oids}::oid[]) AS o (oid)
  UNION
  SELECT i.inhrelid FROM tree t
  JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
)
SELECT n.nspname::text AS schema, c.relname::text AS name,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS may_use,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AS may_select,
       c.relrowsecurity AND (c.relforcerowsecurity OR NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')) AS hides_rows
FROM tree t
JOIN pg_catalog.pg_class c ON c.oid = t.oid AND c.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 2
""")
# Whoever owns tables of a schema will make more, and the role has no default privilege on these.
_OWNERS = SQL("""
SELECT DISTINCT n.nspname::text AS schema, pg_catalog.pg_get_userbyid(c.relowner)::text AS owner
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY ({schemas}::text[]) AND c.relkind IN ('r', 'p')
  AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') AND NOT pg_catalog.pg_has_role('pg_read_all_data', 'USAGE')
  AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_default_acl d CROSS JOIN pg_catalog.aclexplode(d.defaclacl) AS x
    WHERE d.defaclrole = c.relowner AND d.defaclobjtype = 'r' AND d.defaclnamespace IN (0, n.oid)
      AND x.privilege_type = 'SELECT'
      AND CASE WHEN x.grantee = 0 THEN true ELSE pg_catalog.pg_has_role(x.grantee, 'USAGE') END)
ORDER BY 1, 2
""")


def role_name(conn: Connection) -> str:
    """Return the role of this connection. Raises as `source_errors`."""
    return str(rows(conn, _ROLE, about="the role")[0]["role"])


def lacks_for_publishing(
    conn: Connection, tables: Iterable[TableName], existing: Sequence[str], *, creates: bool
) -> list[str]:
    """Return what the role lacks to publish `tables`, some of it in existing publications; `creates`: one is created.

    Raises as `source_errors`.
    """
    names = sorted(tables)
    with source_errors("the role's privileges"):
        role = rows(conn, _ROLE)[0]
        others = rows(conn, _TABLES, {"schemas": [t.schema for t in names], "names": [t.name for t in names]})
    lacking = [f"CREATE on database {role['database']}"] if creates and not role["may_create"] else []
    lacking += [f"the ownership of publication {name}" for name in not_owned(conn, existing)]
    if others:
        not_ours = (TableName(row["schema"], row["name"]) for row in others)
        lacking.append(f"the ownership of {listed(not_ours, _NAMED_MAX)}")
    return lacking


def lacks_superuser(conn: Connection) -> list[str]:
    """Return that the role is no superuser, as publishing a whole schema takes one. Raises as `source_errors`."""
    role = rows(conn, _ROLE, about="the role's privileges")[0]
    return [] if role["is_superuser"] else ["the attribute SUPERUSER, which a whole schema takes"]


def not_owned(conn: Connection, publications: Sequence[str]) -> list[str]:
    """Return the publications that the role may not alter or drop. Raises as `source_errors`."""
    lines = rows(conn, _PUBLICATIONS, {"names": list(publications)}, about="the role's privileges")
    return [str(row["name"]) for row in lines]


def as_identifier(name: str) -> str:
    """Return the name as a person writes it in SQL: quoted if needed."""
    plain = _PLAIN_NAME.fullmatch(name) and name not in _RESERVED.split()
    return name if plain else '"' + name.replace('"', '""') + '"'


def qualified(table: TableName) -> str:
    """Return a table's name as a person writes it in SQL: each part quoted if needed."""
    return f"{as_identifier(table.schema)}.{as_identifier(table.name)}"


def missing_grants(conn: Connection, tables: Collection[int], schemas: Collection[str]) -> list[Composed]:
    """Return what lets the role follow `tables` (by OID), and read the tables that are made in `schemas` later.

    Raises as `source_errors`.
    """
    with source_errors("the role's privileges"):
        role = rows(conn, _ROLE)[0]
        if role["is_superuser"]:
            return []
        read = rows(conn, _READ, {"oids": sorted(tables)})
        owners = rows(conn, _OWNERS, {"schemas": sorted(schemas)})
    name = Identifier(str(role["role"]))
    statements = list(_attributes(role, name, hidden=any(row["hides_rows"] for row in read)))
    closed = sorted({str(row["schema"]) for row in read if not row["may_use"]})
    if closed:
        statements.append(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(SQL(", ").join(map(Identifier, closed)), name))
    unread = [Identifier(row["schema"], row["name"]) for row in read if not row["may_select"]]
    if unread:
        statements.append(SQL("GRANT SELECT ON TABLE {} TO {}").format(SQL(", ").join(unread), name))
    for owner, lines in groupby(sorted(owners, key=lambda row: str(row["owner"])), lambda row: str(row["owner"])):
        owned = SQL(", ").join(Identifier(str(row["schema"])) for row in lines)
        future = "ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} GRANT SELECT ON TABLES TO {}"
        statements.append(SQL(future).format(Identifier(owner), owned, name))
    return statements


def _attributes(role: Mapping[str, object], name: Identifier, *, hidden: bool) -> Iterator[Composed]:
    if not (role["rolreplication"] or role["rds_replication"]):
        text = "GRANT rds_replication TO {}" if role["on_rds"] else "ALTER ROLE {} REPLICATION"
        yield SQL(text).format(name)
    if hidden and not role["rolbypassrls"]:
        yield SQL("ALTER ROLE {} BYPASSRLS").format(name)
