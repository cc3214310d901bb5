"""The commits of a table that Spark writes: to history, to current, and the two of a correction, which a snapshot needs.

Computing what is written belongs to `table_by_spark`, copying a snapshot to `lakeproof.snapshot`, making
a commit once to `delta.apply`, the definition of a sum to `rows.history_sum`.

History's rows are summed while they are written. The check that the lake has the rows that the changes presuppose
(`rows.correction.check_rows`) is made before history gets its commit. If the publication leaves out an operation, the
source's rows change unseen: then nothing is presupposed.

    desired@X = snapshot@C + net change of (C, X]
    kept@X    = persisted  + net change of (its place, X]          (a table that is in the lake already)
    correction = desired@X - kept@X                                written to history as it is
    current takes the net change and the correction together, in one commit

So the first snapshot of a table, a re-snapshot and the way out of being held are one path; a table never steps back.
Everything is computed in Spark; nothing grows on the driver with the table but the list of its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import DUP, FROM, KEY, OP, ORD, scratch
from lakeproof.lake.columns import (
    current_columns,
    has_old_rows,
    merge_key,
)
from lakeproof.lake.cycle.task import TableCommits, TableResult, TableTask, exact_from_end
from lakeproof.lake.delta.apply import CommitRequest, prepare
from lakeproof.lake.delta.link_commit import RowCommit
from lakeproof.lake.fold.history import (
    after_truncates,
    change_rows,
    few_files,
    state_rows,
    with_net_change,
)
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.change import AllRows, DriftedError, NetChange, Removed, check_counts, unchecked
from lakeproof.lake.rows.columns import key_value, pick, row_key
from lakeproof.lake.rows.correction import (
    NET,
    SIDE,
    BucketDiff,
    Correction,
    bucket_diff,
    check_rows,
    correct,
    join_on_key,
    left_over,
    net_counts,
    numbered,
)
from lakeproof.lake.rows.file_rows import TableRange
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT
from lakeproof.lake.rows.history_sum import Summing, sum_of
from lakeproof.lake.rows.landing_rows import read_range
from lakeproof.lake.rows.refusal import refusals_as_errors
from lakeproof.names import Layer
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import NULL_FORM

DIGEST = scratch("digest")
_SIGN = scratch("sign")


@dataclass(frozen=True, slots=True)
class EntryCorrection:
    """The correction that history keeps of a snapshot's entry, beside the range's own `change`.

    `compared` are the rows of the buckets that differ; `kept` are the persisted rows after `change` in those buckets, with
    their digest.
    """

    schema: SchemaVersion
    change: NetChange[DataFrame]
    correction: Correction
    compared: BucketDiff
    kept: DataFrame

    @property
    def retractions(self) -> DataFrame:
        """The rows that the correction deletes."""
        return pick(self.correction.retractions, current_columns(self.schema))

    @property
    def insertions(self) -> DataFrame:
        """The rows that the correction inserts.

        A damaged lake may have a key twice. Whoever adds history up takes the last event of a key, so a row that stays under
        a key of which another is deleted comes again, behind the delete.
        """
        inserted = pick(self.correction.insertions, current_columns(self.schema))
        return inserted if self.schema.is_bag else inserted.unionAll(self._staying(comes_again=True))

    def net(self, insertions: DataFrame) -> NetChange[DataFrame]:
        """Return the change that current commits; `insertions` are the correction's with the `_lp_ord` that history gives.

        Every row keeps the place in history that it has: a snapshot's own ordinals are not in history here.
        """
        schema, change = self.schema, self.change
        key = merge_key(schema)
        retracted = pick(self.retractions, key)
        images = as_inserted(schema, insertions)
        if not schema.is_bag:
            # All rows under the key are deleted, those too that stay.
            retracted = retracted.distinct()
        if has_old_rows(schema) and not schema.is_bag:
            images = images.unionAll(self._staying(comes_again=False))
        if change.images is not None:
            images = images.unionAll(join_on_key(change.images, retracted, key, "left_anti", null_safe=True))
        match change.removed:
            case AllRows():
                return NetChange(AllRows(), images)
            case Removed(_, keys):
                retracted = retracted.unionAll(pick(keys, key)).distinct()
        # By no statistics: a file may have been altered behind them, or written before the table had its key.
        return NetChange(Removed(key, retracted, null_safe=True), images)

    def _staying(self, *, comes_again: bool) -> DataFrame:
        """Return the rows that stay under keys of which a row is retracted: those that history gets again, or the others.

        If all values of a row identify it in history (identity FULL), only an equal row's delete needs that.
        """
        schema = self.schema
        key, columns = merge_key(schema), current_columns(schema)
        retracted = pick(self.retractions, key).distinct()
        touched = join_on_key(self.kept, retracted, key, "left_semi", null_safe=True)
        staying = left_over(touched, self.correction, DIGEST)
        if has_old_rows(schema):
            equal = self.correction.net.where(F.col(NET) < 0)
            staying = staying.join(equal, F.col(DIGEST) == F.col(SIDE), "left_semi" if comes_again else "left_anti")
        return pick(staying, columns)

    def release(self) -> None:
        """Give back what is kept until both are written."""
        self.correction.release()
        self.compared.release()


def as_inserted(schema: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Return current's rows of whole rows that history gets, too: each has its row's place there, and names no other."""
    own = {FROM: F.lit(None).cast("string"), DUP: F.col(ORD)}
    return pick(rows.withColumns(own), current_columns(schema))


