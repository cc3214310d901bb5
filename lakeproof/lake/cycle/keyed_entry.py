"""Applying a copy of single keys: under those keys the table gets the source's rows, under all others its own changes.

Copying the rows belongs to `lakeproof.snapshot.keyed_copy` and its caller, choosing the cycle that applies them to
`lakeproof.lake.planning`, committing to `correction_commits`.

    desired    = the copy's rows                          of the copied keys, at the cycle's end, where the copy was made
    kept       = persisted + net change of the range      of the same keys
    correction = desired - kept                           written to history as it is
    current takes the range's net change and the correction together, in one commit

The changes of the copied keys may not fit the damaged rows that the lake has: a row is missing whose large value an update
left unchanged. Then the changes of these keys are not added up at all, and the correction brings their result. All other
keys are checked as in every cycle: the lake has exactly the rows that the range's changes presuppose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError, TableError
from lakeproof.hidden_columns import KEY
from lakeproof.lake.columns import keeps_key, key_may_be_null, merge_key
from lakeproof.lake.cycle.correction_commits import write_correction
from lakeproof.lake.cycle.snapshot_entry import DIGEST, EntryCorrection
from lakeproof.lake.cycle.table_parts import range_of, resolve, rows_before, table_at_end
from lakeproof.lake.cycle.task import CycleContext, KeyedEntry, TableResult, TableTask
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.fold.table_range import TableRange
from lakeproof.lake.fold.table_state import snapshot_rows, with_net_change
from lakeproof.lake.rows.bucket_diff import BucketDiff
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import key_value, pick, row_key
from lakeproof.lake.rows.correction import correct
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.landing_rows import Changes
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.lake.rows.memory import keep
from lakeproof.lake.rows.preconditions import DriftedError, check_rows
from lakeproof.lake.rows.refusal import refusals
from lakeproof.landing.catalog_history import sends_everything
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class _Copied:
    """The copy's rows, and its keys, which are persisted."""

    rows: DataFrame
    keys: DataFrame


def write_keyed(session: SparkSession, context: CycleContext, task: TableTask, keyed: KeyedEntry) -> TableResult:
    """Write a table with the rows of a copy of single keys; without a difference and without changes, nothing."""
    before = task.before
    if before is None or keyed.consistent_point != context.intent.end_lsn:
        raise InvariantError(str(task.table), "a copy of keys enters where it was not made", "report this")
    changes = range_of(context, task, task.files, context.intent.start_lsn)
    schema = changes.schema
    persisted = rows_before(session, context, task, before)
    with _copied(session, context, schema, keyed) as copied:
        own, is_whole = _own_changes(session, changes, persisted, copied.keys)
        try:
            if own is not None:
                _check_others(context, task, persisted, own.net, copied.keys)
            correction = _correction(schema, copied, persisted, NetChange() if own is None else own.net)
            if own is None and correction.net_is_empty:
                correction.release()
                history = before.history_version, before.history_sum
                at_end = table_at_end(context, task, history, before.current_version)
                return TableResult(at_end, ChangeCounts(), touched=False)
            result = write_correction(session, context, task, correction, own)
        finally:
            if own is not None:
                own.release()
    if is_whole:
        return result
    return replace(result, cut_table=replace(result.cut_table, exact_from=context.intent.end_lsn))


@contextmanager
def _copied(
    session: SparkSession, context: CycleContext, schema: SchemaVersion, keyed: KeyedEntry
) -> Iterator[_Copied]:
    folder, key = context.lease.lake.url(keyed.key), merge_key(schema)
    keys = keep(pick(snapshot_rows(session, schema, keyed.table.keys, folder), key).distinct())
    try:
        rows = snapshot_rows(session, schema, keyed.table.rows, folder)
        # PostgreSQL may have found a row of another exact key.
        yield _Copied(join_on_key(rows, F.broadcast(keys), key, "left_semi", null_safe=True), keys)
    finally:
        keys.unpersist()


def _own_changes(
    session: SparkSession, changes: TableRange, persisted: DataFrame, keys: DataFrame
) -> tuple[ResolvedChanges | None, bool]:
    """Return the range added up, and True if the changes of the copied keys are in it; None if it has no changes."""
    if changes.counts.rows == 0:
        return None, True
    try:
        with refusals(str(changes.schema.table)):
            own = resolve(session, changes, persisted)
            if own is not None and own.persisted:
                own.events.count()
            return own, True
    except TableError:
        return _without(session, changes, persisted, keys), False


def _without(session: SparkSession, changes: TableRange, persisted: DataFrame, keys: DataFrame) -> ResolvedChanges:
    """Return the changes of all other keys added up; raises as evaluating them does."""
    schema = changes.schema
    read = changes.read(session)
    frame = read.frame.withColumn(KEY, key_value(schema)) if keeps_key(schema) else read.frame
    others = join_on_key(frame, F.broadcast(keys), merge_key(schema), "left_anti", null_safe=key_may_be_null(schema))
    own = resolve_range(session, Changes(schema, others.select(*read.frame.columns), read.counts), persisted)
    if own.persisted:
        own.events.count()
    return own


def _check_others(
    context: CycleContext, task: TableTask, persisted: DataFrame, net: NetChange, keys: DataFrame
) -> None:
    """Raise DriftedError unless the lake has the rows that the changes of all other keys presuppose."""
    if net.truncate or net.deletes is None or net.preconditions is None:
        return
    others = join_on_key(net.deletes, F.broadcast(keys), net.key, "left_anti", null_safe=net.null_safe)
    expected = others.where(F.col(FIRST).isNotNull()).count()
    try:
        check_rows(str(task.table), persisted, others, net.key, expected, null_safe=net.null_safe)
    except DriftedError:
        if sends_everything(context.chain, task.version.oid):
            raise


def _correction(schema: SchemaVersion, copied: _Copied, persisted: DataFrame, change: NetChange) -> EntryCorrection:
    after = with_net_change(schema, persisted, change)
    kept = join_on_key(after, F.broadcast(copied.keys), merge_key(schema), "left_semi", null_safe=True)
    # As many rows as there are keys, but for damage: they are found once.
    desired, kept = (keep(side.withColumn(DIGEST, row_key(schema))) for side in (copied.rows, kept))
    compared = BucketDiff(desired, kept, 0, (desired, kept))
    return EntryCorrection(schema, change, correct(desired, kept, DIGEST), compared, kept)
