"""The sections of `lakeproof.yaml` as types, with every default and limit in one place.

`load.py` reads the file and the environment, and reports mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, SecretStr, model_validator

from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.config.mistakes import hint
from lakeproof.config.secret import connection_secret
from lakeproof.config.section import Model
from lakeproof.config.section.alerts import AlertsConfig
from lakeproof.config.section.expectations import valid_expectation
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.config.section.metrics import Address, MetricsConfig
from lakeproof.config.section.publication import SourcePublication, TablePublication
from lakeproof.config.section.spark import ComputeConfig, SparkConfig
from lakeproof.config.section.sql_catalog import CatalogConfig
from lakeproof.config.section.upkeep import CompactionConfig, RetentionConfig
from lakeproof.config.table_names import Selection, TablePattern
from lakeproof.config.values import (
    ColumnName,
    ColumnNames,
    Name,
    Owner,
    Pinned,
    Seconds,
    Text,
    Whole,
    different,
    valid_messages,
    valid_publication,
    valid_slot,
)
from lakeproof.errors import ConfigError
from lakeproof.names import TableName

_T = TypeVar("_T")
_YEAR_S = 31_536_000


class DagsterConfig(Model):
    """How the Dagster location presents itself and starts."""

    start: Literal["running", "stopped"] = "running"
    """Sensors and schedules are on (`running`) or off (`stopped`) until somebody switches them in the UI; the
    environment variable LAKEPROOF_START says the same for one process."""
    keep_runs_s: Seconds = Field(604_800, ge=0)
    """For so long, in seconds, ended runs of drains and continuous compactions that a sensor has started are kept, with
    their events and output; a run with the newest event of an asset stays. 0: all are kept."""
    docs: Text | None = Field(None, pattern=r"^https?://")
    """A page about this lake, linked from every asset: a runbook, a wiki."""


class FreshnessConfig(Model):
    """The age at which the newest event of an asset is too old: a Dagster freshness policy; half of it is a warning."""

    changes_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of `changes`, in seconds; none: 3 hours. A table without changes has an event too, while the drain keeps up. 0:
    it may be of any age."""
    current_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of `current`; none: 3 hours if the compaction is continuous, else it may be of any age, since a run that has
    nothing to do is not started. 0: it may be of any age."""
    proof_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of the proof of `current`; none: 26 hours if `proof_interval` is `hourly`, 3 days if it is `daily`. Large tables
    take turns (`proof_rows`), and may need more. 0: it may be of any age."""


class DrainConfig(Model):
    """Limits of the drain: when a segment ends, and memory and disk."""

    flush_interval_s: Seconds = Field(1.0, gt=0, le=600)
    """A segment is at most this old, in seconds, when it becomes durable."""
    flush_rows: Whole = Field(500_000, ge=1)
    """Or it has at most about this many rows."""
    flush_bytes: Whole = Field(128 * 1024 * 1024, ge=1)
    """Or at most about this many bytes of messages."""
    progress_interval_s: Seconds = Field(10.0, gt=0, le=3600)
    """While the publication is idle, the slot is advanced this often, in seconds."""
    catalog_interval_s: Seconds = Field(60.0, gt=0, le=86_400)
    """The source's catalog is compared with the reading before this often, in seconds."""
    status_interval_s: Seconds = Field(10.0, gt=0, le=3600)
    """The drain reports to the server at least this often, in seconds."""
    silence_timeout_s: Seconds = Field(300.0, ge=1, le=86_400)
    """The drain gives up a server that does not answer for this long, in seconds."""
    spill_bytes: Whole = Field(128 * 1024 * 1024, ge=1)
    """Large and streamed transactions keep this many bytes in memory, all together; more waits on disk."""
    spill_files: Whole = Field(64, ge=1, le=4096)
    """Transactions that wait on disk have at most this many open files; more share them."""
    spill_bytes_max: Whole = Field(0, ge=0)
    """They take at most this many bytes of disk, all together (in the folder for temporary files, TMPDIR); 0 is half of
    what is free there when the first of them comes."""
    queue_bytes: Whole = Field(32 * 1024 * 1024, ge=1)
    """At most this many bytes of complete transactions wait to be decoded."""
    segment_bytes: Whole = Field(128 * 1024 * 1024, ge=1)
    """An unfinished segment keeps this many bytes of decoded rows in memory, over all tables; more is written out."""
    segment_files: Whole = Field(64, ge=1, le=4096)
    """It has at most this many open files; a table beyond that gets several."""
    backoff_max_s: Seconds = Field(15.0, ge=1, le=3600)
    """After a lost connection a lasting drain reconnects after 0.2 s. The pause doubles each time, up to this many
    seconds."""
    messages: Annotated[Literal[False] | tuple[str, ...], PlainValidator(valid_messages)] = False
    """Logical messages (`pg_logical_emit_message`, which every role may call) with one of these prefixes land; `false`:
    the server sends none."""
    metrics: Address = None
    """A drain that goes on serves its metrics here, `host:port`, or a port of the loopback; none: nowhere."""


