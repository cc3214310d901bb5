"""Net changes of tables and views from cut to cut without Spark: a step for each cut, its rows as Arrow or pandas.

The same with Spark, for any number of rows and with a checkpoint, belongs to `read.spark.changes` and `subscribe`; finding
the rows in files to `lakeproof.lake.delta.log.changed_places`.

    cut 41 ── step ── cut 42 ── step ── cut 43      a step reads what the two versions of a table do not have in common

Rows that went and rows that came become changes: kind, row before, row after.

    keyed      a key on both sides is an update, unless the rows are equal
    by digest  equal rows on both sides cancel each other; all other rows are deletes and inserts

Memory: the rows of one table that differ between two cuts; both states whole if a cut changed the columns, or if the files
were only put together beside the change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.events import Stop
from lakeproof.hidden_columns import CAME, HIDDEN_PREFIX, KEY, TEXT
from lakeproof.lake.columns import column_names, in_lake, merge_key, same_key_columns
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.log.changed_places import changed_places
from lakeproof.lake.read.arrow.open import ROWS_MAX, to_arrow, to_pandas
from lakeproof.lake.records.cuts.choice import (
    check_follows,
    cuts_of_range,
    one_source,
    range_end,
    table_differs,
    table_name,
    view_cuts_of_range,
    view_range_end,
)
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.views.cuts import ViewCut, view_path
from lakeproof.lake.rows.change import Mask, Numbers
from lakeproof.lake.rows.difference import uneven
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types


_KIND = pa.field("kind", pa.string(), nullable=False)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changes of a table or view in one cut; `before` and `after` are the columns of the rows, by which they differ.

    `changes` has the columns `kind` (`insert`, `update`, `delete`), `before` and `after`: the rows as structs, null if there
    is none.
    """

    before: pa.Schema
    after: pa.Schema
    changes: pa.Table

    def arrow(self) -> pa.Table:
        """Return the changes as an Arrow table."""
        return self.changes

    def pandas(self) -> pd.DataFrame:
        """Return them as a frame whose columns have Arrow's types; raises ConfigError if pandas is not installed."""
        return to_pandas(self.changes)


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of one side: those `shown` to users, and the columns `key` that distinguish them."""

    rows: pa.Table
    shown: Sequence[str]
    key: Sequence[str]

    @property
    def schema(self) -> pa.Schema:
        """The columns that users see."""
        return pa.schema([self.rows.schema.field(name) for name in self.shown])

    def structs(self, places: Numbers) -> pa.Array:
        """Return the rows at these places as users see them."""
        chosen = self.rows.take(pa.array(places, pa.int64()))
        columns = [chosen.column(name).combine_chunks() for name in self.shown]
        return pa.StructArray.from_arrays(columns, fields=list(self.schema))


def keyed_changes(went: Side, came: Side, compared: Sequence[str] | None, numbers: frozenset[str]) -> ChangedRows:
    """Return the changes of rows with a key.

    `compared` are the columns by which two rows with a key are equal, so that nothing has changed; None: they never are.
    `numbers` are those of the table's columns: what `_lp_text` says of others, which were dropped, does not count. Of a key
    that damage has put in the table twice, each row before that differs from a row after is an update.
    """
    before, after = _keys(went), _keys(came)
    places = dict[tuple[Any, ...], list[int]]()
    for place, key in enumerate(after):
        places.setdefault(key, []).append(place)
    pairs = [(n, place) for n, key in enumerate(before) for place in places.get(key, ())]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    if compared is not None and len(both):
        sides = [side.rows.take(pa.array(both[:, n])) for n, side in enumerate((went, came))]
        same = np.ones(len(both), dtype=bool)
        for name in compared:
            left, right = (side.column(name).combine_chunks() for side in sides)
            same &= _same_texts(left, right, numbers) if name == TEXT else _equal(left, right)
        both = both[~same]
    gone = np.array([n for n, key in enumerate(before) if key not in places], np.int64)
    there = set(before)
    new = np.array([n for n, key in enumerate(after) if key not in there], np.int64)
    updates = _changes("update", went.structs(both[:, 0]), came.structs(both[:, 1]))
    return _put(went, came, updates, gone, new)


def counted_changes(went: Side, came: Side) -> ChangedRows:
    """Return the changes of rows that have a digest and no key, equal ones as often as they came or went."""
    gone, new = uneven(*(side.rows.column(KEY).combine_chunks() for side in (went, came)))
    return _put(went, came, None, gone, new)


def anew(went: Side, came: Side) -> ChangedRows:
    """Return all rows of the one side as deleted, and all of the other as inserted."""
    gone, new = (np.arange(side.rows.num_rows, dtype=np.int64) for side in (went, came))
    return _put(went, came, None, gone, new)


def _put(
    went: Side,
    came: Side,
    updates: pa.Table | None,
    gone: Numbers,
    new: Numbers,
) -> ChangedRows:
    types = [pa.struct(list(side.schema)) for side in (went, came)]
    parts = [
        _changes("delete", went.structs(gone), pa.nulls(len(gone), types[1])),
        _changes("insert", pa.nulls(len(new), types[0]), came.structs(new)),
    ]
    whole = pa.concat_tables(parts if updates is None else [updates, *parts])
    return ChangedRows(went.schema, came.schema, whole)


def _changes(kind: str, before: pa.Array, after: pa.Array) -> pa.Table:
    kinds = pa.repeat(pa.scalar(kind), len(before))
    fields = [_KIND, pa.field("before", before.type), pa.field("after", after.type)]
    return pa.Table.from_arrays([kinds, before, after], schema=pa.schema(fields))


def _keys(side: Side) -> list[tuple[Any, ...]]:
    """Return each row's key."""
    return list(zip(*(_plain(side.rows.column(name)).to_pylist() for name in side.key), strict=True))


