"""Cycle after cycle, until the lake has what the landing has."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from lakeproof.config.model import CompactionConfig, RetentionConfig, SourceConfig
from lakeproof.events import Event, Report, Stop
from lakeproof.lake.cycle.maintenance import UPKEEP, finish_upkeep
from lakeproof.lake.cycle.schema_history import ShapeChange
from lakeproof.lake.cycle.steps import CycleResult, begin_cycle, finish_cycle
from lakeproof.lake.planning.next_incarnation import plan_crossing
from lakeproof.lake.planning.pending import pending_snapshots, retire
from lakeproof.lake.planning.plan import Plan, plan_cycle
from lakeproof.lake.records.documents import Cut, Held, Intent
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.records.store import newest_cut, newest_number, read_intent
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.progress import Progress
from lakeproof.snapshot.folder import snapshot_fingerprints
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store, local_folder


@dataclass(frozen=True, slots=True)
class TableCut:
    """What a cycle wrote to one table.

    `changes` came from the stream; `inserted` and `deleted` are rows of current (an update is one of each); `rows` is how
    many rows the table has, where that is known; `unfit` why its changes were merged alone, which is slower than deletion
    vectors.
    """

    changes: int
    inserted: int
    deleted: int
    history_version: int
    current_version: int
    rows: int | None = None
    unfit: str | None = None


@dataclass(frozen=True, slots=True)
class CutReport:
    """A finished cycle: `tables` are those that were written; `position` is one of `incarnation`.

    `shapes` says what changed in the shapes of tables, or why such a change holds a table from here on.
    """

    number: CycleNumber
    position: Lsn
    tables: Mapping[TableName, TableCut]
    held: Mapping[TableName, Held]
    incarnation: Incarnation
    shapes: Mapping[TableName, str] = field(default_factory=dict)


def finish_interrupted(spark: SparkSession, lease: Lease, source: SourceConfig, report: Report) -> list[CutReport]:
    """End the cycle of whatever kind whose intent has no cut, if there is one."""
    archive = archive_folder(source.retention)
    return _Run(spark, lease, source.compaction, report, Stop(), archive).finish_interrupted()


def archive_folder(retention: RetentionConfig) -> Path | None:
    """Where history is archived."""
    return None if retention.archive is None else local_folder(retention.archive)


@dataclass(slots=True)
class _Run:
    """Cycles of one source under one lease."""

    spark: SparkSession
    lease: Lease
    limits: CompactionConfig
    report: Report
    stop: Stop
    archive: Path | None = None
    end: Lsn | None = None
    _began: tuple[float, int] | None = None

    def follow(self, chain: Chain, end: Lsn | None) -> list[CutReport]:
        """Cycles until the lake stands at `chain`'s end, or at `end`; begins with the crossing where it stands before it."""
        done = []
        previous = newest_cut(self.lease.store, self.lease.paths)
        if previous is not None and previous.incarnation != chain.incarnation and not self.stop.requested:
            crossed = self._cross(chain, previous)
            if crossed is None:
                return []
            done.append(crossed)
        while not self.stop.requested:
            ended = self.next_cycle(chain, chain.end if end is None else end)
            if ended is None:
                break
            done.append(ended)
        return done

    def finish_interrupted(self) -> list[CutReport]:
        """End the cycle whose intent has no cut, if there is one."""
        previous = newest_cut(self.lease.store, self.lease.paths)
        number = newest_number(self.lease.store, self.lease.paths.intents)
        if previous is not None and number <= previous.number:
            return []
        found = read_intent(self.lease.store, self.lease.paths, number) if number else None
        if found is None:
            return []
        intent, sha256 = found
        self.report(Event("compact.resume", f"finishing cycle {number}", {"cycle": int(number)}))
        if intent.kind in UPKEEP and previous is not None:
            cut, _ = finish_upkeep(
                self.spark, self.lease, intent=intent, sha256=sha256, previous=previous, archive=self.archive
            )
            return [CutReport(cut.number, cut.position, {}, cut.held, cut.incarnation)]
        chain = Chain.open(self.lease.store, self.lease.paths, intent.incarnation)
        return [self._finish(chain, intent, sha256, previous)]

    def next_cycle(self, chain: Chain, limit: Lsn) -> CutReport | None:
        """One more cycle, or None where there is nothing to do."""
        previous = newest_cut(self.lease.store, self.lease.paths)
        number = CycleNumber(1 if previous is None else previous.number + 1)
        pending = pending_snapshots(self.lease.store, self.lease.paths, chain.incarnation, previous)
        plan = plan_cycle(
            chain,
            previous,
            pending,
            number,
            end=limit,
            cycle_rows=self.limits.cycle_rows,
            fingerprints=snapshot_fingerprints(self.lease.store, self.lease.paths, chain.incarnation),
        )
        return None if plan is None else self._run(plan, number, chain, previous)

    def _cross(self, chain: Chain, previous: Cut) -> CutReport | None:
        """The cycle that takes the lake into `chain`'s incarnation; None as long as no snapshot of it can enter."""
        number = CycleNumber(previous.number + 1)
        pending = pending_snapshots(self.lease.store, self.lease.paths, chain.incarnation, previous)
        plan = plan_crossing(chain, previous, pending, number)
        if plan is None:
            message = f"incarnation {chain.incarnation} has begun, and its snapshot is not there yet"
            self.report(Event("compact.waits", message, {"incarnation": int(chain.incarnation)}))
            return None
        return self._run(plan, number, chain, previous)

    def _run(self, plan: Plan, number: CycleNumber, chain: Chain, previous: Cut | None) -> CutReport:
        intent, sha256 = begin_cycle(plan, number, chain, self.lease)
        return self._finish(chain, intent, sha256, previous)

    def _progress(self, chain: Chain, intent: Intent) -> Progress:
        """Of one cycle; which part of the run it is, its WAL says."""
        if self._began is None:
            self._began = time.monotonic(), int(intent.start_lsn)
        since, first = self._began
        end = int(max(chain.end if self.end is None else self.end, intent.end_lsn))
        whole = end - first
        of_all = (0.0, 1.0)
        if whole > 0:
            of_all = ((int(intent.start_lsn) - first) / whole, (int(intent.end_lsn) - first) / whole)
        return Progress(
            self.report,
            "compact.progress",
            f"cycle {intent.number}",
            len(intent.tables),
            of_all=of_all,
            seconds_before=time.monotonic() - since,
            fields={"cycle": int(intent.number)},
        )

    def _finish(self, chain: Chain, intent: Intent, sha256: str, previous: Cut | None) -> CutReport:
        progress = self._progress(chain, intent)
        progress.begin()
        result = finish_cycle(
            self.spark,
            chain,
            self.lease,
            intent=intent,
            sha256=sha256,
            previous=previous,
            threads=self.limits.threads,
            make=self.limits.apply,
            on_table=lambda _table, changes: progress.done(changes),
        )
        if any(wanted.snapshot is not None for wanted in intent.tables.values()):
            retire(self.lease.store, self.lease.paths, result.cut)
        told = _told(result)
        for change in result.shapes:
            self.report(_shape_event(told, change))
        if result.untold is not None:
            message = f"schema_history does not get what changed in cycle {told.number}: {result.untold}"
            self.report(Event("compact.untold", message, {"cycle": int(told.number)}))
        self.report(_event(told))
        return told


