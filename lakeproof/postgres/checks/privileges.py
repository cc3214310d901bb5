"""The privileges that a role lacks for `apply` or `teardown`, checked before anything is changed.

The privileges for following a source do not belong here (`source.py`, `tables.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from psycopg.sql import SQL

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
SELECT current_user::text AS role, pg_catalog.current_setting('is_superuser')::bool AS is_superuser,
       pg_catalog.current_database()::text AS database,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may_create
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


def role_name(conn: Connection) -> str:
    """Return the role of this connection. Raises as `source_errors`."""
    with source_errors("the role"):
        return str(rows(conn, _ROLE)[0]["role"])


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
        listed = ", ".join(f"{row['schema']}.{row['name']}" for row in others[:_NAMED_MAX])
        more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
        lacking.append(f"the ownership of {listed}{more}")
    return lacking


def lacks_superuser(conn: Connection) -> list[str]:
    """Return that the role is no superuser, as publishing a whole schema takes one. Raises as `source_errors`."""
    with source_errors("the role's privileges"):
        return [] if rows(conn, _ROLE)[0]["is_superuser"] else ["the attribute SUPERUSER, which a whole schema takes"]


def not_owned(conn: Connection, publications: Sequence[str]) -> list[str]:
    """Return the publications that the role may not alter or drop. Raises as `source_errors`."""
    with source_errors("the role's privileges"):
        return [str(row["name"]) for row in rows(conn, _PUBLICATIONS, {"names": list(publications)})]


def as_identifier(name: str) -> str:
    """Return the name as a person writes it in SQL: quoted if needed."""
    plain = _PLAIN_NAME.fullmatch(name) and name not in _RESERVED.split()
    return name if plain else '"' + name.replace('"', '""') + '"'


def qualified(table: TableName) -> str:
    """Return a table's name as a person writes it in SQL: each part quoted if needed."""
    return f"{as_identifier(table.schema)}.{as_identifier(table.name)}"
