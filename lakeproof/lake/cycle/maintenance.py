"""Cycles that bring no changes: files put together, old changes removed from history, current made from history again.

Which table needs what does not belong here but in `lakeproof.commands.maintain`; the steps are those of any cycle (`steps`).

    maintenance  small files put together (`optimize`); or history's rows up to a place become the rows as they were there
    repair       current becomes what history adds up to, by correction

What an earlier attempt has left is taken out of the logs first (`lakeproof.lake.delta.cleaned_log`). OPTIMIZE carries
the cycle's number in `userMetadata` alone, Delta gives it no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD, scratch
from lakeproof.lake.columns import current_columns, has_old_rows, history_columns, in_lake, large_columns, merge_key
from lakeproof.lake.cycle.attempts import Attempt, AttemptsError, earlier_attempts, tried
from lakeproof.lake.cycle.foreign_commits import hold_for_foreign_commits, without_foreign_commits
from lakeproof.lake.cycle.lost_history import lost_history
from lakeproof.lake.cycle.steps import OpenCycle, WrittenTables, begin_cycle, run_cycle, versions_before
from lakeproof.lake.delta.apply import Prepared, apply
from lakeproof.lake.delta.commit import Applied, CommitInfo, CommitRequest, commit_of_cycle
from lakeproof.lake.delta.committer import version_to_follow
from lakeproof.lake.delta.fsync import sync_folder
from lakeproof.lake.delta.optimize import optimize
from lakeproof.lake.delta.protocol import check_writable
from lakeproof.lake.delta.search import places_below
from lakeproof.lake.delta.state import read_state
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.bags import DIGEST
from lakeproof.lake.fold.net_change import IMAGE
from lakeproof.lake.fold.replay import Complete, added_up, after_truncates, replayed
from lakeproof.lake.fold.unchanged_values import completing, has_value, holder
from lakeproof.lake.planning.plan import CyclePlan, without_range
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind, HistoryLow, Intent, TableIntent
from lakeproof.lake.records.held import Held, TableHeldError, WayOut
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.matching import join_on_key, multiset_difference
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.folder import Folder
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

_RANK = scratch("rank")


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

    def write_tables() -> tuple[WrittenTables, dict[TableName, Held]]:
        tables, refused = _maintain_tables(run, cycle.intent, previous)
        done = cycle.intent.tables.keys() - refused.keys()
        not_done_yet = {table: held for table, held in refused.items() if held.way_out is not WayOut.NEXT_RUN}
        held = {**not_done_yet, **_still_held(cycle.intent, refused)}
        versions = versions_before(run.lease.lake, previous, done)
        return WrittenTables(tables, held, versions, previous.commit_time, previous.next_segment), refused

    return run_cycle(run.lease, cycle, write_tables)


def _maintain_tables(
    run: Maintenance, intent: Intent, previous: Cut
) -> tuple[dict[TableName, CutTable], dict[TableName, Held]]:
    tables, refused = dict(previous.tables), dict[TableName, Held]()
    earlier = earlier_attempts(run.lease, intent)
    for table in intent.tables:
        run.between()
        task = _TableMaintenance(run.spark.own(), run.lease, intent, table, tables[table], run.archive)
        try:
            tables[table] = _maintain_table(task, earlier.get(table, ()))
        except TableHeldError as error:
            refused[table] = error.held(tables[table].at_lsn)
    return tables, refused


def _still_held(intent: Intent, refused: Mapping[TableName, Held]) -> dict[TableName, Held]:
    """Return the tables that the intent holds, with the histories that the cycle found to be lost."""
    return {table: held.after(refused.get(table)) for table, held in intent.held.items()}


def _maintain_table(task: _TableMaintenance, earlier: Sequence[Attempt]) -> CutTable:
    """Maintain one table; raises TableHeldError when nothing can be done in it."""
    spark, lease, intent, table = task.spark, task.lease, task.intent, task.name

    def once(*, from_scratch: bool) -> CutTable:
        with hold_for_foreign_commits(table):
            cut_table = without_foreign_commits(lease, intent, table, task.cut_table, take_back=False) or task.cut_table
            return replace(task, cut_table=cut_table, from_scratch=from_scratch).run(intent.tables[table])

    try:
        return tried(spark, lease, intent, table, earlier, once)
    except AttemptsError as error:
        # What can't be read is copied again; whatever else went wrong, the table is as it was, and readable.
        if error.unreadable is None:
            raise TableHeldError(str(table), error.cause, WayOut.NEXT_RUN, error.detail) from error
        lost = lost_history(lease.lake, table, error.unreadable)
        raise lost or TableHeldError(str(table), error.cause, WayOut.SNAPSHOT, error.detail) from error


@dataclass(frozen=True, slots=True)
class _TableMaintenance:
    """One table in one such cycle; `spark` is its own. `from_scratch`: current can't be read, so none of it is."""

    spark: SparkOnDemand
    lease: Lease
    intent: Intent
    name: TableName
    cut_table: CutTable
    archive: Store | None
    from_scratch: bool = False

    @property
    def session(self) -> SparkSession:
        """The session, in which rows like the table's fit."""
        session = self.spark.get()
        fit_table(session, self.cut_table.row_bytes, self.cut_table.version)
        return session

    @property
    def schema(self) -> SchemaVersion:
        return in_lake(self.cut_table.version)

    def run(self, table_intent: TableIntent) -> CutTable:
        if self.intent.kind is CycleKind.REPAIR:
            return replace(self.cut_table, current_version=self._rebuilt().version)
        if table_intent.history_from is not None:
            return self._trimmed(table_intent.history_from)
        if table_intent.restores:
            return self._restored()
        lake = self.lease.lake
        history = self._optimized(lake.paths.history(self.name), self.cut_table.history_version, order=ORD)
        failpoint("maintenance.after_history")
        current = self._optimized(
            lake.paths.current(self.name), self.cut_table.current_version, order=next(iter(self.schema.key), None)
        )
        return replace(self.cut_table, history_version=history, current_version=current)

    def _commit(self, layer: str) -> CommitInfo:
        return commit_of_cycle(self.lease.lake.source, self.intent, layer, self.name)

    def _optimized(self, key: str, expected: int, order: str | None = None) -> int:
        path, commit = self.lease.lake.url(key), self._commit("")
        self.lease.check()
        version_to_follow(path, expected, commit)
        return optimize(self.spark, path, int(self.intent.number), commit.user_metadata, order)

    def _trimmed(self, bound: int) -> CutTable:
        """Trim history's rows below `bound`: those that were the table's rows then stay as they are, the others go."""
        path = self.lease.lake.url(self.lease.lake.paths.history(self.name))
        old = self._before(self.cut_table.history_version, bound)
        complete = completing(self.cut_table, old)
        alive = _alive(self.schema, old, complete)
        kept = rows_of_state(self.schema, old, complete)
        if self.archive is not None:
            self._archived(old.join(alive, ORD, "left_anti"), self.archive)
            failpoint("maintenance.after_archive")
        self.lease.check()
        request = self._request("history", NetChange(images=kept), self.cut_table.history_version)
        state = read_state(path, version_to_follow(path, self.cut_table.history_version, request.info))
        check_writable(state)
        version = Prepared(request, state, places_below(state, ORD, bound)).commit().version
        failpoint("maintenance.after_trim")
        # The last change up to there: from its position on history is whole. It may have left with an earlier trim.
        last = self._before(self.cut_table.history_version, bound).agg(F.max(LSN)).collect()[0][0]
        low_before = Lsn.ZERO if self.cut_table.history_low is None else self.cut_table.history_low.at_lsn
        at_lsn = low_before if last is None else max(low_before, Lsn(int(last)))
        before = self.cut_table.history_low is None or self.cut_table.history_low.archived
        low = HistoryLow(bound, at_lsn, archived=before and self.archive is not None)
        # By difference: rows that were damaged before keep the sum from being that of the files.
        new = replace(self.cut_table, history_version=version, history_low=low)
        went, came = (
            self._sum(self._before(self.cut_table.history_version, bound)),
            self._sum(self._before(version, bound)),
        )
        return replace(new, history_sum=self.cut_table.history_sum.minus(went).plus(came))

    def _sum(self, rows: DataFrame) -> HistorySum:
        return sum_of(self.schema, rows)

    def _before(self, version: int, bound: int) -> DataFrame:
        cut_table = replace(self.cut_table, history_version=version)
        return read_layer(self.session, self.lease.lake, self.name, cut_table, "history").where(F.col(ORD) < bound)

    def _archived(self, rows: DataFrame, archive: Store) -> None:
        place = Folder(archive, self.lease.lake.paths.archived(self.name, self.intent.number))
        pick(rows, history_columns(self.schema)).write.mode("overwrite").parquet(place.url)
        sync_folder(place)

    def _restored(self) -> CutTable:
        """Bring back what the archive has of history; rows that history still has are not brought again."""
        folders = archived(self.archive, self.lease.lake.paths, self.name)
        history = read_layer(self.session, self.lease.lake, self.name, self.cut_table, "history")
        rows = self.session.read.schema(history.schema).parquet(*folders).dropDuplicates([ORD])
        absent = rows.join(history.select(ORD), ORD, "left_anti").select(history.columns)
        self.lease.check()
        request = self._request("history", NetChange(images=absent), self.cut_table.history_version)
        version = apply(self.session, request).version
        low = self.cut_table.history_low
        return replace(
            self.cut_table,
            history_version=version,
            history_low=None if low is None or low.archived else low,
            history_sum=self.cut_table.history_sum.plus(self._sum(absent)),
        )

    def _rebuilt(self) -> Applied:
        """Make current what history adds up to: the keys whose rows differ go and come whole, or all rows, in one commit."""
        lake, schema = self.lease.lake, self.schema
        history = read_layer(self.session, lake, self.name, self.cut_table, "history")
        desired = replayed(self.session, schema, history, completing(self.cut_table, history))
        if self.from_scratch:
            return self._apply(NetChange(images=pick(desired, current_columns(schema)), truncate=True))
        desired = desired.withColumn(DIGEST, _whole(schema))
        persisted = read_layer(self.session, lake, self.name, self.cut_table).withColumn(DIGEST, _whole(schema))
        digests = multiset_difference(desired, persisted, DIGEST)
        key = (KEY,) if schema.is_bag else merge_key(schema)
        both = [pick(side.join(digests, DIGEST, "left_semi"), key) for side in (persisted, desired)]
        differing = both[0].unionAll(both[1]).distinct().persist()
        try:
            if differing.isEmpty():
                return Applied(self.cut_table.current_version, 0, 0)
            old, new = (join_on_key(side, differing, key, "left_semi", null_safe=True) for side in (persisted, desired))
            deletes, images = pick(old, merge_key(schema)).distinct(), pick(new, current_columns(schema))
            return self._apply(NetChange(merge_key(schema), deletes, images, null_safe=True))
        finally:
            differing.unpersist()

    def _apply(self, change: NetChange) -> Applied:
        self.lease.check()
        return apply(self.session, self._request("current", change, self.cut_table.current_version))

    def _request(self, layer: str, change: NetChange, version: int) -> CommitRequest:
        paths = self.lease.lake.paths
        key = paths.history(self.name) if layer == "history" else paths.current(self.name)
        return CommitRequest(self.lease.lake.url(key), change, self._commit(layer), expected_version=version)


