"""Computes a view's correction from what its tables have changed since the view's cut, without reading all of them.

Reading the plan does not belong here (`carried_keys`), nor the whole query and the commit (`refresh`), nor deciding whether
the view's table is what its cut says (`since_cut`).

    unchanged   no table that it reads has changed: no query
    linear      filters, projections, inner joins, UNION ALL: the query over each table's changes, the others as they are
    added       count, sum and avg of such rows: the same query over the changes, added to the view's own rows
    groups      GROUP BY over such rows: the query over the changes names the groups, and is computed anew for these
    keys        anything that carries a key: the query over the rows with touched keys, against the view's rows with them

Each is exact. What can't be had raises NotIncrementalError, and the whole query is computed; so does a view that has fewer
rows to retract than the changes retract, or rows that are not what their digests say: it was not its query's answer before.
Rows that are few are folded by this process (`collected`), others by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from lakeproof.views.incremental import added_sums, linear_terms, touched_keys
from lakeproof.views.incremental.added_sums import TouchedGroups
from lakeproof.views.incremental.carried_keys import Analysis
from lakeproof.views.incremental.collected import CollectedCorrection, PlacedChange, StoredView
from lakeproof.views.incremental.cost import check_worth
from lakeproof.views.incremental.sum_plans import SumPlan
from lakeproof.views.incremental.table_changes import Changed, ChangeSource, Query, read_changed_tables


@dataclass(frozen=True, slots=True)
class Partial:
    """A correction computed from changes: rows of the view as (`_lp_key`, `_lp_dup`), and rows of the query with digests.

    `strategy` is its name, `changed_rows` the changed rows that were read. `placed` has both in place of the frames if
    their places are known. `close` frees what it keeps, once it is written.
    """

    strategy: str
    changed_rows: int
    retracted: int
    inserted: int
    kept: ExitStack
    retractions: DataFrame | None = None
    insertions: DataFrame | None = None
    placed: PlacedChange | None = None

    def close(self) -> None:
        """Free what it keeps."""
        self.kept.close()


@dataclass(frozen=True, slots=True)
class Plan:
    """The facts that are read from the query's plan."""

    analysis: Analysis
    sums: SumPlan | None


@dataclass(frozen=True, slots=True)
class ViewTables:
    """The query's tables `now`, where the changes of those that changed come from, and how many `rows` each has."""

    now: Mapping[str, DataFrame]
    changes: Mapping[str, ChangeSource]
    rows: Callable[[], Mapping[str, int | None]]


def partial_correction(plan: Plan, query: Query, given: ViewTables, stored: StoredView) -> Partial:
    """Return the correction of the view's rows `stored`, by the cheapest strategy that is exact for this query.

    Raises NotIncrementalError if there is none, or too much has changed.
    """
    analysis, sums = plan.analysis, plan.sums
    with ExitStack() as kept:
        # A name that the query does not use may have changed as well.
        read = {name: change for name, change in given.changes.items() if name in analysis.used}
        for name, change in read.items():
            change.check_added(analysis.used[name])
        changes, count = read_changed_tables(read, analysis.used, kept)
        tables = Changed(given.now, changes, given.rows)
        if not changes:
            return Partial("unchanged", count, 0, 0, kept.pop_all())
        check_worth(count, tables.rows_of(set(analysis.occurrences)))
        if linear_terms.is_linear(analysis, tables):
            came, went = linear_terms.terms(analysis, query, tables)
            collected = _collected(tables, lambda: linear_terms.collected_correction(came, went, stored))
            if collected is not None:
                return _of_collected("linear", count, collected, kept)
            frames = linear_terms.persisted_correction(came, went, stored.rows, kept)
            return _of_frames("linear", count, frames, kept)
        if sums is not None and linear_terms.is_linear(sums.below, tables):
            way = _Groups(analysis, sums, query, tables, stored)
            for strategy, correction in way.corrections():
                collected = _collected(tables, correction)
                if collected is not None:
                    return _of_collected(strategy, count, collected, kept)
        key = touched_keys.restricting_key(analysis, tables)
        collected = _collected(tables, lambda: touched_keys.collected_correction(analysis, key, query, tables, stored))
        if collected is not None:
            return _of_collected("keys", count, collected, kept)
        frames = touched_keys.persisted_correction(analysis, key, query, tables, stored.rows, kept=kept)
        return _of_frames("keys", count, frames, kept)


@dataclass(frozen=True)
class _Groups:
    """The ways of a query of groups whose rows are linear."""

    analysis: Analysis
    sums: SumPlan
    query: Query
    tables: Changed
    stored: StoredView

    def corrections(self) -> Iterator[tuple[str, Callable[[], CollectedCorrection | None]]]:
        """Give them by their names, the cheapest first: each is tried if the one before does not decide it."""
        if self.sums.can_be_added:
            yield "added", self._added
        elif touched_keys.carries(self.analysis, self.tables):
            return  # which groups are touched is then known without a query
        if self.sums.of("group"):
            yield "groups", self._anew

    @cached_property
    def _touched(self) -> TouchedGroups | None:
        came, went = linear_terms.terms(self.sums.below, self.query, self.tables)
        return added_sums.touched_groups(self.sums, came, went)

    def _added(self) -> CollectedCorrection | None:
        touched = self._touched
        return None if touched is None else added_sums.collected_correction(self.sums, touched, self.stored)

    def _anew(self) -> CollectedCorrection | None:
        touched = self._touched
        if touched is None:
            return None
        groups = touched_keys.Values(touched.keys, touched.schema)
        return touched_keys.groups_correction(
            self.analysis, touched.names, groups, self.query, tables=self.tables, stored=self.stored
        )


def _collected(tables: Changed, correction: Callable[[], CollectedCorrection | None]) -> CollectedCorrection | None:
    """Return a correction by this process, None if the changes are too many."""
    return correction() if tables.collected else None


def _of_collected(strategy: str, count: int, collected: CollectedCorrection, kept: ExitStack) -> Partial:
    return Partial(strategy, count, collected.retracted, collected.inserted, kept.pop_all(), placed=collected.rows)


def _of_frames(
    strategy: str, count: int, frames: tuple[DataFrame | None, DataFrame | None], kept: ExitStack
) -> Partial:
    retracted, inserted = (0 if rows is None else rows.count() for rows in frames)
    retractions, insertions = frames
    return Partial(
        strategy,
        count,
        retracted,
        inserted,
        kept.pop_all(),
        retractions if retracted else None,
        insertions if inserted else None,
    )
