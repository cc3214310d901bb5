"""What Spark does in maintenance: history is trimmed or brought back, current is made anew from it; where retention begins.

Choosing the tables and the conditions does not belong here (`lakeproof.commands.maintain`), nor small files, which are put
together without reading what is in them (`maintenance`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD, XID, scratch
from lakeproof.lake.columns import current_columns, has_old_rows, history_columns, large_columns, merge_key
from lakeproof.lake.cycle.upkeep.logs import HistoryLostError, lost_history
from lakeproof.lake.cycle.upkeep.maintenance import TableMaintenance, archived, history_id
from lakeproof.lake.cycle.upkeep.table_files import Damaged
from lakeproof.lake.delta.apply import CommitRequest, apply_change, with_files
from lakeproof.lake.delta.committer import Applied, version_to_follow
from lakeproof.lake.delta.files.needed import sync_folder
from lakeproof.lake.delta.log.protocol import check_writable
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.delta.search import places_below
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import Complete, added_up, after_truncates, replayed
from lakeproof.lake.fold.net_change import IMAGE
from lakeproof.lake.fold.unchanged_values import completing, has_value, holder_ordinal
from lakeproof.lake.records.documents import Cut, CutTable, HistoryLow, Rebuild, Trim, Work
from lakeproof.lake.records.held import Held
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.correction import join_on_key, multiset_difference
from lakeproof.lake.rows.file_rows import DIGEST
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lake.spark.failures import reading, unreadable_file
from lakeproof.lsn import Lsn
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


def first_change_from(
    spark: SparkSession, lake: SourceLake, cut: Cut, ordinal: int, damaged: Damaged
) -> tuple[dict[TableName, int | None], dict[TableName, Held]]:
    """Return the ordinal of each table's first change that is not before `ordinal`, None if it has none.

    And how the tables are to be held whose history has an unreadable file. A history that is lost already is not read.
    """
    is_young = F.col(XID).isNotNull() & (F.col(ORD) >= F.lit(ordinal))
    return _each_first(spark, lake, cut, dict.fromkeys(cut.tables, is_young), damaged)


def tables_with_changes_before(
    spark: SparkSession, lake: SourceLake, cut: Cut, ordinals: Mapping[TableName, int], damaged: Damaged
) -> tuple[set[TableName], dict[TableName, Held]]:
    """Return which of these tables have a change before an ordinal; what a snapshot brought is none. And as above."""
    is_change = F.col(XID).isNotNull()
    conditions = {table: is_change & (F.col(ORD) < F.lit(ordinal)) for table, ordinal in ordinals.items()}
    firsts, lost = _each_first(spark, lake, cut, conditions, damaged)
    return {table for table, first in firsts.items() if first is not None}, lost


def _each_first(
    spark: SparkSession, lake: SourceLake, cut: Cut, conditions: Mapping[TableName, Column], damaged: Damaged
) -> tuple[dict[TableName, int | None], dict[TableName, Held]]:
    """Return the ordinal of each table's first row that meets its condition, and how unreadable histories are held."""
    firsts: dict[TableName, int | None] = {}
    lost: dict[TableName, Held] = {}
    for table, condition in conditions.items():
        cut_table, before = cut.tables[table], cut.held.get(table)
        if before is not None and before.history_lost:
            continue
        with reading(spark, LakeError, HistoryLostError, Py4JError, OSError) as attempt:
            firsts[table] = _first(spark, lake, table, cut_table, condition)
        if isinstance(attempt.error, HistoryLostError):
            unread = attempt.error.held(cut_table.at_lsn)
            lost[table] = unread if before is None else before.after(unread)
            damaged.add_held(table, unread)
        elif attempt.error is not None:
            damaged.add(table, attempt.error)
    return firsts, lost