def archived(archive: Store | None, paths: LakePaths, table: TableName) -> list[str]:
    """Return the folders of the rows that left a table's history, one for each cycle that removed some.

    Raises LakeError if the archive has none.
    """
    key = paths.history(table)
    parts = [] if archive is None else archive.folders(key)
    if archive is None or not parts:
        place = None if archive is None else archive.url(key)
        raise LakeError(
            f"{paths.source}: {table}",
            f"the archive has nothing of it ({place})",
            "set `retention.archive` to the folder that it was archived in",
        )
    return [archive.url(f"{key}/{part}") for part in parts]


def _whole(schema: SchemaVersion) -> SparkColumn:
    """Return a row's digest with the places of its large values, if a later update may leave those out."""
    columns = [] if schema.is_bag or has_old_rows(schema) else [schema.columns[i] for i in large_columns(schema)]
    places = (F.when(has_value([c.name], c.attnum), holder(c.attnum)).cast("string") for c in columns)
    return F.concat_ws("|", row_key(schema), *(F.coalesce(place, F.lit("")) for place in places))


def rows_of_state(schema: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """Return the rows of history (its columns) that are the table's rows after them, each with its own place and time.

    They are complete, and hold what they had unchanged for the rows that named its holder.
    """
    alive = history.join(_alive(schema, history, complete), ORD, "left_semi")
    return pick(complete(alive), history_columns(schema))


def _alive(schema: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """Return the `_lp_ord` of those rows."""
    if schema.is_bag:
        # A copy in a bag has the ordinal of the row that brought it.
        net = added_up(schema, history, None, complete)
        return history.select(ORD).limit(0) if net.images is None else net.images.select(F.col(DUP).alias(ORD))
    if has_old_rows(schema):
        # A key may be unique only at commit: the row that is left of a key decides, not its newest row.
        net = added_up(schema, history, None, complete)
        newest = net.checked[0]
        return newest.where(F.col(IMAGE).isNotNull()).select(F.col(IMAGE).alias(ORD))
    events = after_truncates(history)
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(schema))).orderBy(F.col(ORD).desc())
    ranked = events.withColumn(_RANK, F.row_number().over(newest_first)).where(F.col(_RANK) == 1)
    return ranked.where(F.col(OP).isin("insert", "update")).select(ORD)
