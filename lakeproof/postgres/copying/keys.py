"""Reads the rows of single keys from a table: which tables allow that, and the SELECT for some keys.

PostgreSQL finds the rows by its own equality, over the index of the key. That may be wider than the lake's, which compares
exact forms (a numeric's 1.0 is its 1.00, a char's blanks at the end do not count), and never narrower: each value is equal
to itself. So a row too many may come, and whoever enters the rows takes those of the exact keys. If an extension or a
collation decided what is equal, nobody would know that: rows are not read by such keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from lakeproof.postgres.catalog.tables import ACTIONS, PublishedTable, sent_rows
from lakeproof.postgres.connections.connect import Connection, rows
from lakeproof.schema import Column, Identity
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import KINDS, NO_OID, Form

# The texts of a key's columns, in the key's order.
Key = tuple[str, ...]

# Types by OID whose equality is PostgreSQL's own, and whose output is their input again.
_TYPES = {26: "oid", 1083: "time"} | {
    int(kind.oid): kind.name for kind in KINDS.values() if kind.oid != NO_OID and kind.form is not Form.FLOAT
}
# The columns that compare by a collation under which texts of different bytes may be equal.
_LOOSE = SQL("""
SELECT a.attname AS name
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = {oid}::oid AND a.attnum = ANY ({numbers}::int2[]) AND NOT c.collisdeterministic
ORDER BY a.attnum
""")


def why_not_by_keys(conn: Connection, table: PublishedTable) -> str | None:
    """Return why the rows of single keys can't be read from this table, None if they can. Raises as `source_errors`."""
    version = table.version
    if version.is_bag:
        return "it has no key"
    if version.identity is Identity.FULL:
        return "its key is one of the configuration's, for which PostgreSQL has no unique index"
    if table.actions != frozenset(ACTIONS):
        return "its publication does not send all changes"
    columns = key_columns(version)
    other = [column for column in columns if int(column.type_oid) not in _TYPES]
    if other:
        return f"its key's column {other[0].name} is of type {other[0].type_name}, which may compare in its own way"
    values = {"oid": int(version.oid), "numbers": [column.attnum for column in columns]}
    loose = rows(conn, _LOOSE, values, about=f"table {table.table}")
    if loose:
        return f"the collation of its key's column {loose[0]['name']} calls different texts equal"
    return None


def keys_query(table: PublishedTable, keys: Sequence[Key]) -> Composed:
    """Return the SELECT of the rows under some keys: columns by name, with the publication's row filter.

    Only rows that are sent are read (`sent_rows`).
    """
    version = table.version
    names = SQL(", ").join(Identifier(column.name) for column in version.columns)
    # The catalog's own text of the filter, printed and parsed under the same empty search_path.
    condition = SQL("({}) AND {}").format(SQL(table.row_filter or "true"), is_one_of(key_columns(version), keys))
    return SQL("SELECT {} FROM {} WHERE {}").format(names, sent_rows(table), condition)


def is_one_of(columns: Sequence[Column], keys: Sequence[Key]) -> Composed:
    """Return the condition that a row has one of the keys."""
    if len(columns) == 1:
        texts = SQL(", ").join(Literal(key[0]) for key in keys)
        return SQL("{} = ANY (ARRAY[{}]::{}[])").format(Identifier(columns[0].name), texts, _type(columns[0]))
    names = SQL(", ").join(Identifier(column.name) for column in columns)
    values = SQL(", ").join(SQL("({})").format(_values(columns, key)) for key in keys)
    return SQL("({}) IN (VALUES {})").format(names, values)


def _values(columns: Sequence[Column], key: Key) -> Composable:
    pairs = zip(columns, key, strict=True)
    return SQL(", ").join(SQL("{}::{}").format(Literal(text), _type(column)) for column, text in pairs)


def _type(column: Column) -> Identifier:
    return Identifier("pg_catalog", _TYPES[int(column.type_oid)])
