"""The lake at a position between cuts: the newest cut before it, and history's rows from there on; and at the end of days.

Positions of cuts belong to `open`; adding up rows of history to `fold.history`; where a day's rows go to
`lakeproof.lake.delta.day_table`.

    cut K ───────── P ───── cut K+1       rows at P = rows at K + net change of history's rows of cycle K+1 up to P

Exact, because history is: it has every change up to P with its position, and the corrections of a cycle at the cycle's own
end. A position before the `exact_from` of a copy that was applied is refused, since history lacks the changes before it. A
time T means the prefix of the stream before the first transaction that the source committed after T. Commit times are not
in commit order, and one beyond the year 9999 is after every T. This is the only prefix that contains no commit later than T
and omits nothing before the first such commit. (From cut to cut, a commit counts no later than it landed:
`lakeproof.values.commit_times`.) A table that is held at K or K+1 is read as cut K has it.

Days are UTC days by commit time:

    the end of a day     the stream before the first transaction that the source committed on a later day
    the oldest day       the one on which the table was first copied or, if history has been shortened, the one of the first
                         change that is left. What neither cuts nor history can tell is refused, and never guessed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, InvariantError, LakeError
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import behind, replayed
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.records.cuts.choice import check_kept, one_source, parsed_at, table_name
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.store import cut_after, cut_at, cut_at_time, cut_numbers, newest_cut, read_cut
from lakeproof.lake.rows.columns import pick
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT, RESET
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import find_snapshot, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

# Operations that show that the rows before them were not what the source had.
_HEALS = (RESET, CORRECT_DELETE, CORRECT_INSERT)


@dataclass(frozen=True, slots=True)
class LakeAsOf:
    """A source's tables at `position`, exactly.

    `cut` is the newest cut at or before it (None: before the first one), `following` the cut whose cycle has the changes in
    between (None if `position` is the cut's own).
    """

    spark: SparkSession
    lake: SourceLake
    position: Lsn
    cut: Cut | None
    following: Cut | None
    held: Mapping[TableName, Held]

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables that exist at `position`, sorted."""
        tables = set() if self.cut is None else set(self.cut.tables)
        if self.following is not None:
            # Those that come with the following cut were copied at a point of its range.
            tables |= {t for t, table in self.following.tables.items() if self._was_there(table)}
        return tuple(sorted(tables))

    def table(self, table: TableName | str, *, hidden: bool = False) -> DataFrame:
        """A table as it was, without the hidden `_lp_…` columns unless asked for.

        Raises LakeError if the lake did not have it then. Costs reading the table's history of one cycle.
        """
        name = table_name(table)
        if name not in self.tables:
            raise self._absent(name)
        for cut in (self.cut, self.following):
            if cut is not None:
                check_kept(self.lake, cut)
        before = None if self.cut is None else self.cut.tables.get(name)
        after = before if self.following is None or name in self.held else self.following.tables[name]
        if before is None and name in self.held and self.following is not None:
            # The oldest cut that is kept holds it: history has what it was up to where it stands, and that is all.
            after = self.following.tables[name]
            before = after if after.at_lsn <= self.position else None
        rows, cut_table = self._rows(name, before, after)
        return rows if hidden else pick(rows, column_names(in_lake(cut_table.version)))

    def _absent(self, name: TableName) -> LakeError:
        return LakeError(
            f"{self.lake.source}: {name}", f"it is not in the lake at {self.position}", "ask for a later position"
        )

    def _not_exact(self, name: TableName, exact_from: Lsn) -> LakeError:
        reason = f"a copy entered, and not every change before {exact_from} is in history"
        return LakeError(f"{self.lake.source}: {name}", reason, "ask for that position, for a later one, or for a cut")

    def _check_from_beginning(self, name: TableName, whole: DataFrame, history: DataFrame, after: CutTable) -> None:
        """Raise LakeError unless history alone, up to the position, makes the table: the older cuts are gone."""
        schemas = self.lake.store.list(self.lake.paths.schema_versions(name))
        if (
            self.following is not None
            and sum(s <= self.lake.paths.schema_version(name, self.following.number) for s in schemas) > 1
        ):
            raise LakeError(
                f"{self.lake.source}: {name}",
                f"its schema has changed, and no cut before {self.position} is kept",
                f"ask for {self.following.position} or later (`retention.cuts_s` says how long cuts are kept)",
            )
        if after.snapshot_lsn > self.position and history.isEmpty():
            raise self._absent(name)
        if after.exact_from is not None and self.position < after.exact_from:
            raise self._not_exact(name, after.exact_from)
        healed = whole.where(F.col(OP).isin(*_HEALS) & (F.col(LSN) > F.lit(int(self.position))))
        if not healed.isEmpty():
            raise LakeError(
                f"{self.lake.source}: {name}",
                f"a copy has corrected it since {self.position}, and no cut before that is kept",
                "ask for a later position (`retention.cuts_s` says how long cuts are kept)",
            )

    def _was_there(self, table: CutTable) -> bool:
        """True if a table of the following cut had been copied; if older cuts are gone, if history reaches back to it."""
        if self.cut is None and self.following is not None and self.following.number > 1:
            return table.history_low is None or table.history_low.at_lsn <= self.position
        return table.snapshot_lsn <= self.position

    def _rows(self, name: TableName, before: CutTable | None, after: CutTable | None) -> tuple[DataFrame, CutTable]:
        base = None if before is None else read_layer(self.spark, self.lake, name, before)
        if base is not None and before is not None:
            exact_from = None if after is None else after.exact_from
            if exact_from is not None and before.at_lsn < exact_from and self.position < exact_from:
                raise self._not_exact(name, exact_from)
            if after is None or after.history_version == before.history_version:
                return base, before
            if after.version.id != before.version.id:
                raise LakeError(
                    f"{self.lake.source}: {name}",
                    f"its schema changed between {before.at_lsn} and {after.at_lsn}",
                    "ask for one of the two positions",
                )
        if after is None or self.following is None:
            raise InvariantError(f"{self.lake.source}: {name}", f"no cut has it at {self.position}", "report this")
        # Before the first cut that is kept there is no base: then history makes the table from its beginning on.
        whole = read_layer(self.spark, self.lake, name, after, "history")
        history = whole.where(behind(before) & (F.col(LSN) <= F.lit(int(self.position))))
        if self.cut is None and self.following.number > 1:
            self._check_from_beginning(name, whole, history, after)
        return replayed(self.spark, in_lake(after.version), history, completing(after, whole), base), after


def as_of(
    spark: SparkSession, lake: Config | LakeLocation | str | Path, at: Lsn | str | datetime, source: str | None = None
) -> LakeAsOf:
    """A source's tables exactly at a position (an `Lsn` or its text) or a time of the source's clock.

    `source` may be left out if the lake has only one. Raises ConfigError for a bad `at`, LakeError if the lake does not
    reach back or forward as far. A time costs reading the history of one cycle.
    """
    source_lake = one_source("as_of", lake, source)
    place = parsed_at(at)
    if isinstance(place, Lsn):
        return _at_position(spark, source_lake, place)
    if isinstance(place, datetime):
        return _at_time(spark, source_lake, place)
    raise ConfigError("at", "as_of takes a position or a time", "for `newest` and cuts' numbers use open")


def as_of_from_history(spark: SparkSession, lake: SourceLake, time: datetime) -> LakeAsOf:
    """A source's tables at a time; before the first cut that is kept, history makes them from their beginning on.

    The caller knows that the lake's tables reach back as far: a table's first copy has no commit time. Raises LakeError if
    history can't tell. A time before the first cut costs reading the positions of all histories.
    """
    numbers = cut_numbers(lake)
    first = read_cut(lake, numbers[0]) if numbers else None
    if first is None or first.incarnation > 1 or first.commit_time is None or time >= time_of(first.commit_time):
        return _at_time(spark, lake, time)
    return _before_later(spark, lake, None, first, time)


def _at_position(spark: SparkSession, lake: SourceLake, position: Lsn) -> LakeAsOf:
    newest = newest_cut(lake)
    if newest is None or position > newest.position:
        reached = "no position" if newest is None else str(newest.position)
        raise LakeError(f"{lake.source}: {position}", f"the lake has come to {reached}", "compact first")
    first = read_cut(lake, cut_numbers(lake)[0])
    if first.incarnation == newest.incarnation == 1 and position < first.position:
        return _between(spark, lake, position, None, first)
    cut = cut_at(lake, position)
    return _between(spark, lake, position, cut, cut_after(lake, cut))


def _at_time(spark: SparkSession, lake: SourceLake, time: datetime) -> LakeAsOf:
    cut = cut_at_time(lake, time)
    following = cut_after(lake, cut)
    if following is None or following.incarnation != cut.incarnation:
        # Nothing is known about the range between two incarnations.
        return _between(spark, lake, cut.position, cut, None)
    return _before_later(spark, lake, cut, following, time)


def _before_later(spark: SparkSession, lake: SourceLake, cut: Cut | None, following: Cut, time: datetime) -> LakeAsOf:
    """The tables before the first transaction between two cuts (None: from the beginning) that committed after `time`."""
    positions: list[int] = []
    for name, after in following.tables.items():
        before = None if cut is None else cut.tables.get(name)
        if before is None or before.history_version != after.history_version:
            history = read_layer(spark, lake, name, after, "history").where(behind(before))
            is_later = (F.col(COMMIT_TIME) > F.lit(time)) | (F.col(COMMIT_NUMBER) > 0)
            later = history.where(is_later).agg(F.min(LSN)).collect()[0][0]
            positions += [] if later is None else [int(later)]
    if not positions:
        # The transaction of a later time is in no table of the lake.
        return _between(spark, lake, following.position, following, None)
    return _between(spark, lake, Lsn(min(positions) - 1), cut, following)


def _between(spark: SparkSession, lake: SourceLake, position: Lsn, cut: Cut | None, following: Cut | None) -> LakeAsOf:
    if cut is not None and cut.position == position:
        following = None
    held = {} if cut is None else dict(cut.held)
    held |= {} if following is None else following.held
    return LakeAsOf(spark, lake, position, cut, following, held)


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
            snapshot = find_snapshot(lake, folder)
            if snapshot is not None and table in snapshot.tables:
                return time_of(snapshot.started_at)
    return None


def _first_cut_with(lake: SourceLake, table: TableName) -> Cut | None:
    cuts = (read_cut(lake, number) for number in cut_numbers(lake))
    return next((cut for cut in cuts if table in cut.tables), None)
