"""Net changes of a table or a view from one cut to the next, with the rows before and after, for subscribers.

Reading a cycle's changes before they are written belongs to `rows.landing_rows` and `fold.net_change`; a stream of cuts to
`subscribe`.

For each cut, the rows with the keys that history names in its cycle are compared, in the state of the cut before and in the
state of this cut. So the changes of a cut are exactly the difference of the two states that readers see, whatever caused
it: the stream, a correction, a repair. Cost: the keys of both states, and the rows of the keys that were touched; both
states whole only if a cycle truncated the table, is a repair, or brought another schema.

A cut with another schema is a part of its own: each row that stays is an update, from the old shape to the new one.

A view's changes are the corrections that its refreshes wrote. The rows that came and went are read from the view's Delta
log; one that came and went in between is in none of them. A view has no key, so its changes are rows inserted and rows
deleted. If a cut brings other columns or types, its part has the rows before in the old shape and those after in the new
one: all, since each row is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from pathlib import Path
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import LakeError
from lakeproof.hidden_columns import CAME, HIDDEN_PREFIX, KEY, LSN, OP, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, in_lake, merge_key, quoted, same_key_columns
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError
from lakeproof.lake.delta.versions import read_at, read_layer, row_changes
from lakeproof.lake.fold.history import behind
from lakeproof.lake.records.cuts.choice import (
    check_follows,
    cuts_of_range,
    one_source,
    range_end,
    table_differs,
    table_name,
    view_cuts_of_range,
    view_range_end,
)
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.views.cuts import ViewCut, view_path
from lakeproof.lake.rows.columns import col, no_rows, pick, row_key
from lakeproof.lake.rows.correction import NET, ROW, join_on_key, multiset_difference, net_counts, same_key
from lakeproof.lake.rows.history_ops import RESET
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.types import spark_type

_COPY = scratch("copy")
_DIGEST = scratch("digest")


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """The changes of the cuts `first` to `last`: the rows' columns `before` and `after`, and the rows.

    The two shapes differ in the part of a cut that changes the columns, which has no other cut; elsewhere they are equal.
    """

    first: CycleNumber
    last: CycleNumber
    before: T.StructType
    after: T.StructType
    rows: DataFrame


@dataclass(frozen=True, slots=True)
class CutChanges:
    """The changes of a source's tables after cut `first`, up to and including cut `last`."""

    spark: SparkSession
    lake: SourceLake
    first: CycleNumber
    last: CycleNumber

    def table(self, table: TableName | str, *, exact_texts: bool = False) -> DataFrame:
        """One row per cut and changed key, or changed row of a table without a key, in no order.

        Columns: `cut`, `position` (the table's in that cut), `kind` (`insert`, `update`, `delete`), `before` and
        `after`: the rows as structs, null if there is none; `exact_texts` adds `_lp_text` to them. Raises LakeError if a
        cut of the range is no longer kept, if none has the table, or if its columns change within the range (see `parts`).
        """
        parts = self.parts(table, exact_texts=exact_texts)
        if len(parts) > 1:
            changed = [part.first for part in parts if part.before != part.after]
            cuts = ", ".join(map(str, changed[:5]))
            reason = f"its columns change in cut {cuts}" if changed else "it has other columns since it was made anew"
            raise LakeError(f"{self.lake.source}: {table}", reason, "read `parts(…)`, which have one shape each")
        return parts[0].rows

    def parts(self, table: TableName | str, *, exact_texts: bool = False) -> list[ChangesPart]:
        """Return the changes in the order of the cuts, a part for each shape; at least one.

        The rows of each are as `table` returns them. In a cut that changes the columns, each row that stays is an `update`,
        from its old shape to its new one; if the key's columns change, or there is none, it is deleted and inserted. That
        costs the whole table. Raises LakeError if a cut of the range is no longer kept, or if none has the table.
        """
        name, lake = table_name(table), self.lake
        cuts = cuts_of_range(lake, self.first, self.last)
        having = [cut for cut in cuts if name in cut.tables]
        if not having:
            raise LakeError(f"{lake.source}: {name}", "no cut of the range has this table", "ask for later cuts")
        truncated = _truncated(self.spark, lake, name, having)
        steps = []
        for before, after in zip([None, *cuts], cuts, strict=False):
            if after.number > self.first and name in after.tables:
                then = None if before is None else before.tables.get(name)
                steps.append(_Step(self.spark, lake, name, then, after, exact_texts=exact_texts))
        parts = []
        for (old, new), alike in groupby(steps, lambda step: step.shapes):
            group = list(alike)
            frames = [frame for step in group for frame in step.frames(whole=step.cut.number in truncated)]
            rows = reduce(DataFrame.unionAll, frames) if frames else _nothing(self.spark, old, new)
            parts.append(ChangesPart(group[0].cut.number, group[-1].cut.number, old, new, rows))
        if parts:
            return parts
        shape = _shape(in_lake(having[-1].tables[name].version), exact_texts=exact_texts)
        return [ChangesPart(self.last, self.last, shape, shape, _nothing(self.spark, shape, shape))]


