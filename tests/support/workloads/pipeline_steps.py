"""The configuration and the publications of a whole pipeline under the random workload.

The workload is in `tests/support/workloads/random_workload.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from psycopg.sql import SQL, Identifier

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, DrainConfig, SnapshotConfig
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database

_SOURCE = "shop"
Tables: TypeAlias = tuple[TableName, ...]
LOG = TableName("w", "log")


def pipeline_config(database: Database, lake: Path | LakeLocation) -> Config:
    """Return a configuration of small segments and chunks."""
    source = database.source(
        name=_SOURCE,
        buckets=16,
        # Small, so that a run has many segments, chunks and ends of cycles inside of segments.
        drain=DrainConfig(flush_interval_s=0.2, flush_rows=150, progress_interval_s=0.5),
        snapshot=SnapshotConfig(chunk_pages=1),
    )
    place = LakeLocation.of(lake)
    folder = lake if isinstance(lake, Path) else Path.cwd()
    return Config(path=folder / "lakeproof.yaml", lake=place.url, storage=place.storage, sources={_SOURCE: source})


def publish(database: Database, tables: Tables) -> None:
    """Create the publications: one for all tables, and one of inserts for the log."""
    listed = [Identifier(table.schema, table.name) for table in tables if table != LOG]
    database.execute(SQL("CREATE PUBLICATION pub FOR TABLE {}").format(SQL(", ").join(listed)))
    if LOG in tables:
        database.execute("CREATE PUBLICATION pub_inserts FOR TABLE w.log WITH (publish = 'insert')")
