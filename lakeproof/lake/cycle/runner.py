"""Runs cycle after cycle until the lake has everything that has landed; an interrupted cycle is finished first.

One cycle does not belong here: `lakeproof.lake.planning` decides what it does, `apply_cycle` and `maintenance` run it.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, replace

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import SourceConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.events import Event, Report, Stop, counted
from lakeproof.lake.cycle.apply_cycle import CycleResult, apply_cycle, tables_for_spark
from lakeproof.lake.cycle.schemas.history import RecordedChange
from lakeproof.lake.cycle.steps import OpenCycle, begin_cycle, intent_of
from lakeproof.lake.cycle.task import CycleSettings
from lakeproof.lake.cycle.upkeep.maintenance import Maintenance, begin_maintenance, finish_maintenance
from lakeproof.lake.cycle.work_left import WorkLeft, copied_rows, units_of
from lakeproof.lake.delta.files.optimize import is_crowded
from lakeproof.lake.planning.entries import EntryLimit, mark_settled, pending_snapshots
from lakeproof.lake.planning.next_incarnation import plan_switch
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.records.documents import (
    Copy,
    Created,
    Cut,
    CycleKind,
    Intent,
    Keys,
    Optimize,
    TableIntent,
    WrittenBy,
)
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import newest_cut, newest_number, read_intent
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.progress import Progress, Work
from lakeproof.snapshot.copy.keyed_copy import PlacedCopy
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class TableCut:
    """The result of a cycle for one table.

    `changes` came from the stream, `copied` rows from a copy that entered; `inserted` and `deleted` are rows of current (an
    update is one of each); `rows` is how many rows the table has, None if that is not known.
    `features` are those that readers need from this cut on, each with its reason.
    """

    changes: int
    inserted: int
    deleted: int
    history_version: int
    current_version: int
    written_by: WrittenBy
    rows: int | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    copied: int = 0


@dataclass(frozen=True, slots=True)
class CutReport:
    """A finished cycle: `tables` are those that were written; `position` is one of `incarnation`.

    `schema_changes` says what changed in the schemas of tables, or why such a change holds a table from here on.
    """

    number: CycleNumber
    position: Lsn
    tables: Mapping[TableName, TableCut]
    held: Mapping[TableName, Held]
    incarnation: Incarnation
    schema_changes: Mapping[TableName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ForSpark:
    """Tables that Spark has to write, each with the reason, and why it can't be started."""

    tables: Mapping[TableName, str]
    error: NoSparkError


def _before_changes(chain: Chain, plan: CyclePlan, tables: Mapping[TableName, str]) -> Lsn:
    """Return the last position of a plan's range before a change of one of `tables`, of those that have no copy to enter."""
    following = {table for table in tables if not isinstance(plan.tables[table].work, Copy | Keys)}
    created = [Lsn(int(i.from_lsn) - 1) for t in following if isinstance((i := plan.tables[t]).work, Created)]
    ends = [m.start_lsn for m in chain.between(plan.start, plan.end) if any(f.table in following for f in m.files)]
    return max(plan.start, min([plan.end, *created, *ends]))


def finish_interrupted(spark: SparkOnDemand, lease: Lease, source: SourceConfig, report: Report) -> list[CutReport]:
    """Finish the cycle of whatever kind whose intent has no cut, if there is one."""
    return Runner(spark, lease, source, report, Stop()).finish_interrupted()


def archive_of(lake: SourceLake, retention: RetentionConfig) -> Store | None:
    """Return the store in which history is archived, None if it is not; it is reached as the lake is."""
    if retention.archive is None:
        return None
    return open_store(LakeLocation(retention.archive, lake.store.location.storage))