class SnapshotConfig(Model):
    """Limits of the first copy of tables."""

    connections: Whole = Field(2, ge=1, le=64)
    """COPY connections at a time."""
    chunk_pages: Whole = Field(16_384, ge=1)
    """Pages of 8 KB per chunk; 16384 pages are 128 MB of heap."""
    lock_timeout_s: Seconds = Field(10.0, gt=0, le=86_400)
    """The longest wait for a table's lock, or for open transactions, in seconds."""
    statement_timeout_s: Seconds = Field(0.0, ge=0, le=604_800)
    """The copy of a table is given up if the COPY of one chunk takes longer, in seconds; 0 is no limit."""
    bytes_per_s: Whole = Field(0, ge=0)
    """All connections together read at most about this many bytes a second; 0 is no limit."""
    attempts: Whole = Field(10, ge=1, le=1000)
    """Maximum copies of one table per run if it is truncated, rewritten or altered meanwhile; then the run gives it up."""
    held: Literal["wait", "copy"] = "wait"
    """Held tables that a snapshot brings back, and tables that came into the publication, wait for a person (`wait`),
    or a sensor of Dagster's copies them (`copy`)."""
    held_pause_s: Seconds = Field(600.0, ge=1, le=86_400)
    """Minimum seconds before such a table is copied again. The pause doubles with each copy within a day, up to one
    day."""


class HealthConfig(Model):
    """The limits at which a slot's state is a warning or an error, in `status` and in a Dagster check."""

    retained_warn_bytes: Whole = Field(8 << 30, ge=1)
    """The slot keeps this many bytes of WAL: a warning."""
    retained_error_bytes: Whole = Field(64 << 30, ge=1)
    """The same: an error."""
    left_warn_s: Seconds = Field(86_400.0, ge=0)
    """The server would invalidate the slot within this time, in seconds: a warning."""
    left_error_s: Seconds = Field(7_200.0, ge=0)
    """The same: an error."""
    unread_warn_s: Seconds = Field(900.0, gt=0)
    """Nobody has read the slot for this long: a warning."""
    unread_error_s: Seconds = Field(21_600.0, gt=0)
    """The same: an error."""


class TableConfig(TablePublication):
    """A person's choices about one table."""

    key: ColumnNames = ()
    """Columns that identify a row under `REPLICA IDENTITY FULL`."""
    numeric: dict[ColumnName, Pinned] = Field(default_factory=dict)
    """`numeric` columns without a precision, and arrays of it, as decimals: `{column: [precision, scale]}`."""
    as_text: ColumnNames = ()
    """Columns kept as PostgreSQL's exact text."""
    readers: Literal["features", "portable"] = "features"
    """The table's readers: `features` have to know deletion vectors, and column mapping or type widening once a change
    of the source's columns needs them; `portable` have to know none of them, and changes are written by
    rewriting files."""
    expectations: tuple[Annotated[dict[str, Any], BeforeValidator(valid_expectation)], ...] = ()
    """Great Expectations: a list of `{type, kwargs, severity, name}`, `severity` is `error` (default) or `warn`, `name`
    the check's in Dagster; or the path of a suite's JSON file, relative to this one."""
    show_values: bool = False
    """Results of expectations show up to ten unexpected values, and not their number alone."""
    secret: ColumnNames = ()
    """Columns whose values no result shows, whatever `show_values` says."""
    owners: tuple[Owner, ...] = ()
    """Owners in Dagster: `team:data` or an e-mail address."""
    description: Text = ""
    """Shown in the UI."""
    freshness: FreshnessConfig = FreshnessConfig()

    @model_validator(mode="after")
    def _one_type_per_column(self) -> TableConfig:
        both = sorted(set(self.numeric) & set(self.as_text))
        if both:
            raise ValueError(f"has {', '.join(both)} under both numeric and as_text")
        return self