def changes(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    first: int,
    last: int | None = None,
    *,
    source: str | None = None,
) -> CutChanges:
    """Return the changes after cut `first` (0: from the beginning) up to cut `last`, the newest by default.

    `source` may be left out if the lake has only one. Raises ConfigError for cuts in the wrong order, LakeError if there is
    no such cut.
    """
    source_lake = one_source("changes", lake, source)
    return CutChanges(spark, source_lake, CycleNumber(first), range_end(source_lake, first, last))


@dataclass(frozen=True, slots=True)
class _Step:
    """One table from one cut to the next; `before` is None if the cut is the first that has it."""

    spark: SparkSession
    lake: SourceLake
    name: TableName
    before: CutTable | None
    cut: Cut
    exact_texts: bool

    @property
    def after(self) -> CutTable:
        return self.cut.tables[self.name]

    @property
    def schema(self) -> SchemaVersion:
        """The table's schema in the cut."""
        return in_lake(self.after.version)

    @property
    def old_schema(self) -> SchemaVersion:
        """The schema of its rows before."""
        return self.schema if self.before is None else in_lake(self.before.version)

    @property
    def shapes(self) -> tuple[T.StructType, T.StructType]:
        """The columns of the rows before, and of those after."""
        old, new = (_shape(schema, exact_texts=self.exact_texts) for schema in (self.old_schema, self.schema))
        return old, new

    def frames(self, *, whole: bool) -> list[DataFrame]:
        """Return the changes; none if the cut has the same content as the one before."""
        if not table_differs(self.name, self.before, self.cut):
            return []
        reshaped = self.before is not None and self.before.version.id != self.after.version.id
        new = read_layer(self.spark, self.lake, self.name, self.after)
        if self.before is None:
            old = new.limit(0)
        else:
            old = read_layer(self.spark, self.lake, self.name, self.before)
            if not whole and not reshaped and self.cut.kind is CycleKind.APPLY:
                touched = self._touched()
                old, new = (join_on_key(side, touched, self._key, "left_semi", null_safe=True) for side in (old, new))
        if self.old_schema.is_bag and self.schema.is_bag and self.shapes[0] == self.shapes[1]:
            changes_of = _single(multiset_difference(new, old, KEY, self._row(self.schema)))
        elif reshaped and not same_key_columns(self.old_schema, self.schema):
            sides = old.select(self._row(self.old_schema).alias(ROW)), new.select(self._row(self.schema).alias(ROW))
            changes_of = _anew(*sides)
        else:
            changes_of = self._keyed(old, new)
        place = [
            F.lit(int(self.cut.number)).cast("bigint").alias("cut"),
            F.lit(str(self.after.at_lsn)).alias("position"),
        ]
        return [changes_of.select(*place, "kind", "before", "after")]

    def _row(self, schema: SchemaVersion) -> Column:
        return F.struct(*(col(c) for c in [*column_names(schema), *([TEXT] if self.exact_texts else [])]))

    def _touched(self) -> DataFrame:
        history = read_layer(self.spark, self.lake, self.name, self.after, "history")
        return pick(history.where(behind(self.before)), self._key).distinct()

    @property
    def _key(self) -> tuple[str, ...]:
        return (KEY,) if self.schema.is_bag else merge_key(self.schema)

    def _keyed(self, old: DataFrame, new: DataFrame) -> DataFrame:
        sides, keys = [], []
        for frame, schema, side in ((old, self.old_schema, "before"), (new, self.schema, "after")):
            names = [col(k).alias(f"{side}_{i}") for i, k in enumerate(merge_key(schema))]
            keys.append([f"{side}_{i}" for i in range(len(names))])
            sides.append(frame.select(*names, self._row(schema).alias(side), row_key(schema).alias(f"{side}{_DIGEST}")))
        both = sides[0].join(sides[1], same_key(keys[0], keys[1], null_safe=True), "full_outer")
        digests = F.col(f"before{_DIGEST}"), F.col(f"after{_DIGEST}")
        kind = F.when(digests[0].isNull(), "insert").when(digests[1].isNull(), "delete").otherwise("update")
        if self.shapes[0] == self.shapes[1]:
            both = both.where(~digests[0].eqNullSafe(digests[1]))
        return both.withColumn("kind", kind)


def _single(net: DataFrame) -> DataFrame:
    """Return rows that came or went as often as `NET` counts as changes of single rows; `net` has them as `ROW`."""
    copies = net.withColumn(_COPY, F.explode(F.sequence(F.lit(1), F.abs(F.col(NET)).cast("int"))))
    came = F.col(NET) > 0
    return copies.select(
        F.when(came, "insert").otherwise("delete").alias("kind"),
        F.when(~came, F.col(ROW)).alias("before"),
        F.when(came, F.col(ROW)).alias("after"),
    )


