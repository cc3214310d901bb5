"""External Delta tables that views read, as external assets: where a view's lineage begins beside PostgreSQL.

Looking for their newest versions does not belong here (`lakeproof.state.views`).
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import Layer, external_key
from lakeproof.config.model import Config
from lakeproof.config.section.external_table import ExternalTable


def external_specs(config: Config) -> list[dg.AssetSpec]:
    """Return one spec per external table that a view reads."""
    tables = {table for view in config.views.values() for table in view.external.values()}
    return [_spec(table) for table in sorted(tables, key=lambda table: (table.kind, table.place))]


def _spec(table: ExternalTable) -> dg.AssetSpec:
    place = {"dagster/table_name": table.place} if table.kind == "catalog" else {"dagster/uri": table.place}
    return dg.AssetSpec(
        key=external_key(table),
        group_name=Layer.EXTERNAL.value,
        description="A Delta table that is not the lake's. Each refresh of a view that reads it pins its newest version.",
        kinds={"deltalake"},
        metadata=place,
    )