def _same_texts(left: pa.Array, right: pa.Array, numbers: frozenset[str]) -> Mask:
    """Return, row by row, whether two `_lp_text` have the same texts for the columns with these numbers."""

    def texts_of(text: str | None) -> dict[str, str]:
        return {} if text is None else {n: value for n, value in json.loads(text).items() if n in numbers}

    same = np.array(_equal(left, right))
    for place in np.flatnonzero(~same):
        same[place] = texts_of(left[place].as_py()) == texts_of(right[place].as_py())
    return same


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as the numbers that they are: Python has no time before the year 1 or after 9999."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date(column.type) else column


def _equal(left: pa.Array, right: pa.Array) -> Mask:
    """Return, row by row, whether two values are the same: NULL is NULL, and a float the same bits."""
    if pa.types.is_nested(left.type):
        return np.array([repr(a) == repr(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)
    if pa.types.is_floating(left.type):
        bits = pa.int32() if left.type.bit_width == 32 else pa.int64()
        left, right = left.view(bits), right.view(bits)
    both_null = pc.and_(left.is_null(), right.is_null())
    same: Mask = pc.or_(pc.fill_null(pc.equal(left, right), fill_value=False), both_null).to_numpy(zero_copy_only=False)
    return same


# A cut comes some seconds after the last one; a look costs one request.
LOOK_EVERY_S = 0.5

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class TableStep:
    """The changes of a source's tables from one cut to the next; `before` is None if there was no cut."""

    lake: SourceLake
    before: Cut | None
    cut: Cut

    @property
    def tables(self) -> list[TableName]:
        """The tables that may have changed, those that are new among them."""
        before = {} if self.before is None else self.before.tables
        return sorted(name for name in self.cut.tables if table_differs(name, before.get(name), self.cut))

    def table(
        self, table: TableName | str, *, exact_texts: bool = False, rows_max: int | None = ROWS_MAX
    ) -> ChangedRows:
        """Return a table's changes; `exact_texts` adds `_lp_text` to the rows.

        Where the columns differ, each row that stays is an update from its old shape to the new one; if the key's columns
        differ, or there is none, it is deleted and inserted. Raises LakeError if the cut does not have the table, if its
        files are not kept any more, or if more than `rows_max` rows (None: any number) have to be in memory.
        """
        name = table_name(table)
        after = self.cut.table(name, self.lake.source)
        then = None if self.before is None else self.before.tables.get(name)
        new, old = in_lake(after.version), in_lake((then or after).version)
        text = [TEXT] if exact_texts else []
        shown = [[*column_names(schema), *text] for schema in (old, new)]
        columns = [
            [*names, *(n for n in (TEXT, *merge_key(s)) if n not in names)]
            for names, s in zip(shown, (old, new), strict=True)
        ]
        path = self.lake.url(self.lake.paths.current(name))
        if not table_differs(name, then, self.cut):
            nothing = DeltaRows.open(path, after.current_version).schema_of(columns[1]).empty_table()
            rows = nothing, nothing
        else:
            versions = None if then is None else then.current_version, after.current_version
            reshaped = then is not None and then.version.id != after.version.id
            rows = _moved(path, versions, columns, rows_max, whole=reshaped)
        went, came = (Side(part, names, merge_key(s)) for part, names, s in zip(rows, shown, (old, new), strict=True))
        return self._changes((old, went), (new, came))

    def _changes(self, old: tuple[SchemaVersion, Side], new: tuple[SchemaVersion, Side]) -> ChangedRows:
        (before, went), (after, came) = old, new
        if before.is_bag and after.is_bag and went.schema == came.schema:
            return counted_changes(went, came)
        if not same_key_columns(before, after):
            return anew(went, came)
        compared = [*column_names(after), TEXT] if went.schema == came.schema else None
        numbers = frozenset(str(c.attnum) for c in after.columns)
        return keyed_changes(went, came, compared, numbers)


@dataclass(frozen=True, slots=True)
class ViewStep:
    """The changes of a view from one of its cuts to the next; `before` is None if there was none."""

    path: str
    before: ViewCut | None
    cut: ViewCut

    def rows(self, *, rows_max: int | None = ROWS_MAX) -> ChangedRows:
        """Return the changes: rows inserted and deleted, equal ones as often as they came or went.

        Where the columns differ, all rows of the old shape are deleted and all of the new one inserted. Raises LakeError as
        `TableStep.table`, or if the view's table was made anew in between.
        """
        if self.before is not None and self.before.number != self.cut.number:
            check_follows(self.before, self.cut)
        after = DeltaRows.open(self.path, self.cut.delta_version)
        before = after if self.before is None else DeltaRows.open(self.path, self.before.delta_version)
        fields = [[f for f in state.schema if not f.name.startswith(HIDDEN_PREFIX)] for state in (before, after)]
        shown = [[field.name for field in each] for each in fields]
        versions = None if self.before is None else self.before.delta_version, self.cut.delta_version
        reshaped = fields[0] != fields[1]
        rows = _moved(self.path, versions, [[*names, KEY] for names in shown], rows_max, whole=reshaped)
        went, came = (Side(part, names, [KEY]) for part, names in zip(rows, shown, strict=True))
        return anew(went, came) if reshaped else counted_changes(went, came)


def read_changes(
    lake: Config | LakeLocation | str | Path,
    first: int,
    last: int | None = None,
    *,
    source: str | None = None,
    follow: bool = False,
    stop: Stop | None = None,
) -> Iterator[TableStep]:
    """Yield a step for each cut of a source after cut `first` (0: from the beginning) up to `last`, the newest by default.

    `source` may be left out if the lake has only one. With `follow` it goes on as cuts come, until `stop` is requested.
    Raises ConfigError for cuts in the wrong order, LakeError if there is no such cut, or if it is not kept any more.
    """
    source_lake = one_source("read_changes", lake, source)

    def steps(reached: int, end: int) -> Iterator[TableStep]:
        cuts: list[Cut | None] = [*cuts_of_range(source_lake, reached, end)]
        for before, cut in pairwise(cuts if reached else [None, *cuts]):
            if cut is not None:
                yield TableStep(source_lake, before, cut)

    yield from _followed(
        lambda reached: range_end(source_lake, reached, last), steps, first, _until(stop, last, follow=follow)
    )


def read_view_changes(
    lake: Config | LakeLocation | str | Path,
    view: str,
    first: int,
    last: int | None = None,
    *,
    follow: bool = False,
    stop: Stop | None = None,
) -> Iterator[ViewStep]:
    """Yield a step for each cut of a view after cut `first` of the views (0: from nothing); otherwise as `read_changes`."""
    store = open_store(location_of(lake))

    def steps(reached: int, end: int) -> Iterator[ViewStep]:
        for before, cut in pairwise(view_cuts_of_range(store, view, reached, end)):
            if cut is not None and (before is None or before.number != cut.number):
                yield ViewStep(view_path(store, view), before, cut)

    yield from _followed(
        lambda reached: view_range_end(store, view, reached, last), steps, first, _until(stop, last, follow=follow)
    )


def _until(stop: Stop | None, last: int | None, *, follow: bool) -> Stop | None:
    """Return what ends a feed that goes on; None for one that ends by itself, at its last cut."""
    return (stop or Stop()) if follow and last is None else None


def _followed(
    end_of: Callable[[int], int], steps: Callable[[int, int], Iterator[S]], first: int, stop: Stop | None
) -> Iterator[S]:
    """Yield the steps after cut `first` up to the end; with `stop`, on and on as cuts come, until it is requested."""
    reached = first
    while True:
        end = int(end_of(reached))
        if reached < end:
            yield from steps(reached, end)
            reached = end
        if stop is None or stop.wait(LOOK_EVERY_S):
            return


def _moved(
    path: str,
    versions: tuple[int | None, int],
    columns: Sequence[Sequence[str]],
    rows_max: int | None,
    *,
    whole: bool,
) -> tuple[pa.Table, pa.Table]:
    """Return the rows that went and those that came between two versions (None: from nothing).

    With `whole`, and where the files don't say it, these are all rows of the one and all of the other.
    """
    first, last = versions
    if first is None:
        came = _all_rows(path, last, columns[1], rows_max)
        return came.schema.empty_table(), came
    if not whole and first <= last:
        rows = changed_places(path, first, last, columns[1], ROWS_MAX if rows_max is None else rows_max)
        if rows is not None:
            mask = rows.column(CAME)
            rows = rows.drop_columns([CAME])
            return rows.filter(pc.invert(mask)), rows.filter(mask)
    return _all_rows(path, first, columns[0], rows_max), _all_rows(path, last, columns[1], rows_max)


def _all_rows(path: str, version: int, columns: Sequence[str], rows_max: int | None) -> pa.Table:
    rows = DeltaRows.open(path, version)
    return to_arrow(rows.schema_of(columns), rows.batches(columns), rows_max)
