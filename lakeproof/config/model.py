"""The shape of `lakeproof.yaml`: typed, with every default and limit in one place.

Reading the file, the environment and naming mistakes belongs to `lakeproof.config.load`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    model_validator,
)

from lakeproof.config.selection import Selection
from lakeproof.config.table_names import TablePattern
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
    number_text,
    read_secret,
    valid_expectation,
    valid_memory,
    valid_messages,
    valid_publication,
    valid_slot,
    valid_spark_conf,
)
from lakeproof.errors import ConfigError
from lakeproof.names import TableName


class Model(BaseModel):
    """The base of every section: unknown keys are mistakes, values don't change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)


class DrainConfig(Model):
    """When a segment ends, and how much memory the drain may use."""

    flush_interval_s: Seconds = Field(
        1.0, gt=0, le=600, description="A segment is at most this old, in seconds, when it becomes durable."
    )
    flush_rows: Whole = Field(500_000, ge=1, description="Or it has at most about this many rows.")
    flush_bytes: Whole = Field(128 * 1024 * 1024, ge=1, description="Or at most about this many bytes of messages.")
    progress_interval_s: Seconds = Field(
        10.0, gt=0, le=3600, description="While the publication is idle, the slot is advanced this often, in seconds."
    )
    catalog_interval_s: Seconds = Field(
        60.0, gt=0, le=86_400, description="The source's catalog is compared with what it was this often, in seconds."
    )
    status_interval_s: Seconds = Field(
        10.0, gt=0, le=3600, description="The server hears from the drain at least this often, in seconds."
    )
    silence_timeout_s: Seconds = Field(
        300.0,
        ge=1,
        le=86_400,
        description="A server that says nothing for this long, though it is asked to answer, is given up, in seconds.",
    )
    spill_bytes: Whole = Field(
        128 * 1024 * 1024,
        ge=1,
        description="Large and streamed transactions keep this many bytes in memory, all together; more waits on disk.",
    )
    spill_files: Whole = Field(
        64,
        ge=1,
        le=4096,
        description="Transactions that wait on disk have at most this many open files; more share them.",
    )
    spill_bytes_max: Whole = Field(
        0,
        ge=0,
        description="They take at most this many bytes of disk, all together (in the folder for temporary files, TMPDIR);"
        " 0 is half of what is free there when the first of them comes.",
    )
    queue_bytes: Whole = Field(
        32 * 1024 * 1024, ge=1, description="What is complete waits for its decoding with at most this many bytes."
    )
    segment_bytes: Whole = Field(
        128 * 1024 * 1024,
        ge=1,
        description="A segment in the making keeps this many bytes of decoded rows, over all tables; more is written out.",
    )
    segment_files: Whole = Field(
        64, ge=1, le=4096, description="It has at most this many open files; a table beyond that gets several."
    )
    backoff_max_s: Seconds = Field(
        15.0,
        ge=1,
        le=3600,
        description="After a lost connection a lasting drain connects again after 0.2 s, then after twice as long"
        " each time, at most this long, in seconds.",
    )
    messages: Annotated[Literal[False] | tuple[str, ...], PlainValidator(valid_messages)] = Field(
        False,
        description="Logical messages (`pg_logical_emit_message`, which every role may call) with one of these prefixes"
        " land; `false`: the server sends none.",
    )


class SnapshotConfig(Model):
    """How a snapshot is copied."""

    connections: Whole = Field(2, ge=1, le=64, description="COPY connections at a time.")
    chunk_pages: Whole = Field(16_384, ge=1, description="Pages of 8 KB per chunk; 16384 pages are 128 MB of heap.")
    lock_timeout_s: Seconds = Field(
        10.0, gt=0, le=86_400, description="How long a table's lock, or open transactions, are waited for, in seconds."
    )
    statement_timeout_s: Seconds = Field(
        0.0,
        ge=0,
        le=604_800,
        description="A chunk whose COPY takes longer is given up, and its table with it, in seconds; 0 is no limit.",
    )
    bytes_per_s: Whole = Field(
        0,
        ge=0,
        description="All connections together read at most about this many bytes a second; 0 is no limit.",
    )
    attempts: Whole = Field(
        10,
        ge=1,
        le=1000,
        description=(
            "How often one run copies a table that is truncated, rewritten or altered while it is copied, each time at a"
            " later point, before it gives that table up."
        ),
    )
    held: Literal["wait", "copy"] = Field(
        "wait",
        description="Held tables that a snapshot brings back, and tables that came into the publication, wait for a person"
        " (`wait`), or a sensor of Dagster's copies them (`copy`).",
    )
    held_pause_s: Seconds = Field(
        600.0,
        ge=1,
        le=86_400,
        description="Such a table is copied again after this long at the earliest, in seconds, and after twice as long each"
        " time within a day, at most a day.",
    )