def _first(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, condition: Column
) -> int | None:
    """Return the `_lp_ord` of that row; raises HistoryLostError if a file of history can't be read, twice."""
    try:
        return _first_ord(spark, lake, table, cut_table, condition)
    except (PySparkException, Py4JJavaError) as error:
        if lost_history(lake, table, unreadable_file(error)) is None:
            raise
    try:
        return _first_ord(spark, lake, table, cut_table, condition)
    except (PySparkException, Py4JJavaError) as error:
        raise lost_history(lake, table, unreadable_file(error)) or error from error


def _first_ord(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, condition: Column
) -> int | None:
    history = read_layer(spark, lake, table, cut_table, "history")
    first = history.where(condition).agg(F.min(ORD)).collect()[0][0]
    return None if first is None else int(first)


_RANK = scratch("rank")


def maintained_by_spark(task: TableMaintenance, work: Work) -> CutTable:
    """Do what the intent says with rows, and return the table's entry in the cut."""
    session = task.spark.get()
    fit_table(session, task.cut_table.row_bytes, task.cut_table.version)
    rows = _Rows(session, task)
    match work:
        case Rebuild():
            return replace(task.cut_table, current_version=rows.rebuilt().version)
        case Trim(below):
            return rows.trimmed(below)
    return rows.restored()


@dataclass(frozen=True, slots=True)
class _Rows:
    """One table, at the cut before, in the session that has room for its rows."""

    session: SparkSession
    task: TableMaintenance

    def trimmed(self, bound: int) -> CutTable:
        """Trim history's rows below `bound`: those that were the table's rows then stay as they are, the others go."""
        task, before = self.task, self.task.cut_table
        old, path = self._below(bound, before), task.path("history")
        complete = completing(before, old)
        alive = _alive(task.schema, old, complete)
        kept = rows_of_state(task.schema, old, complete)
        archived = False
        if task.archive is not None:
            archived = self._archived(old.join(alive, ORD, "left_anti"), task.archive)
            failpoint("maintenance.after_archive")
        task.lease.check()
        request = self._request("history", NetChange(images=kept))
        state = read_state(path, version_to_follow(path, before.history_version, request.info))
        check_writable(state)
        version = with_files(request, state, places_below(state, ORD, bound)).commit().version
        failpoint("maintenance.after_trim")
        # The last change up to there: from its position on history is whole. It may have left with an earlier trim.
        last = self._below(bound, before).agg(F.max(LSN)).collect()[0][0]
        low_before = Lsn.ZERO if before.history_low is None else before.history_low.at_lsn
        at_lsn = low_before if last is None else max(low_before, Lsn(int(last)))
        after = replace(before, history_version=version, history_low=HistoryLow(bound, at_lsn, archived=archived))
        # By difference: rows that were damaged before keep the sum from being that of the files.
        went, came = (sum_of(task.schema, self._below(bound, each)) for each in (before, after))
        return replace(after, history_sum=before.history_sum.minus(went).plus(came))

    def _layer(self, cut_table: CutTable, layer: Layer) -> DataFrame:
        return read_layer(self.session, self.task.lake, self.task.table, cut_table, layer)

    def _below(self, bound: int, cut_table: CutTable) -> DataFrame:
        return self._layer(cut_table, "history").where(F.col(ORD) < bound)

    def _archived(self, rows: DataFrame, archive: Store) -> bool:
        """Archive the rows; return True if this archive has all that was ever removed of the table's history."""
        task, paths, low = self.task, self.task.lake.paths, self.task.cut_table.history_low
        delta_id = history_id(task.lake, task.table)
        place = Folder(archive, paths.archived(task.table, delta_id, task.intent.number))
        # A killed cycle has left a part of this one's.
        earlier = {*archive.folders(paths.archive(task.table, delta_id))} - {place.key.rpartition("/")[2]}
        pick(rows, history_columns(task.schema)).write.mode("overwrite").parquet(place.url)
        sync_folder(place)
        return low is None or (low.archived and bool(earlier))

    def restored(self) -> CutTable:
        """Bring back what the archive has of history; rows that history still has are not brought again."""
        task, before = self.task, self.task.cut_table
        history = self._layer(before, "history")
        folders = archived(task.archive, task.lake, task.table)
        rows = self.session.read.schema(history.schema).parquet(*folders).dropDuplicates([ORD])
        absent = rows.join(history.select(ORD), ORD, "left_anti").select(history.columns)
        version, low = self._apply("history", NetChange(images=absent)).version, before.history_low
        return replace(
            before,
            history_version=version,
            history_low=None if low is None or low.archived else low,
            history_sum=before.history_sum.plus(sum_of(task.schema, absent)),
        )

    def rebuilt(self) -> Applied:
        """Make current what history adds up to: replace the rows of differing keys, or all rows, in one commit."""
        before, schema = self.task.cut_table, self.task.schema
        history = self._layer(before, "history")
        desired = replayed(self.session, schema, history, completing(before, history))
        if self.task.from_scratch:
            return self._apply("current", NetChange(AllRows(), pick(desired, current_columns(schema))))
        desired, persisted = (
            side.withColumn(DIGEST, _whole(schema)) for side in (desired, self._layer(before, "current"))
        )
        digests = multiset_difference(desired, persisted, DIGEST)
        key = (KEY,) if schema.is_bag else merge_key(schema)
        both = [pick(side.join(digests, DIGEST, "left_semi"), key) for side in (persisted, desired)]
        differing = both[0].unionAll(both[1]).distinct().persist()
        try:
            if differing.isEmpty():
                return Applied(before.current_version, 0, 0)
            old, new = (join_on_key(side, differing, key, "left_semi", null_safe=True) for side in (persisted, desired))
            deletes, images = pick(old, merge_key(schema)).distinct(), pick(new, current_columns(schema))
            return self._apply("current", NetChange(Removed(merge_key(schema), deletes, null_safe=True), images))
        finally:
            differing.unpersist()

    def _apply(self, layer: Layer, change: NetChange[DataFrame]) -> Applied:
        self.task.lease.check()
        return apply_change(self.session, self._request(layer, change))

    def _request(self, layer: Layer, change: NetChange[DataFrame]) -> CommitRequest:
        version = self.task.cut_table.version_of(layer)
        return CommitRequest(self.task.path(layer), change, self.task.commit_info(layer), expected_version=version)


