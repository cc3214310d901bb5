"""The shape of `wal2delta.yaml`: typed, with every default and limit in one place.

Reading the file, the environment and naming mistakes belongs to `wal2delta.config.load`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from wal2delta.names import TableName


class Model(BaseModel):
    """The base of every section: unknown keys are mistakes, values don't change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class DrainConfig(Model):
    """When a segment ends, and how much memory the drain may use."""

    flush_interval_s: float = Field(1.0, gt=0, le=600, description="a segment is at most this old when it becomes durable")
    flush_rows: int = Field(500_000, ge=1, description="or has at most about this many rows")
    flush_bytes: int = Field(128 * 1024 * 1024, ge=1, description="or at most about this many bytes of messages")
    progress_interval_s: float = Field(10.0, gt=0, description="an idle publication advances the slot this often")
    status_interval_s: float = Field(10.0, gt=0, description="the server hears from us at least this often")
    spill_bytes: int = Field(
        256 * 1024 * 1024, ge=1, description="a transaction beyond this many bytes of messages waits for its commit on disk"
    )


class SnapshotConfig(Model):
    """How a snapshot is copied."""

    connections: int = Field(2, ge=1, le=64, description="COPY connections at a time")
    chunk_pages: int = Field(16_384, ge=1, description="pages of 8 KB per chunk; 16384 is 128 MB of heap")
    lock_timeout_s: float = Field(10.0, gt=0, description="how long a table's lock or an open transaction is waited for")


class CompactionConfig(Model):
    """How much one cycle takes, and how often."""

    cycle_rows: int = Field(2_000_000, ge=1, description="a cycle takes whole transactions up to about this many rows")
    interval_s: float = Field(60.0, gt=0, description="the schedule's step in Dagster (rounded up to a minute)")
    threads: int = Field(2, ge=1, le=64, description="tables written at a time")


class TableConfig(Model):
    """What a person says about one table."""

    key: tuple[str, ...] = Field((), description="columns that tell rows apart under REPLICA IDENTITY FULL")
    numeric: dict[str, tuple[int, int]] = Field(
        default_factory=dict, description="bare numeric columns pinned to decimal(precision, scale)"
    )
    as_text: tuple[str, ...] = Field((), description="columns kept as PostgreSQL's exact text")
    expectations: tuple[dict[str, Any], ...] = Field((), description="Great Expectations: {type, kwargs, severity?}")
    owners: tuple[str, ...] = Field((), description="Dagster owners, e.g. team:data")
    description: str = Field("", description="shown in the UI")


class SourceConfig(Model):
    """One PostgreSQL database with one publication and one slot.

    `name` is the section's key. `dsn` is a libpq conninfo or URI without a password, or with one that came from the
    environment; it never prints.
    """

    name: str
    dsn: SecretStr
    publication: str
    slot: str
    tables: tuple[TableName, ...] = Field((), description="what `apply` publishes; `bootstrap` takes all that is published")
    table: dict[TableName, TableConfig] = Field(default_factory=dict)
    drain: DrainConfig = DrainConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    compaction: CompactionConfig = CompactionConfig()
    buckets: int = Field(1024, ge=1, le=1 << 20, description="buckets of a proof")

    def table_config(self, table: TableName) -> TableConfig:
        """What the configuration says about `table`; the defaults where it says nothing."""
        return self.table.get(table, TableConfig())


class ViewConfig(Model):
    """One view: a SQL file, and the names in it bound to current tables.

    `reads` maps a name in the SQL to (source, table).
    """

    name: str
    sql_file: Path
    reads: dict[str, tuple[str, TableName]]
    description: str = ""
    owners: tuple[str, ...] = ()

    def sql(self) -> str:
        """The query's text; raises OSError where the file is gone."""
        return self.sql_file.read_text(encoding="utf-8")


class SparkConfig(Model):
    """The Spark session."""

    master: str = "local[*]"
    driver_memory: str = "2g"
    conf: dict[str, str] = Field(default_factory=dict)


class Config(Model):
    """The whole file. `path` is where it was read from; relative paths in it are relative to its folder."""

    path: Path
    lake: str = Field(description="a folder, or a URL")
    sources: dict[str, SourceConfig]
    views: dict[str, ViewConfig] = Field(default_factory=dict)
    spark: SparkConfig = SparkConfig()
    proof_interval: Literal["hourly", "daily", "off"] = "hourly"
