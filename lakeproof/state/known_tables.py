"""The tables of a source that are known without its database: from the configuration and the lake.

Asking the database is in `lakeproof.postgres.catalog.selection`. Dagster makes its assets from these tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakeproof.config.model import Config, SourceConfig
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


def with_known_tables(config: Config, name: str) -> SourceConfig:
    """Return the source `name` with every known table that it selects among its `tables`.

    Patterns select what they match, and a source that lists nothing selects everything that is published. Known are the
    tables that the configuration names elsewhere (`table`, what views read), that the newest reading of the catalog in the
    landing has, and that the newest cut has. A source that lists names alone comes back as it is. Raises LakeError for a
    damaged lake.
    """
    source = config.source(name)
    selection = source.selection
    if not source.patterns and selection:
        return source
    selected = {table for table in _known_names(config, source) if not selection or selection.selected(table)}
    return source.model_copy(update={"tables": (*source.tables, *sorted(selected.difference(source.tables)))})


def _known_names(config: Config, source: SourceConfig) -> Iterator[TableName]:
    yield from source.table
    yield from (table for view in config.views.values() for of, table in view.reads.values() if of == source.name)
    lake = SourceLake.open(config.location, source.name)
    chain = Chain.open_newest(lake)
    recorded = None if chain is None else newest_catalog(chain)
    if recorded is not None:
        yield from (facts.table for facts in recorded.tables.values())
    cut = newest_cut(lake)
    if cut is not None:
        yield from (*cut.tables, *cut.held)
