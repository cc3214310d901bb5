"""Checks for tables that are published and that the configuration does not select: they are followed all the same.

A table that inherits from a selected one is among them if somebody published its parent without ONLY. Matches of patterns
that are not published belong to `tables.py`, what `plan` does with a publication to `lakeproof.commands`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from psycopg.sql import SQL

from lakeproof.config.model import SourceConfig
from lakeproof.events import listed
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.catalog.tables import PublicationWay
from lakeproof.postgres.checks.findings import Finding, note, warning
from lakeproof.postgres.connections.connect import Connection, rows
from lakeproof.postgres.publications import Publication, by_name_instead, out_of, read_publications, way_in_words

# The tables that others inherit from, partitions apart.
_PARENTS = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name, pn.nspname::text AS parent_schema, p.relname::text AS parent
FROM ROWS FROM (pg_catalog.unnest({schemas}::text[]), pg_catalog.unnest({names}::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name AND NOT c.relispartition
JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
ORDER BY 1, 2, i.inhseqno
""")


def unselected(
    conn: Connection, source: SourceConfig, published: Collection[TableName], paused: Collection[TableName]
) -> Iterator[Finding]:
    """Yield a finding for each publication with tables that the configuration does not select. Raises as `source_errors`.

    A table that is paused leaves its publication with the next `apply`, whatever the configuration says.
    """
    others = {
        table
        for table in published
        if not source.selection.selected(table) and table.schema not in source.schemas and table not in paused
    }
    if not source.selection or not others:
        return
    parents = _parents(conn, others)
    for publication in read_publications(conn, publications_of(conn, source)).values():
        named = sorted(others & publication.entries.keys())
        if named:
            reason = f"it has tables that the configuration does not select: {_listed(named, parents)}"
            way_out = f"run {out_of(publication.name, PublicationWay.LINE, named, source.name)}"
            if publication.ours:
                way_out = "run `lakeproof apply`, which takes them out"
            remedy = f"add them to `tables`, or {way_out}"
            yield warning(f"publication {publication.name}", reason, remedy)
        yield from _with_others(publication, sorted(others - publication.entries.keys()), parents, source.name)


def _with_others(
    publication: Publication, others: list[TableName], parents: Mapping[TableName, TableName], source: str
) -> Iterator[Finding]:
    """Yield the note that a publication has tables beside the selected ones, since it has all of them."""
    if publication.all_tables:
        way, tables, remedy = PublicationWay.ALL, others, by_name_instead(source)
    else:
        way, tables = PublicationWay.SCHEMA, [table for table in others if table.schema in publication.schemas]
        remedy = out_of(publication.name, way, tables, source)
    if tables:
        reason = (
            f"{way_in_words(way, publication.schemas)}, and so has tables that the configuration does not select, which are"
            f" followed: {_listed(tables, parents)}"
        )
        yield note(f"publication {publication.name}", reason, f"add them to `tables`, or {remedy}")


def _listed(tables: list[TableName], parents: Mapping[TableName, TableName]) -> str:
    return listed(f"{t} (inherits from {parents[t]})" if t in parents else t for t in tables)


def _parents(conn: Connection, tables: Collection[TableName]) -> dict[TableName, TableName]:
    """Return the first table that each of `tables` inherits from."""
    ordered = sorted(tables)
    values = {"schemas": [t.schema for t in ordered], "names": [t.name for t in ordered]}
    lines = rows(conn, _PARENTS, values, about="tables")
    return {
        TableName(row["schema"], row["name"]): TableName(row["parent_schema"], row["parent"]) for row in reversed(lines)
    }
