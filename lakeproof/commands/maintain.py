"""Retention and maintenance of one source, as one policy: removes what is no longer needed, and puts small files together.

The cycles' work on rows is in `lakeproof.lake.cycle.upkeep.maintenance`, a landing's manifests in
`lakeproof.landing.retention`, the files of a Delta table in `lakeproof.lake.delta.files.needed`; the callers decide when it
runs.

    1 cycle     old changes leave history (archived first), if `history_s` says so
    2 cycle     small files are put together
    3 cuts      followed by a newer cut for longer than `cuts_s`, or by `cuts_max` cuts; with their intents, and past leases
    4 tables    files and log that no kept cut needs
    5 landing   manifests that are in the lake for longer than `landing_s`, and that nothing reads again
    6 snapshots the chunks of snapshots that have entered
    7 views     that read the source: their small files, cuts and files (`lakeproof.views.maintain`)
    8 days      the files that only old versions of a table of days need (`lakeproof.lake.cycle.upkeep.table_files`)

Each step removes what the steps before it made unneeded, oldest first, and finds what a killed run has left. Everything
that a kept cut names stays until the cut is gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial

from lakeproof.compaction.retention import kept_of, remove_old, would_remove
from lakeproof.compaction.sizes import LakeSizes, measure
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.config.table_names import table_text
from lakeproof.errors import LakeError, TransientError
from lakeproof.events import Event, Report, RunControl, Stop, counted
from lakeproof.lake.cycle.runner import archive_of, finish_interrupted
from lakeproof.lake.cycle.upkeep.maintenance import Maintenance, archived, begin_maintenance, finish_maintenance
from lakeproof.lake.cycle.upkeep.table_files import Damaged, fragmented, planned_of_days, remove_of_days
from lakeproof.lake.delta.files.needed import Unread
from lakeproof.lake.records.ages import in_lake_at, mark_age
from lakeproof.lake.records.documents import Cut, CycleKind, Optimize, Rebuild, Restore, TableIntent, Trim, Work
from lakeproof.lake.records.held import Held, describe_all
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.landing.retention import (
    SpaceReclaimed,
    summed,
)
from lakeproof.names import CycleNumber, TableName
from lakeproof.proof.lake.by_itself import refuse_damaged
from lakeproof.proof.lake.side import LakeReader
from lakeproof.proof.record import one_proof
from lakeproof.sql_catalog import name_cut, name_views
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError, Store
from lakeproof.views.maintain import maintain_views, stop_here, views_plan


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result: the cycles that ended, the tables in them, and what each step removed (or would remove).

    `views` are those whose files were put together; `damaged` says which tables and views could not be read, and why: they
    keep what they have.
    """

    cycles: tuple[CycleNumber, ...] = ()
    trimmed: tuple[TableName, ...] = ()
    optimized: tuple[TableName, ...] = ()
    rebuilt: tuple[TableName, ...] = ()
    views: tuple[str, ...] = ()
    freed: Mapping[str, SpaceReclaimed] = field(default_factory=dict)
    damaged: Mapping[str, Unread] = field(default_factory=dict)

    @property
    def files(self) -> int:
        return sum(part.files for part in self.freed.values())

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.freed.values())


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """A person's request to maintenance beside the policy, and the time that counts as now.

    `rebuild` makes these current tables from history first. `restore` brings back what the archive has of these tables'
    history, and removes nothing of any history in this run. With `nothing_else` no policy is applied.
    """

    rebuild: Sequence[TableName] = ()
    restore: Sequence[TableName] = ()
    now: datetime | None = None
    nothing_else: bool = False


