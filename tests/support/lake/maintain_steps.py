"""The steps of a test of maintenance: a source with rows, a configuration with a retention policy, a moment long after.

What maintenance must leave and remove belongs to the tests.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_steps import make_config
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED, make_tables, random_row

TABLES = ("order lines", "bag")
LINES, BAG = (TableName("app", name) for name in TABLES)
# Long after everything that a test has made.
MUCH_LATER = datetime.now(timezone.utc) + timedelta(days=400)


def policy(lake: Path, **retention: object) -> Config:
    """A configuration whose lake is kept by this policy."""
    config = make_config(lake)
    source = config.sources[SOURCE].model_copy(update={"retention": RetentionConfig.model_validate(retention)})
    return config.model_copy(update={"sources": {SOURCE: source}})


def begun(lake: Path) -> tuple[random.Random, SimulatedSource]:
    """A source with two tables of some rows, and their snapshot."""
    rng = random.Random(SEED)
    source = SimulatedSource(lake, [t for t in make_tables() if t.version.table.name in TABLES])
    for name in TABLES:
        table = source.table(name)
        for row in [random_row(rng, table) for _ in range(12)]:
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    source.snapshot(TABLES)
    return rng, source


def newest_cut_of(config: Config) -> Cut:
    """The newest cut of the simulated source."""
    cut = newest_cut(SourceLake.open(config.lake, SOURCE))
    assert cut is not None
    return cut
