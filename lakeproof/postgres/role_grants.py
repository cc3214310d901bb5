"""The statements that give the connection's role what it lacks to follow a source: attributes, reading, default privileges.

A role can't give itself what it lacks: somebody else runs them. The privileges to alter publications are in
`checks/privileges.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.postgres.connections.connect import Connection, rows, source_errors

_ROLE = SQL("""
SELECT r.rolname::text AS name, r.rolsuper, r.rolreplication, r.rolbypassrls,
       EXISTS (SELECT FROM pg_catalog.pg_roles h WHERE h.rolname = 'rds_replication') AS on_rds,
       EXISTS (SELECT FROM pg_catalog.pg_roles h
               WHERE h.rolname = 'rds_replication' AND pg_catalog.pg_has_role(h.oid, 'USAGE')) AS rds_replication
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
""")
# The tables and all partitions below: the copy reads each of these by its name.
_TABLES = SQL("""
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


def missing_grants(conn: Connection, tables: Collection[int], schemas: Collection[str]) -> list[Composed]:
    """Return what lets the role follow `tables` (by OID), and read the tables that are made in `schemas` later.

    Raises as `source_errors`.
    """
    with source_errors("the role's privileges"):
        role = rows(conn, _ROLE)[0]
        if role["rolsuper"]:
            return []
        read = rows(conn, _TABLES, {"oids": sorted(tables)})
        owners = rows(conn, _OWNERS, {"schemas": sorted(schemas)})
    name = Identifier(str(role["name"]))
    statements = list(_attributes(role, name, hidden=any(row["hides_rows"] for row in read)))
    closed = sorted({str(row["schema"]) for row in read if not row["may_use"]})
    if closed:
        listed = SQL(", ").join(map(Identifier, closed))
        statements.append(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(listed, name))
    unread = [Identifier(row["schema"], row["name"]) for row in read if not row["may_select"]]
    if unread:
        statements.append(SQL("GRANT SELECT ON TABLE {} TO {}").format(SQL(", ").join(unread), name))
    for owner, lines in groupby(sorted(owners, key=lambda row: str(row["owner"])), lambda row: str(row["owner"])):
        listed = SQL(", ").join(Identifier(str(row["schema"])) for row in lines)
        future = "ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} GRANT SELECT ON TABLES TO {}"
        statements.append(SQL(future).format(Identifier(owner), listed, name))
    return statements


def _attributes(role: Mapping[str, object], name: Identifier, *, hidden: bool) -> Iterator[Composed]:
    if not (role["rolreplication"] or role["rds_replication"]):
        text = "GRANT rds_replication TO {}" if role["on_rds"] else "ALTER ROLE {} REPLICATION"
        yield SQL(text).format(name)
    if hidden and not role["rolbypassrls"]:
        yield SQL("ALTER ROLE {} BYPASSRLS").format(name)
