"""Computes a view's correction from what its tables have changed since the view's cut, without reading all of them.

Reading the plan does not belong here (`carried_keys`), nor the whole query and the commit (`refresh`), nor deciding whether
the view's table is what its cut says (`since_cut`).

    unchanged   no table that it reads has changed: no query
    linear      filters, projections, inner joins, UNION ALL: the query over each table's changes, the others as they are
    keys        anything that carries a key: the query over the rows with touched keys, against the view's rows with them

Each is exact. What can't be had raises NotIncrementalError, and the whole query is computed; so does a view that has fewer
rows to retract than the changes retract: then it was not its query's answer before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, KEY, scratch
from lakeproof.lake.delta.row_changes import CAME
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.correction import SIDE, correct, first_of
from lakeproof.lake.rows.matching import NET, join_on_key, multiset_difference
from lakeproof.lake.rows.memory import keep
from lakeproof.views.carried_keys import Analysis, CarriedKey

# The most rows that changed, and keys that they touch, which are sent to every task; more are computed as a whole.
CHANGED_ROWS_MAX = 1_000_000
KEYS_MAX = 100_000
_TOUCHED = scratch("touched_")

# Binds the query's names to frames, and returns its rows with their digests.
Query = Callable[[Mapping[str, DataFrame]], DataFrame]


class NotIncrementalError(Exception):
    """The correction can't be computed from changes; the message says why."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table of the query at the view's cut and now, and the rows that came and went (`CAME`) in between."""

    before: DataFrame
    now: DataFrame
    rows: DataFrame


@dataclass(frozen=True, slots=True)
class Partial:
    """A correction computed from changes: rows of the view as (`_lp_key`, `_lp_dup`), and rows of the query with digests.

    `strategy` is its name, `changed_rows` the changed rows that were read. `close` frees what it keeps, once it is written.
    """

    strategy: str
    changed_rows: int
    retractions: DataFrame | None
    insertions: DataFrame | None
    retracted: int
    inserted: int
    kept: ExitStack

    def close(self) -> None:
        """Free what it keeps."""
        self.kept.close()


@dataclass(frozen=True, slots=True)
class Changed:
    """The query's tables: all of them `now`, and those that changed by their names in lower case."""

    now: Mapping[str, DataFrame]
    changes: Mapping[str, TableChange]


def partial_correction(analysis: Analysis, query: Query, tables: Changed, stored: DataFrame) -> Partial:
    """Return the correction of the view's rows `stored`, by the cheapest strategy that is exact for this query.

    Raises NotIncrementalError if there is none, or too much has changed.
    """
    with ExitStack() as kept:
        # A name that the query does not use may have changed as well.
        read = {name: change for name, change in tables.changes.items() if name in analysis.occurrences}
        changes, count = _read(read, kept)
        tables = replace(tables, changes=changes)
        if not changes:
            return Partial("unchanged", count, None, None, 0, 0, kept.pop_all())
        if _is_linear(analysis, changes):
            done = _linear(analysis, query, tables, stored, kept)
            strategy = "linear"
        else:
            done = _by_keys(analysis, query, tables, stored, kept)
            strategy = "keys"
        retractions, insertions = done
        retracted = 0 if retractions is None else retractions.count()
        inserted = 0 if insertions is None else insertions.count()
        return Partial(
            strategy,
            count,
            retractions if retracted else None,
            insertions if inserted else None,
            retracted,
            inserted,
            kept.pop_all(),
        )


def _read(changes: Mapping[str, TableChange], kept: ExitStack) -> tuple[dict[str, TableChange], int]:
    """Return the changes of the tables that have some, each read once, and the number of rows."""
    result, total = {}, 0
    for name, change in changes.items():
        rows = _kept(change.rows, kept)
        try:
            count = rows.count()
        except Exception as error:
            raise NotIncrementalError(f"the changes of {name} can't be read ({type(error).__name__})") from error
        total += count
        if total > CHANGED_ROWS_MAX:
            raise NotIncrementalError(f"{total:,} rows have changed, more than {CHANGED_ROWS_MAX:,}")
        if count:
            result[name] = replace(change, rows=rows)
    return result, total


def _kept(rows: DataFrame, kept: ExitStack) -> DataFrame:
    rows = keep(rows)
    kept.callback(rows.unpersist)
    return rows


# Linear queries ------------------------------------------------------------------------------------


def _is_linear(analysis: Analysis, changes: Mapping[str, TableChange]) -> bool:
    """True if the change of the answer is the sum of its answers for each table's change."""
    if analysis.components is None or len(set(analysis.occurrences)) < len(analysis.occurrences):
        return False
    numbers = [number for number, name in enumerate(analysis.occurrences) if name in changes]
    return all(_empties_others(analysis, number) for number in numbers)


def _with(analysis: Analysis, number: int) -> set[int]:
    """Return the occurrences that are joined with one."""
    return {other for component in analysis.components or () if number in component for other in component}


def _empties_others(analysis: Analysis, number: int) -> bool:
    """True if every component without the occurrence has a table that is in none of its components."""
    joined = _with(analysis, number)
    return all(number in component or component - joined for component in analysis.components or ())


