"""A table's net changes from one cut to the next, with the rows before and after, for subscribers.

Reading a cycle's changes before they are written belongs to `rows.landing_rows` and `fold.net_change`; a stream of cuts to
`subscribe`.

For each cut, the rows with the keys that history names in its cycle are compared, in the state of the cut before and in the
state of this cut. So the changes of a cut are exactly the difference of the two states that readers see, whatever caused it:
the stream, a correction, a repair. Cost: the keys of both states, and the rows of the keys that were touched; both states
whole only if a cycle truncated the table or is a repair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, LakeError
from lakeproof.hidden_columns import KEY, LSN, OP, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, in_lake, merge_key, quoted
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import RESET
from lakeproof.lake.fold.replay import behind
from lakeproof.lake.records.cut_choice import one_source, table_name
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lake.rows.columns import col, no_rows, pick, row_key
from lakeproof.lake.rows.matching import NET, ROW, join_on_key, multiset_difference, same_key
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.types import spark_type

_COPY = scratch("copy")
_DIGEST = scratch("digest")


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
        cut of the range is no longer kept, if none has the table, or if its schema changed within the range.
        """
        name, lake = table_name(table), self.lake
        cuts = _cuts(lake, self.first, self.last)
        schema = _schema(cuts, name, lake.source)
        truncated = _truncated(self.spark, lake, name, cuts)
        steps = []
        for before, after in zip([None, *cuts], cuts, strict=False):
            if after.number > self.first and name in after.tables:
                then = None if before is None else before.tables.get(name)
                step = _Step(self.spark, lake, name, schema, then, after)
                steps += step.frames(whole=after.number in truncated, exact_texts=exact_texts)
        return reduce(DataFrame.unionAll, steps) if steps else _nothing(self.spark, schema, exact_texts=exact_texts)


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
    kept = cut_numbers(source_lake)
    end = (kept[-1] if kept else 0) if last is None else last
    if not 0 <= first <= end:
        raise ConfigError("changes", f"cut {first} does not lie before cut {end}", "give the earlier cut first")
    _check_kept(source_lake, kept, first, end)
    return CutChanges(spark, source_lake, CycleNumber(first), CycleNumber(end))


@dataclass(frozen=True, slots=True)
class _Step:
    """One table from one cut to the next."""

    spark: SparkSession
    lake: SourceLake
    name: TableName
    schema: SchemaVersion
    before: CutTable | None
    cut: Cut

    @property
    def after(self) -> CutTable:
        return self.cut.tables[self.name]

    def frames(self, *, whole: bool, exact_texts: bool) -> list[DataFrame]:
        """Return the changes; none if the cut has the same content as the one before."""
        same = self.before is not None and self.before.current_version == self.after.current_version
        if same or (self.cut.kind is CycleKind.MAINTENANCE and self.before is not None):
            return []
        new = read_layer(self.spark, self.lake, self.name, self.after)
        if self.before is None:
            old = new.limit(0)
        else:
            old = read_layer(self.spark, self.lake, self.name, self.before)
            if not whole and self.cut.kind is CycleKind.APPLY:
                touched = self._touched()
                old, new = (join_on_key(side, touched, self._key, "left_semi", null_safe=True) for side in (old, new))
        shown = [*column_names(self.schema), *([TEXT] if exact_texts else [])]
        row = F.struct(*(col(c) for c in shown))
        changes_of = self._bag(old, new, row) if self.schema.is_bag else self._keyed(old, new, row)
        place = [
            F.lit(int(self.cut.number)).cast("bigint").alias("cut"),
            F.lit(str(self.after.at_lsn)).alias("position"),
        ]
        return [changes_of.select(*place, "kind", "before", "after")]

    def _touched(self) -> DataFrame:
        history = read_layer(self.spark, self.lake, self.name, self.after, "history")
        return pick(history.where(behind(self.before)), self._key).distinct()

    @property
    def _key(self) -> tuple[str, ...]:
        return (KEY,) if self.schema.is_bag else merge_key(self.schema)

    def _keyed(self, old: DataFrame, new: DataFrame, row: Column) -> DataFrame:
        key = merge_key(self.schema)
        sides = []
        for frame, side in ((old, "before"), (new, "after")):
            names = [col(k).alias(f"{side}_{i}") for i, k in enumerate(key)]
            sides.append(frame.select(*names, row.alias(side), row_key(self.schema).alias(f"{side}{_DIGEST}")))
        on = same_key(*([f"{side}_{i}" for i in range(len(key))] for side in ("before", "after")), null_safe=True)
        both = sides[0].join(sides[1], on, "full_outer")
        digests = F.col(f"before{_DIGEST}"), F.col(f"after{_DIGEST}")
        kind = F.when(digests[0].isNull(), "insert").when(digests[1].isNull(), "delete").otherwise("update")
        return both.where(~digests[0].eqNullSafe(digests[1])).withColumn("kind", kind)

    def _bag(self, old: DataFrame, new: DataFrame, row: Column) -> DataFrame:
        net = multiset_difference(new, old, KEY, row)
        copies = net.withColumn(_COPY, F.explode(F.sequence(F.lit(1), F.abs(F.col(NET)).cast("int"))))
        came = F.col(NET) > 0
        return copies.select(
            F.when(came, "insert").otherwise("delete").alias("kind"),
            F.when(~came, F.col(ROW)).alias("before"),
            F.when(came, F.col(ROW)).alias("after"),
        )


