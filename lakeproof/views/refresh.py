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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import DUP, HIDDEN_PREFIX, KEY, scratch
from lakeproof.lake.delta.apply import CommitRequest, Hints, apply_change, with_files
from lakeproof.lake.delta.committer import Applied, CommitInfo, Unsupported
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.delta.log.state import table_shape
from lakeproof.lake.delta.versions import read_at
from lakeproof.lake.records.engine_versions import engine_versions
from lakeproof.lake.records.views.cuts import ViewCut, ViewsLock, newest_view_cut, view_path
from lakeproof.lake.records.views.definitions import ViewDefinition, put_definition, read_sql
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import Correction, correct
from lakeproof.lake.rows.memory import persist
from lakeproof.lake.spark.scanned_rows import counting, note_scans
from lakeproof.names import CycleNumber
from lakeproof.storage.store import Store
from lakeproof.views.cycle import app_id, begin_view_cycle, end_view_cycle
from lakeproof.views.definition import (
    bind,
    bind_again,
    check_names,
    check_same_columns,
    columns_of,
    digest_of_columns,
    in_order_of,
    query_errors,
)
from lakeproof.views.incremental.carried_keys import analyse
from lakeproof.views.incremental.collected import DUP_BITS, OWN_FAULTS, NotIncrementalError, PlacedChange, StoredView
from lakeproof.views.incremental.since_cut import check_can_go_on, earlier_files
from lakeproof.views.incremental.strategies import Partial, Plan, ViewTables, partial_correction
from lakeproof.views.incremental.sum_plans import sums_of
from lakeproof.views.incremental.table_changes import ChangeSource
from lakeproof.views.read_at import ReadAt

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
    new_columns: bool = False


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A view's correction that was computed before, for its table at `version`; `insertions` are without `_lp_dup`."""

    version: int
    correction: ViewCorrection
    computed_at: str


@dataclass(frozen=True, slots=True)
class ViewInputs:
    """Everything that one refresh of a view reads.

    tables          a frame for each name in the view's SQL, without hidden columns
    cuts            the cut of each source, the sources of the views that it reads among them
    refresh         the number that the cuts of one refresh share
    changes_since   returns the tables' changes since a view's cut; None if they are unknown
    table_rows      returns the number of rows of each table, None for a table without a count
    point           the versions of the views and of the external tables that it reads
    replaces        the definition is a new one, and the view may get other columns
    takes_back      the definition is the one before the newest
    staged          the view's correction, if a preview has computed it
    """

    tables: Mapping[str, DataFrame]
    cuts: Mapping[str, CycleNumber]
    refresh: int
    changes_since: Callable[[ViewCut], Mapping[str, ChangeSource]] | None = None
    table_rows: Callable[[], Mapping[str, int | None]] = dict
    point: ReadAt = field(default_factory=ReadAt)
    replaces: bool = False
    takes_back: bool = False
    staged: StagedRows | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """The view's table at `path`, its version before, and the number of this refresh; `session` is the caller's own.

    `named` is the version that its newest cut names. `replaces`: it may get other columns.
    """

    session: SparkSession
    view: ViewConfig
    path: str
    before: int
    number: CycleNumber
    named: int = NO_VERSION
    replaces: bool = False


def refresh_view(
    session: SparkSession,
    store: Store,
    view: ViewConfig,
    inputs: ViewInputs,
    lock: ViewsLock,
) -> ViewCut:
    """Commit the view's correction and write its cut.

    `session` is the caller's own (`spark.newSession()`), and the inputs' frames belong to it. `lock` is that of
    `one_refresh`. Raises ConfigError for a definition that can't be computed or kept, TransientError if another process
    refreshes, too.
    """
    definition, newest = ViewDefinition.of(view), newest_view_cut(store, view.name)
    sha256 = definition.sha256
    cycle = begin_view_cycle(store, view.name, newest, lock)
    target = _Target(session, view, cycle.path, cycle.before, cycle.number, cycle.durable, inputs.replaces)
    staged = inputs.staged if inputs.staged is not None and inputs.staged.version == cycle.before else None
    with counting() as scanned:
        partial, reason = _partial(target, inputs, newest, sha256) if staged is None else (None, None)
        if staged is not None:
            done = _from_staged(target, inputs, staged.correction)
        else:
            done = _as_a_whole(target, inputs) if partial is None else _from_changes(target, inputs, partial)
    put_definition(store, definition)
    whole = newest if partial is not None else None
    return end_view_cycle(
        cycle,
        lambda created_at: ViewCut(
            number=cycle.number,
            view=view.name,
            delta_version=done.version,
            definition_sha256=sha256,
            replaced_sha256=None if inputs.takes_back else _replaced(newest, sha256),
            sources=inputs.cuts,
            inserted=done.inserted,
            retracted=done.retracted,
            created_at=created_at,
            refresh=inputs.refresh,
            strategy=_strategy(partial, staged),
            reason=reason,
            changed_rows=None if partial is None else partial.changed_rows,
            rows_read=scanned.rows,
            whole_at=whole.whole_at if whole is not None else created_at if staged is None else staged.computed_at,
            engine=engine_versions() if whole is None else whole.engine,
            views=inputs.point.views,
            external=inputs.point.external,
            row_bytes=inputs.point.row_bytes(view),
        ),
    )


