"""Cycles that bring no changes: files put together, old changes removed from history, current made from history again.

The choice of a table's work is in `lakeproof.commands.maintain`; the steps are those of any cycle (`steps`).

    packing      the smallest files put together, between two cycles of a table that gets many (`optimize`)
    maintenance  small files put together; or history's rows up to a place become the rows as they were there
    repair       current becomes what history adds up to, by correction

What an earlier attempt has left is taken out of the logs first (`lakeproof.lake.delta.log.cleaned`). An OPTIMIZE
carries the cycle's number in `userMetadata` alone, without a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import ORD
from lakeproof.lake.columns import in_lake
from lakeproof.lake.cycle.attempts import Attempt, AttemptsError, earlier_attempts, tried
from lakeproof.lake.cycle.steps import OpenCycle, WrittenTables, begin_cycle, end_cycle, versions_before
from lakeproof.lake.cycle.task import CycleTable
from lakeproof.lake.cycle.upkeep.logs import hold_for_foreign_commits, lost_history, without_foreign_commits
from lakeproof.lake.delta.committer import version_to_follow
from lakeproof.lake.delta.files.optimize import SmallFiles
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_version
from lakeproof.lake.delta.log.state import read_state, table_shape
from lakeproof.lake.planning.plan import CyclePlan, without_range
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind, Intent, Optimize, TableIntent
from lakeproof.lake.records.held import Held, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The settings of a cycle of maintenance.

    `archive` is where rows are written before they leave history, and restored from. `between` is called before each table,
    and may end the work there by raising.
    """

    spark: SparkOnDemand
    lease: Lease
    archive: Store | None
    between: Callable[[], None] = lambda: None


def begin_maintenance(
    lease: Lease,
    cut: Cut,
    kind: CycleKind,
    tables: Mapping[TableName, TableIntent],
    held: Mapping[TableName, Held] | None = None,
) -> OpenCycle:
    """Put the intent of a cycle at the cut's own position: step 1. `held` are held from now on."""
    plan = CyclePlan(cut.position, cut.position, without_range(cut), tables, {**cut.held, **(held or {})}, kind)
    return begin_cycle(lease, plan, cut.incarnation, cut)


def finish_maintenance(run: Maintenance, cycle: OpenCycle, previous: Cut) -> tuple[Cut, Mapping[TableName, Held]]:
    """Run the other steps; return the cut, and the tables in which nothing could be done, with the reason."""
    tables, refused = _maintain_tables(run, cycle.intent, previous)
    done = cycle.intent.tables.keys() - refused.keys()
    not_done_yet = {table: held for table, held in refused.items() if held.way_out is not WayOut.NEXT_RUN}
    held = {**not_done_yet, **_still_held(cycle.intent, refused)}
    versions = versions_before(run.lease.lake, previous, done)
    written = WrittenTables(tables, held, versions, previous.commit_time, previous.next_segment)
    return end_cycle(run.lease, cycle, written), refused


def _maintain_tables(
    run: Maintenance, intent: Intent, previous: Cut
) -> tuple[dict[TableName, CutTable], dict[TableName, Held]]:
    tables, refused = dict(previous.tables), dict[TableName, Held]()
    earlier = earlier_attempts(run.lease, intent)
    for table in intent.tables:
        run.between()
        task = TableMaintenance(run.lease, intent, table, run.spark.own(), tables[table], run.archive)
        try:
            tables[table] = _maintain_table(task, earlier.get(table, ()))
        except TableHeldError as error:
            refused[table] = error.held(tables[table].at_lsn)
    return tables, refused


def _still_held(intent: Intent, refused: Mapping[TableName, Held]) -> dict[TableName, Held]:
    """Return the tables that the intent holds, with the histories that the cycle found to be lost."""
    return {table: held.after(refused.get(table)) for table, held in intent.held.items()}


def _maintain_table(task: TableMaintenance, earlier: Sequence[Attempt]) -> CutTable:
    """Maintain one table; raises TableHeldError when nothing can be done in it."""

    def once(*, from_scratch: bool) -> CutTable:
        with hold_for_foreign_commits(task.table):
            cut_table = without_foreign_commits(task, task.cut_table, take_back=False) or task.cut_table
            return replace(task, cut_table=cut_table, from_scratch=from_scratch).run()

    try:
        return tried(task.spark, task, earlier, once)
    except AttemptsError as error:
        # What can't be read is copied again; whatever else went wrong, the table is as it was, and readable.
        if error.unreadable is None:
            raise TableHeldError(str(task.table), error.cause, WayOut.NEXT_RUN, error.detail) from error
        lost = lost_history(task.lake, task.table, error.unreadable)
        raise lost or TableHeldError(str(task.table), error.cause, WayOut.SNAPSHOT, error.detail) from error


@dataclass(frozen=True, slots=True)
class TableMaintenance(CycleTable):
    """One table in one such cycle; `spark` is its own. `from_scratch`: current can't be read, so none of it is."""

    spark: SparkOnDemand
    cut_table: CutTable
    archive: Store | None
    from_scratch: bool = False

    @property
    def schema(self) -> SchemaVersion:
        """The schema that the lake has."""
        return in_lake(self.cut_table.version)

    def run(self) -> CutTable:
        """Do what the intent says, and return the table's entry in the cut."""
        work = self.intent.tables[self.table].work
        if not isinstance(work, Optimize):
            # Imported here because it imports Spark.
            from lakeproof.lake.cycle.upkeep.maintenance_by_spark import maintained_by_spark

            return maintained_by_spark(self, work)
        history = self._optimized("history", work, ORD)
        failpoint("maintenance.after_history")
        current = self._optimized("current", work, next(iter(self.schema.key), None))
        return replace(self.cut_table, history_version=history, current_version=current)

    def _optimized(self, layer: Layer, work: Optimize, order: str | None) -> int:
        path, commit = self.path(layer), self.commit_info("")
        self.lease.check()
        state = read_state(path, version_to_follow(path, self.cut_table.version_of(layer), commit))
        files = SmallFiles(self.spark, state, order)
        return files.optimize(self.intent.number, commit.user_metadata, packing=work.smallest_only)


def history_id(lake: SourceLake, table: TableName) -> str:
    """Return the id of the Delta table that a table's history is; empty if there is none."""
    path = lake.url(lake.paths.history(table))
    version = newest_version(path)
    return "" if version == NO_VERSION else str(table_shape(path, version).metadata["id"])


def archived(archive: Store | None, lake: SourceLake, table: TableName) -> list[str]:
    """Return the folders of the rows that left a table's history, one for each cycle that removed some.

    Raises LakeError if the archive has none.
    """
    paths = lake.paths
    key = paths.archive(table, history_id(lake, table))
    parts = [] if archive is None else archive.folders(key)
    if archive is None or not parts:
        reason = (
            "no archive is configured" if archive is None else f"the archive has nothing of it ({archive.url(key)})"
        )
        remedy = "set `retention.archive` to the folder that it was archived in"
        raise LakeError(f"{paths.source}: {table}", reason, remedy)
    return [archive.url(f"{key}/{part}") for part in parts]
