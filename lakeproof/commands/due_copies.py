"""The copies that are due without being asked: of held tables that a snapshot brings back, and of new ones.

Copying them does not belong here but in `bootstrap`; the callers decide when to ask, and whether at all.

Only the lake is read, no server. A table that is held again after each copy must not be copied for ever, so the earlier
snapshots decide when it may be copied: the first copy within a day is made at once, the next one after
`snapshot.held_pause_s`, and then after twice as long each time. The copy with which a table came into the lake does not
count: it was not made since the table was held.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakeproof.config.model import Config
from lakeproof.config.table_names import write_table
from lakeproof.lake.planning.created_tables import created_tables
from lakeproof.lake.planning.pending import pending_snapshots
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.snapshot.folder import (
    FinishedCopy,
    finished_tables,
    may_be_applied,
    read_end,
    read_request,
    snapshot_folders,
)
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

DAY = timedelta(days=1)
# Enough doublings to get from a pause of a second to one of a day.
_DOUBLED_MAX = 17


@dataclass(frozen=True, slots=True)
class Recopy:
    """`due` are to be copied now, each with the reason; `paused` not before that time, since copies have not helped."""

    due: Mapping[TableName, str] = field(default_factory=dict)
    paused: Mapping[TableName, datetime] = field(default_factory=dict)


def recopy(config: Config, name: str, now: datetime) -> Recopy:
    """Return the tables of the source `name` that are due. Raises what a damaged lake raises.

    Nothing is due before the first snapshot has entered, nor while the landing is in another incarnation than the lake: a
    person begins those copies.
    """
    source = config.source(name)
    lake = SourceLake.open(config.location, name)
    chain, cut = Chain.open_newest(lake), newest_cut(lake)
    if chain is None or cut is None or cut.incarnation != chain.incarnation:
        return Recopy()
    if not may_be_applied(lake, chain.incarnation):
        return Recopy()
    recorded = newest_catalog(chain)
    published = None if recorded is None else frozenset(table.table for table in recorded.tables.values())
    fitting = frozenset() if recorded is None else frozenset(t.table for t in recorded.tables.values() if not t.misfits)
    candidates = _held(cut, published, fitting) | _new(lake, chain, cut, published)
    for table in created_tables(chain, cut, cut.position).keys() & candidates.keys() if candidates else ():
        # It comes with the next cycle, or when the stream has come so far.
        del candidates[table]
    if not candidates:
        return Recopy()
    waiting = pending_snapshots(lake, chain.incarnation, cut)
    copies = _copies(lake, chain, now - DAY, set(candidates))
    due, paused = {}, {}
    for table, reason in sorted(candidates.items()):
        if table in waiting and not _was_refused(lake, waiting[table], cut):
            continue
        first = not_before(copies.get(table, ()), source.snapshot.held_pause_s)
        if first is None or first <= now:
            due[table] = reason
        else:
            paused[table] = first
    return Recopy(due, paused)


def never_copied(config: Config, name: str) -> dict[TableName, str]:
    """Return the published tables that no copy has brought into the lake and that enter by no other way, with what to do.

    If the configuration names its tables, only those. Raises what a damaged lake raises.
    """
    source = config.source(name)
    lake = SourceLake.open(config.location, name)
    chain, cut = Chain.open_newest(lake), newest_cut(lake)
    recorded = None if chain is None else newest_catalog(chain)
    if chain is None or cut is None or recorded is None or cut.incarnation != chain.incarnation:
        return {}
    published = frozenset(table.table for table in recorded.tables.values())
    chosen = sorted(
        t for t in _new(lake, chain, cut, published) if not source.selection or source.selection.selected(t)
    )
    return {table: _never(name, table) for table in chosen}


def _never(source: str, table: TableName) -> str:
    remedy = (
        f"run `lakeproof bootstrap {source} --tables {shlex.quote(write_table(table))}`, which says what is in its way"
    )
    return f"it is published and not in the lake, since no copy of it was made; {remedy}"


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


def _held(cut: Cut, published: frozenset[TableName] | None, fitting: frozenset[TableName]) -> dict[TableName, str]:
    """Return the held tables whose way out is a snapshot and nothing else, without those that are published no more.

    Nor those whose history would begin again with the snapshot: that can't be undone, so a person asks for it. `fitting` are
    those whose partitions have fitting identities by now.
    """
    return {
        table: held.reason
        for table, held in cut.held.items()
        if (
            held.way_out is WayOut.SNAPSHOT or (held.way_out is WayOut.SAME_IDENTITY_THEN_SNAPSHOT and table in fitting)
        )
        and not held.history_lost
        and (published is None or table in published)
    }


def _new(lake: SourceLake, chain: Chain, cut: Cut, published: frozenset[TableName] | None) -> dict[TableName, str]:
    """Return the tables that are published by the drain's record, were never copied, and do not enter without a copy."""
    unknown = (published or frozenset()) - set(cut.tables) - set(cut.held)
    unknown -= created_tables(chain, cut, cut.position).keys() if unknown else set()
    # The snapshots' documents stay for good, so they are read only if it matters.
    copied = set(finished_tables(lake, chain.incarnation)) if unknown else set()
    return dict.fromkeys(unknown - copied, "it came into the publication")


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