@dataclass(slots=True)
class Runner:
    """Runs the cycles of one source under one lease; `end` is the position to stop at, None for the landing's end.

    `keyed` is a copy of single keys at `end`, until a cycle has taken it.
    """

    spark: SparkOnDemand
    lease: Lease
    source: SourceConfig
    report: Report
    stop: Stop
    end: Lsn | None = None
    keyed: PlacedCopy | None = None
    _left: WorkLeft | None = None

    def follow(self, chain: Chain, end: Lsn | None) -> list[CutReport]:
        """Run cycles until the lake stands at `chain`'s end, or at `end`.

        If the lake stands in an earlier incarnation than `chain`, the first cycle is the switch.
        """
        done = []
        previous = newest_cut(self.lease.lake)
        if previous is not None and previous.incarnation != chain.incarnation and not self.stop.requested:
            with chain.read_once():
                switched = self._switch(chain, previous)
            if switched is None:
                return []
            done.append(switched)
        while not self.stop.requested:
            with chain.read_once():
                ended = self.next_cycle(chain, chain.end if end is None else end)
            if ended is None:
                break
            done.append(ended)
            packed = self._pack(ended)
            done += [] if packed is None else [packed]
        return done

    def finish_interrupted(self) -> list[CutReport]:
        """Finish the cycle whose intent has no cut, if there is one."""
        previous = newest_cut(self.lease.lake)
        number = newest_number(self.lease.lake.store, self.lease.lake.paths.intents)
        if previous is not None and number <= previous.number:
            return []
        written = read_intent(self.lease.lake, number) if number else None
        if written is None:
            return []
        cycle = OpenCycle(*written, previous)
        self.report(Event("compact.resume", f"finishing cycle {number}", {"cycle": int(number)}))
        if cycle.intent.kind.is_maintenance and previous is not None:
            cut, _ = finish_maintenance(
                Maintenance(self.spark, self.lease, archive_of(self.lease.lake, self.source.retention)), cycle, previous
            )
            return [CutReport(cut.number, cut.position, {}, cut.held, cut.incarnation)]
        chain = Chain.open(self.lease.lake, cycle.intent.incarnation)
        with chain.read_once():
            return [self._finish(chain, cycle)]

    def next_cycle(self, chain: Chain, end: Lsn) -> CutReport | None:
        """Run one more cycle, up to `end` at most; None if there is nothing to do."""
        previous = newest_cut(self.lease.lake)
        plan = self._plan(chain, previous, end, {})
        if plan is None:
            return None
        left = self._for_spark(chain, previous, plan)
        if left:
            plan = self._without(chain, previous, plan, left)
        if any(isinstance(table.work, Keys) for table in plan.tables.values()):
            self.keyed = None
        return self._run(plan, chain, previous)

    def _plan(self, chain: Chain, previous: Cut | None, end: Lsn, left: Container[TableName]) -> CyclePlan | None:
        """Return the next cycle up to `end`; copies of tables that are `left` wait."""
        pending = pending_snapshots(self.lease.lake, chain.incarnation, previous)
        pending = {table: copy for table, copy in pending.items() if table not in left}
        limits = self.source.compaction
        limit = RangeLimit(end, limits.cycle_rows, EntryLimit(limits.cycle_copies, limits.cycle_copies_bytes))
        keyed = None if self.keyed is None or any(t in left for t in self.keyed.copy.tables) else self.keyed
        return plan_cycle(chain, previous, pending, limit, keyed=keyed)

    def _for_spark(self, chain: Chain, previous: Cut | None, plan: CyclePlan) -> _ForSpark | None:
        """Return the tables of a plan that Spark has to write, if it can't be started; it starts if there are any."""
        if self.spark.started is not None:
            return None
        intent = intent_of(self.lease, plan, chain.incarnation, previous)
        tables = tables_for_spark(chain, self.lease, intent, previous, self._settings())
        try:
            if tables:
                self.spark.get()
        except NoSparkError as error:
            return _ForSpark(tables, error)
        return None

    def _without(self, chain: Chain, previous: Cut | None, plan: CyclePlan, left: _ForSpark) -> CyclePlan:
        """Return a cycle that needs no Spark: up to the first change of a table that does, without copies of such tables.

        All tables of a cut stand at one position, so none may pass another one's change. Raises NoSparkError if there is
        nothing to do without Spark.
        """
        tables, end = dict[TableName, str](), plan.end
        while True:
            before, shorter = tables, _before_changes(chain, plan, left.tables)
            tables = {**tables, **left.tables}
            other = self._plan(chain, previous, shorter, tables)
            if other is None or (shorter == end and tables == before):
                raise left.error.about(tables)
            plan, end, again = other, shorter, self._for_spark(chain, previous, other)
            if again is None:
                break
            left = again
        message = f"{counted(len(tables), 'table')} for Spark, which can't be started; the others go on to {plan.end}"
        reasons = {str(table): reason for table, reason in tables.items()}
        self.report(Event("compact.without_spark", message, {"tables": reasons}))
        return plan

    def _pack(self, ended: CutReport) -> CutReport | None:
        """Put the smallest files of the tables together that a cycle has left with too many; None if there is none."""
        lake, small_files = self.lease.lake, self.source.retention.small_files
        crowded = [
            table
            for table, cut in ended.tables.items()
            if is_crowded(lake.url(lake.paths.history(table)), cut.history_version, small_files)
            or is_crowded(lake.url(lake.paths.current(table)), cut.current_version, small_files)
        ]
        previous = newest_cut(lake) if crowded else None
        if previous is None or self.stop.requested:
            return None
        tables = {t: previous.tables[t] for t in crowded if t not in previous.held}
        intents = {
            table: TableIntent(cut_table.at_lsn, cut_table.version.id, Optimize(smallest_only=True))
            for table, cut_table in tables.items()
        }
        cycle = begin_maintenance(self.lease, previous, CycleKind.MAINTENANCE, intents)
        cut, _ = finish_maintenance(Maintenance(self.spark, self.lease, None), cycle, previous)
        fields = {"cycle": int(cut.number), "tables": list(map(str, tables))}
        self.report(
            Event("compact.packed", f"cut {cut.number}: files put together in {counted(len(tables), 'table')}", fields)
        )
        return CutReport(cut.number, cut.position, {}, cut.held, cut.incarnation)

    def _switch(self, chain: Chain, previous: Cut) -> CutReport | None:
        """Run the cycle that takes the lake into `chain`'s incarnation; None as long as no snapshot of it can enter."""
        pending = pending_snapshots(self.lease.lake, chain.incarnation, previous)
        plan = plan_switch(chain, previous, pending)
        if plan is not None and (left := self._for_spark(chain, previous, plan)):
            raise left.error.about(left.tables)
        if plan is None:
            message = f"incarnation {chain.incarnation} has begun, and its snapshot has not finished yet"
            self.report(Event("compact.waits", message, {"incarnation": int(chain.incarnation)}))
            return None
        return self._run(plan, chain, previous)

    def _run(self, plan: CyclePlan, chain: Chain, previous: Cut | None) -> CutReport:
        return self._finish(chain, begin_cycle(self.lease, plan, chain.incarnation, previous))

    def _settings(self) -> CycleSettings:
        limits = self.source.compaction
        spark_alone = self.spark.everywhere or limits.engine == "spark"
        return CycleSettings(limits.threads, spark_alone, self.source.portable, limits.spark_rows)

    def _progress(self, chain: Chain, intent: Intent, copied: Mapping[TableName, int]) -> Progress:
        """Return the progress of one cycle, as a part of the whole run."""
        if self._left is None or self._left.chain.incarnation != chain.incarnation:
            end = max(chain.end if self.end is None else self.end, intent.end_lsn)
            self._left = WorkLeft.begin(chain, intent.start_lsn, min(end, chain.end))
        waiting = pending_snapshots(self.lease.lake, chain.incarnation, newest_cut(self.lease.lake)) if copied else {}
        work = Work("compact.progress", f"cycle {intent.number}", len(intent.tables), {"cycle": int(intent.number)})
        return Progress(self.report, work, self._left.share_of(intent, copied, waiting))

    def _finish(self, chain: Chain, cycle: OpenCycle) -> CutReport:
        began_s, copied = time.monotonic(), copied_rows(chain, cycle.intent)
        progress = self._progress(chain, cycle.intent, copied)
        progress.begin()

        def on_table(table: TableName, changes: int) -> None:
            rows = changes + copied.get(table, 0)
            progress.done(rows, units_of(rows))

        result = apply_cycle(self.spark, chain, self.lease, cycle, replace(self._settings(), on_table=on_table))
        if any(isinstance(table.work, Copy) for table in cycle.intent.tables.values()):
            mark_settled(chain, result.cut)
        cut_report = _cut_report(result, copied)
        for change in result.schema_changes:
            self.report(_schema_event(cut_report, change))
        for table, written in cut_report.tables.items():
            if written.features:
                self.report(_readers_event(cut_report, table, written))
        if result.not_recorded is not None:
            message = f"cycle {cut_report.number}: its schema changes are not in schema_history: {result.not_recorded}"
            self.report(Event("compact.schema_history_failed", message, {"cycle": int(cut_report.number)}))
        self.report(_event(cut_report, self.source.name, result.cut.commit_time, time.monotonic() - began_s))
        return cut_report