def entry_correction(
    schema: SchemaVersion, desired: DataFrame, persisted: DataFrame, change: NetChange[DataFrame]
) -> EntryCorrection:
    """Return what turns a table of the lake into `desired`, in one commit together with its own `change`.

    `change` is the net change of the table's own range, relative to `persisted`. Rows with another schema version's key have
    NULL in this one's; the caller checks whether such rows are deleted.
    """
    compared = bucket_diff(schema, desired, with_net_change(schema, persisted, change))
    desired_rows = compared.desired.withColumn(DIGEST, row_key(schema))
    kept = compared.persisted.withColumn(DIGEST, _existing(schema))
    order = F.col(DUP) if schema.is_bag else None
    return EntryCorrection(schema, change, correct(desired_rows, kept, DIGEST, order), compared, kept)


def _existing(schema: SchemaVersion) -> SparkColumn:
    """Return the digest of a row that the lake has; of a bag's row that is stored under the key of other values, none."""
    digest = row_key(schema)
    # Changes look for a row by the key that is stored: one that is not its values' is another row.
    return F.when(F.col(KEY) == digest, digest).otherwise(F.lit(NULL_FORM)) if schema.is_bag else digest


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """About `count` rows to append to history; `anew`: all earlier rows of history go first."""

    frame: DataFrame
    count: int
    anew: bool = False


def prepare_commits(
    session: SparkSession,
    task: TableTask,
    rows: HistoryRows,
    change: NetChange[DataFrame],
    max_keys: int | None = None,
) -> TableCommits:
    """Prepare both commits; `max_keys` as in a `CommitRequest`.

    Raises DriftedError if the table does not have the rows that the changes presuppose.
    """
    current = _prepare_current(session, task, change, max_keys)
    with current.or_discarded():
        summing = Summing(task.schema, rows.frame)
        appended = NetChange(AllRows() if rows.anew else None, few_files(summing.rows, rows.count))
        history = prepare(session, _request(task, "history", appended))
        added = summing.sum() or sum_of(task.schema, rows.frame)
    before = HistorySum() if rows.anew or task.before is None else task.before.history_sum
    return TableCommits(history, before.plus(added), current)


def _prepare_current(
    session: SparkSession, task: TableTask, change: NetChange[DataFrame], max_keys: int | None
) -> RowCommit:
    request = _request(task, "current", change, max_keys)
    try:
        return prepare(session, request)
    except DriftedError:
        if task.sends_everything:
            raise
        unasked = replace(change, removed=unchecked(change.removed))
        return prepare(session, replace(request, change=unasked))


