"""What the specs of all our lake tables have in common: key, group, owners, description, where it lies.

Which tables an asset writes, and how, belongs to the module of its family.
"""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from assets.support.keys import Layer, table_key
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths

# Raise it when the same changes would give other rows: the UI then marks what was written before.
COMPACTION_CODE_VERSION = "1"


def table_spec(
    config: Config,
    source: SourceConfig,
    table: TableName,
    layer: Layer,
    *,
    deps: Iterable[dg.AssetKey],
    place: str,
    kinds: set[str],
    description: str,
    code_version: str | None = None,
) -> dg.AssetSpec:
    """A table of one layer; `place` is its key in the lake's store, which becomes `dagster/uri`."""
    said = source.table_config(table)
    return dg.AssetSpec(
        key=table_key(layer, source.name, table),
        deps=list(deps),
        group_name=layer.value,
        description=f"{description}\n\n{said.description}".rstrip(),
        kinds=kinds,
        owners=list(said.owners),
        code_version=code_version,
        skippable=True,
        metadata={
            "dagster/table_name": f"{layer.value}.{source.name}.{table}",
            "dagster/uri": LakePaths(config.lake, source.name).url(place),
            "source": source.name,
        },
    )
