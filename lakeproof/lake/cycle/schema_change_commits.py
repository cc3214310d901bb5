"""One table is given another shape: one commit of its history, one of its current, and no row of the stream.

Which columns carry on belongs to `evolution`, when it happens to `shape_plan`, Delta's own doing to `delta_schema`.

    nothing but names, new columns without a default, dropped or widened ones    metadata alone; no data file is touched
    a default that older rows read, another kind of key, a bag's digest          current is written anew from its own rows

History keeps its rows: what they read in an added column is a correction in it, at the cycle's position. A table whose
Delta tables need no change (a length, NOT NULL) gets no commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError, TableError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, FROM, KEY, ORD, TEXT
from lakeproof.lake.columns import column_names, current_columns, current_statistics, history_statistics, in_lake
from lakeproof.lake.cycle.task import CycleContext, Work, Written
from lakeproof.lake.delta.commit import Applied
from lakeproof.lake.delta.schema import SchemaChange, away_name, change_schema
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, few_files, state_rows
from lakeproof.lake.fold.table_state import as_current
from lakeproof.lake.planning.ordinals import snapshot_ordinal
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.planning.schema_change import Evolution, evolve
from lakeproof.lake.records.documents import RESNAPSHOT, CutTable, Reshape
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.conversion import converted
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.exact import exact_text
from lakeproof.lake.rows.history_sum import keeps_hashes, sum_of
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import spark_type

_HIDDEN = {KEY: "string", DUP: "bigint", ORD: "bigint", FROM: "string"}
_PLACE = "_lp_place"


def reshape_table(session: SparkSession, context: CycleContext, work: Work, wanted: Reshape) -> Written:
    """Write a table's new shape; its rows stand where they stood."""
    before = work.before
    if before is None:
        raise InvariantError(str(work.table), "is to be reshaped but is not in the lake", "report this")
    found = evolve(before.version, wanted.version)
    missing = {a: t for a, t in wanted.missing.items() if a in {c.attnum for c in found.added}}
    rewritten = bool(missing) or not found.keeps_hidden
    paths = context.lease.paths
    current_path = paths.url(paths.current(work.table))
    persisted = read_layer(session, paths, work.table, before)
    if wanted.called_for is None and not found.same_key and not found.new.is_bag:
        names = [c.name for c in in_lake(found.old).columns]
        _check_key(in_lake(found.new), converted(session, pick(persisted, [*names, TEXT]), found, missing))
    with ExitStack() as kept:
        rows = _rows_anew(session, context, found, persisted, missing, kept) if rewritten else None
        corrected = _corrections(context, found, rows) if rows is not None and missing else None
        added = HistorySum() if corrected is None else sum_of(in_lake(found.new), corrected)
        context.lease.check()
        history = change_schema(
            session,
            paths.url(paths.history(work.table)),
            _change(found, current=False),
            context.commit_info("history", work.table),
            rows=corrected,
            expected_version=before.history_version,
        )
        failpoint("cycle.after_history")
        context.lease.check()
        current = change_schema(
            session,
            current_path,
            _change(found, current=True),
            context.commit_info("current", work.table),
            rows=None if rows is None else pick(rows.frame, current_columns(in_lake(found.new))),
            replace=True,
            expected_version=before.current_version,
        )
        failpoint("cycle.after_current")
    at = replace(
        before,
        version=wanted.version,
        history_version=history.version,
        current_version=current.version,
        history_sum=before.history_sum.plus(added),
    )
    if not keeps_hashes(found):
        at = replace(at, history_sum=_renumbered(session, context, before, at))
    return Written(at, Counts(), touched=_moved(before.history_version, history, before.current_version, current))


def _renumbered(session: SparkSession, context: CycleContext, before: CutTable, at: CutTable) -> HistorySum:
    """The sum under columns that have other numbers now: by the difference that this makes to the files, read twice."""
    paths, table = context.lease.paths, at.version.table
    was = sum_of(in_lake(before.version), read_layer(session, paths, table, before, "history"))
    now = sum_of(in_lake(at.version), read_layer(session, paths, table, at, "history"))
    return before.history_sum.minus(was).plus(now)


