"""The holders of values that updates leave out (unchanged TOAST): found by one walk through a range's keys, in Arrow.

Ranges that are too large for this process belong to `toast`, with whose results these agree; reading and
adding up the range to `key_fold`.

For every key the walk tracks its row and the change that last set each large value. An unchanged value is read from that
change, or, if the range never set it, from the row that the table had under the row's first key. The holders' rows are
fetched by their keys. History gets the holders' ordinals, the inserted rows get the values (`UnchangedValues`). If a holder
can't be found (a missing row, a value that was never sent), the range is left to Spark, which refuses it by name if it must.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED
from lakeproof.lake.columns import (
    column_names,
    large_columns,
    merge_key,
)
from lakeproof.lake.rows.change import Mask, Numbers, UnfitError, Unsupported
from lakeproof.lake.rows.file_rows import FoldedFile
from lakeproof.schema import SchemaVersion

Key: TypeAlias = tuple[object, ...]
# `Base.fetch`.
Fetch: TypeAlias = Callable[[pa.Table, Sequence[str]], pa.Table]


class Base(Protocol):
    """A table's rows before a range. Both raise if the range is to be left to Spark, since they are too large."""

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys."""

    def counts(self, keys: pa.Table) -> Numbers:
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

    `fetch` reads rows of the table before the range; None if there is no such table. Raises `Unsupported`
    if Spark has to do it.
    """
    key = merge_key(schema)
    walk = _Walk(large_columns(schema), changes.num_rows)
    keys = list(zip(*(changes.column(k).to_pylist() for k in key), strict=True))
    try:
        _follow(walk, changes, keys)
        stored = _fetch(walk, changes, schema, fetch)
        marks = _marks(walk, changes, stored, schema)
    except _HolderNotFoundError:
        raise UnfitError("the holder of an unchanged value is not in the lake") from None
    return Holders(marks, walk.sources, changes.num_rows, stored)


def _marks(walk: _Walk, rows: pa.Table, stored: pa.Table, schema: SchemaVersion) -> dict[int, dict[str, int]]:
    ordinals = rows.column(ORD).to_pylist()
    stored_in = _holders_in(stored, schema, walk.columns) if walk.fetched else []
    marks: dict[int, dict[str, int]] = {}
    for i in walk.columns:
        name = str(schema.columns[i].attnum)
        for number, source in walk.sources.get(i, {}).items():
            place = ordinals[source] if source < walk.count else stored_in[source - walk.count].get(name)
            if place is None:
                raise _HolderNotFoundError
            marks.setdefault(number, {})[name] = place
    return marks


def _holders_in(stored: pa.Table, schema: SchemaVersion, columns: Sequence[int]) -> list[dict[str, int | None]]:
    """Return, for each of the table's rows, the ordinals of the rows that hold its large values, by attribute number."""
    stored_in = []
    is_set = {i: stored.column(schema.columns[i].name).is_valid().to_pylist() for i in columns}
    columns_of = (stored.column(c).to_pylist() for c in (ORD, FROM, TEXT))
    for number, (ordinal, named, text) in enumerate(zip(*columns_of, strict=True)):
        texts, older = json.loads(text or "{}"), json.loads(named or "{}")
        attnums = ((i, str(schema.columns[i].attnum)) for i in columns)
        stored_in.append({a: older.get(a, ordinal) for i, a in attnums if is_set[i][number] or a in texts})
    return stored_in


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


# The values of the rows that hold what others lack, in memory.
SOURCE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class UnchangedValues:
    """The values that a range's rows lack: `rows` hold them, in the places that `place_of` gives by a row's number."""

    schema: SchemaVersion
    holders: Holders
    rows: pa.Table
    place_of: Mapping[int, int]

    def marked(self, rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
        """Return rows with these numbers with `_lp_from`, which names the holder of each value that a row lacks."""
        marks = self.holders.marks
        named = [_json(marks[n]) if n in marks else None for n in numbers]
        return _with(rows, FROM, pa.array(named, pa.string()))

    def completed(self, rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
        """Return rows with these numbers with every value, and with `_lp_from`."""
        rows = self.marked(rows, numbers)
        if not self.rows.num_rows:
            # Whatever lacked a value is not there any more.
            return rows
        texts = rows.column(TEXT).to_pylist()
        for i, sources in self.holders.sources.items():
            column = self.schema.columns[i]
            places = [self.place_of[sources[n]] + len(numbers) if n in sources else k for k, n in enumerate(numbers)]
            for name in (column.name,) if column.name in rows.column_names else ():
                rows = _with(rows, name, _behind(rows, self.rows, name).take(pa.array(places, pa.int64())))
            given = self.rows.column(TEXT).take(
                pa.array([self.place_of[sources[n]] for n in numbers if n in sources], pa.int64())
            )
            lacking = [k for k, n in enumerate(numbers) if n in sources]
            for k, text in zip(lacking, given.to_pylist(), strict=True):
                value = json.loads(text).get(str(column.attnum)) if text else None
                if value is not None:
                    texts[k] = _json({**json.loads(texts[k] or "{}"), str(column.attnum): value})
        return _with(rows, TEXT, pa.array(texts, pa.string()))


def values_of(
    schema: SchemaVersion,
    holders: Holders,
    files: Iterable[FoldedFile],
    read: Callable[[FoldedFile, Mask, Sequence[str]], Iterator[pa.Table]],
) -> UnchangedValues:
    """Read the values that the rows of `files` which current gets lack; `read` gives the rows of a file that a mask has.

    Raises `Unsupported` if they take too much memory.
    """
    chosen = [(file, file.numbers) for file in files if file.numbers is not None]
    own = column_names(schema)
    names = [*(own[i] for i in large_columns(schema)), TEXT]
    alive = {int(n) for file, numbers in chosen for n in numbers[file.alive & file.holes]}
    needed = {s for sources in holders.sources.values() for n, s in sources.items() if n in alive}
    parts, place_of, size = list[pa.Table](), dict[int, int](), 0
    sought = np.fromiter(needed, np.int64, len(needed))
    for file, numbers in chosen:
        mask = np.isin(numbers, sought)
        if not mask.any():
            continue
        place_of |= {int(n): len(place_of) + k for k, n in enumerate(numbers[mask])}
        for part in read(file, mask, names):
            size += part.nbytes
            if size > SOURCE_BYTES_MAX:
                raise Unsupported(f"the values that updates left out take more than {SOURCE_BYTES_MAX >> 20} MiB")
            parts.append(part)
    stored = sorted(s for s in needed if s >= holders.count)
    if stored:
        place_of |= {s: len(place_of) + k for k, s in enumerate(stored)}
        parts.append(holders.stored.select(names).take(pa.array([s - holders.count for s in stored], pa.int64())))
    return UnchangedValues(schema, holders, _concatenated(parts) if parts else pa.table({}), place_of)


def _concatenated(parts: Sequence[pa.Table]) -> pa.Table:
    schema = parts[0].schema
    return pa.concat_tables([part if part.schema == schema else part.cast(schema) for part in parts])


def _behind(rows: pa.Table, more: pa.Table, name: str) -> pa.ChunkedArray:
    values = rows.column(name)
    added = more.column(name)
    return pa.chunked_array([*values.chunks, *(chunk.cast(values.type) for chunk in added.chunks)], values.type)


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    if name not in rows.column_names:
        return rows.append_column(name, values)
    return rows.set_column(rows.column_names.index(name), name, values)


def _json(entries: Mapping[str, object]) -> str:
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
