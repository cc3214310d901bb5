"""The copies that are due without being asked: of held tables that a snapshot brings back, and of new ones.

Only the lake is read, no server. A table that is held again after each copy must not be copied for ever, so the earlier
snapshots decide when it may be copied: the first copy within a day is made at once, the next one after
`snapshot.held_pause_s`, and then after twice as long each time. The copy with which a table came into the lake does not
count: it was not made since the table was held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakeproof.config.model import Config
from lakeproof.lake.planning.entries import created_tables_to_enter
from lakeproof.lake.planning.forecast import will_be_held
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import WayOut
from lakeproof.landing.chain import Chain
from lakeproof.landing.stuck import read_stuck
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import (
    FinishedCopy,
    finished_tables,
    may_be_applied,
    missing_tables,
    read_end,
    read_request,
    snapshot_folders,
)
from lakeproof.state.absent import AbsentCause, AbsentTable, absence
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

DAY = timedelta(days=1)
# Enough doublings to get from a pause of a second to one of a day.
_DOUBLED_MAX = 17


@dataclass(frozen=True, slots=True)
class Recopy:
    """`due` are to be copied now, each with the reason; `paused` not before that time, since copies have not helped.

    `waiting` need no copy: their rows come from the stream, and they enter once the landing has come far enough.
    """

    due: Mapping[TableName, str] = field(default_factory=dict)
    paused: Mapping[TableName, datetime] = field(default_factory=dict)
    waiting: Mapping[TableName, AbsentTable] = field(default_factory=dict)


def recopy(config: Config, name: str, now: datetime) -> Recopy:
    """Return the tables of the source `name` that are due. Raises what a damaged lake raises.

    Nothing is due before the first snapshot is complete, nor while the landing is in another incarnation than the lake: a
    person begins those copies.
    """
    state = SourceState.of(config, name)
    lake, chain, cut, catalog = state.lake, state.chain, state.cut, state.catalog
    if chain is None or state.has_switched or not may_be_applied(lake, chain.incarnation):
        return Recopy()
    published = None if catalog is None else frozenset(table.table for table in catalog.tables.values())
    fitting = frozenset() if catalog is None else frozenset(t.table for t in catalog.tables.values() if not t.misfits)
    absent = absence(state)
    waiting = {t: why for t, why in absent.tables.items() if why.cause is AbsentCause.WAITS_FOR_LANDING}
    new = absent.never_copied.keys() & absent.waited_for.keys()
    candidates = _held(cut, published, fitting) | dict.fromkeys(new, "it came into the publication")
    for table in (
        created_tables_to_enter(chain, cut, cut.position).keys() & candidates.keys() if cut and candidates else ()
    ):
        # It comes with the next cycle, or when the stream has come so far.
        del candidates[table]
    # No drain can bring the landing to the place of a copy while the stream is stuck.
    if not candidates or read_stuck(chain) is not None:
        return Recopy(waiting=waiting)
    copies = _copies(lake, chain, now - DAY, set(candidates))
    due, paused = {}, {}
    for table, reason in sorted(candidates.items()):
        if table in state.pending and (cut is None or not _was_refused(lake, state.pending[table], cut)):
            continue
        first = not_before(copies.get(table, ()), state.source.snapshot.held_pause_s)
        if first is None or first <= now:
            due[table] = reason
        else:
            paused[table] = first
    return Recopy(due, paused, waiting)


def not_before(copies: tuple[datetime, ...], pause_s: float) -> datetime | None:
    """Return when a table may be copied again that was copied at these times of the last day; None: at once."""
    if not copies:
        return None
    pause: timedelta = min(timedelta(seconds=pause_s) * (1 << min(len(copies) - 1, _DOUBLED_MAX)), DAY)
    return max(copies) + pause


def _was_refused(lake: SourceLake, waiting: FinishedCopy, cut: Cut) -> bool:
    """True if a cycle past the whole copy has left it waiting: the table has changed since, and the copy will never enter.

    A cycle that was planned before the copy's end looks the same, but the pause after that copy is longer.
    """
    ended = read_end(lake, waiting.key)
    return (
        ended is not None
        and cut.position >= waiting.consistent_point
        and time_of(cut.created_at) > time_of(ended.ended_at)
    )


def _held(
    cut: Cut | None, published: frozenset[TableName] | None, fitting: frozenset[TableName]
) -> dict[TableName, str]:
    """Return the held tables whose way out is a snapshot and nothing else, without those that are published no more.

    Nor those whose history would begin again with the snapshot: that can't be undone, so a person asks for it. `fitting` are
    those whose partitions have fitting identities by now. A table that is gone is one of them as soon as one is published
    under its name.
    """
    return {
        table: held.reason
        for table, held in (cut.held.items() if cut is not None else ())
        if (
            held.way_out is WayOut.SNAPSHOT
            or (held.way_out is WayOut.SAME_IDENTITY_THEN_SNAPSHOT and table in fitting)
            or (held.way_out in (WayOut.PUBLISH_THEN_SNAPSHOT, WayOut.SNAPSHOT_OF_ROOT) and table in (published or ()))
        )
        and not held.history_lost
        and (published is None or table in published)
    }


def _copies(
    lake: SourceLake, chain: Chain, since: datetime, tables: set[TableName]
) -> dict[TableName, tuple[datetime, ...]]:
    """Return when a copy of each of `tables` was started since then, finished or not, without the first one ever."""
    started_at_by_table: dict[TableName, tuple[datetime, ...]] = {}
    folders = snapshot_folders(lake, chain.incarnation)
    older = 0
    for number, folder in reversed(list(enumerate(folders))):
        document = read_request(lake, folder)
        started = None if document is None else time_of(document.started_at)
        if document is None or started is None:
            continue
        # Snapshots are made one after the other, each at a later position.
        if started < since:
            older = number + 1
            break
        for table in tables.intersection(document.tables):
            started_at_by_table[table] = (*started_at_by_table.get(table, ()), started)
    # Nearly every table is in the very first snapshot, so few are read here.
    first = set(started_at_by_table)
    for folder in folders[:older]:
        if not first:
            break
        document = read_request(lake, folder)
        first -= set() if document is None else set(document.tables)
    return {table: times[:-1] if table in first else times for table, times in started_at_by_table.items()}


@dataclass(frozen=True, slots=True)
class Copied:
    """A table's newest copy: its point, and its rows, bytes and chunks, None if the copy's documents were removed."""

    consistent_point: Lsn
    rows: int | None = None
    bytes: int | None = None
    chunks: int | None = None


def already_copied(config: Config, name: str, tables: Collection[TableName]) -> dict[TableName, Copied]:
    """Return those of `tables` that wait for no copy, each with its newest one. Raises what a damaged lake raises.

    A table waits for one if it was never copied, is held or will be by the next compaction, is paused or being resumed, or
    if a copy of it was asked for and has not come to its end.
    """
    state = SourceState.of(config, name)
    chain, cut = state.chain, state.cut
    if chain is None:
        return {}
    finished = finished_tables(state.lake, chain.incarnation)
    waiting = {*state.paused, *missing_tables(state.lake, chain.incarnation)}
    in_lake: Mapping[TableName, CutTable] = {}
    if cut is not None and not state.has_switched:
        in_lake = cut.tables
        waiting |= {*cut.held, *will_be_held(chain, cut)}
    return {
        table: _copied(finished.get(table), in_lake.get(table))
        for table in tables
        if table not in waiting and (table in finished or table in in_lake)
    }


def _copied(copy: FinishedCopy | None, cut_table: CutTable | None) -> Copied:
    if copy is not None:
        table = copy.table
        return Copied(copy.consistent_point, table.rows, table.bytes, len(table.chunks))
    return Copied(Lsn.ZERO if cut_table is None else cut_table.snapshot_lsn)