def _request(task: TableTask, layer: Layer, change: NetChange[DataFrame], max_keys: int | None = None) -> CommitRequest:
    info, version = task.commit_info(layer), task.version_before(layer)
    return CommitRequest(task.path(layer), change, info, max_keys, task.spec(layer), version)


def resolve(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    """Return the changes added up on top of `base`; None if there are none."""
    return None if changes.counts.rows == 0 else resolve_range(session, read_range(session, changes), base)


def evaluated(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    """Return the same, evaluated as far as it may be refused; raises TableError if it is."""
    with refusals_as_errors(str(changes.schema.table)):
        resolved = resolve(session, changes, base)
        if resolved is not None and resolved.persisted:
            try:
                resolved.events.count()
            except BaseException:
                # A refused range is the ordinary case of a table that has drifted; the session lasts.
                resolved.release()
                raise
        return resolved


def old_rows_are_there(schema: SchemaVersion, own: ResolvedChanges, persisted: DataFrame) -> bool:
    """True if the old rows of a range's changes are rows of the lake. One job.

    Under identity FULL whoever adds history up takes whole rows out.
    """
    digest, sign = row_key(schema).alias(DIGEST), F.when(F.col(OP).isin("insert", "update"), 1).otherwise(-1)
    signed = after_truncates(own.events).select(digest, sign.alias(_SIGN))
    match own.net.removed:
        case Removed(key, keys, null_safe):
            gone = join_on_key(persisted, keys, key, "left_semi", null_safe=null_safe)
            signed = signed.unionAll(gone.select(digest, F.lit(1)))
    if own.net.images is not None:
        signed = signed.unionAll(own.net.images.select(digest, F.lit(-1)))
    return net_counts(signed, DIGEST, F.col(_SIGN)).isEmpty()


def release(*resolved: ResolvedChanges | None) -> None:
    """Give back what added-up ranges keep."""
    for one in filter(None, resolved):
        one.release()


def check_snapshot(task: TableTask, snapshot: DataFrame, since: ResolvedChanges | None) -> None:
    """Raise DriftedError if a snapshot's rows are not those that the changes after it presuppose: one job."""
    try:
        match None if since is None else since.net.removed:
            case AllRows(presupposed):
                check_counts(str(task.table), presupposed)
            case Removed() as removed:
                check_rows(str(task.table), snapshot, removed)
    except DriftedError:
        if task.sends_everything:
            raise


def write_correction(
    session: SparkSession,
    task: TableTask,
    correction: EntryCorrection,
    own: ResolvedChanges | None,
    gap: DataFrame | None = None,
) -> TableResult:
    """Commit a correction together with the range's `own` changes, and release it.

    `gap` is history's first row, if the table steps into another incarnation.
    """
    schema, intent = correction.schema, task.intent
    first = intent.own_ordinal + (0 if gap is None else 1)
    retractions = numbered(session, correction.retractions, first)
    insertions = numbered(session, correction.insertions, first + retractions.count)
    try:
        retracted = retractions.frame.withColumn(KEY, key_value(schema)) if schema.is_bag else retractions.frame
        events = state_rows(schema, retracted, CORRECT_DELETE, intent.end_lsn)
        events = events.unionAll(state_rows(schema, insertions.frame, CORRECT_INSERT, intent.end_lsn))
        if gap is not None:
            events = gap.unionAll(events)
        if own is not None:
            events = events.unionAll(change_rows(schema, own.events))
        counts = ChangeCounts() if own is None else own.counts
        net, max_keys = correction.net(insertions.frame), retractions.count + counts.rows
        result = prepare_commits(session, task, HistoryRows(events, counts.rows), net, max_keys).made(task, counts)
    finally:
        correction.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    corrected = retractions.count + insertions.count
    result = replace(result, own_rows=first + corrected - intent.own_ordinal)
    # Nobody knows if the lake was damaged, or if changes were never sent.
    return exact_from_end(task, result) if corrected else result
