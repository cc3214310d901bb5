"""The common parts of the specs of all lake tables: key, group, owners, description, location.

The choice of tables does not belong here; each asset family's module makes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import dagster as dg

from assets.support.keys import Layer, table_key
from assets.support.places import uri
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName

# Raise it when the same changes would produce different rows: the UI then marks older materializations as outdated.
COMPACTION_CODE_VERSION = "1"

# Proofs, expectations, maintenance and views, each of which starts a JVM of `spark.driver_memory`: dagster.yaml limits how
# many work at a time. Compactions are not in it: nothing may keep them waiting, and a continuous one would keep its place.
SPARK_POOL = "lakeproof_spark"


@dataclass(frozen=True, slots=True)
class LayerTable:
    """A source's table in one layer; `store_key` locates it in the lake's store."""

    source: SourceConfig
    table: TableName
    layer: Layer
    store_key: str


def table_spec(
    config: Config,
    target: LayerTable,
    *,
    deps: Iterable[dg.AssetKey],
    kinds: set[str],
    description: str,
    code_version: str | None = None,
) -> dg.AssetSpec:
    """Return the spec of a table in one layer, with the owners and the description that the configuration has for it."""
    source, table, layer = target.source, target.table, target.layer
    options = source.table_config(table)
    return dg.AssetSpec(
        key=table_key(layer, source.name, table),
        deps=list(deps),
        group_name=layer.value,
        description=f"{description}\n\n{options.description}".rstrip(),
        kinds=kinds,
        owners=list(options.owners),
        code_version=code_version,
        skippable=True,
        metadata={
            "dagster/table_name": f"{layer.value}.{source.name}.{table}",
            "dagster/uri": uri(config.location, target.store_key),
            "source": source.name,
        },
    )
