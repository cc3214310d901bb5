"""The statements that take a table out of a publication, each for the way in which the publication came to have it.

A publication FOR ALL TABLES refuses every statement about single tables, and one of a schema does not know a table of it by
name. Reading the ways does not belong here (`catalog/published.py`), nor judging tables (`checks/identity.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakeproof.config.table_names import TablePattern
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import PublicationWay
from lakeproof.postgres.checks.privileges import as_identifier, qualified


def way_in_words(way: PublicationWay, schemas: Collection[str] = ()) -> str:
    """Return how a publication has its tables, for a sentence about it."""
    return {
        PublicationWay.LINE: "it names each of them",
        PublicationWay.ALL: "it is FOR ALL TABLES",
        PublicationWay.SCHEMA: f"it is FOR TABLES IN SCHEMA {', '.join(sorted(schemas))}",
        PublicationWay.ROOT: "it has them as partitions",
    }[way]


def out_of(publication: str, way: PublicationWay, tables: Sequence[TableName], source: str) -> str:
    """Return what takes these tables out of a publication that has them in this way, or stands in its place."""
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
        f"publish tables by name instead: `lakeproof teardown {source}`, `tables: ['*.*']` in the configuration,"
        f" `lakeproof apply {source}`, `lakeproof recover {source}`"
    )
