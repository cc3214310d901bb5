"""A source's publications as the catalog has them, line by line, and what takes a table out of one.

The columns of tables are in `catalog/published.py`, the statements of `plan` in `lakeproof.publication.statements`.

A publication that `plan` made has a comment that says so; in any other one nothing is taken out or altered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.sql import SQL, Identifier

from lakeproof.config.table_names import TablePattern
from lakeproof.errors import SourceError
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import ACTIONS, PublicationWay
from lakeproof.postgres.checks.privileges import as_identifier, qualified
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

# PostgreSQL's words for a condition stay the same after being read so often.
_FORMS_MAX = 3
# What a comment on a publication begins with if its tables follow the configuration.
MARK = "lakeproof: "
# How it goes on in those that `plan` made, before the source's name; who marks one by hand may write anything.
FOLLOWS = f"{MARK}what is in it follows the configuration of source "

_PUBLICATIONS = """
SELECT p.pubname::text AS name, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.puballtables,
       COALESCE(pg_catalog.obj_description(p.oid, 'pg_publication'), '') AS comment, {schemas} AS schemas
FROM pg_catalog.pg_publication p WHERE p.pubname = ANY ({{names}}::name[])
"""
_SCHEMAS = """ARRAY(SELECT n.nspname::text FROM pg_catalog.pg_publication_namespace s
             JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid ORDER BY 1)"""
_ENTRIES = """
SELECT p.pubname::text AS publication, n.nspname::text AS schema, c.relname::text AS name, {columns} AS columns,
       {rows} AS rows
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = ANY ({{names}}::name[])
ORDER BY 1, 2, 3
"""
_COLUMNS = """CASE WHEN r.prattrs IS NOT NULL THEN
         ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[]) ORDER BY a.attnum) END"""
_DEFINITION = SQL("""
SELECT pg_catalog.string_agg(pg_catalog.format('%I %s', a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), ', '
                             ORDER BY a.attnum) AS columns
FROM pg_catalog.pg_attribute a WHERE a.attrelid = {oid}::oid AND a.attnum > 0 AND NOT a.attisdropped
""")
_CHECKED = SQL("""
SELECT k.conname::text AS name, pg_catalog.pg_get_expr(k.conbin, k.conrelid) AS condition,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) ORDER BY a.attnum) AS columns
FROM pg_catalog.pg_constraint k WHERE k.conrelid = 'pg_temp.lakeproof_rows'::regclass AND k.contype = 'c'
""")


@dataclass(frozen=True, slots=True)
class Entry:
    """A table in a publication by its own line: the condition in PostgreSQL's words and the columns; None: all."""

    rows: str | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication: `ours` if `plan` made it, for source `follows` if its mark says so; `operations` as in `ACTIONS`."""

    name: str
    ours: bool
    follows: str | None
    operations: tuple[str, ...]
    all_tables: bool
    schemas: tuple[str, ...]
    entries: Mapping[TableName, Entry] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True if it has tables that nobody has named: a later one is in it from its creation on."""
        return self.all_tables or bool(self.schemas)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition over a table's columns in PostgreSQL's words, with the columns that it reads.

    `forms`: PostgreSQL's words are read again as other words that mean the same; the first is what the text became.
    """

    forms: tuple[str, ...]
    columns: tuple[str, ...]


def read_publications(conn: Connection, names: Collection[str]) -> dict[str, Publication]:
    """Return those of the publications `names` that exist. Raises as `source_errors`."""
    has_parts = conn.info.server_version >= 150_000
    schemas = _SCHEMAS if has_parts else "ARRAY[]::text[]"
    columns, condition = (_COLUMNS, "pg_catalog.pg_get_expr(r.prqual, r.prrelid)") if has_parts else ("NULL", "NULL")
    values = {"names": list(names)}
    with source_errors("publications"):
        lines = rows(conn, SQL(_PUBLICATIONS.format(schemas=schemas)), values)
        entries = rows(conn, SQL(_ENTRIES.format(columns=columns, rows=condition)), values)
    tables: dict[str, dict[TableName, Entry]] = {str(row["name"]): {} for row in lines}
    for row in entries:
        listed = None if row["columns"] is None else tuple(row["columns"])
        tables[str(row["publication"])][TableName(row["schema"], row["name"])] = Entry(row["rows"], listed)
    return {
        str(row["name"]): Publication(
            name=str(row["name"]),
            ours=str(row["comment"]).startswith(MARK),
            follows=str(row["comment"])[len(FOLLOWS) :] if str(row["comment"]).startswith(FOLLOWS) else None,
            operations=tuple(action for action in ACTIONS if row[f"pub{action}"]),
            all_tables=bool(row["puballtables"]),
            schemas=tuple(row["schemas"]),
            entries=tables[str(row["name"])],
        )
        for row in lines
    }


def read_conditions(conn: Connection, conditions: Mapping[int, tuple[TableName, str]]) -> dict[int, Condition]:
    """Return what PostgreSQL makes of each condition over the columns of a table, by OID.

    A temporary table with such a check constraint says it; its transaction is rolled back. Raises ConditionRefusedError
    if the server refuses one, else as `source_errors`.
    """
    return {oid: _read_condition(conn, oid, table, text) for oid, (table, text) in sorted(conditions.items())}


def _read_condition(conn: Connection, oid: int, table: TableName, text: str) -> Condition:
    with source_errors(f"table {table}"), conn.transaction(force_rollback=True):
        columns = str(rows(conn, _DEFINITION, {"oid": oid})[0]["columns"])
        conn.execute(SQL("CREATE TEMPORARY TABLE lakeproof_rows ({})").format(SQL(columns)))
        forms: list[str] = []
        read: tuple[str, ...] = ()
        for _ in range(_FORMS_MAX):
            with _refusal_of(table):
                # In the extended protocol the server takes one statement. The line's end closes a comment in the condition.
                conn.execute(SQL("ALTER TABLE pg_temp.lakeproof_rows ADD CHECK ({}\n)").format(SQL(text)), binary=True)
            check = rows(conn, _CHECKED)[0]
            text, read = str(check["condition"]), tuple(check["columns"])
            if text in forms:
                break
            forms.append(text)
            conn.execute(SQL("ALTER TABLE pg_temp.lakeproof_rows DROP CONSTRAINT {}").format(Identifier(check["name"])))
    return Condition(tuple(forms), read)


class ConditionRefusedError(SourceError):
    """PostgreSQL does not take a text as a condition over a table's columns; `says` is its reason."""

    def __init__(self, table: TableName, says: str | None) -> None:
        self.says = says
        reason = f"PostgreSQL refuses the condition in its `rows`: {says}"
        super().__init__(f"table {table}", reason, "correct it in the configuration")


