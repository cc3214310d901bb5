"""Which tables are to be copied without being asked: held ones that a snapshot brings back, and new ones of the publication.

Copying them belongs to `wal2delta.pipeline.bootstrap`; when it is asked, and whether at all, to the callers.

Only the lake is looked at, no server. A table that is held again after each copy must not be copied for ever, so what is
there of earlier snapshots says when it may be: the first copy within a day is made at once, the next one after
`snapshot.held_pause_s`, and then after twice as long each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from wal2delta.config.model import Config
from wal2delta.lake.documents import RESNAPSHOT, Cut, Held
from wal2delta.lake.records import newest_cut
from wal2delta.lake.snapshots import (
    Pending,
    finished_tables,
    may_enter,
    pending_snapshots,
    read_ended,
    read_wanted,
    snapshot_folders,
)
from wal2delta.landing.catalog_links import newest_catalog
from wal2delta.landing.chain import Chain
from wal2delta.landing.fields import time_of
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import Store, open_store
from wal2delta.lsn import Lsn
from wal2delta.names import TableName

DAY = timedelta(days=1)
# From a pause of a second to one of a day.
_DOUBLED_MAX = 17


@dataclass(frozen=True, slots=True)
class Recopy:
    """`due` are to be copied now, each with the reason; `paused` not before then, since copies have not helped so far."""

    due: Mapping[TableName, str] = field(default_factory=dict)
    paused: Mapping[TableName, datetime] = field(default_factory=dict)


def recopy(config: Config, name: str, now: datetime) -> Recopy:
    """Look at the source `name`. Raises what a damaged lake raises.

    Nothing is due before the first snapshot has entered, nor while the landing is in another incarnation than the lake:
    those copies a person begins.
    """
    source = config.source(name)
    store, paths = open_store(config.lake), LakePaths(config.lake, name)
    chain, cut = Chain.open_newest(store, paths), newest_cut(store, paths)
    if chain is None or cut is None or cut.incarnation != chain.incarnation:
        return Recopy()
    if not may_enter(store, paths, chain.incarnation):
        return Recopy()
    recorded = newest_catalog(chain)
    published = None if recorded is None else frozenset(table.table for table in recorded.tables.values())
    wanted = _held(cut, name, published) | _new(store, paths, chain, cut, published)
    if not wanted:
        return Recopy()
    waiting = pending_snapshots(store, paths, chain.incarnation, cut)
    copies = _copies(store, paths, chain, now - DAY)
    due, paused = {}, {}
    for table, reason in sorted(wanted.items()):
        if table in waiting and not _was_refused(store, paths, waiting[table], cut):
            continue
        first = not_before(copies.get(table, ()), source.snapshot.held_pause_s)
        if first is None or first <= now:
            due[table] = reason
        else:
            paused[table] = first
    return Recopy(due, paused)


def not_before(copies: tuple[datetime, ...], pause_s: float) -> datetime | None:
    """When a table may be copied again that was copied at these times of the last day; None: at once."""
    if not copies:
        return None
    pause: timedelta = min(timedelta(seconds=pause_s) * (1 << min(len(copies) - 1, _DOUBLED_MAX)), DAY)
    return max(copies) + pause


def _was_refused(store: Store, paths: LakePaths, waiting: Pending, cut: Cut) -> bool:
    """Whether a cycle past the whole copy has left it waiting: the table has changed since, and never again will it enter.

    A cycle that was planned before the copy's end says so too, which the pause after that copy outlasts.
    """
    ended = read_ended(store, paths, waiting.key)
    return (
        ended is not None
        and cut.position >= waiting.consistent_point
        and time_of(cut.created_at) > time_of(ended.ended_at)
    )


def _held(cut: Cut, source: str, published: frozenset[TableName] | None) -> dict[TableName, str]:
    """The held tables whose remedy is a snapshot and nothing else, but those that are published no more."""
    named = {table: Held(Lsn.ZERO, "", RESNAPSHOT).named(source, table).remedy for table in cut.held}
    return {
        table: held.reason
        for table, held in cut.held.items()
        if held.remedy == named[table] and (published is None or table in published)
    }


def _new(
    store: Store, paths: LakePaths, chain: Chain, cut: Cut, published: frozenset[TableName] | None
) -> dict[TableName, str]:
    """The tables that the drain knows to be published, and that nobody has copied."""
    unknown = (published or frozenset()) - set(cut.tables) - set(cut.held)
    # The snapshots' documents stay for good, so they are read only where it matters.
    copied = set(finished_tables(store, paths, chain.incarnation)) if unknown else set()
    return dict.fromkeys(unknown - copied, "it came into the publication")


def _copies(store: Store, paths: LakePaths, chain: Chain, since: datetime) -> dict[TableName, tuple[datetime, ...]]:
    """When each table was to be copied since then, whatever came of it."""
    found: dict[TableName, tuple[datetime, ...]] = {}
    for folder in reversed(snapshot_folders(store, paths, chain.incarnation)):
        wanted = read_wanted(store, paths, folder)
        begun = None if wanted is None else time_of(wanted.started_at)
        if wanted is None or begun is None:
            continue
        # One is made after the other, each at a later position.
        if begun < since:
            break
        for table in wanted.tables:
            found[table] = (*found.get(table, ()), begun)
    return found