def _cut_report(result: CycleResult, copied: Mapping[TableName, int]) -> CutReport:
    tables = {
        table: TableCut(
            written.counts.changes,
            written.inserted,
            written.deleted,
            written.cut_table.history_version,
            written.cut_table.current_version,
            written.cut_table.written_by,
            written.rows,
            written.features,
            copied.get(table, 0),
        )
        for table, written in result.written.items()
        if not written.carried
    }
    cut, changes = result.cut, {change.table: change.detail for change in result.schema_changes}
    return CutReport(cut.number, cut.position, tables, cut.held, cut.incarnation, changes)


def _schema_event(report: CutReport, change: RecordedChange) -> Event:
    return Event(
        "compact.schema",
        f"{change.table}: {change.detail} ({change.done})",
        {"cycle": int(report.number), "position": str(report.position), "table": change.table.key, "done": change.done},
    )


def _readers_event(report: CutReport, table: TableName, written: TableCut) -> Event:
    needs = "; ".join(f"{name} ({reason})" for name, reason in written.features.items())
    fields = {"cycle": int(report.number), "table": table.key, "features": dict(written.features)}
    return Event("compact.readers", f"{table}: from cut {report.number} on readers need {needs}", fields)


def _event(report: CutReport, source: str, commit_time: str | None, seconds: float) -> Event:
    changes = sum(table.changes for table in report.tables.values())
    copied = sum(table.copied for table in report.tables.values())
    rows = f"{counted(copied, 'copied row')} and " if copied else ""
    written = f"{rows}{counted(changes, 'change')} in {counted(len(report.tables), 'table')}"
    return Event(
        "compact.cut",
        f"cut {report.number} at {report.position}: {written}",
        {
            "source": source,
            "cycle": int(report.number),
            "seconds": round(seconds, 3),
            "commit_time": commit_time,
            "incarnation": int(report.incarnation),
            "position": str(report.position),
            "changes": changes,
            "copied": copied,
            "tables": len(report.tables),
            "held": {str(table): held.reason for table, held in report.held.items()},
            "written_by": {str(table): asdict(cut.written_by) for table, cut in report.tables.items()},
        },
    )