def _anew(old: DataFrame, new: DataFrame) -> DataFrame:
    """Return all rows of the one shape as deleted, and all of the other as inserted; both have them as `ROW`."""
    before, after = (F.lit(None).cast(side.schema[ROW].dataType) for side in (old, new))
    gone = old.select(F.lit("delete").alias("kind"), F.col(ROW).alias("before"), after.alias("after"))
    return gone.unionAll(new.select(F.lit("insert").alias("kind"), before.alias("before"), F.col(ROW).alias("after")))


def _truncated(spark: SparkSession, lake: SourceLake, name: TableName, having: list[Cut]) -> set[int]:
    """Return the cycles that truncated the table: one read of their rows' operations for each state of history's low end."""
    cycles: set[int] = set()
    if len({cut.tables[name].history_version for cut in having}) < 2:
        return cycles
    # The first cut's own rows matter to nobody: its changes are not asked for, or the table had no rows before it.
    before = having[0].tables[name]
    for _, group in groupby(having, lambda cut: cut.tables[name].history_low):
        alike = list(group)
        history = read_layer(spark, lake, name, alike[-1].tables[name], "history")
        rows = history.where(behind(before) & F.col(OP).isin("truncate", RESET)).select(ORD, LSN)
        for ordinal, lsn in rows.distinct().collect():
            # The first cut that has the row.
            having_it = (c for c in alike if (t := c.tables[name]).ordinals.has(ordinal, Lsn(lsn), t.at_lsn))
            cycles.add(next(having_it).number)
        before = alike[-1].tables[name]
    return cycles


def _shape(schema: SchemaVersion, *, exact_texts: bool) -> T.StructType:
    """Return the columns of a row as users see it."""
    types = [f"{quoted(c.name)} {spark_type(c)}" for c in schema.columns] + ([f"{TEXT} string"] if exact_texts else [])
    return cast(T.StructType, T.StructType.fromDDL(", ".join(types)))


def _nothing(spark: SparkSession, before: T.StructType, after: T.StructType) -> DataFrame:
    place: dict[str, str | T.DataType] = {"cut": "bigint", "position": "string", "kind": "string"}
    return no_rows(spark, {**place, "before": before, "after": after})


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
            return self._part(after, new, new, _single(multiset_difference(new, new.limit(0), KEY, _row(new))))
        if before.number != after.number:
            check_follows(before, after)
        if before.delta_version == after.delta_version:
            return self._part(after, new, new, None)
        old = self._rows(before)
        if _shown(old.schema).simpleString() != _shown(new.schema).simpleString():
            return self._part(
                after, old, new, _anew(old.select(_row(old).alias(ROW)), new.select(_row(new).alias(ROW)))
            )
        try:
            path = view_path(open_store(self.lake), self.view)
            moved = row_changes(self.spark, path, before.delta_version, after.delta_version, new.columns)
            moved = moved.withColumn(ROW, _row(moved.drop(CAME)))
            net = net_counts(moved, KEY, F.when(F.col(CAME), 1).otherwise(-1), ROW)
        except ChangesUnavailableError:
            net = multiset_difference(new, old, KEY, _row(new))
        return self._part(after, old, new, _single(net))

    def _rows(self, cut: ViewCut) -> DataFrame:
        return read_at(self.spark, view_path(open_store(self.lake), self.view), cut.delta_version)

    def _part(self, cut: ViewCut, old: DataFrame, new: DataFrame, changed: DataFrame | None) -> ChangesPart:
        """Return a step from one state to another; None: nothing has changed."""
        before, after = _shown(old.schema), _shown(new.schema)
        if changed is None:
            changed = no_rows(self.spark, {"kind": "string", "before": before, "after": after})
        number = F.lit(int(cut.number)).cast("bigint").alias("cut")
        return ChangesPart(cut.number, cut.number, before, after, changed.select(number, "kind", "before", "after"))


def view_changes(
    spark: SparkSession, lake: Config | LakeLocation | str | Path, view: str, first: int, last: int | None = None
) -> ViewChanges:
    """Return a view's changes after cut `first` of the views (0: from nothing) up to cut `last`, the newest by default.

    Raises ConfigError for cuts in the wrong order, LakeError if there is no such cut.
    """
    place = location_of(lake)
    end = view_range_end(open_store(place), view, first, last)
    return ViewChanges(spark, place, view, CycleNumber(first), end)


def _shown(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, f.dataType) for f in schema if not f.name.startswith(HIDDEN_PREFIX)])


def _row(frame: DataFrame) -> Column:
    return F.struct(*(col(name) for name in frame.columns if not name.startswith(HIDDEN_PREFIX)))
