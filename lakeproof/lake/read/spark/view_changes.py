"""A view's net changes from one of its cuts to the next, for subscribers: the corrections that its refreshes wrote.

A table's changes belong to `changes`, a stream of either to `subscribe`. The rows that came and went are read from the
view's Delta log; one that came and went in between is in none of them.

A view has no key, so its changes are rows inserted and rows deleted. If a cut brings other columns or types, its part has
the rows before in the old shape and those after in the new one: all, since each row is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import LakeError
from lakeproof.hidden_columns import CAME, HIDDEN_PREFIX, KEY, scratch
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError
from lakeproof.lake.delta.row_changes import row_changes
from lakeproof.lake.read.spark.changes import ChangesPart
from lakeproof.lake.records.cuts.choice import check_follows, view_cuts_of_range, view_range_end
from lakeproof.lake.records.views.cuts import ViewCut, view_path
from lakeproof.lake.rows.columns import col, no_rows
from lakeproof.lake.rows.correction import NET, ROW, multiset_difference, net_counts
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store

_COPY = scratch("copy")


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """The changes of a view after cut `first` of the lake's views, up to and including cut `last`."""

    spark: SparkSession
    lake: LakeLocation
    view: str
    first: CycleNumber
    last: CycleNumber

    def rows(self) -> DataFrame:
        """One row per cut and row that came or went, in no order.

        Columns: `cut`, `kind` (`insert`, `delete`), `before` and `after`: the row as a struct, null if there is none. Raises
        LakeError if the view's shape changes within the range (see `parts`), or as `parts`.
        """
        parts = self.parts()
        if len(parts) > 1:
            reason = f"its shape changes {len(parts) - 1} times between cut {self.first} and cut {self.last}"
            raise LakeError(f"view {self.view}", reason, "read `parts()`, which have one shape each")
        return parts[0].rows

    def parts(self) -> list[ChangesPart]:
        """Return the changes in the order of the cuts, a part for each shape; at least one.

        Raises LakeError if a cut of the range is no longer kept.
        """
        cuts = view_cuts_of_range(open_store(self.lake), self.view, self.first, self.last)
        moves = [self._step(before, after) for before, after in pairwise(cuts) if after is not None]
        parts = []
        for (before, after), group in groupby(moves, lambda step: (step.before, step.after)):
            steps = list(group)
            rows = reduce(DataFrame.unionAll, (step.rows for step in steps))
            parts.append(ChangesPart(steps[0].first, steps[-1].last, before, after, rows))
        return parts

    def _step(self, before: ViewCut | None, after: ViewCut) -> ChangesPart:
        new = self._rows(after)
        if before is None:
            return self._part(after, new.schema, new.schema, multiset_difference(new, new.limit(0), KEY, _row(new)))
        if before.number == after.number:
            return self._part(after, new.schema, new.schema, None)
        check_follows(before, after)
        if before.delta_version == after.delta_version:
            return self._part(after, new.schema, new.schema, None)
        old = self._rows(before)
        if _shape(old.schema).simpleString() != _shape(new.schema).simpleString():
            return _reshaped(after, old, new)
        try:
            path = view_path(open_store(self.lake), self.view)
            moved = row_changes(self.spark, path, before.delta_version, after.delta_version, new.columns)
            moved = moved.withColumn(ROW, _row(moved.drop(CAME)))
            net = net_counts(moved, KEY, F.when(F.col(CAME), 1).otherwise(-1), ROW)
        except ChangesUnavailableError:
            net = multiset_difference(new, old, KEY, _row(new))
        return self._part(after, old.schema, new.schema, net)

    def _rows(self, cut: ViewCut) -> DataFrame:
        stored = self.spark.read.format("delta").option("versionAsOf", cut.delta_version)
        return stored.load(view_path(open_store(self.lake), self.view))

    def _part(self, cut: ViewCut, before: T.StructType, after: T.StructType, net: DataFrame | None) -> ChangesPart:
        """Return a step without a change of shape; `net` has `NET` and `ROW`."""
        shape = _shape(after)
        if net is None:
            place: dict[str, str | T.DataType] = {"cut": "bigint", "kind": "string"}
            rows = no_rows(self.spark, {**place, "before": shape, "after": shape})
            return ChangesPart(cut.number, cut.number, _shape(before), shape, rows)
        copies = net.withColumn(_COPY, F.explode(F.sequence(F.lit(1), F.abs(F.col(NET)).cast("int"))))
        came = F.col(NET) > 0
        rows = copies.select(
            _number(cut),
            _kind(),
            F.when(~came, F.col(ROW)).alias("before"),
            F.when(came, F.col(ROW)).alias("after"),
        )
        return ChangesPart(cut.number, cut.number, _shape(before), shape, rows)


def view_changes(
    spark: SparkSession, lake: Config | LakeLocation | str | Path, view: str, first: int, last: int | None = None
) -> ViewChanges:
    """Return a view's changes after cut `first` of the views (0: from nothing) up to cut `last`, the newest by default.

    Raises ConfigError for cuts in the wrong order, LakeError if there is no such cut.
    """
    place = location_of(lake)
    end = view_range_end(open_store(place), view, first, last)
    return ViewChanges(spark, place, view, CycleNumber(first), end)


def _shape(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, f.dataType) for f in schema if not f.name.startswith(HIDDEN_PREFIX)])


def _row(frame: DataFrame) -> SparkColumn:
    return F.struct(*(col(name) for name in frame.columns if not name.startswith(HIDDEN_PREFIX)))


def _kind() -> SparkColumn:
    return F.when(F.col(NET) > 0, "insert").otherwise("delete").alias("kind")


def _number(cut: ViewCut) -> SparkColumn:
    return F.lit(int(cut.number)).cast("bigint").alias("cut")


def _reshaped(cut: ViewCut, old: DataFrame, new: DataFrame) -> ChangesPart:
    """Return a step that changes the shape: all rows of the one go, all of the other come."""
    before, after = _shape(old.schema), _shape(new.schema)
    gone = old.select(F.lit(-1).alias(NET), _row(old).alias("before"), F.lit(None).cast(after).alias("after"))
    come = new.select(F.lit(1).alias(NET), F.lit(None).cast(before).alias("before"), _row(new).alias("after"))
    return ChangesPart(
        cut.number, cut.number, before, after, gone.unionAll(come).select(_number(cut), _kind(), "before", "after")
    )
