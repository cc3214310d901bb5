"""The source tables as external assets: what PostgreSQL holds, shown as the beginning of the lineage.

Nothing here connects to a server; the tables are the ones that the configuration lists.
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import Layer, table_key
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName


def postgres_specs(config: Config) -> list[dg.AssetSpec]:
    """One spec per configured table of every source."""
    return [_spec(source, table) for source in config.sources.values() for table in source.tables]


def _spec(source: SourceConfig, table: TableName) -> dg.AssetSpec:
    said = source.table_config(table)
    return dg.AssetSpec(
        key=table_key(Layer.POSTGRES, source.name, table),
        group_name=Layer.POSTGRES.value,
        description=said.description or f"Table {table} of the PostgreSQL source {source.name}, as the server has it.",
        kinds={"postgres"},
        owners=list(said.owners),
        metadata={
            "dagster/table_name": str(table),
            "source": source.name,
            "publication": source.publication,
            "slot": source.slot,
        },
    )