def _linear(
    analysis: Analysis, query: Query, tables: Changed, stored: DataFrame, kept: ExitStack
) -> tuple[DataFrame | None, DataFrame | None]:
    came: list[DataFrame] = []
    went: list[DataFrame] = []
    done: set[str] = set()
    for name, change in tables.changes.items():
        joined = _with(analysis, analysis.occurrences.index(name))
        frames = {}
        for other, frame in tables.now.items():
            key = other.lower()
            if key not in analysis.occurrences or analysis.occurrences.index(key) not in joined:
                frames[other] = frame.limit(0)
            else:
                later = key in tables.changes and key not in done
                frames[other] = tables.changes[key].before if later else frame
        (own,) = (other for other in tables.now if other.lower() == name)
        for side, sign in ((came, F.col(CAME)), (went, ~F.col(CAME))):
            side.append(query({**frames, own: pick(change.rows.where(sign), tables.now[own].columns)}))
        done.add(name)
    plus, minus = (_kept(reduce(DataFrame.unionAll, side), kept) for side in (came, went))
    net = _kept(multiset_difference(plus, minus, KEY).withColumnRenamed(KEY, SIDE), kept)
    missing = net.where(F.col(NET) > 0)
    surplus = net.where(F.col(NET) < 0).withColumn(NET, -F.col(NET))
    to_retract = surplus.agg(F.sum(NET)).collect()[0][0] or 0
    insertions = _kept(first_of(plus, missing, KEY, F.lit(0)), kept)
    if not to_retract:
        return None, insertions
    retractions = _kept(first_of(stored.select(KEY, DUP), F.broadcast(surplus), KEY, col(DUP)), kept)
    if retractions.count() != to_retract:
        raise NotIncrementalError("the view lacks rows that its changes retract: it was not its query's answer")
    return retractions.select(KEY, DUP), insertions


# Queries that carry a key --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Key:
    """Columns of the answer, and for each occurrence that they restrict its columns' positions, in the same order."""

    outputs: tuple[str, ...]
    columns: Mapping[int, tuple[int, ...]]


def _by_keys(
    analysis: Analysis, query: Query, tables: Changed, stored: DataFrame, kept: ExitStack
) -> tuple[DataFrame | None, DataFrame | None]:
    changed = [number for number, name in enumerate(analysis.occurrences) if name in tables.changes]
    key = _key(analysis.keys, changed)
    if key is None:
        raise NotIncrementalError("no column of its answer restricts all tables that have changed")
    touched = _kept(reduce(DataFrame.unionAll, _touched(analysis, key, tables, changed)).distinct(), kept)
    count = touched.count()
    if count > KEYS_MAX:
        raise NotIncrementalError(f"{count:,} keys are touched, more than {KEYS_MAX:,}")
    names = list(_names(len(key.outputs)))
    keys = F.broadcast(touched)

    def only_touched(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        renamed = rows.select("*", *(col(c).alias(f"{_TOUCHED}in_{i}") for i, c in enumerate(columns)))
        inside = [f"{_TOUCHED}in_{i}" for i in range(len(columns))]
        other = keys.select(*(F.col(n).alias(i) for n, i in zip(names, inside, strict=True)))
        return join_on_key(renamed, other, inside, "left_semi", null_safe=True).drop(*inside)

    frames = {name: _restricted(analysis, key, name, frame, only_touched) for name, frame in tables.now.items()}
    desired = _kept(only_touched(query(frames), key.outputs), kept)
    persisted = _kept(only_touched(stored, key.outputs), kept)
    correction = correct(desired, persisted, KEY, col(DUP))
    kept.callback(correction.release)
    return correction.retractions.select(KEY, DUP), correction.insertions


def _key(keys: Iterable[CarriedKey], changed: Sequence[int]) -> _Key | None:
    """Return all columns that restrict every changed occurrence together with the most others."""
    fit = [key for key in keys if all(number in key.columns for number in changed)]
    if not fit:
        return None
    most = max((frozenset(key.columns) for key in fit), key=lambda numbers: (len(numbers), sorted(numbers)))
    together = {key.output: key for key in fit if frozenset(key.columns) == most}
    return _Key(tuple(together), {number: tuple(key.columns[number] for key in together.values()) for number in most})


def _names(count: int) -> Iterable[str]:
    return (f"{_TOUCHED}{i}" for i in range(count))


def _touched(analysis: Analysis, key: _Key, tables: Changed, changed: Sequence[int]) -> Iterable[DataFrame]:
    for number in changed:
        rows = tables.changes[analysis.occurrences[number]].rows
        columns = [rows.columns[position] for position in key.columns[number]]
        yield rows.select(*(col(c).alias(n) for c, n in zip(columns, _names(len(columns)), strict=True)))


def _restricted(
    analysis: Analysis,
    key: _Key,
    name: str,
    frame: DataFrame,
    only_touched: Callable[[DataFrame, Sequence[str]], DataFrame],
) -> DataFrame:
    """Return the rows of a table that the touched keys can be about: all if one of its occurrences is not restricted."""
    numbers = [number for number, other in enumerate(analysis.occurrences) if other == name.lower()]
    places = {key.columns[number] for number in numbers if number in key.columns}
    if not numbers or any(number not in key.columns for number in numbers) or len(places) != 1:
        return frame
    (columns,) = places
    return only_touched(frame, [frame.columns[position] for position in columns])