def _cuts(lake: SourceLake, first: CycleNumber, last: CycleNumber) -> list[Cut]:
    _check_kept(lake, cut_numbers(lake), first, last)
    return [read_cut(lake, CycleNumber(n)) for n in range(max(1, first), last + 1)]


def _check_kept(lake: SourceLake, kept: list[CycleNumber], first: int, last: int) -> None:
    if last and (not kept or last > kept[-1]):
        raise LakeError(f"{lake.source}: cut {last}", "there is no such cut", "ask for an earlier one")
    if kept and max(1, first) < kept[0]:
        raise LakeError(
            f"{lake.source}: cut {first}",
            f"it is not kept any more, the oldest is {kept[0]}",
            "read the tables whole at a cut, and go on from there (`retention.cuts` says how long they are kept)",
        )


def _schema(cuts: list[Cut], name: TableName, source: str) -> SchemaVersion:
    versions = {cut.number: cut.tables[name].version for cut in cuts if name in cut.tables}
    if not versions:
        raise LakeError(f"{source}: {name}", "no cut of the range has this table", "ask for later cuts")
    ids = [(number, version.id) for number, version in sorted(versions.items())]
    for (_, one), (number, other) in pairwise(ids):
        if one != other:
            raise LakeError(
                f"{source}: {name}",
                f"its schema changed in cut {number}",
                f"ask up to cut {number - 1}, then from {number}",
            )
    return in_lake(versions[ids[-1][0]])


def _truncated(spark: SparkSession, lake: SourceLake, name: TableName, cuts: list[Cut]) -> set[int]:
    """Return the cycles that truncated the table: one read of their rows' operations for each state of history's low end."""
    cycles: set[int] = set()
    having = [cut for cut in cuts if name in cut.tables]
    if len({cut.tables[name].history_version for cut in having}) < 2:
        return cycles
    # The first cut's own rows matter to nobody: its changes are not asked for, or the table had no rows before it.
    before = having[0].tables[name]
    for _, group in groupby(having, lambda cut: cut.tables[name].history_low):
        alike = list(group)
        history = read_layer(spark, lake, name, alike[-1].tables[name], "history")
        rows = history.where(behind(before) & F.col(OP).isin("truncate", RESET)).select(ORD, LSN)
        for ordinal, lsn in rows.distinct().collect():
            cycles.add(next(cut.number for cut in alike if _has(cut.tables[name], int(ordinal), Lsn(int(lsn)))))
        before = alike[-1].tables[name]
    return cycles


def _has(table: CutTable, ordinal: int, lsn: Lsn) -> bool:
    """True if a row of history is among those that the table has at a cut."""
    return table.ordinals.has(ordinal, lsn, table.at_lsn)


def _nothing(spark: SparkSession, schema: SchemaVersion, *, exact_texts: bool) -> DataFrame:
    types = [f"{quoted(c.name)}: {spark_type(c)}" for c in schema.columns] + (
        [f"{TEXT}: string"] if exact_texts else []
    )
    row = f"struct<{', '.join(types)}>"
    return no_rows(spark, {"cut": "bigint", "position": "string", "kind": "string", "before": row, "after": row})
