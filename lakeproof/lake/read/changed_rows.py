"""Rows that went and rows that came between two states of a table or view, as changes: kind, row before, row after.

Finding them in files belongs to `lakeproof.lake.delta.log.changed_places`, the cuts to `arrow.changes`. Everything is Arrow
in memory; `changes` has the same by Spark for any number of rows.

    keyed      a key on both sides is an update, unless the rows are equal
    by digest  equal rows on both sides cancel each other; all other rows are deletes and inserts
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import KEY, TEXT
from lakeproof.lake.read.arrow.frames import to_pandas
from lakeproof.lake.rows.keys_in_memory import Mask, Numbers

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
    digests = [side.rows.column(KEY).to_pylist() for side in (went, came)]
    counts = [Counter(each) for each in digests]
    gone, new = (_first(each, counts[n] - counts[1 - n]) for n, each in enumerate(digests))
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


def _first(digests: Sequence[str], counts: Counter[str]) -> Numbers:
    """Return the places of the first rows of each digest, as many as its count."""
    left, places = dict(counts), []
    for place, digest in enumerate(digests):
        if left.get(digest, 0):
            left[digest] -= 1
            places.append(place)
    return np.array(places, np.int64)


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
