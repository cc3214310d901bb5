"""A table computed from its history: what rows of history add up to, on top of a state or of nothing.

Choosing the rows of history belongs to `read.as_of` and to the rebuild in `cycle.maintenance`; adding changes up to
`net_change`.

History's rows are changes whose keys are known already, so only unchanged large values have to be looked up, and only for
the rows that remain at the end (`complete`, mostly `unchanged_values.resolve_history`). The rows of a snapshot and of a
correction are inserts and deletes like any other, a `reset` is a truncate, a `gap` is no change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import LSN, OP, ORD
from lakeproof.lake.columns import has_old_rows
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, GAP, RESET, SNAPSHOT
from lakeproof.lake.fold.net_change import net_change
from lakeproof.lake.fold.table_state import empty_rows, with_net_change
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import NetChange
from lakeproof.schema import SchemaVersion

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


def added_up(schema: SchemaVersion, history: DataFrame, base: DataFrame | None, complete: Complete) -> NetChange:
    """Return the net change of rows of history relative to `base` (current's columns; None: no rows).

    Costs one job to find truncates.
    """
    if schema.is_bag or has_old_rows(schema):
        # Rows are identified by all their values; they may be older than the identity.
        events, truncate = _split(complete(history))
        return net_change(schema, events, _ANY, base, truncate=truncate)
    events, truncate = _split(history)
    net = net_change(schema, events, _ANY, base, truncate=truncate)
    return net if net.images is None else replace(net, images=complete(net.images))


def replayed(
    session: SparkSession,
    schema: SchemaVersion,
    history: DataFrame,
    complete: Complete,
    base: DataFrame | None = None,
) -> DataFrame:
    """Return the rows (current's columns) after rows of history, on top of `base` or of nothing."""
    start = empty_rows(session, schema) if base is None else base
    return with_net_change(schema, start, added_up(schema, history, base, complete))


def _split(history: DataFrame) -> tuple[DataFrame, bool]:
    """Return the changes after the last truncate, and whether there is one."""
    events = as_events(history)
    last = events.where(F.col(OP) == "truncate").agg(F.max(ORD)).collect()[0][0]
    if last is not None:
        events = events.where(F.col(ORD) > F.lit(last))
    return events.where(F.col(OP) != "truncate"), last is not None