@contextmanager
def leased(lease: Lease | None, store: Store, paths: LakePaths, spark: SparkSession) -> Iterator[Lease]:
    """The caller's lease, or the source's for the block."""
    if lease is not None:
        yield lease
        return
    with hold_lease(store, paths, spark) as taken:
        yield taken


def _told(result: CycleResult) -> CutReport:
    tables = {
        t: TableCut(
            changes=w.counts.changes,
            inserted=w.inserted,
            deleted=w.deleted,
            history_version=w.at.history_version,
            current_version=w.at.current_version,
            rows=w.rows,
            unfit=w.unfit,
        )
        for t, w in result.written.items()
        if w.touched
    }
    shapes = {change.table: change.detail for change in result.shapes}
    return CutReport(result.cut.number, result.cut.position, tables, result.cut.held, result.cut.incarnation, shapes)


def _shape_event(told: CutReport, change: ShapeChange) -> Event:
    return Event(
        "compact.schema",
        f"{change.table}: {change.detail} ({change.done})",
        {"cycle": int(told.number), "position": str(told.position), "table": change.table.key, "done": change.done},
    )


def _event(told: CutReport) -> Event:
    changes = sum(t.changes for t in told.tables.values())
    return Event(
        "compact.cut",
        f"cut {told.number} at {told.position}: {changes} changes in {len(told.tables)} tables",
        {
            "cycle": int(told.number),
            "incarnation": int(told.incarnation),
            "position": str(told.position),
            "changes": changes,
            "tables": len(told.tables),
            "held": {str(t): h.reason for t, h in told.held.items()},
            "merged": {str(t): at.unfit for t, at in told.tables.items() if at.unfit is not None},
        },
    )