def _replaced(newest: ViewCut | None, sha256: str) -> str | None:
    """Return the definition that was applied before this one."""
    if newest is None or newest.definition_sha256 != sha256:
        return None if newest is None else newest.definition_sha256
    return newest.replaced_sha256


def _strategy(partial: Partial | None, staged: StagedRows | None) -> str:
    if staged is not None:
        return "staged"
    return "full" if partial is None else partial.strategy


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
    if inputs.replaces:
        return None, "it was taken back" if inputs.takes_back else "it was replaced"
    if inputs.changes_since is None:
        return None, "the changes of its tables are unknown"
    try:
        cut = check_can_go_on(view, newest, target.before, sha256)
        changes = inputs.changes_since(cut)
        stored = read_at(session, target.path, target.before)
        text = read_sql(view)

        def query(tables: Mapping[str, DataFrame]) -> DataFrame:
            return _desired(in_order_of(stored, bind_again(session, text, tables)))

        rows = in_order_of(stored, bind(session, view, inputs.tables))
        check_same_columns(target.view.name, _desired(rows), stored)
        with query_errors(session, view):
            names = list(inputs.tables)
            plan = Plan(analyse(session, rows, names), sums_of(session, rows, names))
            tables = ViewTables(inputs.tables, changes, inputs.table_rows)
            view_rows = StoredView(session, target.path, target.before, stored, target.number)
            with earlier_files(session):
                return partial_correction(plan, query, tables, view_rows), None
    except NotIncrementalError as error:
        return None, str(error)
    except OWN_FAULTS as error:
        return None, f"what has changed can't be computed with ({type(error).__name__})"


def _from_changes(target: _Target, inputs: ViewInputs, partial: Partial) -> _Done:
    insertions = None if partial.insertions is None else _with_dup(partial.insertions, target.number)
    correction = ViewCorrection(partial.retractions, insertions, partial.retracted, partial.inserted)
    try:
        with query_errors(target.session, target.view):
            applied = _commit(target, correction, inputs.cuts, partial.placed)
    finally:
        partial.close()
    return _Done(applied.version, partial.inserted, partial.retracted)


def _from_staged(target: _Target, inputs: ViewInputs, staged: ViewCorrection) -> _Done:
    insertions = None if staged.insertions is None else _with_dup(staged.insertions, target.number)
    applied = _commit(target, replace(staged, insertions=insertions), inputs.cuts)
    return _Done(applied.version, staged.inserted, staged.retracted)


def _as_a_whole(target: _Target, inputs: ViewInputs) -> _Done:
    with _differing(target, inputs.tables) as (desired, difference):
        with query_errors(target.session, target.view):
            applied = _commit(target, difference, inputs.cuts)
        if difference.correction is not None:
            note_scans(difference.correction.net)
        note_scans(desired)
    return _Done(applied.version, difference.inserted, difference.retracted)


def compare_view(
    session: SparkSession, store: Store, view: ViewConfig, tables: Mapping[str, DataFrame], version: int
) -> tuple[int, int]:
    """Return how many rows the view's table at `version` has too many, and how many of its query's rows it lacks."""
    target = _Target(session, view, view_path(store, view.name), version, CycleNumber(0), version)
    with _differing(target, tables) as (_, difference):
        return difference.retracted, difference.inserted


@contextmanager
def difference_by_query(
    session: SparkSession, store: Store, view: ViewConfig, tables: Mapping[str, DataFrame], version: int
) -> Iterator[tuple[DataFrame, ViewCorrection]]:
    """Give the rows of the view's query, with `_lp_key`, and what its table at `version` lacks of them, for the block.

    The columns may be others than the table's. Nothing is committed.
    """
    path = view_path(store, view.name)
    target = _Target(session, view, path, version, CycleNumber(0), version, replaces=True)
    with _differing(target, tables) as computed:
        yield computed


