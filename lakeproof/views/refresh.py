"""One view brought up to its sources' cuts: from what has changed if that is exact, else as a whole; one commit.

The definition and its checks belong to `definition`, computing from changes to `strategies`, choosing views to
`lakeproof.commands.refresh`.

    desired   = the SQL over the current tables, each at its source's cut
    persisted = the view's Delta table as it is, by any writer
    commit    = desired - persisted, as multisets by the digest of exact forms

Invariant self-correcting: after a refresh as a whole the view is its query's answer, whatever it was before; one from
changes begins only at a table that is as the view's cut says, by its version. Rows are identified by
(`_lp_key`, `_lp_dup`), the digest and a number; if those are damaged (a key that is not its row's digest, one pair twice)
single rows can't be named, and the whole table is written anew in that one commit.

Idempotence: commits of a killed refresh are first removed from the view's log (`cycle`); other writers' commits are simply
part of persisted. The Delta commit carries the refresh's number, which is greater than the newest cut's and than any in the
log. If nothing differs there is no Delta commit, and the cut names the existing version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import DUP, HIDDEN_PREFIX, KEY, scratch
from lakeproof.lake.delta.apply import apply
from lakeproof.lake.delta.commit import Applied, CommitInfo, CommitRequest, TableSpec
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.read.open import OpenedLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.view_cuts import ViewCut, newest_view_cut, view_path
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import Correction, correct
from lakeproof.lake.rows.memory import fit, keep
from lakeproof.names import CycleNumber
from lakeproof.storage.store import Store
from lakeproof.views.carried_keys import analyse
from lakeproof.views.cycle import app_id, begin_view_cycle, end_view_cycle
from lakeproof.views.definition import bind, definition_sha256, digest_of, query_errors
from lakeproof.views.since_cut import check_can_go_on
from lakeproof.views.strategies import Changed, NotIncrementalError, Partial, TableChange, partial_correction

# As in `_lp_ord`: the bits for the rows that one refresh may insert under one digest.
_DUP_BITS = 36
_STORED = scratch("stored")


@dataclass(frozen=True, slots=True)
class ViewCorrection:
    """The rows to delete, as (`_lp_key`, `_lp_dup`), and the whole rows to insert; None if there are none.

    `truncate`: delete all rows. `correction` selects both; release it once they are written.
    """

    retractions: DataFrame | None
    insertions: DataFrame | None
    retracted: int
    inserted: int
    truncate: bool = False
    correction: Correction | None = None


@dataclass(frozen=True, slots=True)
class ViewInputs:
    """`tables`: a frame for each name in the view's SQL, without hidden columns, at the cuts `cuts` of the sources.

    `refresh`: the number that the cuts of one refresh share. `changes_since` returns the tables' changes since a view's cut;
    None: they are unknown.
    """

    tables: Mapping[str, DataFrame]
    cuts: Mapping[str, CycleNumber]
    refresh: int
    changes_since: Callable[[ViewCut], Mapping[str, TableChange]] | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """The view's table at `path`, its version before, and the number of this refresh; `session` is the caller's own."""

    session: SparkSession
    view: ViewConfig
    path: str
    before: int
    number: CycleNumber


def refresh_view(
    session: SparkSession,
    store: Store,
    view: ViewConfig,
    inputs: ViewInputs,
) -> ViewCut:
    """Commit the view's correction and write its cut.

    `session` is the caller's own (`spark.newSession()`), and the inputs' frames belong to it. The caller holds
    `one_refresh`. Raises ConfigError for a definition that can't be computed or kept, TransientError if another process
    refreshes, too.
    """
    sha256 = definition_sha256(view)
    newest = newest_view_cut(store, view.name)
    cycle = begin_view_cycle(session, store, view.name, newest)
    target = _Target(session, view, cycle.path, cycle.before, cycle.number)
    partial, reason = _partial(target, inputs, newest, sha256)
    done = _as_a_whole(target, inputs) if partial is None else _from_changes(target, inputs, partial)
    return end_view_cycle(
        cycle,
        lambda created_at: ViewCut(
            number=cycle.number,
            view=view.name,
            delta_version=done.version,
            definition_sha256=sha256,
            sources=inputs.cuts,
            inserted=done.inserted,
            retracted=done.retracted,
            created_at=created_at,
            refresh=inputs.refresh,
            strategy="full" if partial is None else partial.strategy,
            reason=reason,
            changed_rows=None if partial is None else partial.changed_rows,
            whole_at=created_at if partial is None or newest is None else newest.whole_at,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Done:
    """The version after a refresh, and its rows."""

    version: int
    inserted: int
    retracted: int


def _partial(
    target: _Target, inputs: ViewInputs, newest: ViewCut | None, sha256: str
) -> tuple[Partial | None, str | None]:
    """Return the correction from what has changed; if it can't be had, the reason."""
    view, session = target.view, target.session
    if inputs.changes_since is None:
        return None, "the changes of its tables are unknown"
    try:
        cut = check_can_go_on(view, newest, target.before, sha256)
        changes = inputs.changes_since(cut)
        stored = session.read.format("delta").option("versionAsOf", target.before).load(target.path)

        def query(tables: Mapping[str, DataFrame]) -> DataFrame:
            return _desired(bind(session, view, tables))

        rows = query(inputs.tables)
        _check_same_columns(target, rows, stored)
        with query_errors(session, view):
            analysis = analyse(session, rows, list(inputs.tables))
            return partial_correction(analysis, query, Changed(inputs.tables, changes), stored), None
    except NotIncrementalError as error:
        return None, str(error)


