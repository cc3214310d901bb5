"""The rows of a table whose schema changes, by Spark: a new key is checked, current is made anew, history is corrected.

`commits` has the condition and the two commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, FROM, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, current_columns, in_lake
from lakeproof.lake.cycle.schemas.commits import RenewedRows
from lakeproof.lake.cycle.task import TableTask
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import as_current, few_files, state_rows
from lakeproof.lake.planning.schema_change import SchemaDifference
from lakeproof.lake.records.documents import CutTable, HistorySum
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.columns import col, exact_text, pick
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.landing_rows import convert_rows
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.exact_kinds import key_columns

_PLACE = scratch("place")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Current's rows under the new schema, each with its `_lp_ord`; `given`: how many go to history as deleted and inserted.

    `own`: how many of the cycle's own ordinals were used.
    """

    frame: DataFrame
    given: int
    own: int


@dataclass(frozen=True, slots=True)
class SchemaRows:
    """The rows of a table that the lake has as `before`, and its change; `defaults` are what they read in added columns."""

    session: SparkSession
    task: TableTask
    change: SchemaDifference
    before: CutTable
    defaults: Mapping[int, str]

    def check_new_key(self) -> None:
        """Raise TableHeldError if the new key does not distinguish the lake's rows, as it does the source's. One job."""
        schema = in_lake(self.change.new)
        rows = self._converted([TEXT])
        forms = [exact_text(c) for c in key_columns(schema)]
        names = [scratch(f"part_{i}") for i in range(len(forms))]
        counted = rows.groupBy(*(form.alias(n) for form, n in zip(forms, names, strict=True))).count()
        wrong = reduce(or_, (F.col(n).isNull() for n in names), F.col("count") > 1)
        if not counted.where(wrong).isEmpty():
            raise TableHeldError(str(schema.table), HeldCause.NEW_KEY_NOT_UNIQUE, WayOut.SNAPSHOT)

    def renewed(self, kept: ExitStack) -> RenewedRows:
        """Return current's rows under the new schema, and history's corrections if older rows read a default."""
        rows, schema = self._rewritten(kept), in_lake(self.change.new)
        images = pick(rows.frame, current_columns(schema))
        if not self.defaults:
            return RenewedRows(images, own=rows.own)
        corrections = self._corrections(rows)
        return RenewedRows(images, corrections, sum_of(schema, corrections), rows.own)

    def _converted(self, hidden: Sequence[str]) -> DataFrame:
        persisted = read_layer(self.session, self.task.lake, self.before.version.table, self.before)
        chosen = pick(persisted, [*column_names(in_lake(self.change.old)), *hidden])
        return convert_rows(self.session, chosen, self.change, self.defaults)

    def _rewritten(self, kept: ExitStack) -> _Rows:
        """Return current's rows with new hidden columns. A row keeps its place in history, or is inserted again."""
        old, new = in_lake(self.change.old), in_lake(self.change.new)
        places = [n for n in (DUP, ORD, FROM) if n in current_columns(old)]
        rows = self._converted([TEXT, *places])
        if old.is_bag and not self.defaults:
            return _Rows(as_current(new, rows.withColumnRenamed(DUP, ORD)), 0, 0)
        existing = F.col(DUP if old.is_bag else ORD) if {DUP, ORD} & set(places) else F.lit(None)
        rows = rows.withColumn(_PLACE, existing.cast("bigint")).drop(DUP, ORD)
        given = numbered(self.session, rows, self.task.intent.own_ordinal)
        kept.callback(given.kept.unpersist)
        if self.defaults:
            # History first gets the row's deletion, then its insertion with all its values.
            numbers = {ORD: F.col(ORD) + F.lit(given.count), FROM: F.lit(None).cast("string")}
            return _Rows(as_current(new, given.frame.withColumns(numbers)), given.count, 2 * given.count)
        # A row without a place is older than the table's first large column, and has no such value.
        place = F.coalesce(F.col(_PLACE), F.col(ORD)) if new.is_bag else F.col(_PLACE)
        return _Rows(as_current(new, given.frame.withColumn(ORD, place)), 0, given.count if new.is_bag else 0)

    def _corrections(self, rows: _Rows) -> DataFrame:
        """Return history's rows about a default of an added column: each row is deleted, and inserted with the default."""
        new, position, added = in_lake(self.change.new), self.task.intent.end_lsn, self.change.added
        given = {b.name for a, b in zip(self.change.new.columns, new.columns, strict=True) if a in added}
        frame = rows.frame
        bare = frame.select(*(F.lit(None).cast(t).alias(n) if n in given else col(n) for n, t in frame.dtypes))
        gone = as_current(new, bare).withColumn(ORD, F.col(ORD) - F.lit(rows.given))
        events = state_rows(new, gone, CORRECT_DELETE, position)
        events = events.unionAll(state_rows(new, frame, CORRECT_INSERT, position))
        return few_files(events, 2 * rows.given)


def renumbered(session: SparkSession, lake: SourceLake, before: CutTable, after: CutTable) -> HistorySum:
    """Return the sum under columns with new numbers, by the difference of the files' sums; reads them twice."""
    table = after.version.table
    was = sum_of(in_lake(before.version), read_layer(session, lake, table, before, "history"))
    now = sum_of(in_lake(after.version), read_layer(session, lake, table, after, "history"))
    return before.history_sum.minus(was).plus(now)