def _whole(schema: SchemaVersion) -> SparkColumn:
    """Return a row's digest with the places of its large values, if a later update may leave those out."""
    columns = [] if schema.is_bag or has_old_rows(schema) else [schema.columns[i] for i in large_columns(schema)]
    places = (F.when(has_value([c.name], c.attnum), holder_ordinal(c.attnum)).cast("string") for c in columns)
    return F.concat_ws("|", row_key(schema), *(F.coalesce(place, F.lit("")) for place in places))


def rows_of_state(schema: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """Return the rows of history (its columns) that are the table's rows after them, each with its own place and time.

    They are complete, and hold what they had unchanged for the rows that named its holder.
    """
    alive = history.join(_alive(schema, history, complete), ORD, "left_semi")
    return pick(complete(alive), history_columns(schema))


def _alive(schema: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """Return the `_lp_ord` of the rows with unchanged values."""
    if schema.is_bag or has_old_rows(schema):
        summed = added_up(schema, history, None, complete)
        if schema.is_bag or summed.keys is None:
            # A copy in a bag has the ordinal of the row that brought it.
            return summed.images.select(F.col(DUP).alias(ORD))
        # A key may be unique only at commit: the row that is left of a key decides, not its newest row.
        return summed.keys.where(F.col(IMAGE).isNotNull()).select(F.col(IMAGE).alias(ORD))
    events = after_truncates(history)
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(schema))).orderBy(F.col(ORD).desc())
    ranked = events.withColumn(_RANK, F.row_number().over(newest_first)).where(F.col(_RANK) == 1)
    return ranked.where(F.col(OP).isin("insert", "update")).select(ORD)
