"""The beginning of lineage as external assets: the tables in PostgreSQL, and the Delta tables that views read."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.catalog import Catalog
from assets.support.keys import Layer, external_key, table_key

UNKNOWN = (
    "which tables are published is not known in the lake yet, so nothing runs; run `lakeproof apply` and"
    " `lakeproof bootstrap`, then reload this location"
)


def postgres_specs(catalog: Catalog) -> Iterator[dg.AssetSpec]:
    """Yield one spec per known table of every source, and one for a source without known tables, which says so."""
    for source in catalog.config.sources.values():
        for table in source.tables:
            text = f"Table {table} of the PostgreSQL source {source.name}, as the server has it."
            own = source.table_config(table).description
            yield catalog.spec(table_key(Layer.POSTGRES, source.name, table), "" if own else text, {"postgres"})
        if not source.tables:
            text = f"The PostgreSQL source {source.name}: {UNKNOWN}."
            yield catalog.spec(Layer.POSTGRES.key(source.name), text, {"postgres"})


def external_specs(catalog: Catalog) -> Iterator[dg.AssetSpec]:
    """Yield one spec per external table that a view reads."""
    tables = {table for view in catalog.config.views.values() for table in view.external.values()}
    text = "A Delta table that is not the lake's. Each refresh of a view that reads it pins its newest version."
    for table in sorted(tables, key=lambda table: (table.kind, table.place)):
        place = {"dagster/table_name" if table.kind == "catalog" else "dagster/uri": table.place}
        yield catalog.spec(external_key(table), text, {"deltalake"}, metadata=place)
