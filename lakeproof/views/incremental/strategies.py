"""Chooses the way by which a view is brought up to its tables; every reason for one way and not another is named here.

The first that holds decides. The cut of a refresh has its strategy, and the reason if that is `full`, the whole query.

    full        somebody asked for it; its definition is another, it has no cut yet, its configuration says so; another hand
                wrote its table; another version of the engine computed it, or it was computed from changes for too long
                (`check_can_go_on`)
    full        what its tables changed is not known, or is no sequence of rows (`since_cut`)
    full        the query looks at a column that was added; too many rows have changed (`table_changes`)
    unchanged   no table that it reads has changed: no query
    full        so many of its tables' rows have changed that reading all is cheaper (`check_worth`)
    linear      filters, projections, inner joins, UNION ALL: the query over each table's changes, the others as they are
    added       count, sum and avg of such rows: the same query over the changes, added to the view's own rows
    groups      GROUP BY over such rows: the query over the changes names the groups, and is computed anew for these
    keys        anything that carries a key: the query over the rows with touched keys, against the view's rows with them
    full        no key restricts all that has changed, or too many keys are touched (`touched_keys`)

Each is exact. A view that has fewer rows to retract than the changes retract, or rows that are not what their digests say,
was not its query's answer before, and is computed as a whole. Rows that are few are folded by this process (`collected`),
others by Spark. Reading the plan does not belong here (`carried_keys`, `sum_plans`), nor the whole query and the commit
(`lakeproof.views.refresh`), nor looking for views that need a refresh without a newer cut (`lakeproof.views.drift`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakeproof.config.model import ViewConfig
from lakeproof.lake.delta.versions import read_at
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.lake.records.views.definitions import read_sql
from lakeproof.views.definition import bind, bind_again, check_same_columns, in_order_of, query_errors
from lakeproof.views.difference import ViewTarget, with_digest
from lakeproof.views.drift import why_not_trusted
from lakeproof.views.incremental import added_sums, linear_terms, touched_keys
from lakeproof.views.incremental.carried_keys import Analysis, analyse
from lakeproof.views.incremental.collected import (
    OWN_FAULTS,
    NotIncrementalError,
    StoredView,
)
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.plan_trees import analysed_plan
from lakeproof.views.incremental.since_cut import earlier_files
from lakeproof.views.incremental.sum_plans import SumPlan, sums_of
from lakeproof.views.incremental.table_changes import Changed, Query, read_changed_tables
from lakeproof.views.read_at import ViewInputs

# If more of the rows have changed the whole query is cheaper: it reads each row once, and a changed row is read, looked for
# in the view and in the other tables, and written.
CHANGED_SHARE_MAX = 0.2
# So few changes cost little in any way, and of a small table they are soon a large share.
FEW_CHANGES = 100


@dataclass(frozen=True, slots=True)
class Partial:
    """A correction computed from changes, whose insertions are without `_lp_dup`, and the strategy by which.

    `changed_rows` is the number of changed rows that were read. Close `kept` once the correction is written.
    """

    strategy: str
    correction: ViewCorrection
    changed_rows: int
    kept: ExitStack


def partial_correction(
    target: ViewTarget, inputs: ViewInputs, newest: ViewCut | None, sha256: str
) -> tuple[Partial | None, str | None]:
    """Return the view's correction from what its tables have changed; if it can't be had, the reason."""
    view, session = target.view, target.session
    if inputs.replaces:
        return None, "it was taken back" if inputs.takes_back else "it was replaced"
    if inputs.changes_since is None:
        return None, "all of it was asked for"
    try:
        changes = inputs.changes_since(check_can_go_on(view, newest, target.before, sha256))
        stored = read_at(session, target.path, target.before)
        text = read_sql(view)

        def query(tables: Mapping[str, DataFrame]) -> DataFrame:
            return with_digest(in_order_of(stored, bind_again(session, text, tables)))

        rows = in_order_of(stored, bind(session, view, inputs.tables))
        check_same_columns(view.name, with_digest(rows), stored)
        with query_errors(session, view):
            names = list(inputs.tables)
            analysis = analyse(session, analysed_plan(rows), names, rows.columns)
            sums = sums_of(session, rows, names)
            # A name that the query does not use may have changed as well.
            read = {name: change for name, change in changes.items() if name in analysis.used}
            view_rows = StoredView(session, target.path, target.before, stored, target.number)
            with earlier_files(session), ExitStack() as kept:
                for name, change in read.items():
                    change.check_added(analysis.used[name])
                changed, count = read_changed_tables(read, analysis.used, kept)
                tables = Changed(inputs.tables, changed, inputs.table_rows)
                strategy, correction = _by_strategy(_Given(analysis, sums, query, tables, view_rows), count, kept)
                return Partial(strategy, correction, count, kept.pop_all()), None
    except NotIncrementalError as error:
        return None, str(error)
    except OWN_FAULTS as error:
        return None, f"what has changed can't be computed with ({type(error).__name__})"


def check_can_go_on(view: ViewConfig, newest: ViewCut | None, before: int, sha256: str) -> ViewCut:
    """Return the newest cut if its table is known to be its query's answer there; `before` is the table's version now.

    Raises NotIncrementalError with the reason if it is not known.
    """
    if newest is None:
        raise NotIncrementalError("it has no cut yet")
    reason = why_not_trusted(view, newest)
    if view.refresh == "full":
        reason = "its configuration says so"
    elif newest.definition_sha256 != sha256:
        reason = "its definition has changed"
    elif newest.delta_version != before:
        reason = "its table was written by somebody else, or moved"
    if reason is not None:
        raise NotIncrementalError(reason)
    return newest


def check_worth(changed: int, rows: int | None) -> None:
    """Raise NotIncrementalError if the whole query over so many rows is cheaper; None: nobody counted them."""
    if rows is not None and changed > max(FEW_CHANGES, rows * CHANGED_SHARE_MAX):
        raise NotIncrementalError(f"{changed:,} rows have changed of tables with {rows:,}: all of it is cheaper")


@dataclass(frozen=True, slots=True)
class _Given:
    """The query with the facts of its plan, its tables, and the view's rows."""

    analysis: Analysis
    sums: SumPlan | None
    query: Query
    tables: Changed
    stored: StoredView