class CompactionConfig(Model):
    """How much one cycle takes, and how often."""

    cycle_rows: Whole = Field(
        2_000_000, ge=1, description="A cycle takes whole transactions up to about this many rows."
    )
    interval_s: Seconds = Field(
        60.0, gt=0, le=86_400, description="The step of the schedule in Dagster, in seconds, rounded up to a minute."
    )
    threads: Whole = Field(2, ge=1, le=64, description="Tables written at a time.")
    apply: Literal["auto", "merge"] = Field(
        "auto",
        description="How current takes a change: `auto` is one commit with deletion vectors where the installed Delta is the"
        " one that was tried, else MERGE; `merge` is always MERGE.",
    )


class RetentionConfig(Model):
    """How long what is no longer newest is kept, and from when on small files become large ones; `maintain` does both."""

    cuts_s: Seconds = Field(
        604_800.0,
        ge=0,
        description="A cut that a newer one has followed may be read this much longer, in seconds, and every table with it.",
    )
    landing_s: Seconds = Field(
        86_400.0, ge=0, description="What has landed and is in the lake is kept at least this long, in seconds."
    )
    history_s: Seconds = Field(
        0.0,
        ge=0,
        description="Older changes, in seconds, leave history, and the rows as they were then stay; 0 keeps all.",
    )
    archive: Text | None = Field(
        None, description="A folder: what leaves history is written there first, as Parquet, and can be restored."
    )
    small_files: Whole = Field(
        32, ge=2, description="A table's files are put together once this many of them are smaller than 16 MB."
    )


class HealthConfig(Model):
    """From when on a slot's state is a warning, and from when on an error, in `status` and as a check in Dagster."""

    retained_warn_bytes: Whole = Field(8 << 30, ge=1, description="The slot keeps this many bytes of WAL: a warning.")
    retained_error_bytes: Whole = Field(64 << 30, ge=1, description="The same: an error.")
    left_warn_s: Seconds = Field(
        86_400.0, ge=0, description="The server would invalidate the slot within this time, in seconds: a warning."
    )
    left_error_s: Seconds = Field(7_200.0, ge=0, description="The same: an error.")
    unread_warn_s: Seconds = Field(900.0, gt=0, description="Nobody has read the slot for this long: a warning.")
    unread_error_s: Seconds = Field(21_600.0, gt=0, description="The same: an error.")


class TableConfig(Model):
    """What a person says about one table."""

    key: ColumnNames = Field((), description="Columns that tell rows apart under `REPLICA IDENTITY FULL`.")
    numeric: dict[ColumnName, Pinned] = Field(
        default_factory=dict,
        description="`numeric` columns without a precision, and arrays of it, as decimals: `{column: [precision, scale]}`.",
    )
    as_text: ColumnNames = Field((), description="Columns kept as PostgreSQL's exact text.")
    expectations: tuple[Annotated[dict[str, Any], BeforeValidator(valid_expectation)], ...] = Field(
        (), description="Great Expectations: `{type, kwargs, severity}`; `severity` is `error` (default) or `warn`."
    )
    owners: tuple[Owner, ...] = Field((), description="Owners in Dagster: `team:data` or an e-mail address.")
    description: Text = Field("", description="Shown in the UI.")

    @model_validator(mode="after")
    def _one_type_per_column(self) -> TableConfig:
        both = sorted(set(self.numeric) & set(self.as_text))
        if both:
            raise ValueError(f"has {', '.join(both)} under both numeric and as_text")
        return self


