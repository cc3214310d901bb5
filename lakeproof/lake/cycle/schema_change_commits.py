"""One table gets another schema: one commit of its history, one of its current, and no row of the stream.

Matching the columns belongs to `planning.schema_change`, deciding the time to `planning.schema_changes`, changing a Delta
table to `delta.schema`.

    nothing but names, new columns without a default, dropped or widened ones    metadata alone; no data file is touched
    the same of a `portable` table, except for nothing but new columns           history and current are written anew
    a default that older rows read, another kind of key, a bag's digest          current is written anew from its own rows

History keeps its rows: the values that they read in an added column are a correction in history, at the cycle's position. A
table whose Delta tables need no change (a length, NOT NULL) gets no commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, FROM, KEY, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, current_columns, current_statistics, history_statistics, in_lake
from lakeproof.lake.cycle.task import CycleContext, TableResult, TableTask
from lakeproof.lake.delta.commit import Applied
from lakeproof.lake.delta.reader_features import reader_features
from lakeproof.lake.delta.schema import ColumnChanges, SchemaRequest, away_name, change_schema
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, few_files, state_rows
from lakeproof.lake.fold.table_state import as_current
from lakeproof.lake.planning.schema_change import SchemaDifference, compare_schemas
from lakeproof.lake.records.documents import CutTable, SchemaChange
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.conversion import convert_rows
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.exact import exact_text
from lakeproof.lake.rows.history_sum import keeps_hashes, sum_of
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import spark_type

_HIDDEN = {KEY: "string", DUP: "bigint", ORD: "bigint", FROM: "string"}
_PLACE = scratch("place")


def commit_schema_change(
    spark: SparkOnDemand, context: CycleContext, task: TableTask, schema_change: SchemaChange
) -> TableResult:
    """Write a table's new schema; its rows keep their position. Spark is asked only for rows that are read."""
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "is to change its schema but is not in the lake", "report this")
    change = compare_schemas(before.version, schema_change.version)
    defaults = {a: t for a, t in schema_change.default_for_old_rows.items() if a in {c.attnum for c in change.added}}
    rewritten = bool(defaults) or not change.keeps_hidden
    lake, portable = context.lease.lake, task.table in context.portable
    current_path = lake.url(lake.paths.current(task.table))
    if schema_change.called_for is None and not change.same_key and not change.new.is_bag:
        names = [c.name for c in in_lake(change.old).columns]
        persisted = pick(read_layer(spark.get(), lake, task.table, before), [*names, TEXT])
        _check_key(in_lake(change.new), convert_rows(spark.get(), persisted, change, defaults))
    with ExitStack() as kept:
        rows = None
        if rewritten:
            persisted = read_layer(spark.get(), lake, task.table, before)
            rows = _rewritten_rows(spark.get(), context, change, persisted, defaults, kept)
        corrected = _corrections(context, change, rows) if rows is not None and defaults else None
        added = HistorySum() if corrected is None else sum_of(in_lake(change.new), corrected)
        context.lease.check()
        history = change_schema(
            spark,
            SchemaRequest(
                lake.url(lake.paths.history(task.table)),
                _change(change, current=False),
                context.commit_info("history", task.table),
                before.history_version,
                corrected,
                portable=portable,
                order=ORD,
            ),
        )
        failpoint("cycle.after_history")
        context.lease.check()
        current = change_schema(
            spark,
            SchemaRequest(
                current_path,
                _change(change, current=True),
                context.commit_info("current", task.table),
                before.current_version,
                None if rows is None else pick(rows.frame, current_columns(in_lake(change.new))),
                replace=rows is not None,
                portable=portable,
            ),
        )
        failpoint("cycle.after_current")
    cut_table = replace(
        before,
        version=schema_change.version,
        history_version=history.version,
        current_version=current.version,
        history_sum=before.history_sum.plus(added),
    )
    if not keeps_hashes(change):
        cut_table = replace(cut_table, history_sum=_renumbered(spark.get(), context, before, cut_table))
    return TableResult(
        cut_table,
        ChangeCounts(),
        touched=_moved(before.history_version, history, before.current_version, current),
        own_rows=0 if rows is None else rows.own,
        features=_new_features(lake.url(lake.paths.history(task.table)), before.history_version, history)
        | _new_features(current_path, before.current_version, current),
    )


def _new_features(path: str, before: int, after: Applied) -> dict[str, str]:
    """Return the features that readers need since a commit, each with its reason."""
    if after.version == before:
        return {}
    return reader_features(path, after.version).beyond(reader_features(path, before))


def _renumbered(session: SparkSession, context: CycleContext, before: CutTable, after: CutTable) -> HistorySum:
    """Return the sum under columns with new numbers, by the difference of the files' sums; reads them twice."""
    lake, table = context.lease.lake, after.version.table
    was = sum_of(in_lake(before.version), read_layer(session, lake, table, before, "history"))
    now = sum_of(in_lake(after.version), read_layer(session, lake, table, after, "history"))
    return before.history_sum.minus(was).plus(now)