# One for all tables that have none: there may be thousands.
_NO_CHOICES = TableConfig()


class SourceConfig(SourcePublication):
    """One PostgreSQL database with one publication and one slot.

    `name` is the section's key. `patterns` are the entries of `tables` in the file that are no names, and the `schemas`; the
    catalog decides which tables they match. `dsn` is a libpq conninfo or URI; it never prints, and its password is read from
    the environment or a file when it is used.
    """

    name: Name
    dsn: Annotated[
        SecretStr, PlainValidator(connection_secret), PlainSerializer(str, return_type=str, when_used="json")
    ]
    publication: Annotated[Text, AfterValidator(valid_publication)]
    slot: Annotated[Text, AfterValidator(valid_slot)]
    tables: Annotated[tuple[TableName, ...], AfterValidator(different)] = ()
    """What `apply` publishes, each `schema.table`, or `schema.*` for all of a schema; `bootstrap` takes all that is
    published."""
    patterns: tuple[TablePattern, ...] = ()
    owners: tuple[Owner, ...] = ()
    """Owners in Dagster of everything of this source, unless a table has its own."""
    exclude: Annotated[tuple[TableName | TablePattern, ...], AfterValidator(different)] = ()
    """Exceptions from the patterns in `tables`: `schema.table`, `schema.tmp_*`."""
    daily: Annotated[tuple[TableName | TablePattern, ...], AfterValidator(different)] = ()
    """Tables that are also kept as they were at the end of each day (UTC), each `schema.table` or a pattern,
    `schema.*`; none: no table."""
    table: dict[TableName, TableConfig] = Field(default_factory=dict)
    """Options of single tables."""
    drain: DrainConfig = DrainConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    compaction: CompactionConfig = CompactionConfig()
    retention: RetentionConfig = RetentionConfig()
    health: HealthConfig = HealthConfig()
    freshness: FreshnessConfig = FreshnessConfig()
    buckets: Whole = Field(1024, ge=1, le=1 << 20)
    """Buckets of a proof at most; one for 1,000 rows."""
    proof_rows: Whole = Field(20_000_000, ge=1)
    """Approximate number of rows that a scheduled proof reads: every small table, and large ones in turn, at least one.
    The first proof reads all. About as many rows of histories are read in turn, too."""

    @property
    def selection(self) -> Selection:
        """The configured selection of tables, made anew each time; false if there is none."""
        return Selection(self.tables, self.patterns, self.exclude)

    def daily_among(self, tables: Iterable[TableName]) -> list[TableName]:
        """Return those of the tables that are kept as they were at the end of each day."""
        named, patterns = set(self.daily), [entry for entry in self.daily if isinstance(entry, TablePattern)]
        return [t for t in tables if t in named or any(pattern.matches(t) for pattern in patterns)]

    @property
    def portable(self) -> frozenset[TableName]:
        """The tables whose readers have to know no feature of Delta's."""
        return frozenset(table for table, chosen in self.table.items() if chosen.readers == "portable")

    def table_config(self, table: TableName) -> TableConfig:
        """Return the configuration of `table`; the defaults if it has none."""
        return self.table.get(table, _NO_CHOICES)


