"""Schedules' work that is due: days that `daily` asks for and the lake does not have, proofs whose turn it is.

The days of a table begin with the first that was made, or, if none was, with that of its copy, and end with yesterday (UTC),
from six hours after its end on: a schedule has until then. A day that was made before it was over counts as missing once the
lake has a commit of a later day, as it may lack some of its changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from lakeproof.config.model import Config
from lakeproof.lake.records.days import read_days
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.proof.record import due_tables, histories_due, views_due
from lakeproof.snapshot.folder import read_request
from lakeproof.state.compared import widened_tables
from lakeproof.state.known_tables import with_known_tables
from lakeproof.state.source_state import SourceState
from lakeproof.storage.times import time_of

GRACE = timedelta(hours=6)
_DAY = timedelta(days=1)
# What a schedule makes by itself; days further back may be before what is kept, and are for a person to ask for.
_RECENT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class DueDays:
    """Days in a row, from `first` to `last`, that all of these tables lack."""

    first: date
    last: date
    tables: tuple[TableName, ...]


def due_days(state: SourceState, listed: Collection[TableName], now: datetime) -> DueDays | None:
    """Return what to make next of the days that have ended within the last week, for tables that are `listed`.

    A day is due as soon as it has ended, and again when the lake has a commit of a later day. Raises as a damaged lake.
    """
    missing = {t: set(days) for t, days in missing_days(state, now + GRACE).items() if t in listed}
    earliest = (now.date() - _RECENT).isoformat()
    first = min((day for days in missing.values() for day in days if day >= earliest), default=None)
    if first is None:
        return None
    tables = tuple(table for table, days in missing.items() if first in days)
    last = date.fromisoformat(first)
    while all((last + _DAY).isoformat() in missing[table] for table in tables):
        last += _DAY
    return DueDays(date.fromisoformat(first), last, tables)


def missing_days(state: SourceState, now: datetime) -> dict[TableName, tuple[str, ...]]:
    """Return the missing days of each table that is kept daily, without tables that lack none. Raises as a damaged lake."""
    cut = state.cut
    if cut is None:
        return {}
    last = (now - GRACE).date() - _DAY
    missing = {t: tuple(_missing(state, cut, t, last)) for t in state.source.daily_among(sorted(cut.tables))}
    return {table: days for table, days in missing.items() if days and table not in cut.held}


def _missing(state: SourceState, cut: Cut, table: TableName, last: date) -> Iterator[str]:
    noted = read_days(state.lake, table)
    day = min(map(date.fromisoformat, noted), default=None) or _copied_on(state, cut, table)
    while day is not None and day <= last:
        entry = noted.get(day.isoformat())
        if entry is None or (not entry.is_over and (cut.commit_time or "") >= (day + _DAY).isoformat()):
            yield day.isoformat()
        day += _DAY


def _copied_on(state: SourceState, cut: Cut, table: TableName) -> date | None:
    """Return the day of the copy with which a table came into the lake, of one without, that of the landing's start."""
    entry = cut.tables[table]
    request = read_request(state.lake, state.lake.paths.snapshot(entry.snapshot_incarnation, entry.snapshot_lsn))
    if request is not None:
        return time_of(request.started_at).date()
    return None if state.chain is None else time_of(state.chain.head.created_at).date()


@dataclass(frozen=True, slots=True)
class DueProofs:
    """The tables, histories and views whose turn it is in a scheduled proof."""

    tables: list[TableName]
    histories: list[TableName]
    views: list[str]


def due_proofs(config: Config, name: str, views: Sequence[str]) -> DueProofs:
    """Return the known tables, histories and `views` whose turn it is."""
    source, state = with_known_tables(config, name), SourceState.of(config, name)
    last, in_lake = state.proofs, {} if state.cut is None else state.cut.tables
    rows = {table: in_lake[table].history_sum.rows for table in source.tables if table in in_lake}
    return DueProofs(
        due_tables(source.tables, last.tables, source.proof_rows, widened_tables(state)),
        histories_due(rows, last.tables, source.proof_rows),
        views_due(views, last.views),
    )
