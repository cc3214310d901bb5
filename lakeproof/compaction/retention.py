"""The retention of one source's lake: cuts, files of tables, landing and snapshots that nothing needs any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.events import Stop
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.upkeep.table_files import Damaged, unneeded_table_files
from lakeproof.lake.delta.files.needed import remove_files
from lakeproof.lake.planning.entries import entered_chunks, pending_snapshots
from lakeproof.lake.records.cuts.documents import unneeded_bases
from lakeproof.lake.records.cuts.groups import group_cuts_before, pinned_cut
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.lease import Lease, newest_epoch
from lakeproof.lake.records.store import cut_numbers, newest_cut, read_cut
from lakeproof.landing.chain import Chain
from lakeproof.landing.incarnation_record import has_head, incarnations
from lakeproof.landing.retention import (
    SpaceReclaimed,
    first_needed,
    keys_before,
    put_chain_start,
    remove_below,
    remove_keys,
    space_of,
    summed,
)
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.snapshot.folder import open_points
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from lakeproof.views.maintain import stop_here


@dataclass(frozen=True, slots=True)
class Kept:
    """The policy of what is kept: the retention, and the cuts from `pinned` on, which the newest cut of a group names."""

    retention: RetentionConfig
    pinned: CycleNumber | None


def kept_of(config: Config, lake: SourceLake) -> Kept:
    """Return the policy of a source."""
    group = config.group_of(lake.source)
    pinned = None if group is None else pinned_cut(lake.store, [group], lake.source)
    return Kept(config.source(lake.source).retention, pinned)


def remove_old(lease: Lease, kept: Kept, now: datetime, stop: Stop, damaged: Damaged) -> dict[str, SpaceReclaimed]:
    """Remove old cuts, then files of tables, manifests of the landing and chunks of snapshots that nothing needs.

    The lease is checked between each listing and its first removal: raises TransientError if another process has taken over.
    """
    lake = lease.lake
    documents = old_documents(lake, kept.retention, now, kept.pinned)
    _go_on(lease, stop)
    total = {"cuts": remove_keys(lake.store, documents)}
    failpoint("maintain.after_cuts")
    total["tables"] = SpaceReclaimed()
    for files in unneeded_table_files(lake, (), damaged):
        _go_on(lease, stop)
        total["tables"] = total["tables"].plus(remove_files(files))
    failpoint("maintain.after_tables")
    total["landing"] = SpaceReclaimed()
    cut = newest_cut(lake)
    in_lake = {} if cut is None else {table.version.oid: table.at_lsn for table in cut.tables.values()}
    for incarnation, number in _landings(lake, cut, kept.retention, now):
        _go_on(lease, stop)
        put_chain_start(Chain.open(lake, incarnation), number, in_lake)
        chain = Chain.open(lake, incarnation)
        total["landing"] = total["landing"].plus(remove_below(chain, chain.first_number))
    failpoint("maintain.after_landing")
    chunks = entered_chunks(lake, cut)
    _go_on(lease, stop)
    total["snapshots"] = remove_keys(lake.store, chunks)
    return total


def _go_on(lease: Lease, stop: Stop) -> None:
    """Raise TransientError if the run should stop, or if another process has the lease by now."""
    stop_here(lease.lake.source, stop)
    lease.check()


def would_remove(lake: SourceLake, kept: Kept, now: datetime, damaged: Damaged) -> dict[str, SpaceReclaimed]:
    """Return what `remove_old` would remove now."""
    documents = old_documents(lake, kept.retention, now, kept.pinned)
    cut = newest_cut(lake)
    tables = unneeded_table_files(lake, documents, damaged)
    chains = [(Chain.open(lake, i), number) for i, number in _landings(lake, cut, kept.retention, now)]
    return {
        "cuts": space_of(lake.store, documents),
        "tables": summed(SpaceReclaimed(1, size) for files in tables for _, size in files),
        "landing": summed(space_of(lake.store, keys_before(chain, number)) for chain, number in chains),
        "snapshots": space_of(lake.store, entered_chunks(lake, cut)),
    }


def old_documents(
    lake: SourceLake, retention: RetentionConfig, now: datetime, pinned: CycleNumber | None = None
) -> list[str]:
    """Return the cuts that may go, oldest first, their intents before them, then bases that only they had, and old leases.

    Groups' cuts that name them go before them. Reads the cuts that go. A cut is kept for its time from when the next one
    followed it: until then it was the newest. Of more than `cuts_max` the oldest go before their time. From `pinned` on all
    are kept.
    """
    numbers = cut_numbers(lake)
    limit = now - timedelta(seconds=retention.cuts_s)
    gone: list[str] = []
    for place, (number, following) in enumerate(pairwise(numbers)):
        is_one_too_many = len(numbers) - place > retention.cuts_max
        if number == pinned or (not is_one_too_many and time_of(read_cut(lake, following).created_at) >= limit):
            break
        gone += [lake.paths.intent(number), lake.paths.cut(number)]
    of_groups: list[str] = []
    if gone:
        of_groups = group_cuts_before(lake.store, lake.source, numbers[len(gone) // 2])
    gone += unneeded_bases(lake, numbers[len(gone) // 2]) if numbers else []
    epoch = newest_epoch(lake)
    leases = [key for key in lake.store.list(lake.paths.leases) if key < lake.paths.lease(epoch)]
    return of_groups + [key for key in gone if lake.store.exists(key)] + leases


def _landings(
    lake: SourceLake, cut: Cut | None, retention: RetentionConfig, now: datetime
) -> Iterable[tuple[Incarnation, int]]:
    """Yield each landing, with the first manifest of it that has to stay; `cut` is the newest."""
    older_than = now - timedelta(seconds=retention.landing_s)
    for incarnation in incarnations(lake):
        if cut is None or incarnation > cut.incarnation or not has_head(lake, incarnation):
            continue
        chain = Chain.open(lake, incarnation)
        if incarnation < cut.incarnation:
            yield incarnation, first_needed(chain, chain.next_number, chain.end, older_than)
            continue
        # A snapshot that has not entered needs what landed since, as one that is being copied, unless it is gone already.
        pending = pending_snapshots(lake, incarnation, cut).values()
        points = [*(p.consistent_point for p in pending), *open_points(lake, incarnation)]
        points = [cut.position, *(point for point in points if point >= chain.kept_from)]
        yield incarnation, first_needed(chain, cut.next_segment, min(points), older_than)