def _check_key(shape: SchemaVersion, rows: DataFrame) -> None:
    """Raise TableError where the key of `shape` does not tell the lake's rows apart, as it does the source's. One job."""
    forms = [exact_text(c, c.name, TEXT) for c in key_columns(shape)]
    names = [f"_lp_part_{i}" for i in range(len(forms))]
    counted = rows.groupBy(*(form.alias(n) for form, n in zip(forms, names, strict=True))).count()
    wrong = reduce(or_, (F.col(n).isNull() for n in names), F.col("count") > 1)
    if not counted.where(wrong).isEmpty():
        reason = "its new key does not tell the lake's rows apart: one of them has NULL in it, or two have the same"
        raise TableError(str(shape.table), reason, RESNAPSHOT)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Current's rows in the new shape, each with its `_lp_ord`; `given`: so many of them, with numbers of this cycle."""

    frame: DataFrame
    given: int


def _rows_anew(  # noqa: PLR0917  the table, what it becomes, and what is to be given back
    session: SparkSession,
    context: CycleContext,
    found: Evolution,
    persisted: DataFrame,
    missing: Mapping[int, str],
    kept: ExitStack,
) -> _Rows:
    """Current's rows with the hidden columns anew. A row keeps its place in history, or comes there again (`missing`)."""
    old, new = in_lake(found.old), in_lake(found.new)
    places = [n for n in (DUP, ORD, FROM) if n in current_columns(old)]
    rows = converted(session, pick(persisted, [*column_names(old), TEXT, *places]), found, missing)
    if old.is_bag and not missing:
        return _Rows(as_current(new, rows.withColumnRenamed(DUP, ORD)), 0)
    known = F.col(DUP if old.is_bag else ORD) if {DUP, ORD} & set(places) else F.lit(None)
    rows = rows.withColumn(_PLACE, known.cast("bigint")).drop(DUP, ORD)
    made = numbered(session, rows, snapshot_ordinal(context.intent.number))
    kept.callback(made.kept.unpersist)
    if missing:
        # Its correction goes first, then it comes: with all that it has.
        numbers = {ORD: F.col(ORD) + F.lit(made.count), FROM: F.lit(None).cast("string")}
        return _Rows(as_current(new, made.frame.withColumns(numbers)), made.count)
    # A row without a place is older than the table's first large column, and has no such value.
    place = F.coalesce(F.col(_PLACE), F.col(ORD)) if new.is_bag else F.col(_PLACE)
    return _Rows(as_current(new, made.frame.withColumn(ORD, place)), 0)


def _corrections(context: CycleContext, found: Evolution, rows: _Rows) -> DataFrame:
    """History's rows of what a default gave to rows that had no such column: each goes, and comes as it now is."""
    new, at = in_lake(found.new), context.intent.end_lsn
    given = {b.name for a, b in zip(found.new.columns, new.columns, strict=True) if a in found.added}
    bare = rows.frame.select(*(F.lit(None).cast(t).alias(n) if n in given else col(n) for n, t in rows.frame.dtypes))
    gone = as_current(new, bare).withColumn(ORD, F.col(ORD) - F.lit(rows.given))
    events = state_rows(new, gone, CORRECT_DELETE, at).unionAll(state_rows(new, rows.frame, CORRECT_INSERT, at))
    return few_files(events, 2 * rows.given)


def _change(found: Evolution, *, current: bool) -> SchemaChange:
    """What becomes of the Delta table's columns."""
    old, new = in_lake(found.old), in_lake(found.new)
    before = dict(zip((c.name for c in found.old.columns), (c.name for c in old.columns), strict=True))
    after = dict(zip((c.name for c in found.new.columns), (c.name for c in new.columns), strict=True))
    added = {after[c.name]: spark_type(c) for c in found.added}
    if current:
        added |= {n: _HIDDEN[n] for n in current_columns(new) if n in _HIDDEN}
    return SchemaChange(
        renamed={before[a.name]: after[b.name] for a, b in found.carried if before[a.name] != after[b.name]},
        retyped={after[b.name]: spark_type(b) for a, b in found.carried if spark_type(a) != spark_type(b)},
        away={before[c.name]: away_name(found.old.oid, c.attnum) for c in found.dropped},
        added=added,
        order=tuple(c.name for c in new.columns),
        statistics=current_statistics(new) if current else history_statistics(new),
    )


def _moved(history_before: int, history: Applied, current_before: int, current: Applied) -> bool:
    return (history_before, current_before) != (history.version, current.version)
