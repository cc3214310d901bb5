"""A source's tables at the end of each UTC day, by commit time, and how far back that is known.

Positions and times are read by `as_of`; `lakeproof.lake.delta.day_table` writes a day's rows.

    the end of a day     the stream before the first transaction that the source committed on a later day
    the oldest day       the one on which the table was first copied or, if history has been shortened, the one of the first
                         change that is left. What neither cuts nor history can tell is refused, and never guessed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import COMMIT_TIME, LSN
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.read.spark.as_of import LakeAsOf, as_of_from_history
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.store import cut_numbers, newest_cut, read_cut
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import part_key, read_snapshot, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

_DAY = timedelta(days=1)
_KEPT = "`retention.cuts_s` and `retention.history_s` say what is kept"


@dataclass(frozen=True, slots=True)
class DayState:
    """The tables at the end of a day, at `position`. `is_over`: the lake has a commit of a later day."""

    day: date
    position: Lsn
    is_over: bool
    tables: Mapping[TableName, DataFrame]


def states_at_end_of(
    spark: SparkSession, lake: SourceLake, days: Iterable[date], tables: Iterable[TableName]
) -> list[DayState]:
    """Return the tables at the end of each day, each with the columns that it had then; reads no rows yet.

    Raises LakeError, naming the oldest day, if what is kept does not reach back to one of the days for one of the tables.
    """
    newest, chosen = newest_cut(lake), list(tables)
    if newest is None:
        raise LakeError(f"{lake.source}: cuts", "the lake has no cut yet", f"run `lakeproof compact {lake.source}`")
    oldest = {table: _oldest(spark, lake, newest, table) for table in chosen}
    states = []
    for day in sorted(set(days)):
        end = datetime.combine(day + _DAY, time(), timezone.utc)
        for table, first in oldest.items():
            if day < first.date():
                raise _before(lake, table, day, first.date())
        state = _state(spark, lake, end, chosen)
        frames = {table: _table(lake, state, table, day) for table in chosen}
        is_over = newest.commit_time is not None and time_of(newest.commit_time) >= end
        states.append(DayState(day, state.position, is_over, frames))
    return states


def _state(spark: SparkSession, lake: SourceLake, end: datetime, tables: Sequence[TableName]) -> LakeAsOf:
    try:
        return as_of_from_history(spark, lake, end - timedelta(microseconds=1))
    except LakeError as error:
        first = read_cut(lake, cut_numbers(lake)[0])
        raise _before(lake, tables[0], (end - _DAY).date(), _time_of(first).date(), f": {error.reason}") from error


def _time_of(cut: Cut) -> datetime:
    """Return the time of the newest commit in a cut, or that at which it was made if it has a copy alone."""
    return time_of(cut.commit_time or cut.created_at)


def _table(lake: SourceLake, state: LakeAsOf, table: TableName, day: date) -> DataFrame:
    try:
        return state.table(table)
    except LakeError as error:
        first = _first_cut_with(lake, table)
        if first is None or _time_of(first).date() <= day:
            raise
        raise _before(lake, table, day, _time_of(first).date(), f": {error.reason}") from error


def _before(lake: SourceLake, table: TableName, day: date, oldest: date, why: str = "") -> LakeError:
    return LakeError(
        f"{lake.source}: {table} at the end of {day}",
        f"that is before what is kept of it{why}; the oldest day is {oldest}",
        f"ask for days from {oldest} on; {_KEPT}",
    )


def _oldest(spark: SparkSession, lake: SourceLake, newest: Cut, table: TableName) -> datetime:
    """Return the time from which on the table's states are known."""
    cut_table = newest.table(table, lake.source)
    low = cut_table.history_low
    changes = _first_change(spark, lake, table, cut_table, Lsn.ZERO if low is None else low.at_lsn)
    if low is not None:
        first = _first_cut_with(lake, table)
        times = [changes, None if first is None else _time_of(first)]
    else:
        times = [changes, _first_copied(lake, table)]
    return min((t for t in times if t is not None), default=time_of(newest.created_at))


def _first_change(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, after: Lsn
) -> datetime | None:
    history = read_layer(spark, lake, table, cut_table, "history").where(F.col(LSN) > F.lit(int(after)))
    micros = history.agg(F.unix_micros(F.min(F.col(COMMIT_TIME)))).collect()[0][0]
    return None if micros is None else datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=int(micros))


def _first_copied(lake: SourceLake, table: TableName) -> datetime | None:
    """Return the time at which the first copy of a table began, None if it never was copied."""
    for incarnation in incarnations(lake):
        for folder in snapshot_folders(lake, incarnation):
            snapshot = read_snapshot(lake, folder) if lake.store.exists(part_key(folder, 0)) else None
            if snapshot is not None and table in snapshot.tables:
                return time_of(snapshot.started_at)
    return None


def _first_cut_with(lake: SourceLake, table: TableName) -> Cut | None:
    cuts = (read_cut(lake, number) for number in cut_numbers(lake))
    return next((cut for cut in cuts if table in cut.tables), None)
