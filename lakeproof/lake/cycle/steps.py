"""The five steps of a cycle: crash-safe across many Delta tables, which have no common transaction.

`begin_cycle` and `end_cycle` run them for every kind of cycle of a source's tables, but for step 2, which `apply_cycle`
(changes, snapshots, schema changes) and `maintenance` run in between. Views are no step: they are refreshed later, from
cuts, by a cycle of their own that shares `publish_cut` (`lakeproof.views.cycle` says what it does not have, and why).

    1 intent   put if absent: range, segments, tables, snapshots, held tables. An intent without a cut is finished first
    2 tables   history, then current, one Delta commit each that carries the cycle's number; several tables at a time
    3 durable  what the commits wrote is synced, with its folders
    4 cut      put if absent: the position, and every table's versions
    5 consumed the segments up to the cut's `next_segment` are no longer needed

Invariants: consistent-cut (a reader sees what a cut names, so a half-finished cycle is invisible), idempotent-apply (a
killed cycle is run again from its intent: the same inputs, on tables whose logs were first cleared of everything that no
cut names), one-writer (the lease is checked before each commit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.schemas.history import publish_schemas
from lakeproof.lake.delta.files.needed import sync_commits
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.planning.plan import CyclePlan
from lakeproof.lake.records.documents import Cut, CutTable, Intent, SegmentOrdinal, next_number
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import write_cut, write_intent
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import last_commit, slices
from lakeproof.names import LAYERS, Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store
from lakeproof.storage.times import now_text, time_text, time_us
from lakeproof.values.commit_times import EARLIEST_US

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenCycle:
    """A cycle whose intent is durable, by whoever wrote it; `previous` is the cut before it."""

    intent: Intent
    sha256: str
    previous: Cut | None


@dataclass(frozen=True, slots=True)
class WrittenTables:
    """The result of step 2: what the cut says of all tables, and the Delta tables that step 3 syncs.

    `versions_before` maps the place of each Delta table that was written to its last version that is durable already.
    `own_rows`: the most ordinals that the cycle gave to own rows of one table.
    """

    tables: Mapping[TableName, CutTable]
    held: Mapping[TableName, Held]
    versions_before: Mapping[str, int]
    commit_time: str | None
    next_segment: int
    own_rows: int = 0


def begin_cycle(lease: Lease, plan: CyclePlan, incarnation: Incarnation, previous: Cut | None) -> OpenCycle:
    """Put the intent of a plan in an incarnation, durably: step 1."""
    intent = intent_of(lease, plan, incarnation, previous)
    lease.check()
    sha256 = write_intent(lease.lake, intent)
    failpoint("cycle.after_intent")
    return OpenCycle(intent, sha256, previous)


def intent_of(lease: Lease, plan: CyclePlan, incarnation: Incarnation, previous: Cut | None) -> Intent:
    """Return the intent of a plan in an incarnation."""
    return Intent(
        number=next_number(previous),
        kind=plan.kind,
        incarnation=incarnation,
        start_lsn=plan.start,
        end_lsn=plan.end,
        segments=tuple(SegmentOrdinal(*pair) for pair in plan.ordinals.segments.items()),
        own_ordinal=plan.ordinals.own,
        ordinals=plan.ordinals.cut,
        tables=plan.tables,
        held=plan.held,
        epoch=lease.epoch,
        writer=lease.writer,
        created_at=now_text(),
    )


def versions_before(lake: SourceLake, previous: Cut | None, tables: Iterable[TableName]) -> dict[str, int]:
    """Return the last durable version of both Delta tables of each of `tables`, by place."""
    before = {} if previous is None else previous.tables
    return {
        lake.url(lake.paths.layer(table, layer)): before[table].version_of(layer) if table in before else NO_VERSION
        for table in tables
        for layer in LAYERS
    }


def end_cycle(lease: Lease, cycle: OpenCycle, written: WrittenTables) -> Cut:
    """Run steps 3 to 5 and return the cut: `written` is the result of step 2."""
    intent, lake = cycle.intent, lease.lake
    ordinals = intent.ordinals.with_own_rows(intent.own_ordinal, written.own_rows)
    tables = written.tables.items()

    def put(created_at: str) -> Cut:
        lease.check()
        cut = Cut(
            number=intent.number,
            kind=intent.kind,
            incarnation=intent.incarnation,
            position=intent.end_lsn,
            commit_time=written.commit_time,
            tables={t: c if _stands_still(cycle, t, c) else replace(c, ordinals=ordinals) for t, c in tables},
            next_segment=written.next_segment,
            intent_sha256=cycle.sha256,
            created_at=created_at,
            held=written.held,
            ordinals=ordinals,
        )
        publish_schemas(lake, intent, cycle.previous, cut)
        write_cut(lake, cut)
        return cut

    return publish_cut(written.versions_before, lake.store, put)


def commit_time_at_end(chain: Chain, intent: Intent, previous: Cut | None) -> str | None:
    """Return the greatest commit time so far, as they count: commit times are not in commit order.

    If a segment goes on after the range, its files are read for it; if they can't be read, the whole segment's time counts.
    """
    times = [] if previous is None or previous.commit_time is None else [time_us(previous.commit_time)]
    for manifest in chain.between(intent.start_lsn, intent.end_lsn):
        if manifest.last_commit_us is not None:
            last: int | None = manifest.last_commit_us
            if manifest.end_lsn > intent.end_lsn:
                files = slices(chain, intent.start_lsn, intent.end_lsn)
                partly = [s for s in files if s.number == manifest.number]
                with suppress(OSError, LakeError, pa.ArrowException):
                    last = last_commit(partly, intent.start_lsn, intent.end_lsn)
            # A time that is later than all that count in the segment counts as the latest of them.
            times += [] if last is None or last < EARLIEST_US else [min(last, manifest.last_commit_us)]
    return time_text(max(times)) if times else None


def _stands_still(cycle: OpenCycle, table: TableName, cut_table: CutTable) -> bool:
    """True if the cycle neither advanced the table nor wrote rows to it; then its ordinals stay."""
    intent = cycle.intent
    if (cut_table.at_lsn, cut_table.incarnation) == (intent.end_lsn, intent.incarnation):
        return False
    before = None if cycle.previous is None else cycle.previous.tables.get(table)
    return before is not None and before.history_version == cut_table.history_version


def publish_cut(versions_before: Mapping[str, int], store: Store, put: Callable[[str], T]) -> T:
    """Run steps 3 and 4 of any cycle: sync what its commits wrote in `store`, then `put` the cut that names them.

    `versions_before` is that of `WrittenTables`; `put` gets the time for the document, which is returned.
    """
    failpoint("cycle.after_tables")
    sync_commits(versions_before, store)
    failpoint("cycle.after_sync")
    document = put(now_text())
    failpoint("cycle.after_cut")
    return document