class SourceConfig(Model):
    """One PostgreSQL database with one publication and one slot.

    `name` is the section's key. Of what the file lists under `tables`, `patterns` has what is no table's name: which tables
    they mean, a catalog says. `dsn` is a libpq conninfo or URI; it never prints, and its password comes from the
    environment or a file when it is used.
    """

    name: Name
    dsn: Annotated[SecretStr, PlainValidator(read_secret), PlainSerializer(str, return_type=str, when_used="json")]
    publication: Annotated[Text, AfterValidator(valid_publication)]
    slot: Annotated[Text, AfterValidator(valid_slot)]
    tables: Annotated[tuple[TableName, ...], AfterValidator(different)] = Field(
        (),
        description="What `apply` publishes, each `schema.table`, or `schema.*` for all of a schema;"
        " `bootstrap` takes all that is published.",
    )
    patterns: tuple[TablePattern, ...] = ()
    exclude: Annotated[tuple[TableName | TablePattern, ...], AfterValidator(different)] = Field(
        (), description="What the patterns in `tables` leave out: `schema.table`, `schema.tmp_*`."
    )
    table: dict[TableName, TableConfig] = Field(
        default_factory=dict, description="What there is to say about single tables."
    )
    drain: DrainConfig = DrainConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    compaction: CompactionConfig = CompactionConfig()
    retention: RetentionConfig = RetentionConfig()
    health: HealthConfig = HealthConfig()
    buckets: Whole = Field(1024, ge=1, le=1 << 20, description="Buckets of a proof.")
    proof_rows: Whole = Field(
        20_000_000,
        ge=1,
        description=(
            "Rows that a scheduled proof reads, about: small tables are in each, large ones in turn, one at least. "
            "The first is of all. And about as many rows of histories, which have their turn in every proof."
        ),
    )

    @property
    def selection(self) -> Selection:
        """What the configuration says of what is published; false if it says nothing."""
        return Selection(self.tables, self.patterns, self.exclude)

    def table_config(self, table: TableName) -> TableConfig:
        """What the configuration says about `table`; the defaults where it says nothing."""
        return self.table.get(table, TableConfig())


class ViewConfig(Model):
    """One view: a SQL file, and the names in it bound to current tables.

    `reads` maps a name in the SQL to (source, table).
    """

    name: Name
    sql_file: Path
    reads: dict[str, tuple[str, TableName]]
    description: Text = Field("", description="Shown in the UI.")
    owners: tuple[Owner, ...] = Field((), description="Owners in Dagster: `team:data` or an e-mail address.")

    def sql(self) -> str:
        """The query's text; raises OSError where the file is gone."""
        return self.sql_file.read_text(encoding="utf-8")


class SparkConfig(Model):
    """The Spark session."""

    master: Annotated[Text, Field(min_length=1)] = Field("local[*]", description="The master's URL.")
    driver_memory: Annotated[Text, AfterValidator(valid_memory)] = Field("2g", description="The driver's heap.")
    conf: Annotated[dict[str, Annotated[str, BeforeValidator(number_text)]], AfterValidator(valid_spark_conf)] = Field(
        default_factory=dict, description="Further settings of Spark's, `spark.…: value`."
    )


class Config(Model):
    """The whole file. `path` is where it was read from; relative paths in it are relative to its folder."""

    path: Path
    lake: str = Field(description="A local folder, or its `file://` URL.")
    sources: dict[str, SourceConfig]
    views: dict[str, ViewConfig] = Field(default_factory=dict)
    spark: SparkConfig = SparkConfig()
    proof_interval: Literal["hourly", "daily", "off"] = Field(
        "hourly", description="How often Dagster proves every source."
    )

    def source(self, name: str) -> SourceConfig:
        """The source of that name; raises ConfigError where there is none."""
        if name not in self.sources:
            known = ", ".join(sorted(self.sources))
            raise ConfigError(f"source {name[:80]}", f"it is not in {self.path}", f"name one of its sources: {known}")
        return self.sources[name]
