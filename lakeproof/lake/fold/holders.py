"""The holders of values that updates leave out (unchanged TOAST): found by one walk through a range's keys, in Arrow.

Ranges that are too large for this process belong to `toast` and `lineage`, with whose results these agree; reading and
adding up the range to `key_fold`.

For every key the walk tracks its row and the change that last set each large value. An unchanged value is read from that
change, or, if the range never set it, from the row that the table had under the row's first key. Those rows are fetched by
their keys. History gets the holders' ordinals, the inserted rows get the values (`unchanged_rows`). If a holder
can't be found (a missing row, a value that was never sent), the range is left to Spark, which refuses it by name if it must.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED
from lakeproof.lake.columns import column_names, large_columns, merge_key
from lakeproof.lake.rows.keys_in_memory import Places
from lakeproof.schema import SchemaVersion

Key: TypeAlias = tuple[Any, ...]
# `Base.fetch`.
Fetch: TypeAlias = Callable[[pa.Table, Sequence[str]], pa.Table]


class NotFolded(Exception):  # noqa: N818  not an error: Spark adds the range up
    """A range that can't be added up from its key columns in this process."""


class Base(Protocol):
    """A table's rows before a range. Both raise if the range is to be left to Spark, since they are too large."""

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys."""

    def counts(self, keys: pa.Table) -> Places:
        """Return how many rows have each of the keys."""


@dataclass(frozen=True, slots=True)
class Holders:
    """Which rows have the values that others lack; rows are numbered in the order of the range, `stored` come behind them.

    `marks`: row → the ordinals of its values' holders, by attribute number. `sources`: for column i, row → the number of the
    row that has its value. `stored` are rows of the table before, of which the first has the number `count`.
    """

    marks: Mapping[int, Mapping[str, int]]
    sources: Mapping[int, Mapping[int, int]]
    count: int
    stored: pa.Table


class _HolderNotFoundError(Exception):
    """The walk can't find a value's holder."""


@dataclass(slots=True)
class _Row:
    """One row of the table during the walk: its key in the lake, and the change that last set each of its values."""

    base: Key | None
    given: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Walk:
    """`sources`: for column i, row number → number of the row that has its value; the lake's rows come last."""

    columns: Sequence[int]
    count: int
    sources: dict[int, dict[int, int]] = field(default_factory=dict)
    fetched: dict[Key, int] = field(default_factory=dict)
    rows: dict[Key, _Row] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)
    emptied: bool = False

    def row(self, key: Key) -> _Row:
        """Return the row that has this key now."""
        if key not in self.rows:
            self.rows[key] = _Row(None if self.emptied or key in self.gone else key)
        return self.rows[key]

    def leave(self, key: Key) -> _Row:
        """Return the row that had this key, and free the key."""
        row = self.row(key)
        del self.rows[key]
        self.gone.add(key)
        return row

    def truncate(self) -> None:
        """Forget all rows."""
        self.rows.clear()
        self.emptied = True

    def image(self, row: _Row, number: int, unchanged: Sequence[int]) -> None:
        """Record an after-image: the values that it sets, and those that it leaves out."""
        for i in self.columns:
            if i not in unchanged:
                row.given[i] = number
            else:
                self.sources.setdefault(i, {})[number] = row.given[i] if i in row.given else self._from_lake(row)

    def _from_lake(self, row: _Row) -> int:
        if row.base is None:
            raise _HolderNotFoundError
        return self.fetched.setdefault(row.base, self.count + len(self.fetched))


def find_holders(schema: SchemaVersion, changes: pa.Table, fetch: Fetch | None) -> Holders:
    """Find the holder of every unchanged value; `changes` has the key, `_lp_op`, `_lp_ord` and `_lp_unchanged`, in order.

    `fetch` reads rows of the table before the range; None if there is no such table. Raises NotFolded if Spark has to do it.
    """
    key = merge_key(schema)
    walk = _Walk(large_columns(schema), changes.num_rows)
    keys = list(zip(*(changes.column(k).to_pylist() for k in key), strict=True))
    try:
        _follow(walk, changes, keys)
        stored = _fetch(walk, changes, schema, fetch)
        marks = _marks(walk, changes, stored, schema)
    except _HolderNotFoundError:
        raise NotFolded("the holder of an unchanged value is not in the lake") from None
    return Holders(marks, walk.sources, changes.num_rows, stored)


def _marks(walk: _Walk, rows: pa.Table, stored: pa.Table, schema: SchemaVersion) -> dict[int, dict[str, int]]:
    ordinals = rows.column(ORD).to_pylist()
    held = _held(stored, schema, walk.columns) if walk.fetched else []
    marks: dict[int, dict[str, int]] = {}
    for i in walk.columns:
        name = str(schema.columns[i].attnum)
        for number, source in walk.sources.get(i, {}).items():
            place = ordinals[source] if source < walk.count else held[source - walk.count].get(name)
            if place is None:
                raise _HolderNotFoundError
            marks.setdefault(number, {})[name] = place
    return marks


def _held(stored: pa.Table, schema: SchemaVersion, columns: Sequence[int]) -> list[dict[str, int | None]]:
    """Return, for each of the table's rows, the ordinals of the rows that hold its large values, by attribute number."""
    held = []
    is_set = {i: stored.column(schema.columns[i].name).is_valid().to_pylist() for i in columns}
    columns_of = (stored.column(c).to_pylist() for c in (ORD, FROM, TEXT))
    for number, (ordinal, named, text) in enumerate(zip(*columns_of, strict=True)):
        texts, older = json.loads(text or "{}"), json.loads(named or "{}")
        attnums = ((i, str(schema.columns[i].attnum)) for i in columns)
        held.append({a: older.get(a, ordinal) for i, a in attnums if is_set[i][number] or a in texts})
    return held


def _follow(walk: _Walk, rows: pa.Table, keys: Sequence[Key]) -> None:
    ops, ordinals, left_out = (rows.column(c).to_pylist() for c in (OP, ORD, UNCHANGED))
    for number, (op, key) in enumerate(zip(ops, keys, strict=True)):
        unchanged = left_out[number] or ()
        match op:
            case "truncate":
                walk.truncate()
            case "insert":
                walk.rows[key] = row = _Row(None)
                walk.image(row, number, unchanged)
            case "delete":
                walk.leave(key)
            case "before":
                if ops[number + 1 : number + 2] != ["update"] or ordinals[number + 1] != ordinals[number] + 1:
                    raise _HolderNotFoundError
                if keys[number + 1] != key:
                    walk.rows[keys[number + 1]] = walk.leave(key)
            case _:
                walk.image(walk.row(key), number, unchanged)


def _fetch(walk: _Walk, rows: pa.Table, schema: SchemaVersion, fetch: Fetch | None) -> pa.Table:
    """Return the table's rows needed, in the order of their numbers; raises if one is missing or doubled."""
    key, own = merge_key(schema), column_names(schema)
    chosen = [*key, *(own[i] for i in walk.columns if own[i] not in key), TEXT, ORD, FROM]
    if not walk.fetched:
        return pa.table({})
    if fetch is None:
        raise _HolderNotFoundError
    keys = [pa.array([k[i] for k in walk.fetched], rows.schema.field(name).type) for i, name in enumerate(key)]
    fetched = fetch(pa.table(keys, names=list(key)), chosen)
    existing = list(zip(*(fetched.column(k).to_pylist() for k in key), strict=True))
    places = {k: i for i, k in enumerate(existing)}
    if len(places) != len(existing) or places.keys() != walk.fetched.keys():
        raise _HolderNotFoundError
    return fetched.take(pa.array([places[k] for k in walk.fetched], pa.int64()))
