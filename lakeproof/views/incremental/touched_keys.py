"""A view computed anew for the keys that changes touch: the query over the rows with these keys, against the view's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame

from lakeproof.hidden_columns import DUP, KEY, scratch
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import correct
from lakeproof.views.incremental.carried_keys import Analysis, CarriedKey
from lakeproof.views.incremental.collected import (
    NotIncrementalError,
    StoredView,
    Values,
    collect,
    correction_to,
    with_one_of,
)
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.table_changes import Changed, Query, kept_in

# The most keys that are sent to every task; if more are touched the view is computed as a whole.
KEYS_MAX = 100_000
_TOUCHED = scratch("touched_")
_Only = Callable[[DataFrame, Sequence[str]], DataFrame]


@dataclass(frozen=True, slots=True)
class RestrictingKey:
    """Columns of the answer, and for each occurrence that they restrict its columns' positions, in the same order."""

    outputs: tuple[str, ...]
    columns: Mapping[int, tuple[int, ...]]


def restricting_key(analysis: Analysis, tables: Changed) -> RestrictingKey | None:
    """Return all columns that restrict every changed occurrence together with the most others; None if there are none."""
    changed = analysis.occurrences_of(tables.changes)
    return _key(key for key in analysis.keys if all(number in key.columns for number in changed))


def _key(keys: Iterable[CarriedKey]) -> RestrictingKey | None:
    """Return all columns that restrict the most occurrences together."""
    fit = list(keys)
    if not fit:
        return None
    most = max((frozenset(key.columns) for key in fit), key=lambda numbers: (len(numbers), sorted(numbers)))
    together: dict[str, CarriedKey] = {key.output: key for key in fit if frozenset(key.columns) == most}
    return RestrictingKey(
        tuple(together), {number: tuple(key.columns[number] for key in together.values()) for number in most}
    )


def _touched_values(analysis: Analysis, key: RestrictingKey, tables: Changed) -> DataFrame:
    """Return the values of the key that the changes touch, each once."""
    return reduce(DataFrame.unionAll, _touched(analysis, key, tables)).distinct()


def collected_correction(
    analysis: Analysis, key: RestrictingKey, query: Query, tables: Changed, stored: StoredView
) -> ViewCorrection | None:
    """Return the correction, folded by this process; None if its rows are too many."""
    frame = _touched_values(analysis, key, tables)
    values = collect(frame)
    if values is None:
        return None
    parts = Values(values, frame.schema)
    answers = parts.of(query(_restricted(analysis, key, tables, parts.of)), key.outputs)
    return _against(answers, key.outputs, parts, stored)


def groups_correction(
    analysis: Analysis, names: Sequence[str], groups: Values, query: Query, *, tables: Changed, stored: StoredView
) -> ViewCorrection | None:
    """Return the correction of some groups of a query, by their values in its columns `names`; None as above.

    Its tables are restricted as far as these columns restrict them.
    """
    key = _key(key for key in analysis.keys if key.output in names)
    if key is None:
        frames = dict(tables.now)
    else:
        frames = _restricted(analysis, key, tables, groups.columns([names.index(name) for name in key.outputs]).of)
    return _against(groups.of(query(frames), names), names, groups, stored)


def _against(answers: DataFrame, names: Sequence[str], values: Values, stored: StoredView) -> ViewCorrection | None:
    """Return what makes the view's rows with these values the query's `answers`."""
    desired = collect(answers)
    persisted = None if desired is None else stored.with_values(names, values)
    if desired is None or persisted is None:
        return None
    return correction_to(desired, persisted, stored, answers.schema)


def persisted_correction(
    analysis: Analysis, key: RestrictingKey, query: Query, tables: Changed, stored: DataFrame, *, kept: ExitStack
) -> tuple[DataFrame | None, DataFrame | None]:
    """Return the same as frames, whatever their size: the rows to retract, and those to insert."""
    values = kept_in(_touched_values(analysis, key, tables), kept)
    count = values.count()
    if count > KEYS_MAX:
        raise NotIncrementalError(f"{count:,} keys are touched, more than {KEYS_MAX:,}")
    only_touched = partial(with_one_of, keys=values)
    desired = kept_in(only_touched(query(_restricted(analysis, key, tables, only_touched)), key.outputs), kept)
    persisted = kept_in(only_touched(stored, key.outputs), kept)
    correction = correct(desired, persisted, KEY, col(DUP))
    kept.callback(correction.release)
    return correction.retractions.select(KEY, DUP), correction.insertions


def _touched(analysis: Analysis, key: RestrictingKey, tables: Changed) -> Iterable[DataFrame]:
    for number in analysis.occurrences_of(tables.changes):
        rows = tables.changes[analysis.occurrences[number]].rows
        columns = [rows.columns[position] for position in key.columns[number]]
        yield rows.select(*(col(name).alias(f"{_TOUCHED}{i}") for i, name in enumerate(columns)))


def _restricted(analysis: Analysis, key: RestrictingKey, tables: Changed, only_touched: _Only) -> dict[str, DataFrame]:
    """Return each table's rows that the touched keys can be about: all if one of its occurrences is not restricted."""
    frames = dict(tables.now)
    for name, frame in tables.now.items():
        numbers = [number for number, other in enumerate(analysis.occurrences) if other == name.lower()]
        places = {key.columns[number] for number in numbers if number in key.columns}
        if numbers and all(number in key.columns for number in numbers) and len(places) == 1:
            (columns,) = places
            frames[name] = only_touched(frame, [frame.columns[position] for position in columns])
    return frames