@without_java(lambda _config, name, *_, **__: name)
def maintain(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    spark: AnySpark,
    report: Report,
    request: MaintenanceRequest | None = None,
    stop: Stop | None = None,
) -> Maintained:
    """Keep one source's lake as its policy says, and do what `request` asks for.

    Raises LakeError without a cut, TransientError if another process holds the lease or proves, or at a `stop`.
    """
    request, stop = request or MaintenanceRequest(), stop or Stop()
    source, now = config.source(name), request.now or datetime.now(timezone.utc)
    lake, on_demand = SourceLake.open(config.location, name), SparkOnDemand.of(spark)
    with at_work(on_demand, config.location):
        with one_proof(lake), hold_lease(lake, on_demand, stop) as lease:
            cycles = [c.number for c in finish_interrupted(on_demand, lease, source, report)]
            damaged = Damaged(name)
            run = _Run(on_demand, lease, source.retention, report, now, stop, cycles, damaged)
            mark_age(lake, run.newest())
            _check_request(lake, archive_of(lake, source.retention), request)
            refuse_damaged(LakeReader.of(lake, on_demand, source.compaction.engine), run.newest(), request.rebuild)
            rebuilt = run.cycle(CycleKind.REPAIR, dict.fromkeys(request.rebuild, Rebuild()))
            run.cycle(CycleKind.MAINTENANCE, dict.fromkeys(request.restore, Restore()))
            if request.nothing_else:
                name_cut(config, name, on_demand, report)
                return Maintained(tuple(cycles), rebuilt=rebuilt)
            trimmed = () if request.restore else run.trim()
            small = run.cycle(CycleKind.MAINTENANCE, dict.fromkeys(run.to_optimize(), Optimize()))
            # Before the files of earlier versions go.
            name_cut(config, name, on_demand, report)
            removed = remove_old(lease, kept_of(config, lake), now, stop, damaged)
        views = maintain_views(config, name, on_demand, RunControl(report, stop), now=now)
        name_views(config, on_demand, report)
    unread, limit = _unread(damaged, views.damaged), now - timedelta(seconds=source.retention.cuts_s)
    removed |= {"views": views.freed, "days": remove_of_days(lake, limit, unread)}
    done = Maintained(tuple(cycles), trimmed, small, rebuilt, views.optimized, removed, unread)
    for thing, why in unread.items():
        report(Event("maintain.damaged", f"{thing}: {why}", {"thing": thing, "reason": why.reason}))
    fields = {"files": done.files, "bytes": done.bytes, "cycles": [int(c) for c in done.cycles]}
    report(Event("maintain.done", f"removed {counted(done.files, 'file')} of {counted(done.bytes, 'byte')}", fields))
    return done


def maintenance_plan(config: Config, name: str, now: datetime | None = None) -> Maintained:
    """Return what a run would put together and remove now, without Spark and without a change; not what leaves history.

    Takes no lease. Raises LakeError if there is no cut yet, TransientError if a file goes while it is read.
    """
    source, moment = config.source(name), now or datetime.now(timezone.utc)
    lake = SourceLake.open(config.location, name)
    cut = newest_cut(lake)
    if cut is None:
        raise _no_cut(name)
    damaged = Damaged(name)
    try:
        small = fragmented(lake, cut, source.retention.small_files, damaged)
        views, freed = views_plan(config, name, moment), would_remove(lake, kept_of(config, lake), moment, damaged)
    except (NotFoundError, FileNotFoundError) as error:
        raise TransientError(
            f"{name}: what maintenance would do", f"a file was removed while it was looked at: {error}", "ask again"
        ) from error
    unread = _unread(damaged, views.damaged)
    days = planned_of_days(lake, moment - timedelta(seconds=source.retention.cuts_s), unread)
    return Maintained((), (), small, (), views.optimized, {**freed, "views": views.freed, "days": days}, unread)


def lake_sizes(config: Config, name: str, *, plan: bool = False) -> LakeSizes:
    """Return the room that a source's lake takes; with `plan` also what maintenance would remove.

    With `plan` raises TransientError if files go while they are looked at.
    """
    lake = SourceLake.open(config.location, name)
    sizes = measure(lake)
    if not plan or newest_cut(lake) is None:
        return sizes
    planned = maintenance_plan(config, name)
    damaged = {**sizes.damaged, **planned.damaged}
    return replace(sizes, reclaimable=summed(planned.freed.values()), damaged=damaged)


def _unread(tables: Mapping[TableName, Unread], views: Mapping[str, Unread]) -> dict[str, Unread]:
    return {str(table): why for table, why in tables.items()} | {f"view {view}": why for view, why in views.items()}


