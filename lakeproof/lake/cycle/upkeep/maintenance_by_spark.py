"""What Spark does to a table in a cycle of maintenance: history is trimmed or brought back, current is made anew from it.

Choosing the tables does not belong here (`lakeproof.commands.maintain`), nor small files, which are put together without
reading what is in them (`maintenance`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD, scratch
from lakeproof.lake.columns import current_columns, has_old_rows, history_columns, large_columns, merge_key
from lakeproof.lake.cycle.upkeep.maintenance import TableMaintenance, archived
from lakeproof.lake.delta.apply import CommitRequest, apply, with_files
from lakeproof.lake.delta.committer import Applied, version_to_follow
from lakeproof.lake.delta.files.needed import sync_folder
from lakeproof.lake.delta.log.protocol import check_writable
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.delta.search import places_below
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import Complete, added_up, after_truncates, replayed
from lakeproof.lake.fold.net_change import IMAGE
from lakeproof.lake.fold.unchanged_values import completing, has_value, holder
from lakeproof.lake.records.documents import CutTable, HistoryLow, HistorySum, Rebuild, Trim, Work
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.correction import join_on_key, multiset_difference
from lakeproof.lake.rows.file_rows import DIGEST
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lsn import Lsn
from lakeproof.names import Layer
from lakeproof.schema import SchemaVersion
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import Store

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
    """One table in the session that has room for its rows."""

    session: SparkSession
    task: TableMaintenance

    def trimmed(self, bound: int) -> CutTable:
        """Trim history's rows below `bound`: those that were the table's rows then stay as they are, the others go."""
        path = self.task.lease.lake.url(self.task.lease.lake.paths.history(self.task.name))
        old = self._before(self.task.cut_table.history_version, bound)
        complete = completing(self.task.cut_table, old)
        alive = _alive(self.task.schema, old, complete)
        kept = rows_of_state(self.task.schema, old, complete)
        if self.task.archive is not None:
            self._archived(old.join(alive, ORD, "left_anti"), self.task.archive)
            failpoint("maintenance.after_archive")
        self.task.lease.check()
        request = self._request("history", NetChange(images=kept), self.task.cut_table.history_version)
        state = read_state(path, version_to_follow(path, self.task.cut_table.history_version, request.info))
        check_writable(state)
        version = with_files(request, state, places_below(state, ORD, bound)).commit().version
        failpoint("maintenance.after_trim")
        # The last change up to there: from its position on history is whole. It may have left with an earlier trim.
        last = self._before(self.task.cut_table.history_version, bound).agg(F.max(LSN)).collect()[0][0]
        low_before = Lsn.ZERO if self.task.cut_table.history_low is None else self.task.cut_table.history_low.at_lsn
        at_lsn = low_before if last is None else max(low_before, Lsn(int(last)))
        before = self.task.cut_table.history_low is None or self.task.cut_table.history_low.archived
        low = HistoryLow(bound, at_lsn, archived=before and self.task.archive is not None)
        # By difference: rows that were damaged before keep the sum from being that of the files.
        new = replace(self.task.cut_table, history_version=version, history_low=low)
        went, came = (
            self._sum(self._before(self.task.cut_table.history_version, bound)),
            self._sum(self._before(version, bound)),
        )
        return replace(new, history_sum=self.task.cut_table.history_sum.minus(went).plus(came))

    def _sum(self, rows: DataFrame) -> HistorySum:
        return sum_of(self.task.schema, rows)

    def _before(self, version: int, bound: int) -> DataFrame:
        cut_table = replace(self.task.cut_table, history_version=version)
        return read_layer(self.session, self.task.lease.lake, self.task.name, cut_table, "history").where(
            F.col(ORD) < bound
        )

    def _archived(self, rows: DataFrame, archive: Store) -> None:
        place = Folder(archive, self.task.lease.lake.paths.archived(self.task.name, self.task.intent.number))
        pick(rows, history_columns(self.task.schema)).write.mode("overwrite").parquet(place.url)
        sync_folder(place)

    def restored(self) -> CutTable:
        """Bring back what the archive has of history; rows that history still has are not brought again."""
        folders = archived(self.task.archive, self.task.lease.lake.paths, self.task.name)
        history = read_layer(self.session, self.task.lease.lake, self.task.name, self.task.cut_table, "history")
        rows = self.session.read.schema(history.schema).parquet(*folders).dropDuplicates([ORD])
        absent = rows.join(history.select(ORD), ORD, "left_anti").select(history.columns)
        self.task.lease.check()
        request = self._request("history", NetChange(images=absent), self.task.cut_table.history_version)
        version = apply(self.session, request).version
        low = self.task.cut_table.history_low
        return replace(
            self.task.cut_table,
            history_version=version,
            history_low=None if low is None or low.archived else low,
            history_sum=self.task.cut_table.history_sum.plus(self._sum(absent)),
        )

    def rebuilt(self) -> Applied:
        """Make current what history adds up to: replace the rows of differing keys, or all rows, in one commit."""
        lake, schema = self.task.lease.lake, self.task.schema
        history = read_layer(self.session, lake, self.task.name, self.task.cut_table, "history")
        desired = replayed(self.session, schema, history, completing(self.task.cut_table, history))
        if self.task.from_scratch:
            return self._apply(NetChange(AllRows(), pick(desired, current_columns(schema))))
        desired = desired.withColumn(DIGEST, _whole(schema))
        persisted = read_layer(self.session, lake, self.task.name, self.task.cut_table).withColumn(
            DIGEST, _whole(schema)
        )
        digests = multiset_difference(desired, persisted, DIGEST)
        key = (KEY,) if schema.is_bag else merge_key(schema)
        both = [pick(side.join(digests, DIGEST, "left_semi"), key) for side in (persisted, desired)]
        differing = both[0].unionAll(both[1]).distinct().persist()
        try:
            if differing.isEmpty():
                return Applied(self.task.cut_table.current_version, 0, 0)
            old, new = (join_on_key(side, differing, key, "left_semi", null_safe=True) for side in (persisted, desired))
            deletes, images = pick(old, merge_key(schema)).distinct(), pick(new, current_columns(schema))
            return self._apply(NetChange(Removed(merge_key(schema), deletes, null_safe=True), images))
        finally:
            differing.unpersist()

    def _apply(self, change: NetChange[DataFrame]) -> Applied:
        self.task.lease.check()
        return apply(self.session, self._request("current", change, self.task.cut_table.current_version))

    def _request(self, layer: Layer, change: NetChange[DataFrame], version: int) -> CommitRequest:
        lake = self.task.lease.lake
        path = lake.url(lake.paths.layer(self.task.name, layer))
        return CommitRequest(path, change, self.task.commit_info(layer), expected_version=version)


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