def _check_key(schema: SchemaVersion, rows: DataFrame) -> None:
    """Raise TableHeldError if the key of `schema` does not distinguish the lake's rows, as it does the source's. One job."""
    forms = [exact_text(c, c.name, TEXT) for c in key_columns(schema)]
    names = [scratch(f"part_{i}") for i in range(len(forms))]
    counted = rows.groupBy(*(form.alias(n) for form, n in zip(forms, names, strict=True))).count()
    wrong = reduce(or_, (F.col(n).isNull() for n in names), F.col("count") > 1)
    if not counted.where(wrong).isEmpty():
        raise TableHeldError(str(schema.table), HeldCause.NEW_KEY_NOT_UNIQUE, WayOut.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Current's rows under the new schema, each with its `_lp_ord`; `given`: how many go to history as deleted and inserted.

    `own`: how many of the cycle's own ordinals were used.
    """

    frame: DataFrame
    given: int
    own: int


def _rewritten_rows(  # noqa: PLR0917  the table, what it becomes, and what is to be given back
    session: SparkSession,
    context: CycleContext,
    change: SchemaDifference,
    persisted: DataFrame,
    defaults: Mapping[int, str],
    kept: ExitStack,
) -> _Rows:
    """Return current's rows with new hidden columns. A row keeps its place in history, or is inserted again (`defaults`)."""
    old, new = in_lake(change.old), in_lake(change.new)
    places = [n for n in (DUP, ORD, FROM) if n in current_columns(old)]
    rows = convert_rows(session, pick(persisted, [*column_names(old), TEXT, *places]), change, defaults)
    if old.is_bag and not defaults:
        return _Rows(as_current(new, rows.withColumnRenamed(DUP, ORD)), 0, 0)
    existing = F.col(DUP if old.is_bag else ORD) if {DUP, ORD} & set(places) else F.lit(None)
    rows = rows.withColumn(_PLACE, existing.cast("bigint")).drop(DUP, ORD)
    given = numbered(session, rows, context.intent.own_ordinal)
    kept.callback(given.kept.unpersist)
    if defaults:
        # History first gets the row's deletion, then its insertion with all its values.
        numbers = {ORD: F.col(ORD) + F.lit(given.count), FROM: F.lit(None).cast("string")}
        return _Rows(as_current(new, given.frame.withColumns(numbers)), given.count, 2 * given.count)
    # A row without a place is older than the table's first large column, and has no such value.
    place = F.coalesce(F.col(_PLACE), F.col(ORD)) if new.is_bag else F.col(_PLACE)
    return _Rows(as_current(new, given.frame.withColumn(ORD, place)), 0, given.count if new.is_bag else 0)


def _corrections(context: CycleContext, change: SchemaDifference, rows: _Rows) -> DataFrame:
    """Return history's rows about a default of an added column: each row is deleted, and inserted with the default."""
    new, position = in_lake(change.new), context.intent.end_lsn
    given = {b.name for a, b in zip(change.new.columns, new.columns, strict=True) if a in change.added}
    bare = rows.frame.select(*(F.lit(None).cast(t).alias(n) if n in given else col(n) for n, t in rows.frame.dtypes))
    gone = as_current(new, bare).withColumn(ORD, F.col(ORD) - F.lit(rows.given))
    events = state_rows(new, gone, CORRECT_DELETE, position).unionAll(
        state_rows(new, rows.frame, CORRECT_INSERT, position)
    )
    return few_files(events, 2 * rows.given)


def _change(change: SchemaDifference, *, current: bool) -> ColumnChanges:
    """Return the change of the Delta table's columns."""
    old, new = in_lake(change.old), in_lake(change.new)
    before = dict(zip((c.name for c in change.old.columns), (c.name for c in old.columns), strict=True))
    after = dict(zip((c.name for c in change.new.columns), (c.name for c in new.columns), strict=True))
    added = {after[c.name]: spark_type(c) for c in change.added}
    if current:
        added |= {n: _HIDDEN[n] for n in current_columns(new) if n in _HIDDEN}
    return ColumnChanges(
        renamed={before[a.name]: after[b.name] for a, b in change.carried if before[a.name] != after[b.name]},
        retyped={after[b.name]: spark_type(b) for a, b in change.carried if spark_type(a) != spark_type(b)},
        away={before[c.name]: away_name(change.old.oid, c.attnum) for c in change.dropped},
        added=added,
        order=tuple(c.name for c in new.columns),
        statistics=current_statistics(new) if current else history_statistics(new),
    )


def _moved(history_before: int, history: Applied, current_before: int, current: Applied) -> bool:
    return (history_before, current_before) != (history.version, current.version)
