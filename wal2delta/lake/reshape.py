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
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wal2delta.errors import InvariantError
from wal2delta.failpoints import failpoint
from wal2delta.lake.changes import Counts
from wal2delta.lake.columns import (
    DUP,
    KEY,
    ORD,
    TEXT,
    col,
    current_columns,
    current_statistics,
    history_statistics,
    in_lake,
    pick,
)
from wal2delta.lake.contract import Applied
from wal2delta.lake.converted import converted
from wal2delta.lake.correction import numbered
from wal2delta.lake.delta_schema import SchemaChange, away_name, change_schema
from wal2delta.lake.evolution import Evolution, Reshape, evolve
from wal2delta.lake.history import CORRECT_DELETE, CORRECT_INSERT, few_files, state_rows
from wal2delta.lake.open import read_layer
from wal2delta.lake.plan import snapshot_ordinal
from wal2delta.lake.snapshot_entry import as_current
from wal2delta.lake.table_cycle import CycleContext, Work, Written
from wal2delta.values.types import spark_type

_HIDDEN = {KEY: "string", DUP: "bigint"}


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
    with ExitStack() as kept:
        rows = _numbered_rows(session, context, found, persisted, missing, kept) if rewritten else None
        corrected = _corrections(session, context, found, rows, kept) if rows is not None and missing else None
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
            rows=None if rows is None else pick(rows, current_columns(in_lake(found.new))),
            replace=True,
            expected_version=before.current_version,
        )
        failpoint("cycle.after_current")
    at = replace(
        before,
        version=wanted.version,
        history_version=history.version,
        current_version=current.version,
    )
    return Written(at, Counts(), touched=_moved(before.history_version, history, before.current_version, current))


def _numbered_rows(  # noqa: PLR0917  the table, what it becomes, and what is to be given back
    session: SparkSession,
    context: CycleContext,
    found: Evolution,
    persisted: DataFrame,
    missing: Mapping[int, str],
    kept: ExitStack,
) -> DataFrame:
    """Current's rows in the new shape with its hidden columns anew; `_w2d_ord` tells them apart."""
    new = in_lake(found.new)
    names = [c.name for c in in_lake(found.old).columns]
    rows = converted(session, pick(persisted, [*names, TEXT, *([DUP] if found.old.is_bag else [])]), found, missing)
    if found.old.is_bag and found.new.is_bag:
        # Each copy keeps its number: as_current takes it from the ordinal.
        return as_current(new, rows.withColumn(ORD, F.col(DUP)).drop(DUP))
    made = numbered(session, rows.drop(DUP), snapshot_ordinal(context.intent.number))
    kept.callback(made.kept.unpersist)
    return as_current(new, made.frame)


def _corrections(
    session: SparkSession, context: CycleContext, found: Evolution, rows: DataFrame, kept: ExitStack
) -> DataFrame:
    """History's rows of what a default gave to rows that had no such column: each goes, and comes as it now is."""
    new, at = in_lake(found.new), context.intent.end_lsn
    given = {b.name for a, b in zip(found.new.columns, new.columns, strict=True) if a in found.added}
    bare = rows.select(*(F.lit(None).cast(t).alias(n) if n in given else col(n) for n, t in rows.dtypes))
    first = snapshot_ordinal(context.intent.number)
    gone = numbered(session, as_current(new, bare).drop(ORD), first)
    come = numbered(session, rows.drop(ORD), first + gone.count)
    kept.callback(gone.kept.unpersist)
    kept.callback(come.kept.unpersist)
    events = state_rows(new, gone.frame, CORRECT_DELETE, at).unionAll(state_rows(new, come.frame, CORRECT_INSERT, at))
    return few_files(events, gone.count + come.count)


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
