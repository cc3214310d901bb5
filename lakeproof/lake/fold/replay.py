"""A table from its history: what rows of history add up to, on top of a state or of nothing.

Which rows of history are taken belongs to `as_of` and `rebuild`; what changes add up to, to `net_change`.

History's rows are changes whose keys are known already, so nothing but unchanged large values has to be looked up, and of
the rows alone that are left (`complete`, mostly `holders.resolve_history`). A snapshot's rows and a correction's are
inserts and deletes like any other, a `reset` is a truncate, a `gap` is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import OP, ORD
from lakeproof.lake.columns import has_old_rows
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, GAP, RESET, SNAPSHOT
from lakeproof.lake.fold.net_change import NetChange, net_change
from lakeproof.lake.fold.table_state import empty_rows, with_net_change
from lakeproof.lake.planning.ordinals import ORDINAL_BITS
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.rows.columns import col
from lakeproof.schema import SchemaVersion

# Rows with their unchanged large values.
Complete: TypeAlias = Callable[[DataFrame], DataFrame]
# Deletes among them, as far as anybody knows: the way that is right for every mixture.
_ANY = Counts(inserts=1, updates=1, deletes=1)
_WANTED = "_lp_wanted_"


def in_cycles(first: int, last: int) -> Column:
    """The rows of history that cycles `first` to `last` brought; whole files are left out by their ordinals."""
    return (F.col(ORD) >= F.lit(first << ORDINAL_BITS)) & (F.col(ORD) < F.lit((last + 1) << ORDINAL_BITS))


def as_events(history: DataFrame) -> DataFrame:
    """History's rows as the changes that they amount to."""
    op = (
        F.when(F.col(OP).isin(SNAPSHOT, CORRECT_INSERT), "insert")
        .when(F.col(OP) == CORRECT_DELETE, "delete")
        .when(F.col(OP) == RESET, "truncate")
        .otherwise(F.col(OP))
    )
    return history.where(F.col(OP) != GAP).withColumn(OP, op)


def after_truncates(history: DataFrame) -> DataFrame:
    """The changes after the last truncate, which is none of them; costs one look for it."""
    return _split(history)[0]


def added_up(shape: SchemaVersion, history: DataFrame, base: DataFrame | None, complete: Complete) -> NetChange:
    """The net change of rows of history relative to `base` (current's columns; None: no rows).

    Costs one look for truncates.
    """
    if shape.is_bag or has_old_rows(shape):
        # Rows are told apart by all their values; they may be older than the identity.
        events, wipe = _split(complete(history))
        return net_change(shape, events, _ANY, base, wipe=wipe)
    events, wipe = _split(history)
    net = net_change(shape, events, _ANY, base, wipe=wipe)
    return net if net.images is None else replace(net, images=complete(net.images))


def replayed(
    session: SparkSession,
    shape: SchemaVersion,
    history: DataFrame,
    complete: Complete,
    base: DataFrame | None = None,
) -> DataFrame:
    """The rows (current's columns) after rows of history, on top of `base` or of nothing."""
    start = empty_rows(session, shape) if base is None else base
    return with_net_change(start, added_up(shape, history, base, complete))


def with_keys(rows: DataFrame, keys: DataFrame, names: Iterable[str]) -> DataFrame:
    """The rows whose columns `names` have the values of a row of `keys`; NULL is a value like others."""
    renamed = keys.toDF(*(f"{_WANTED}{i}" for i in range(len(keys.columns))))
    same = reduce(
        lambda a, b: a & b, (col(n).eqNullSafe(F.col(w)) for n, w in zip(names, renamed.columns, strict=True))
    )
    return rows.join(renamed, same, "left_semi")


def _split(history: DataFrame) -> tuple[DataFrame, bool]:
    events = as_events(history)
    found = events.where(F.col(OP) == "truncate").agg(F.max(ORD)).collect()[0][0]
    if found is not None:
        events = events.where(F.col(ORD) > F.lit(found))
    return events.where(F.col(OP) != "truncate"), found is not None
