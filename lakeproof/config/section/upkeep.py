"""The sections about what is done to a source's lake: how it is compacted, and what is kept of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakeproof.config.section import Model
from lakeproof.config.section.metrics import Address
from lakeproof.config.values import Seconds, Text, Whole

# 100 years: a time further back than the calendar goes can't be computed.
_CENTURY_S = 3_155_760_000


class CompactionConfig(Model):
    """The size and the frequency of cycles."""

    cycle_rows: Whole = Field(2_000_000, ge=1)
    """A cycle takes whole transactions up to about this many rows."""
    cycle_copies: Whole = Field(32, ge=1)
    """At most so many tables enter the lake in one cycle, by their copies or from the stream: what a killed process has
    to do again, and the first tables can be read after the first cycle."""
    cycle_copies_bytes: Whole = Field(1 << 30, ge=1)
    """... and with copies of at most about so many bytes, if it is more than one table."""
    mode: Literal["continuous", "scheduled"] = "continuous"
    """When Dagster compacts: `continuous` keeps one run going that begins a cycle as soon as what has landed is worth
    one; `scheduled` starts a run every `interval_s`. A group is continuous if all of its sources are."""
    worth_rows: Whole = Field(50_000, ge=1)
    """A continuous compaction begins a cycle if so many landed rows wait, ..."""
    worth_bytes: Whole = Field(16 << 20, ge=1)
    """... or so many bytes of landed files, ..."""
    worth_age_s: Seconds = Field(0.2, ge=0, le=86_400)
    """... or if one row has waited for so many seconds: the larger, the fewer cycles."""
    interval_s: Seconds = Field(60.0, gt=0, le=86_400)
    """The step of the schedule in Dagster, in seconds, rounded up to a minute; of views always."""
    threads: Whole = Field(2, ge=1, le=64)
    """Tables written, or proved, at a time."""
    engine: Literal["auto", "spark"] = "auto"
    """Who writes tables: `auto` is the compacting process for what it can, and Spark, which starts for the first table
    that needs it, for the rest; `spark` is Spark for every table, as on a cluster."""
    spark_rows: Whole = Field(2_000_000, ge=1)
    """In `auto` Spark writes a table with so many changed rows in a cycle, if it can be started; what is less is
    quicker in this process. Inserts alone are linked, however many they are."""
    proof_changed_s: Seconds = Field(120.0, ge=0, le=86_400)
    """A compaction that goes on proves what changed since each table's last proof so often, in seconds; 0: never."""
    metrics: Address = None
    """A compaction that goes on serves its metrics here, `host:port`, or a port of the loopback; none: nowhere."""


class RetentionConfig(Model):
    """The times for which old data is kept, and when small files are rewritten as large ones; `maintain` does both."""

    cuts_s: Seconds = Field(604_800.0, ge=0, le=_CENTURY_S)
    """A cut, and every table in it, stays readable for this long after a newer cut, in seconds."""
    cuts_max: Whole = Field(10_000, ge=1)
    """... and at most so many cuts are kept, the newest: a cycle a second makes 86,400 in a day, each with a commit in
    the log of every table that it wrote."""
    landing_s: Seconds = Field(86_400.0, ge=0, le=_CENTURY_S)
    """Landed changes that are in the lake are kept for at least this long, in seconds."""
    history_s: Seconds = Field(0.0, ge=0, le=_CENTURY_S)
    """Changes that came into the lake longer ago than this, in seconds, are removed from history, which keeps the rows
    as they were then; 0 keeps all."""
    archive: Text | None = None
    """A place outside of the lake, as `lake` names one: changes removed from history are first written there as
    Parquet, and can be restored."""
    small_files: Whole = Field(32, ge=2)
    """A table's files are rewritten as larger ones once this many of them are smaller than 16 MB."""