class ViewConfig(Model):
    """One view: a SQL file, and the names in it bound to current tables, other views and external tables.

    `reads` maps a name in the SQL to (source, table), `views` one to another view, `external` one to a Delta table that is
    not the lake's. In the file all three stand under `reads`.
    """

    name: Name
    sql_file: Path
    reads: dict[str, tuple[str, TableName]]
    views: dict[str, str] = Field(default_factory=dict)
    external: dict[str, ExternalTable] = Field(default_factory=dict)
    description: Text = ""
    """Shown in the UI."""
    owners: tuple[Owner, ...] = ()
    """Owners in Dagster: `team:data` or an e-mail address."""
    refresh: Literal["auto", "full"] = "auto"
    """How it is brought up: `auto` computes from what its tables have changed, if that is exact; `full` always the
    whole query."""
    audit_s: Seconds = Field(86_400.0, ge=0, le=31_536_000)
    """The whole query is computed again if the last time was so many seconds ago, whatever has changed."""
    freshness_s: Seconds | None = Field(None, ge=120)
    """The age at which the newest refresh is too old, in seconds; none: it may be of any age, since a view whose tables
    do not change is not refreshed."""

    def sql(self) -> str:
        """Return the query's text; raises OSError if the file is gone."""
        return self.sql_file.read_text(encoding="utf-8")


class Config(Model):
    """The whole file, read from `path`; relative paths in it are relative to its folder."""

    path: Path
    lake: str
    """A local folder or its `file://` URL, or a place in an object store: `s3://bucket/prefix`, `gs://…`, `az://…`."""
    sources: dict[str, SourceConfig]
    views: dict[str, ViewConfig] = Field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Sources of one database that are compacted together, so that a cut of the group has each transaction over tables
    of several of them wholly or not at all: `{name: [source, source]}`."""
    spark: SparkConfig = SparkConfig()
    storage: StorageConfig = StorageConfig()
    catalog: CatalogConfig | None = None
    """A SQL catalog that has the lake by name; none: it has no names."""
    compute: ComputeConfig | None = None
    """Where the Spark work of Dagster's runs is done; none: in Dagster's own process."""
    metrics: MetricsConfig = MetricsConfig()
    dagster: DagsterConfig = DagsterConfig()
    alerts: AlertsConfig = AlertsConfig()
    proof_interval: Literal["hourly", "daily", "off"] = "hourly"
    """How often Dagster proves every source."""
    views_at_once: Whole = Field(2, ge=1, le=16)
    """Views that one process computes at a time, each with its share of `spark.driver_memory`."""

    faulty_views: dict[str, ConfigError] = Field(default_factory=dict, exclude=True)  # the others go on without them

    @property
    def location(self) -> LakeLocation:
        """The lake's place, and how it is reached."""
        return self.location_of(self.lake)

    def location_of(self, place: str) -> LakeLocation:
        """Return the place of another store of this configuration (an archive), which is reached in the same way."""
        return LakeLocation(place, self.storage)

    def with_metrics(self, names: Sequence[str], address: str) -> Config:
        """Return the configuration in which the drains and compactions of these sources serve metrics at `address`."""
        update = {"metrics": address}
        sources = dict(self.sources)
        for name in names:
            source = self.source(name)
            drain, compaction = source.drain.model_copy(update=update), source.compaction.model_copy(update=update)
            sources[name] = source.model_copy(update={"drain": drain, "compaction": compaction})
        return self.model_copy(update={"sources": sources})

    def group(self, name: str) -> tuple[str, ...]:
        """Return the sources of the group of that name; raises ConfigError if there is none."""
        return self._named("group", self.groups, name)

    def group_of(self, source: str) -> str | None:
        """Return the group that a source is in, None if it is in none."""
        return next((group for group, sources in self.groups.items() if source in sources), None)

    def source(self, name: str) -> SourceConfig:
        """Return the source of that name; raises ConfigError if there is none."""
        return self._named("source", self.sources, name)

    def view(self, name: str) -> ViewConfig:
        """Return the view of that name; raises ConfigError if there is none, or if it has a mistake."""
        if name in self.faulty_views:
            raise self.faulty_views[name]
        return self._named("view", self.views, name)

    def _named(self, kind: str, entries: Mapping[str, _T], name: str) -> _T:
        if name not in entries:
            remedy = hint(name, entries) if entries else f"it has no {kind}s"
            raise ConfigError(f"{kind} {name[:80]}", f"it is not in {self.path}", remedy)
        return entries[name]


def location_of(lake: Config | LakeLocation | str | Path) -> LakeLocation:
    """Return the place of a configuration's lake, or the one that `lake` is or names."""
    return lake.location if isinstance(lake, Config) else LakeLocation.of(lake)
