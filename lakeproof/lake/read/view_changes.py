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
from lakeproof.errors import ConfigError, LakeError
from lakeproof.hidden_columns import HIDDEN_PREFIX, KEY, scratch
from lakeproof.lake.delta.row_changes import CAME, ChangesUnavailableError, row_changes
from lakeproof.lake.records.view_cuts import ViewCut, cuts_in_order, newest_view_cut, view_path
from lakeproof.lake.rows.columns import col, no_rows
from lakeproof.lake.rows.matching import NET, ROW, multiset_difference, net_counts
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store

_COPY = scratch("copy")


@dataclass(frozen=True, slots=True)
class ViewPart:
    """Cuts of a view whose changes have one shape: `before` of the rows that went, `after` of those that came."""

    before: T.StructType
    after: T.StructType
    rows: DataFrame


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

    def parts(self) -> list[ViewPart]:
        """Return the changes in the order of the cuts, a part for each shape; at least one.

        Raises LakeError if a cut of the range is no longer kept.
        """
        steps = [self._step(before, after) for before, after in pairwise(self._cuts()) if after is not None]
        parts = []
        for (before, after), group in groupby(steps, lambda step: (step.before, step.after)):
            parts.append(ViewPart(before, after, reduce(DataFrame.unionAll, (step.rows for step in group))))
        return parts

    def _cuts(self) -> list[ViewCut | None]:
        """Return the view's cut that the range follows (None: nothing), and those of the range."""
        of_view = [cut for cut in cuts_in_order(open_store(self.lake)) if cut.view == self.view]
        of_view.sort(key=lambda cut: cut.number)
        before = [cut for cut in of_view if cut.number <= self.first]
        inside = [cut for cut in of_view if self.first < cut.number <= self.last]
        if not before and self.first > 0:
            raise LakeError(
                f"view {self.view[:80]}",
                f"no cut of it at or before {self.first} is kept",
                "begin with 0: the first changes are then the whole view",
            )
        if not before and not inside:
            raise LakeError(f"view {self.view[:80]}", "no cut of the range has this view", "ask for later cuts")
        return [before[-1] if before else None, *(inside or [before[-1]])]

    def _step(self, before: ViewCut | None, after: ViewCut) -> ViewPart:
        new = self._rows(after)
        if before is None:
            return self._part(after, new.schema, new.schema, multiset_difference(new, new.limit(0), KEY, _row(new)))
        if before.number == after.number:
            return self._part(after, new.schema, new.schema, None)
        if before.delta_version > after.delta_version or (
            before.delta_version == after.delta_version and (after.inserted or after.retracted)
        ):
            reason = f"its table was moved away, and made anew for cut {after.number}"
            raise LakeError(f"view {self.view[:80]}", reason, "begin with 0: the first changes are then the whole view")
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

    def _part(self, cut: ViewCut, before: T.StructType, after: T.StructType, net: DataFrame | None) -> ViewPart:
        """Return a step without a change of shape; `net` has `NET` and `ROW`."""
        shape = _shape(after)
        if net is None:
            text = shape.simpleString()
            rows = no_rows(self.spark, {"cut": "bigint", "kind": "string", "before": text, "after": text})
            return ViewPart(_shape(before), shape, rows)
        copies = net.withColumn(_COPY, F.explode(F.sequence(F.lit(1), F.abs(F.col(NET)).cast("int"))))
        came = F.col(NET) > 0
        rows = copies.select(
            _number(cut),
            _kind(),
            F.when(~came, F.col(ROW)).alias("before"),
            F.when(came, F.col(ROW)).alias("after"),
        )
        return ViewPart(_shape(before), shape, rows)


def view_changes(
    spark: SparkSession, lake: Config | LakeLocation | str | Path, view: str, first: int, last: int | None = None
) -> ViewChanges:
    """Return a view's changes after cut `first` of the views (0: from nothing) up to cut `last`, the newest by default.

    Raises ConfigError for cuts in the wrong order, LakeError if there is no such cut.
    """
    place = location_of(lake)
    cut = newest_view_cut(open_store(place), view)
    if cut is None:
        raise LakeError(f"view {view[:80]}", "it has no cut", "run `lakeproof refresh`")
    # Of another view a later number may come first.
    newest = int(cut.number)
    end = newest if last is None else last
    if not 0 <= first <= end:
        raise ConfigError("changes", f"cut {first} does not lie before cut {end}", "give the earlier cut first")
    if end > newest:
        raise LakeError(f"view {view[:80]}: cut {end}", "there is no such cut of it yet", "ask for an earlier one")
    return ViewChanges(spark, place, view, CycleNumber(first), CycleNumber(end))


def _shape(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, f.dataType) for f in schema if not f.name.startswith(HIDDEN_PREFIX)])


def _row(frame: DataFrame) -> SparkColumn:
    return F.struct(*(col(name) for name in frame.columns if not name.startswith(HIDDEN_PREFIX)))


def _kind() -> SparkColumn:
    return F.when(F.col(NET) > 0, "insert").otherwise("delete").alias("kind")


def _number(cut: ViewCut) -> SparkColumn:
    return F.lit(int(cut.number)).cast("bigint").alias("cut")


def _reshaped(cut: ViewCut, old: DataFrame, new: DataFrame) -> ViewPart:
    """Return a step that changes the shape: all rows of the one go, all of the other come."""
    before, after = _shape(old.schema), _shape(new.schema)
    gone = old.select(F.lit(-1).alias(NET), _row(old).alias("before"), F.lit(None).cast(after).alias("after"))
    come = new.select(F.lit(1).alias(NET), F.lit(None).cast(before).alias("before"), _row(new).alias("after"))
    return ViewPart(before, after, gone.unionAll(come).select(_number(cut), _kind(), "before", "after"))
