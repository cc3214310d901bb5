"""Applies a copy of single keys: under these the table gets the source's rows, under all other keys its own changes.

Copying the rows belongs to `lakeproof.snapshot.copy.keyed_copy` and its caller, choosing the cycle that applies them to
`lakeproof.lake.planning`, committing to `commits_by_spark`.

    desired    = the copy's rows                          of the copied keys, at the cycle's end, where the copy was made
    kept       = persisted + net change of the range      of the same keys
    correction = desired - kept                           written to history as it is
    current takes the range's net change and the correction together, in one commit

The changes of the copied keys may not fit the damaged rows that the lake has: a row is missing whose large value an update
left unchanged. Then the changes of these keys are not added up at all, and the correction brings their result: of every such
key that changed, for what history has of it is older. All other keys are checked as in every cycle: the lake has exactly the
rows that the range's changes presuppose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError, TableError
from lakeproof.hidden_columns import KEY
from lakeproof.lake.columns import current_columns, keeps_key, merge_key
from lakeproof.lake.cycle.commits_by_spark import DIGEST, EntryCorrection, evaluated, exact_from_end, write_correction
from lakeproof.lake.cycle.task import KeyedEntry, TableResult, TableTask, carried
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import snapshot_rows, with_net_change
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.rows.change import FIRST, DriftedError, NetChange, Removed
from lakeproof.lake.rows.columns import key_value, pick, row_key
from lakeproof.lake.rows.correction import BucketDiff, check_rows, correct, join_on_key
from lakeproof.lake.rows.file_rows import TableRange
from lakeproof.lake.rows.landing_rows import LandedChanges, read_range
from lakeproof.lake.rows.memory import persist
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class _Copied:
    """The copy's rows, and its keys: alone, persisted, and as rows whose other columns are NULL."""

    rows: DataFrame
    keys: DataFrame
    keys_as_rows: DataFrame


@dataclass(frozen=True, slots=True)
class _Own:
    """The range's changes added up; `left_out`, persisted, are the copied keys whose changes are not among them."""

    changes: ResolvedChanges
    left_out: DataFrame | None = None

    def release(self) -> None:
        self.changes.release()
        if self.left_out is not None:
            self.left_out.unpersist()


def write_keyed(session: SparkSession, task: TableTask, keyed: KeyedEntry) -> TableResult:
    """Write a table with the rows of a copy of single keys; without a difference and without changes, nothing."""
    before = task.before
    if before is None or keyed.consistent_point != task.intent.end_lsn:
        raise InvariantError(str(task.table), "a copy of keys enters where it was not made", "report this")
    changes = task.own_range()
    schema = changes.schema
    persisted = read_layer(session, task.lake, task.table, before)
    with _copied(session, task, schema, keyed) as copied:
        own = _own_changes(session, changes, persisted, copied.keys)
        try:
            if own is not None:
                _check_others(task, persisted, own.changes.net, copied.keys)
            correction = _correction(schema, copied, persisted, own)
            if own is None and correction.net_is_empty:
                correction.release()
                return carried(task, before)
            result = write_correction(session, task, correction, None if own is None else own.changes)
        finally:
            if own is not None:
                own.release()
    return result if own is None or own.left_out is None else exact_from_end(task, result)


@contextmanager
def _copied(session: SparkSession, task: TableTask, schema: SchemaVersion, keyed: KeyedEntry) -> Iterator[_Copied]:
    folder, key = task.lake.url(keyed.key), merge_key(schema)
    keys_as_rows = snapshot_rows(session, schema, keyed.table.keys, folder)
    keys = persist(pick(keys_as_rows, key).distinct())
    try:
        rows = snapshot_rows(session, schema, keyed.table.rows, folder)
        # PostgreSQL may have found a row of another exact key.
        yield _Copied(join_on_key(rows, F.broadcast(keys), key, "left_semi", null_safe=True), keys, keys_as_rows)
    finally:
        keys.unpersist()


def _own_changes(session: SparkSession, changes: TableRange, persisted: DataFrame, keys: DataFrame) -> _Own | None:
    """Return the range added up, if it may be without the changes of the copied keys; None if it has no changes."""
    try:
        own = evaluated(session, changes, persisted)
        return None if own is None else _Own(own)
    except TableError:
        return _without(session, changes, persisted, keys)


def _without(session: SparkSession, changes: TableRange, persisted: DataFrame, keys: DataFrame) -> _Own:
    """Return the changes of all other keys added up; raises as evaluating them does."""
    schema, key = changes.schema, merge_key(changes.schema)
    read = read_range(session, changes)
    frame = read.frame.withColumn(KEY, key_value(schema)) if keeps_key(schema) else read.frame
    others = join_on_key(frame, F.broadcast(keys), key, "left_anti", null_safe=False)
    own = resolve_range(session, LandedChanges(schema, others.select(*read.frame.columns), read.counts), persisted)
    if own.persisted:
        own.events.count()
    left_out = join_on_key(keys, pick(frame, key), key, "left_semi", null_safe=False)
    return _Own(own, persist(left_out))


def _check_others(task: TableTask, persisted: DataFrame, net: NetChange[DataFrame], keys: DataFrame) -> None:
    """Raise DriftedError unless the lake has the rows that the changes of all other keys presuppose."""
    removed = net.removed
    if not isinstance(removed, Removed):
        return
    others = join_on_key(removed.rows, F.broadcast(keys), removed.key, "left_anti", null_safe=removed.null_safe)
    expected = others.where(F.col(FIRST).isNotNull()).count()
    try:
        check_rows(str(task.table), persisted, replace(removed, rows=others, presupposed=expected))
    except DriftedError:
        if task.sends_everything:
            raise


def _correction(schema: SchemaVersion, copied: _Copied, persisted: DataFrame, own: _Own | None) -> EntryCorrection:
    key, change = merge_key(schema), NetChange[DataFrame]() if own is None else own.changes.net
    after = with_net_change(schema, persisted, change)
    # As many rows as there are keys, but for damage. What follows reads them many times, and each time would be the table's
    # scan and the range's sum.
    after = persist(join_on_key(after, F.broadcast(copied.keys), key, "left_semi", null_safe=True))
    rows = persist(copied.rows)
    kept = [after, rows]
    desired, restated = rows, None
    if own is not None and own.left_out is not None:
        gone, come = (persist(side) for side in _restated(schema, replace(copied, rows=rows), after, own.left_out))
        restated = gone, come
        kept += [gone, come]
        desired, after = (join_on_key(side, own.left_out, key, "left_anti", null_safe=True) for side in (rows, after))
    desired, after = (persist(side.withColumn(DIGEST, row_key(schema))) for side in (desired, after))
    compared = BucketDiff(desired, after, 0, (*kept, desired, after))
    return EntryCorrection(schema, change, correct(desired, after, DIGEST), compared, after, restated)


def _restated(schema: SchemaVersion, copied: _Copied, after: DataFrame, keys: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return what is deleted and inserted under keys whose changes history lacks: all that is there, and the copy's rows.

    A key with neither is deleted by its key alone: history may have a row of it.
    """
    key, columns = merge_key(schema), current_columns(schema)
    there, rows = (join_on_key(side, keys, key, "left_semi", null_safe=True) for side in (after, copied.rows))
    gone = join_on_key(copied.keys_as_rows, keys, key, "left_semi", null_safe=True)
    for side in (there, rows):
        gone = join_on_key(gone, side, key, "left_anti", null_safe=True)
    return pick(there, columns).unionAll(pick(gone, columns)), pick(rows, columns)
