"""Makes days: each chosen table as it was at the end of each day, a partition of a Delta table per day.

Reading a day does not belong here (`lakeproof.lake.read.spark.as_of`), nor its commit (`lakeproof.lake.delta.day_table`).

    look      every day of every table, before anything is written: one that is not kept any more ends the run
    write     day by day, each table's partition replaced as a whole, and noted
    audit     the day before and history's changes have to add up to it

A lock of its own keeps two such runs apart. It needs no lease: no cycle writes these tables, and no cut names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone

from pyspark.sql import SparkSession

from lakeproof.config.mistakes import table_hint
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, LakeError, TransientError
from lakeproof.events import Event, RunControl
from lakeproof.lake.delta.day_table import read_day, write_day
from lakeproof.lake.read.spark.as_of import DayState, states_at_end_of
from lakeproof.lake.records.days import DayEntry, note_day
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import without_java
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.days import DayAudit, audit_day
from lakeproof.state.known_tables import with_known_tables
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import LockHandle, refuse_if_locked
from lakeproof.storage.times import now_text

_MAKES_DAYS = "another process makes days of this source"


@dataclass(frozen=True, slots=True)
class DayReport:
    """A table at the end of a day. `is_over`: the lake has a commit of a later day, so that nothing can come any more."""

    day: str
    position: Lsn
    rows: int
    is_over: bool
    delta_version: int
    audit: DayAudit


@dataclass(frozen=True, slots=True)
class DailyReport:
    """The days of each table, in their order."""

    source: str
    tables: Mapping[TableName, Sequence[DayReport]] = field(default_factory=dict)

    @property
    def adds_up(self) -> bool:
        """True if no day differs from the day before and the changes since."""
        return all(day.audit.status != "differs" for days in self.tables.values() for day in days)


def daily_tables(config: Config, name: str) -> list[TableName]:
    """Return the known tables of a source that `daily` of the configuration selects."""
    source = with_known_tables(config, name)
    return source.daily_among(source.tables)


def check_daily(config: Config, name: str, days: Sequence[date], tables: Sequence[TableName] | None) -> None:
    """Raise what `daily` would raise by now, and if another process makes days: before a JVM is started for nothing."""
    _chosen(config, name, tables)
    _check_begun(days)
    lake = SourceLake.open(config.location, name)
    refuse_if_locked(lake.store, lake.paths.daily_lock, f"{name}: days", _MAKES_DAYS)


@without_java(lambda _config, name, *_, **__: name)
def daily(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    days: Sequence[date],
    spark: SparkSession,
    control: RunControl,
    tables: Sequence[TableName] | None = None,
) -> DailyReport:
    """Make these days of `tables`, or of all that the configuration selects.

    Raises ConfigError for a table that is not selected and for a day that has not begun, LakeError (before anything is
    written) for a day that is not kept any more, TransientError if another process makes days of this source.
    """
    lake = SourceLake.open(config.location, name)
    chosen = _chosen(config, name, tables)
    _check_begun(days)
    reports: dict[TableName, list[DayReport]] = {table: [] for table in chosen}
    thing = f"{name}: days"
    with at_work(spark, config.location), lake.store.lock(lake.paths.daily_lock, thing, _MAKES_DAYS) as lock:
        session = spark.newSession()
        cut = newest_cut(lake)
        if cut is not None:
            fit(session, max((cut.tables[t].row_bytes for t in chosen if t in cut.tables), default=0))
        states = states_at_end_of(session, lake, days, chosen)
        for number, state in enumerate(states, 1):
            for table in chosen:
                if control.stop.requested:
                    raise TransientError(thing, "it was asked to stop", "run it again: the days before are made")
                reports[table].append(_make(session, lake, table, state, lock))
            shown = {"day": state.day.isoformat(), "position": str(state.position), "tables": len(chosen)}
            rows = sum(reports[table][-1].rows for table in chosen)
            message = f"{state.day}: {rows:,} rows at {state.position} ({number:,} of {len(states):,} days)"
            control.report(Event("daily.day", message, {**shown, "rows": rows}))
    return DailyReport(name, reports)


def _make(session: SparkSession, lake: SourceLake, table: TableName, state: DayState, lock: LockHandle) -> DayReport:
    path, rows = lake.url(lake.paths.daily(table)), state.tables[table]
    version = write_day(path, rows, state.day, lock)
    count = read_day(session, path, state.day).count()
    columns = hashlib.sha256(rows.schema.simpleString().encode()).hexdigest()
    entry = DayEntry(state.position, count, columns, state.is_over, now_text())
    note_day(lake, table, state.day, entry)
    cut = newest_cut(lake)
    if cut is None:
        raise LakeError(f"{lake.source}: cuts", "they are gone", "restore the lake from a backup")
    audit = audit_day(session, lake, table, cut.table(table, lake.source), state.day)
    return DayReport(state.day.isoformat(), state.position, count, state.is_over, version, audit)


def _chosen(config: Config, name: str, tables: Sequence[TableName] | None) -> list[TableName]:
    selected = daily_tables(config, name)
    for table in tables or ():
        if table not in selected:
            remedy = table_hint(table, selected, f"add it to sources.{name}.daily")
            raise ConfigError(f"table {table}", f"`daily` of source {name} does not select it", remedy)
    if not selected:
        reason = f"`daily` of source {name} selects no known table"
        raise ConfigError(f"sources.{name}.daily", reason, "name tables or patterns there")
    return selected if tables is None else list(dict.fromkeys(tables))


def _check_begun(days: Sequence[date]) -> None:
    today = datetime.now(timezone.utc).date()
    if not days:
        raise ConfigError("days", "none is named", "name days as 2026-01-01..2026-01-31")
    if max(days) > today:
        raise ConfigError(f"day {max(days)}", f"it has not begun: today is {today} (UTC)", "name days up to today")