@contextmanager
def _differing(target: _Target, tables: Mapping[str, DataFrame]) -> Iterator[tuple[DataFrame, ViewCorrection]]:
    stored = _stored(target)
    desired = persist(_desired(in_order_of(stored, bind(target.session, target.view, tables))))
    try:
        with query_errors(target.session, target.view):
            difference = _difference(target, desired, stored)
        try:
            yield desired, difference
        finally:
            if difference.correction is not None:
                difference.correction.release()
    finally:
        desired.unpersist()


def _stored(target: _Target) -> DataFrame | None:
    return None if target.before == NO_VERSION else read_at(target.session, target.path, target.before)


def _desired(rows: DataFrame) -> DataFrame:
    return rows.withColumn(KEY, digest_of_columns(rows, rows.columns))


def _difference(target: _Target, desired: DataFrame, stored: DataFrame | None) -> ViewCorrection:
    number = target.number
    if stored is None:
        return ViewCorrection(None, _with_dup(desired, number), 0, desired.count())
    if _may_take_columns(target, desired, stored):
        rows = _with_dup(desired, number)
        return ViewCorrection(None, rows, stored.count(), desired.count(), truncate=True, new_columns=True)
    persisted = stored.withColumnRenamed(KEY, _STORED).withColumn(KEY, _stored_digest(stored))
    if _is_damaged(persisted):
        return ViewCorrection(None, _with_dup(desired, number), persisted.count(), desired.count(), truncate=True)
    correction = correct(desired, persisted, KEY, col(DUP))
    retracted, inserted = correction.counts()
    return ViewCorrection(
        correction.retractions.select(KEY, DUP) if retracted else None,
        _with_dup(correction.insertions, number) if inserted else None,
        retracted,
        inserted,
        correction=correction,
    )


def _commit(
    target: _Target,
    correction: ViewCorrection,
    sources: Mapping[str, CycleNumber],
    placed: PlacedChange | None = None,
) -> Applied:
    nothing = correction.retractions is None and correction.insertions is None and not correction.truncate
    if nothing and placed is None and target.before != NO_VERSION:
        return Applied(target.before, 0, 0)
    name = target.view.name
    metadata = json.dumps({"view": name, "number": target.number, "sources": dict(sources)}, sort_keys=True)
    removed: Removed[DataFrame] | AllRows | None = None
    if correction.truncate:
        removed = AllRows(new_columns=correction.new_columns)
    elif correction.retractions is not None:
        removed = Removed((KEY, DUP), correction.retractions)
    change = NetChange(removed, correction.insertions) if placed is None else NetChange(images=placed.images)
    info, hints = CommitInfo(app_id(name), int(target.number), metadata), Hints(max_keys=correction.retracted)
    request = CommitRequest(target.path, change, info, hints, TableSpec(), target.before)
    try:
        if placed is not None:
            return with_files(request, placed.before, placed.places).commit()
        return apply_change(target.session, request)
    except Unsupported as error:
        raise ConfigError(f"view {name}", str(error), "CAST it in the query") from None


def _with_dup(rows: DataFrame, number: CycleNumber) -> DataFrame:
    """Add numbers that grow from refresh to refresh, so that a new row never gets an old row's."""
    order = Window.partitionBy(KEY).orderBy(F.lit(0))
    return rows.withColumn(DUP, F.lit(int(number) << DUP_BITS) + F.row_number().over(order))


def _stored_digest(stored: DataFrame) -> Column:
    return digest_of_columns(stored, [c for c in stored.columns if not c.startswith(HIDDEN_PREFIX)])


def _is_damaged(persisted: DataFrame) -> bool:
    """True if (`_lp_key`, `_lp_dup`) do not identify the rows."""
    wrong = F.sum(F.when(col(_STORED).eqNullSafe(col(KEY)), 0).otherwise(1))
    by_key = persisted.groupBy(KEY).agg(wrong.alias("wrong"), F.count("*").alias("n"), F.countDistinct(DUP).alias("d"))
    return not by_key.where("wrong > 0 OR n <> d").isEmpty()


def _may_take_columns(target: _Target, desired: DataFrame, stored: DataFrame) -> bool:
    """Return True if the query's columns are to take the place of the table's, False if they are the same.

    They may if the view is replaced, or if somebody else has changed those of its newest cut. Raises ConfigError otherwise.
    """
    if columns_of(desired) == columns_of(stored):
        return False
    if not target.replaces and target.named not in {target.before, NO_VERSION}:
        named = read_at(target.session, target.path, target.named)
        if columns_of(desired) == columns_of(named):
            return True
    if not target.replaces:
        check_same_columns(target.view.name, desired, stored)
    check_names(target.view.name, desired, table_shape(target.path, target.before).metadata)
    return True
