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

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, FROM, KEY, ORD
from lakeproof.lake.columns import current_columns, in_lake, lake_types, layer_statistics
from lakeproof.lake.cycle.task import TableResult, TableTask
from lakeproof.lake.delta.committer import Applied
from lakeproof.lake.delta.log.protocol import reader_features
from lakeproof.lake.delta.schema import ColumnChanges, SchemaRequest, away_name, change_schema
from lakeproof.lake.planning.schema_change import SchemaDifference, compare_schemas
from lakeproof.lake.records.documents import HistorySum, SchemaChange
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import Layer
from lakeproof.schema import lake_names
from lakeproof.values.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HIDDEN = frozenset({KEY, DUP, ORD, FROM})


@dataclass(frozen=True, slots=True)
class RenewedRows:
    """Rows that a new schema calls for: current's, and history's corrections with their sum. `own`: used ordinals."""

    images: DataFrame | None = None
    corrections: DataFrame | None = None
    added: HistorySum = field(default_factory=HistorySum)
    own: int = 0


def commit_schema_change(spark: SparkOnDemand, task: TableTask, schema_change: SchemaChange) -> TableResult:
    """Write a table's new schema; its rows keep their position. Spark is asked only for rows that are read."""
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "is to change its schema but is not in the lake", "report this")
    change = compare_schemas(before.version, schema_change.version)
    defaults = {a: t for a, t in schema_change.default_for_old_rows.items() if a in {c.attnum for c in change.added}}
    rewritten = bool(defaults) or not change.keeps_hidden
    is_keyed_anew = schema_change.called_for is None and not change.same_key and not change.new.is_bag

    def commit(layer: Layer, rows: DataFrame | None, *, order: str | None = None, anew: bool = False) -> Applied:
        path, info, version = task.path(layer), task.commit_info(layer), before.version_of(layer)
        task.lease.check()
        request = SchemaRequest(path, _change(change, layer), info, version, rows, anew, task.portable, order)
        return change_schema(spark, request)

    with ExitStack() as kept:
        rows = RenewedRows()
        if is_keyed_anew or rewritten:
            # Imported where rows are read, because it imports Spark.
            from lakeproof.lake.cycle.schemas.rows import SchemaRows

            existing = SchemaRows(spark.get(), task, change, before, defaults)
            if is_keyed_anew:
                existing.check_new_key()
            if rewritten:
                rows = existing.renewed(kept)
        history = commit("history", rows.corrections, order=ORD)
        failpoint("cycle.after_history")
        current = commit("current", rows.images, anew=rewritten)
        failpoint("cycle.after_current")
    cut_table = replace(
        before,
        version=schema_change.version,
        history_version=history.version,
        current_version=current.version,
        history_sum=before.history_sum.plus(rows.added),
    )
    if not change.keeps_hashes:
        from lakeproof.lake.cycle.schemas.rows import renumbered

        cut_table = replace(cut_table, history_sum=renumbered(spark.get(), task.lake, before, cut_table))
    if (before.history_version, before.current_version) == (history.version, current.version):
        return TableResult(cut_table, carried=True)
    features = _new_features(task.path("history"), before.history_version, history)
    features |= _new_features(task.path("current"), before.current_version, current)
    return TableResult(cut_table, features=features, own_rows=rows.own)


def _new_features(path: str, before: int, after: Applied) -> dict[str, str]:
    """Return the features that readers need since a commit, each with its reason."""
    if after.version == before:
        return {}
    needed = reader_features(path, before)
    return {name: reason for name, reason in reader_features(path, after.version).items() if name not in needed}


def _change(change: SchemaDifference, layer: Layer) -> ColumnChanges:
    """Return the change of the Delta table's columns."""
    new = in_lake(change.new)
    before, after = lake_names(change.old.columns), lake_names(change.new.columns)
    added = {after[c.name]: spark_type(c) for c in change.added}
    if layer == "current":
        added |= lake_types(new, (n for n in current_columns(new) if n in _HIDDEN))
    return ColumnChanges(
        renamed={before[a.name]: after[b.name] for a, b in change.carried if before[a.name] != after[b.name]},
        retyped={after[b.name]: spark_type(b) for a, b in change.carried if spark_type(a) != spark_type(b)},
        away={before[c.name]: away_name(change.old.oid, c.attnum) for c in change.dropped},
        added=added,
        order=tuple(c.name for c in new.columns),
        statistics=layer_statistics(new, layer),
    )
