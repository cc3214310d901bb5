"""The source tables in PostgreSQL as external assets: the beginning of the lineage.

The configuration lists the tables; a connection to a server does not belong here.
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import Layer, source_key, table_key
from lakeproof.config.model import Config, SourceConfig
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