@dataclass(frozen=True, slots=True)
class _Run:
    """The cycles of one run; `cycles` has their numbers."""

    spark: SparkOnDemand
    lease: Lease
    retention: RetentionConfig
    report: Report
    now: datetime
    stop: Stop
    cycles: list[CycleNumber]
    damaged: Damaged

    def cycle(
        self,
        kind: CycleKind,
        tables: Mapping[TableName, Work],
        held: Mapping[TableName, Held] | None = None,
    ) -> tuple[TableName, ...]:
        """Run one cycle over some tables, which holds `held`.

        Returns the tables in which it was done: a table that someone else has written is left as it is, and held.
        """
        if not tables and not held:
            return ()
        cut, name = self.newest(), self.lease.lake.source
        stop_here(name, self.stop)
        intents = {
            t: TableIntent(cut.table(t, name).at_lsn, cut.table(t, name).version.id, work) for t, work in tables.items()
        }
        cycle = begin_maintenance(self.lease, cut, kind, intents, held)
        number = cycle.intent.number
        archive = archive_of(self.lease.lake, self.retention)
        between = partial(stop_here, name, self.stop)
        _, refused = finish_maintenance(Maintenance(self.spark, self.lease, archive, between), cycle, cut)
        self.cycles.append(number)
        done = tuple(sorted(tables.keys() - refused.keys()))
        self.report(Event("maintain.cycle", f"cycle {number} ({kind.value})", {"tables": list(map(str, done))}))
        for table, why in describe_all({**(held or {}), **refused}, name).items():
            self.report(Event("maintain.held", f"{table}: {why.reason}; {why.remedy}", {"table": str(table)}))
        return done

    def trim(self) -> tuple[TableName, ...]:
        """Run one cycle over the tables with changes that came too long ago, up to one. It holds unreadable tables."""
        if self.retention.history_s == 0:
            return ()
        cut, lake = self.newest(), self.lease.lake
        old = in_lake_at(lake, self.now - timedelta(seconds=self.retention.history_s))
        # Imported here because it imports Spark.
        from lakeproof.lake.cycle.upkeep.maintenance_by_spark import first_change_from, tables_with_changes_before

        firsts, lost = first_change_from(self.spark.get(), lake, cut, old, self.damaged)
        bound = min((first for first in firsts.values() if first is not None), default=cut.ordinals.end)
        lows = {t: cut.tables[t].history_low for t in firsts}
        fit = {t: bound for t, low in lows.items() if (low is None or low.ordinal < bound) and t not in cut.held}
        shrinking, lost_too = tables_with_changes_before(self.spark.get(), lake, cut, fit, self.damaged)
        trimmed = {t: Trim(bound) for t in fit if t in shrinking and not has_changed_schema(lake, t)}
        return self.cycle(CycleKind.MAINTENANCE, trimmed, {**lost, **lost_too})

    def to_optimize(self) -> tuple[TableName, ...]:
        return fragmented(self.lease.lake, self.newest(), self.retention.small_files, self.damaged)

    def newest(self) -> Cut:
        """Return the newest cut; raises LakeError if there is none yet."""
        cut = newest_cut(self.lease.lake)
        if cut is None:
            raise _no_cut(self.lease.lake.source)
        return cut


def _check_request(lake: SourceLake, archive: Store | None, request: MaintenanceRequest) -> None:
    """Refuse a request that can't be met before an intent is put: an intent has to be finished before anything else."""
    name = lake.source
    for table in request.rebuild:
        if has_changed_schema(lake, table):
            raise LakeError(
                f"{name}: {table}",
                "its schema has changed, and history has older rows in the schema they had",
                f"run `lakeproof prove {name} --tables {shlex.quote(table_text(table))} --repair` instead",
            )
    for table in request.restore:
        place = archived(archive, lake, table)[0].rpartition("/")[0]
        if has_changed_schema(lake, table):
            raise LakeError(
                f"{name}: {table}",
                "its schema has changed, and the archive has its changes in the schema they had",
                f"read the Parquet files in {place}",
            )


def has_changed_schema(lake: SourceLake, table: TableName) -> bool:
    """True if the table's schema has changed since it is in the lake: its history is then not one sequence of like rows."""
    return len(lake.store.list(lake.paths.schema_versions(table))) > 1


def _no_cut(source: str) -> LakeError:
    remedy = f"run `lakeproof compact {source}`"
    return LakeError(f"{source}: cuts", "there is none yet, and nothing to maintain", remedy)
