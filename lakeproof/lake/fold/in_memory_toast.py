"""Unchanged TOAST values of a range that fits into memory: the holder of each, found by one walk through the changes.

Larger ranges belong to `toast` and `lineage`, with whose results these agree; reading and adding up the range to
`in_memory`.

For every key the walk tracks its row and the change that last set each large value. An unchanged value is read from that
change, or, if the range never set it, from the lake's row under the row's first key. Those rows are fetched by one scan of
current. History gets the holders' ordinals, the inserted rows get the values. If a holder can't be found (a missing row, a
value that was never sent, rows too large for the driver), the range is left to Spark, which refuses it by name if it must be
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED
from lakeproof.lake.columns import column_names, large_columns
from lakeproof.schema import SchemaVersion

Key: TypeAlias = tuple[Any, ...]
# A function that returns the columns named of the rows that have one of the keys; None if they are too large.
Fetch: TypeAlias = Callable[[pa.Table, Sequence[str]], pa.Table | None]


class _HolderNotFoundError(Exception):
    """The walk can't find a value's holder: Spark has to resolve the range."""


@dataclass(slots=True)
class _Row:
    """One row of the table during the walk: its key in the lake, and the change that last set each of its values."""

    base: Key | None
    given: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Walk:
    """`source_rows`: for column i, row number → number of the row that has its value; the lake's rows come last."""

    columns: Sequence[int]
    count: int
    source_rows: dict[int, dict[int, int]] = field(default_factory=dict)
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
                self.source_rows.setdefault(i, {})[number] = row.given[i] if i in row.given else self._from_lake(row)

    def _from_lake(self, row: _Row) -> int:
        if row.base is None:
            raise _HolderNotFoundError
        return self.fetched.setdefault(row.base, self.count + len(self.fetched))


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """`rows` in the order of `_lp_ord`, with `_lp_from` in place of `_lp_unchanged`; `lake` are the rows fetched."""

    rows: pa.Table
    lake: pa.Table
    source_rows: Mapping[int, Mapping[int, int]]
    schema: SchemaVersion

    def completed(self, chosen: pa.Table) -> pa.Table:
        """Return some of `rows` with every unchanged value."""
        numbers = pc.index_in(chosen.column(ORD), value_set=self.rows.column(ORD).combine_chunks()).to_pylist()
        texts = [json.loads(t) if t else {} for t in chosen.column(TEXT).to_pylist()]
        touched = set[int]()
        for i, source_rows in self.source_rows.items():
            column = self.schema.columns[i]
            places = [source_rows.get(number, number) for number in numbers]
            chosen = _with(chosen, column.name, _both(self, column.name).take(pa.array(places, pa.int64())))
            given = _both(self, TEXT).take(pa.array(places, pa.int64())).to_pylist()
            for i_row, number in enumerate(numbers):
                source = given[i_row] if number in source_rows else None
                text = json.loads(source).get(str(column.attnum)) if source else None
                if text is not None:
                    texts[i_row][str(column.attnum)] = text
                    touched.add(i_row)
        own = chosen.column(TEXT).to_pylist()
        merged = [_json(texts[i]) if i in touched else text for i, text in enumerate(own)]
        return _with(chosen, TEXT, pa.array(merged, pa.string()))


def mark(rows: pa.Table, schema: SchemaVersion, key: Sequence[str], fetch: Fetch | None) -> MarkedRows | None:
    """Return `rows`, which are in the order of `_lp_ord`, with the holders of unchanged values; None if Spark has to do it.

    `fetch` reads rows of the table before the range (current's columns); None if there is no such table.
    """
    columns = large_columns(schema)
    walk = _Walk(columns, rows.num_rows)
    keys = list(zip(*(rows.column(k).to_pylist() for k in key), strict=True))
    try:
        _follow(walk, rows, keys)
        lake = _fetch(walk, rows, schema, key, fetch)
        holders = _holders(walk, rows, lake, schema)
    except _HolderNotFoundError:
        return None
    named = [_json(holders[n]) if n in holders else None for n in range(rows.num_rows)]
    rows = rows.drop_columns([UNCHANGED]).append_column(FROM, pa.array(named, pa.string()))
    return MarkedRows(rows, lake, walk.source_rows, schema)


def _holders(walk: _Walk, rows: pa.Table, lake: pa.Table, schema: SchemaVersion) -> dict[int, dict[str, int]]:
    """For each row with unchanged values, the ordinals of their holders by attribute number."""
    ordinals = rows.column(ORD).to_pylist()
    held = _held(lake, schema, walk.columns) if walk.fetched else []
    holders: dict[int, dict[str, int]] = {}
    for i in walk.columns:
        name = str(schema.columns[i].attnum)
        for number, source in walk.source_rows.get(i, {}).items():
            place = ordinals[source] if source < walk.count else held[source - walk.count].get(name)
            if place is None:
                raise _HolderNotFoundError
            holders.setdefault(number, {})[name] = place
    return holders


def _held(lake: pa.Table, schema: SchemaVersion, columns: Sequence[int]) -> list[dict[str, int | None]]:
    """Return, for each of the lake's rows, the ordinals of the rows that hold its large values, by attribute number."""
    held = []
    is_set = {i: lake.column(schema.columns[i].name).is_valid().to_pylist() for i in columns}
    columns_of = (lake.column(c).to_pylist() for c in (ORD, FROM, TEXT))
    for number, (ordinal, named, text) in enumerate(zip(*columns_of, strict=True)):
        texts, older = json.loads(text or "{}"), json.loads(named or "{}")
        attnums = ((i, str(schema.columns[i].attnum)) for i in columns)
        held.append({a: older.get(a, ordinal) for i, a in attnums if is_set[i][number] or a in texts})
    return held


def _both(marked: MarkedRows, name: str) -> pa.ChunkedArray:
    """Return a column of the range's rows, followed by the lake's."""
    values = marked.rows.column(name)
    if not marked.lake.num_rows:
        return values
    return pa.chunked_array([*values.chunks, *marked.lake.column(name).cast(values.type).chunks], values.type)


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _json(entries: Mapping[str, Any]) -> str:
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))


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


def _fetch(walk: _Walk, rows: pa.Table, schema: SchemaVersion, key: Sequence[str], fetch: Fetch | None) -> pa.Table:
    """Return the lake's rows needed, in the order of their numbers; raises if one is missing, doubled or too large."""
    own = column_names(schema)
    chosen = [*key, *(own[i] for i in walk.columns if own[i] not in key), TEXT, ORD, FROM]
    if not walk.fetched:
        return pa.table({})
    if fetch is None:
        raise _HolderNotFoundError
    keys = [pa.array([k[i] for k in walk.fetched], rows.schema.field(name).type) for i, name in enumerate(key)]
    fetched = fetch(pa.table(keys, names=list(key)), chosen)
    if fetched is None:
        raise _HolderNotFoundError
    existing = list(zip(*(fetched.column(k).to_pylist() for k in key), strict=True))
    places = {k: i for i, k in enumerate(existing)}
    if len(places) != len(existing) or places.keys() != walk.fetched.keys():
        raise _HolderNotFoundError
    return fetched.take(pa.array([places[k] for k in walk.fetched], pa.int64()))
