"""What is outside of the lake, as external assets: the tables in PostgreSQL, and the Delta tables that views read.

Lineage begins there. The configuration lists them; a connection to a server does not belong here, nor looking for newest
versions (`lakeproof.state.views`).
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import Layer, external_key, source_key, table_key
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.names import TableName

UNKNOWN = (
    "which tables are published is not known in the lake yet, so nothing runs; run `lakeproof apply` and"
    " `lakeproof bootstrap`, then reload this location"
)


def postgres_specs(config: Config) -> list[dg.AssetSpec]:
    """Return one spec per known table of every source, and one for a source without known tables, which says so."""
    specs: list[dg.AssetSpec] = []
    for source in config.sources.values():
        specs += [_spec(source, table) for table in source.tables] or [_unknown(source)]
    return specs


def _unknown(source: SourceConfig) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=source_key(source.name),
        description=f"The PostgreSQL source {source.name}: {UNKNOWN}.",
        kinds={"postgres"},
        metadata={"source": source.name, "publication": source.publication, "slot": source.slot},
    )


def _spec(source: SourceConfig, table: TableName) -> dg.AssetSpec:
    options = source.table_config(table)
    return dg.AssetSpec(
        key=table_key(Layer.POSTGRES, source.name, table),
        group_name=Layer.POSTGRES.value,
        description=options.description
        or f"Table {table} of the PostgreSQL source {source.name}, as the server has it.",
        kinds={"postgres"},
        owners=list(options.owners),
        metadata={
            "dagster/table_name": str(table),
            "source": source.name,
            "publication": source.publication,
            "slot": source.slot,
        },
    )


def external_specs(config: Config) -> list[dg.AssetSpec]:
    """Return one spec per external table that a view reads."""
    tables = {table for view in config.views.values() for table in view.external.values()}
    return [_external(table) for table in sorted(tables, key=lambda table: (table.kind, table.place))]


def _external(table: ExternalTable) -> dg.AssetSpec:
    place = {"dagster/table_name": table.place} if table.kind == "catalog" else {"dagster/uri": table.place}
    return dg.AssetSpec(
        key=external_key(table),
        group_name=Layer.EXTERNAL.value,
        description="A Delta table that is not the lake's. Each refresh of a view that reads it pins its newest version.",
        kinds={"deltalake"},
        metadata=place,
    )
