"""The held tables that nobody waits for: dropped on the source, and not among the configuration's `tables`.

Showing them does not belong here: `status`, `prove` and the command line give a note of them, but report any other held
table as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeproof.config.model import SourceConfig
from lakeproof.lake.planning.catalog_drift import was_dropped
from lakeproof.lake.records.held import Held
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName


def left_behind(source: SourceConfig, held: Mapping[TableName, Held], chain: Chain | None = None) -> set[TableName]:
    """Return those of `held`, but none that was made again under its name. Raises what a damaged landing raises."""
    dropped = {table for table, why in held.items() if table not in source.tables and was_dropped(why)}
    recorded = newest_catalog(chain) if dropped and chain is not None else None
    return dropped - {table.table for table in recorded.tables.values()} if recorded is not None else dropped