@contextmanager
def _refusal_of(table: TableName) -> Iterator[None]:
    """Raise the server's refusal of a condition as the configuration's mistake."""
    try:
        yield
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        raise ConditionRefusedError(table, error.diag.message_primary) from None


def way_in_words(way: PublicationWay, schemas: Collection[str] = ()) -> str:
    """Return how a publication has its tables, for a sentence about it."""
    return {
        PublicationWay.LINE: "it names each of them",
        PublicationWay.ALL: "it is FOR ALL TABLES",
        PublicationWay.SCHEMA: f"it is FOR TABLES IN SCHEMA {', '.join(sorted(schemas))}",
        PublicationWay.ROOT: "it has them as partitions",
    }[way]


def out_of(publication: str, way: PublicationWay, tables: Sequence[TableName], source: str) -> str:
    """Return what takes these tables out of a publication that has them in this way, or stands in its place.

    A publication FOR ALL TABLES refuses every statement about single tables, and one of a schema does not know a table of
    it by name.
    """
    name = as_identifier(publication)
    if way is PublicationWay.LINE:
        listed = ", ".join(f"ONLY {qualified(table)}" for table in sorted(tables))
        return f"ALTER PUBLICATION {name} DROP TABLE {listed}"
    if way is PublicationWay.SCHEMA:
        schemas = sorted({table.schema for table in tables})
        patterns = ", ".join(str(TablePattern(schema, "*")) for schema in schemas)
        dropped = ", ".join(as_identifier(schema) for schema in schemas)
        return (
            f"ALTER PUBLICATION {name} DROP TABLES IN SCHEMA {dropped}, then `tables: [{patterns}]` in the configuration,"
            f" and `lakeproof apply {source}`"
        )
    if way is PublicationWay.ROOT:
        return "detach these partitions"
    return by_name_instead(source)


def by_name_instead(source: str) -> str:
    """Return how tables that are named take the place of a publication of all tables, which leaves none of them out."""
    return (
        f"publish tables by name instead: `lakeproof teardown {source}`, the DROP PUBLICATION that it names,"
        f" `tables: ['*.*']` in the configuration, `lakeproof apply {source}`, `lakeproof recover {source}`"
    )
