"""History's rows, and a table computed from them: what they add up to, on top of a state or of nothing.

Choosing the rows of history belongs to `read.spark.as_of` and to the rebuild in `cycle.upkeep.maintenance`, adding changes
up to `net_change`, finding the holders of unchanged values to `unchanged_values`, committing to `delta.apply`.

History has a table's changes as after-images, a snapshot's rows, and corrections. They are changes whose keys are known
already, so only unchanged large values have to be looked up, and only for the rows that remain at the end (`complete`,
mostly `unchanged_values.resolve_history`). The rows of a snapshot and of a correction are inserts and deletes like any
other, a `reset` is a truncate, a `gap` is no change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, DUP, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
from lakeproof.lake.columns import (
    current_columns,
    has_old_rows,
    history_columns,
    keeps_key,
    lake_types,
    landing_schema,
    placed,
)
from lakeproof.lake.fold.net_change import Summed, add_up
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import key_value, named, no_rows, pick
from lakeproof.lake.rows.correction import join_on_key
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT, GAP, RESET, SNAPSHOT, gap_text
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable

# One file per this many rows: a cycle that changes little writes one file, not one per task.
ROWS_PER_FILE = 500_000


def change_rows(schema: SchemaVersion, events: DataFrame) -> DataFrame:
    """Return history's rows of events with `_lp_key` and `_lp_from`."""
    if keeps_key(schema):
        no_row = F.col(OP) == "truncate"
        events = events.withColumn(KEY, F.when(~no_row, F.col(KEY)))
    return pick(events, history_columns(schema))


def state_rows(schema: SchemaVersion, rows: DataFrame, op: str, lsn: Lsn) -> DataFrame:
    """Return history's rows of whole rows (current's columns and `_lp_ord`) that a snapshot or correction wrote at `lsn`.

    They hold all their values themselves.
    """
    unknown = [FROM, SEQ, XID, COMMIT_TIME, COMMIT_NUMBER, *([] if keeps_key(schema) else [KEY])]
    added = {name: F.lit(None).cast(kind) for name, kind in lake_types(schema, unknown).items()}
    rows = rows.withColumns({**added, LSN: F.lit(int(lsn)).cast("bigint"), OP: F.lit(op)})
    return pick(rows, history_columns(schema))


def gap_row(
    session: SparkSession,
    schema: SchemaVersion,
    ordinal: int,
    since: tuple[Incarnation, Lsn],
    to: tuple[Incarnation, Lsn],
) -> DataFrame:
    """Return one history row without values: nothing is known between two positions, of two incarnations."""
    return _row_of_no_values(session, schema, ordinal, to[1], GAP, gap_text(since, to))


def reset_row(session: SparkSession, schema: SchemaVersion, ordinal: int, lsn: Lsn) -> DataFrame:
    """Return one history row without values: everything before could not be read, and is void; the rows at `lsn` follow."""
    return _row_of_no_values(session, schema, ordinal, lsn, RESET, None)


def _row_of_no_values(  # noqa: PLR0917  the row's columns
    session: SparkSession, schema: SchemaVersion, ordinal: int, lsn: Lsn, op: str, text: str | None
) -> DataFrame:
    given = {ORD: ordinal, LSN: int(lsn), OP: op, TEXT: text}
    types = lake_types(schema, history_columns(schema))
    return session.range(1).select(*(F.lit(given.get(name)).cast(kind).alias(name) for name, kind in types.items()))


