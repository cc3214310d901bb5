"""The change of a linear query's answer: the query over each table's changes, with the other tables as they are or were."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, KEY
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import NET, SIDE, first_of, multiset_difference
from lakeproof.views.incremental.carried_keys import Analysis
from lakeproof.views.incremental.collected import (
    NotIncrementalError,
    StoredView,
    collect_signed,
    correction_of,
    first_of_each,
    net_of,
)
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.table_changes import Changed, Query, kept_in

_LACKS = "the view lacks rows that its changes retract: it was not its query's answer"


def is_linear(analysis: Analysis, tables: Changed) -> bool:
    """True if the change of the answer is the sum of its answers for each table's change."""
    if analysis.components is None or len(set(analysis.occurrences)) < len(analysis.occurrences):
        return False
    if not tables.changes.keys() <= set(analysis.occurrences):
        return False
    return all(_empties_others(analysis, number) for number in analysis.occurrences_of(tables.changes))


def terms(analysis: Analysis, query: Query, tables: Changed) -> tuple[list[DataFrame], list[DataFrame]]:
    """Return the query's answers that came, and those that went; an answer may be among both."""
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
                frames[other] = tables.changes[key].before() if later else frame
        (own,) = (other for other in tables.now if other.lower() == name)
        for side, is_new in ((came, True), (went, False)):
            if change.has(came=is_new):
                side.append(query({**frames, own: change.side(came=is_new)}))
        done.add(name)
    return came, went


def collected_correction(came: list[DataFrame], went: list[DataFrame], stored: StoredView) -> ViewCorrection | None:
    """Return the correction by these answers, folded by this process; None if they are too many."""
    answers = collect_signed(came, went)
    if answers is None:
        return None
    surplus, missing = net_of(answers.rows.column(KEY).to_pylist(), answers.signs)
    inserted = first_of_each(answers.of_sign(1), missing)
    retracted = answers.rows.slice(0, 0)
    if surplus:
        hits = stored.with_digests(list(surplus), first_of_each(answers.of_sign(-1), surplus))
        if hits is None:
            return None
        retracted = first_of_each(hits, surplus, DUP)
        if retracted.num_rows != sum(surplus.values()):
            raise NotIncrementalError(_LACKS)
    return correction_of(stored, retracted, stored.images(inserted, answers.schema), inserted.num_rows)


def persisted_correction(
    came: list[DataFrame], went: list[DataFrame], stored: DataFrame, kept: ExitStack
) -> tuple[DataFrame | None, DataFrame | None]:
    """Return the same as frames, whatever their size: the rows to retract, and those to insert."""
    empty = (came or went)[0].limit(0)
    plus, minus = (kept_in(reduce(DataFrame.unionAll, side, empty), kept) for side in (came, went))
    net = kept_in(multiset_difference(plus, minus, KEY).withColumnRenamed(KEY, SIDE), kept)
    missing = net.where(F.col(NET) > 0)
    surplus = net.where(F.col(NET) < 0).withColumn(NET, -F.col(NET))
    to_retract = surplus.agg(F.sum(NET)).collect()[0][0] or 0
    insertions = kept_in(first_of(plus, missing, KEY, F.lit(0)), kept)
    if not to_retract:
        return None, insertions
    retractions = kept_in(first_of(stored.select(KEY, DUP), F.broadcast(surplus), KEY, col(DUP)), kept)
    if retractions.count() != to_retract:
        raise NotIncrementalError(_LACKS)
    return retractions.select(KEY, DUP), insertions


def _with(analysis: Analysis, number: int) -> set[int]:
    """Return the occurrences that are joined with one."""
    return {other for component in analysis.components or () if number in component for other in component}


def _empties_others(analysis: Analysis, number: int) -> bool:
    """True if every component without the occurrence has a table that is in none of its components."""
    joined = _with(analysis, number)
    return all(number in component or component - joined for component in analysis.components or ())
