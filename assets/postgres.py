"""The source tables in PostgreSQL as external assets: the beginning of the lineage.

The tables are those that the configuration lists; a connection to a server does not belong here.
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import Layer, table_key
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName


def postgres_specs(config: Config) -> list[dg.AssetSpec]:
    """Return one spec per configured table of every source."""
    return [_spec(source, table) for source in config.sources.values() for table in source.tables]


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