def few_files(rows: DataFrame, count: int) -> DataFrame:
    """Write the rows into as few files as `count` rows need."""
    return rows.coalesce(1 + count // ROWS_PER_FILE)


# A function that fills in the unchanged large values of rows.
Complete: TypeAlias = Callable[[DataFrame], DataFrame]
# Pretend that there are changes of every kind: the computation that is right for every mixture.
_ANY = ChangeCounts(inserts=1, updates=1, deletes=1)


def behind(before: CutTable | None) -> Column:
    """Return the condition for rows of history that a table did not have `before` (None: any); files are pruned by it."""
    if before is None:
        return F.lit(True)
    ordinals = before.ordinals
    later = (F.col(ORD) >= F.lit(ordinals.end)) | (F.col(LSN) > F.lit(int(before.at_lsn)))
    return (F.col(ORD) >= F.lit(ordinals.whole)) & later


def as_events(history: DataFrame) -> DataFrame:
    """Return history's rows as the changes that they amount to."""
    op = (
        F.when(F.col(OP).isin(SNAPSHOT, CORRECT_INSERT), "insert")
        .when(F.col(OP) == CORRECT_DELETE, "delete")
        .when(F.col(OP) == RESET, "truncate")
        .otherwise(F.col(OP))
    )
    return history.where(F.col(OP) != GAP).withColumn(OP, op)


def after_truncates(history: DataFrame) -> DataFrame:
    """Return the changes after the last truncate (not itself); costs one job to find it."""
    return _split(history)[0]


def added_up(schema: SchemaVersion, history: DataFrame, base: DataFrame | None, complete: Complete) -> Summed:
    """Return rows of history added up relative to `base` (current's columns; None: no rows).

    Costs one job to find truncates.
    """
    if schema.is_bag or has_old_rows(schema):
        # Rows are identified by all their values; they may be older than the identity.
        events, truncate = _split(complete(history))
        return add_up(schema, events, _ANY, base, truncate=truncate)
    events, truncate = _split(history)
    summed = add_up(schema, events, _ANY, base, truncate=truncate)
    return replace(summed, images=complete(summed.images))


def replayed(
    session: SparkSession,
    schema: SchemaVersion,
    history: DataFrame,
    complete: Complete,
    base: DataFrame | None = None,
) -> DataFrame:
    """Return the rows (current's columns) after rows of history, on top of `base` or of nothing."""
    start = empty_rows(session, schema) if base is None else base
    return with_net_change(schema, start, added_up(schema, history, base, complete).net(schema))


def _split(history: DataFrame) -> tuple[DataFrame, bool]:
    """Return the changes after the last truncate, and whether there is one."""
    events = as_events(history)
    last = events.where(F.col(OP) == "truncate").agg(F.max(ORD)).collect()[0][0]
    if last is not None:
        events = events.where(F.col(ORD) > F.lit(last))
    return events.where(F.col(OP) != "truncate"), last is not None


def snapshot_rows(session: SparkSession, schema: SchemaVersion, table: SnapshotTable, folder: str) -> DataFrame:
    """Return a snapshot's rows: current's columns and `_lp_ord`, by chunk and row; `folder` holds the snapshot's files."""
    if not table.chunks:
        return empty_rows(session, schema)
    files = session.read.schema(landing_schema(schema, [ORD, TEXT])).parquet(
        *(f"{folder}/{c.path}" for c in table.chunks)
    )
    rows = files.select(F.col(ORD), F.col(TEXT), *named(schema))
    return as_current(schema, rows)


def as_current(schema: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Turn rows with the table's columns, `_lp_text` and `_lp_ord` into current's columns and `_lp_ord`."""
    if keeps_key(schema):
        rows = rows.withColumn(KEY, key_value(schema))
    if schema.is_bag:
        rows = rows.withColumn(DUP, F.col(ORD))
    if FROM not in rows.columns:
        rows = rows.withColumn(FROM, F.lit(None).cast("string"))
    return pick(rows, placed(schema))


def empty_rows(session: SparkSession, schema: SchemaVersion) -> DataFrame:
    """Return a frame of no rows, with current's columns and `_lp_ord`."""
    types = lake_types(schema, placed(schema))
    return no_rows(session, types)


def with_net_change(schema: SchemaVersion, rows: DataFrame, net: NetChange[DataFrame]) -> DataFrame:
    """Return a table's rows (current's columns) after a net change, with current's columns."""
    columns = current_columns(schema)
    kept = pick(rows, columns)
    match net.removed:
        case AllRows():
            kept = kept.limit(0)
        case Removed(key, keys, null_safe):
            kept = join_on_key(kept, keys, key, "left_anti", null_safe=null_safe)
    return kept if net.images is None else kept.unionAll(pick(net.images, columns))
