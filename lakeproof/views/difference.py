"""The difference between a view's table and its query's rows: what a refresh as a whole commits, and what an audit counts.

    desired     the rows of the query, with the digest of their exact forms
    persisted   the rows of the view's table as it is, by any writer
    difference  desired - persisted, as multisets by the digest

Few rows are compared in this process, which finds the places of those that go (`incremental.collected`); more by Spark.
A damaged table, of which (`_lp_key`, `_lp_dup`) does not identify the rows, differs as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.model import ViewConfig
from lakeproof.hidden_columns import DUP, KEY, scratch
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.state import table_shape
from lakeproof.lake.delta.versions import read_at
from lakeproof.lake.rows.columns import col, digest_of_columns
from lakeproof.lake.rows.correction import correct
from lakeproof.lake.rows.memory import persist
from lakeproof.names import CycleNumber
from lakeproof.views.definition import (
    bind,
    check_names,
    check_same_columns,
    columns_of,
    digest_of_stored,
    in_order_of,
    query_errors,
)
from lakeproof.views.incremental.collected import (
    DUP_BITS,
    OWN_FAULTS,
    StoredView,
    collect,
    images_of,
    whole_correction,
)
from lakeproof.views.incremental.correction import ViewCorrection

_STORED = scratch("stored")
_NO_NUMBER = CycleNumber(0)


@dataclass(frozen=True, slots=True)
class ViewTarget:
    """The view's table at `path`, its version before, and the number of this refresh; `session` is the caller's own.

    `named` is the version that its newest cut names. `replaces`: it may get other columns. A comparison has no number.
    """

    session: SparkSession
    view: ViewConfig
    path: str
    before: int
    number: CycleNumber = _NO_NUMBER
    named: int = NO_VERSION
    replaces: bool = False


@contextmanager
def differing(
    target: ViewTarget, tables: Mapping[str, DataFrame], *, may_place: bool
) -> Iterator[tuple[DataFrame, ViewCorrection]]:
    """Give the rows of the view's query, with digests, and the difference, for the block; nothing is committed.

    `may_place`: this process may compare few rows.
    """
    stored = None if target.before == NO_VERSION else read_at(target.session, target.path, target.before)
    desired = persist(with_digest(in_order_of(stored, bind(target.session, target.view, tables))))
    try:
        with query_errors(target.session, target.view):
            few = _few(target, desired, stored) if may_place else None
            difference = _difference(target, desired, stored) if few is None else few
        try:
            yield desired, difference
        finally:
            if difference.correction is not None:
                difference.correction.release()
    finally:
        desired.unpersist()


def with_digest(rows: DataFrame) -> DataFrame:
    """Return rows of a query with their digest, `_lp_key`."""
    return rows.withColumn(KEY, digest_of_columns(rows, rows.columns))


def _few(target: ViewTarget, desired: DataFrame, stored: DataFrame | None) -> ViewCorrection | None:
    """Return the difference of few rows, computed in this process; None if Spark has to compute it."""
    try:
        if stored is None:
            rows = collect(desired)
            if rows is None:
                return None
            return ViewCorrection(
                None, images_of(target.session, target.number, rows, desired.schema), 0, rows.num_rows
            )
        if columns_of(desired) != columns_of(stored):
            return None
        view = StoredView(target.session, target.path, target.before, stored, target.number)
        return whole_correction(desired, view)
    except OWN_FAULTS:
        return None


def _difference(target: ViewTarget, desired: DataFrame, stored: DataFrame | None) -> ViewCorrection:
    number = target.number
    if stored is None:
        return ViewCorrection(None, with_dup(desired, number), 0, desired.count())
    if _may_take_columns(target, desired, stored):
        rows = with_dup(desired, number)
        return ViewCorrection(None, rows, stored.count(), desired.count(), truncate=True, new_columns=True)
    persisted = stored.withColumnRenamed(KEY, _STORED).withColumn(KEY, digest_of_stored(stored))
    if _is_damaged(persisted):
        return ViewCorrection(None, with_dup(desired, number), persisted.count(), desired.count(), truncate=True)
    correction = correct(desired, persisted, KEY, col(DUP))
    retracted, inserted = correction.counts()
    return ViewCorrection(
        correction.retractions.select(KEY, DUP) if retracted else None,
        with_dup(correction.insertions, number) if inserted else None,
        retracted,
        inserted,
        correction=correction,
    )


def with_dup(rows: DataFrame, number: CycleNumber) -> DataFrame:
    """Add numbers that grow from refresh to refresh, so that a new row never gets an old row's."""
    order = Window.partitionBy(KEY).orderBy(F.lit(0))
    return rows.withColumn(DUP, F.lit(int(number) << DUP_BITS) + F.row_number().over(order))


def _is_damaged(persisted: DataFrame) -> bool:
    """True if (`_lp_key`, `_lp_dup`) do not identify the rows."""
    wrong = F.sum(F.when(col(_STORED).eqNullSafe(col(KEY)), 0).otherwise(1))
    by_key = persisted.groupBy(KEY).agg(wrong.alias("wrong"), F.count("*").alias("n"), F.countDistinct(DUP).alias("d"))
    return not by_key.where("wrong > 0 OR n <> d").isEmpty()


def _may_take_columns(target: ViewTarget, desired: DataFrame, stored: DataFrame) -> bool:
    """Return True if the query's columns are to take the place of the table's, False if they are the same.

    They may if the view is replaced, or if somebody else has changed those of its newest cut. Raises ConfigError otherwise.
    """
    if columns_of(desired) == columns_of(stored):
        return False
    if not target.replaces and target.named not in {target.before, NO_VERSION}:
        named = read_at(target.session, target.path, target.named)
        if columns_of(desired) == columns_of(named):
            return True
    if not target.replaces:
        check_same_columns(target.view.name, desired, stored)
    check_names(target.view.name, desired, table_shape(target.path, target.before).metadata)
    return True