def _from_changes(target: _Target, inputs: ViewInputs, partial: Partial) -> _Done:
    insertions = None if partial.insertions is None else _with_dup(partial.insertions, target.number)
    correction = ViewCorrection(partial.retractions, insertions, partial.retracted, partial.inserted)
    try:
        with query_errors(target.session, target.view):
            applied = _commit(target, correction, inputs.cuts)
    finally:
        partial.close()
    return _Done(applied.version, partial.inserted, partial.retracted)


def _as_a_whole(target: _Target, inputs: ViewInputs) -> _Done:
    session, view = target.session, target.view
    desired = keep(_desired(bind(session, view, inputs.tables)))
    try:
        with query_errors(session, view):
            difference = _difference(target, desired)
            applied = _commit(target, difference, inputs.cuts)
        if difference.correction is not None:
            difference.correction.release()
    finally:
        desired.unpersist()
    return _Done(applied.version, difference.inserted, difference.retracted)


def compare_view(
    session: SparkSession, store: Store, view: ViewConfig, tables: Mapping[str, DataFrame], version: int
) -> tuple[int, int]:
    """Return how many rows the view's table at `version` has too many, and how many of its query's rows it lacks."""
    target = _Target(session, view, view_path(store, view.name), version, CycleNumber(0))
    desired = keep(_desired(bind(session, view, tables)))
    try:
        with query_errors(session, view):
            difference = _difference(target, desired)
        if difference.correction is not None:
            difference.correction.release()
        return difference.retracted, difference.inserted
    finally:
        desired.unpersist()


def _desired(rows: DataFrame) -> DataFrame:
    return rows.withColumn(KEY, digest_of(rows, rows.columns))


def _difference(target: _Target, desired: DataFrame) -> ViewCorrection:
    number = target.number
    if target.before == NO_VERSION:
        return ViewCorrection(None, _with_dup(desired, number), 0, desired.count())
    stored = target.session.read.format("delta").option("versionAsOf", target.before).load(target.path)
    _check_same_columns(target, desired, stored)
    persisted = stored.withColumnRenamed(KEY, _STORED).withColumn(KEY, _stored_digest(stored))
    if _is_damaged(persisted):
        return ViewCorrection(None, _with_dup(desired, number), persisted.count(), desired.count(), truncate=True)
    correction = correct(desired, persisted, KEY, col(DUP))
    retracted, inserted = correction.retractions.count(), correction.insertions.count()
    return ViewCorrection(
        correction.retractions.select(KEY, DUP) if retracted else None,
        _with_dup(correction.insertions, number) if inserted else None,
        retracted,
        inserted,
        correction=correction,
    )


def _commit(target: _Target, correction: ViewCorrection, sources: Mapping[str, CycleNumber]) -> Applied:
    nothing = correction.retractions is None and correction.insertions is None and not correction.truncate
    if nothing and target.before != NO_VERSION:
        return Applied(target.before, 0, 0)
    name = target.view.name
    metadata = json.dumps({"view": name, "number": target.number, "sources": dict(sources)}, sort_keys=True)
    change = NetChange((KEY, DUP), correction.retractions, correction.insertions, truncate=correction.truncate)
    info = CommitInfo(app_id(name), int(target.number), metadata)
    request = CommitRequest(target.path, change, info, create=TableSpec(), expected_version=target.before)
    return apply(target.session, request)


def _with_dup(rows: DataFrame, number: CycleNumber) -> DataFrame:
    """Add numbers that grow from refresh to refresh, so that a new row never gets an old row's."""
    order = Window.partitionBy(KEY).orderBy(F.lit(0))
    return rows.withColumn(DUP, F.lit(int(number) << _DUP_BITS) + F.row_number().over(order))


def _stored_digest(stored: DataFrame) -> Column:
    return digest_of(stored, [c for c in stored.columns if not c.startswith(HIDDEN_PREFIX)])


def _is_damaged(persisted: DataFrame) -> bool:
    """True if (`_lp_key`, `_lp_dup`) do not identify the rows."""
    wrong = F.sum(F.when(col(_STORED).eqNullSafe(col(KEY)), 0).otherwise(1))
    by_key = persisted.groupBy(KEY).agg(wrong.alias("wrong"), F.count("*").alias("n"), F.countDistinct(DUP).alias("d"))
    return not by_key.where("wrong > 0 OR n <> d").isEmpty()


def _check_same_columns(target: _Target, desired: DataFrame, stored: DataFrame) -> None:
    now = {f.name: f.dataType.simpleString() for f in desired.schema.fields} | {DUP: "bigint"}
    then = {f.name: f.dataType.simpleString() for f in stored.schema.fields}
    if now != then:
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        raise ConfigError(
            f"view {target.view.name}",
            f"its query gives other columns than its table has: {', '.join(changed)}",
            f"give the view another name, or move {target.path} away",
        )


def view_tables(
    session: SparkSession, lake: LakeLocation, view: ViewConfig, cuts: Mapping[str, Cut]
) -> dict[str, DataFrame]:
    """Return a frame for each name that the view's SQL reads, at these cuts; fits the caller's own `session` to them."""
    fit(session, view_row_bytes(view, cuts))
    opened = OpenedLake(session, lake, cuts)
    return {name: opened.table(source, table) for name, (source, table) in view.reads.items()}


def view_row_bytes(view: ViewConfig, cuts: Mapping[str, Cut]) -> int:
    """Return the most bytes that a row of the view is taken to have: one row of each table that it reads."""
    tables = (cuts[source].tables.get(table) for source, table in view.reads.values() if source in cuts)
    return sum(table.row_bytes for table in tables if table is not None)