def _by_strategy(given: _Given, count: int, kept: ExitStack) -> tuple[str, ViewCorrection]:
    """Return the cheapest strategy that is exact for this query, and the correction by it."""
    analysis, query, tables, stored = given.analysis, given.query, given.tables, given.stored
    if not tables.changes:
        return "unchanged", ViewCorrection(None, None, 0, 0)
    check_worth(count, tables.rows_of(set(analysis.occurrences)))
    if linear_terms.is_linear(analysis, tables):
        came, went = linear_terms.terms(analysis, query, tables)
        collected = linear_terms.collected_correction(came, went, stored) if tables.collected else None
        if collected is None:
            collected = _of_frames(linear_terms.persisted_correction(came, went, stored.rows, kept))
        return "linear", collected
    for strategy, collected in _of_groups(given):
        if collected is not None:
            return strategy, collected
    key = touched_keys.restricting_key(analysis, tables)
    if key is None:
        raise NotIncrementalError("no column of its answer restricts all tables that have changed")
    collected = touched_keys.collected_correction(analysis, key, query, tables, stored) if tables.collected else None
    if collected is None:
        collected = _of_frames(touched_keys.persisted_correction(analysis, key, query, tables, stored.rows, kept=kept))
    return "keys", collected


def _of_groups(given: _Given) -> Iterator[tuple[str, ViewCorrection | None]]:
    """Yield the corrections of a query of groups whose rows are linear, the cheapest first; None does not decide it."""
    sums, tables = given.sums, given.tables
    if sums is None or not tables.collected or not linear_terms.is_linear(sums.below, tables):
        return
    groups = sums.of("group")
    # If a key carries them, it is known without a query which groups are touched.
    if not sums.can_be_added and (not groups or touched_keys.restricting_key(given.analysis, tables) is not None):
        return
    came, went = linear_terms.terms(sums.below, given.query, tables)
    touched = added_sums.touched_groups(sums, came, went)
    if touched is None:
        return
    if sums.can_be_added:
        yield "added", added_sums.collected_correction(sums, touched, given.stored)
    if groups:
        correction = touched_keys.groups_correction(
            given.analysis, touched.names, touched.values, given.query, tables=tables, stored=given.stored
        )
        yield "groups", correction


def _of_frames(frames: tuple[DataFrame | None, DataFrame | None]) -> ViewCorrection:
    """Return the correction by these rows to retract, and to insert."""
    retractions, insertions = frames
    retracted, inserted = (0 if rows is None else rows.count() for rows in frames)
    return ViewCorrection(retractions if retracted else None, insertions if inserted else None, retracted, inserted)
