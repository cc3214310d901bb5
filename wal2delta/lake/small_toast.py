"""Unchanged TOAST values of a range that fits into memory: where each comes from, by one walk through the changes.

Larger ranges belong to `toast` and `lineage`, which this agrees with; reading and folding the range to `small_range`.

The walk keeps for every key whose row it is and which change gave each large value last; an unchanged value is then another
row's of the range, or of the lake's row under the key that the row began with. Those rows are fetched by one scan of
current. Whatever does not come out (a row that is not there, a value that was never sent, rows that are too large for the
driver) is left to Spark's road, which refuses by name what is to be refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wal2delta.lake.columns import OP, ORD, TEXT, UNCHANGED, col, column_names
from wal2delta.lake.toast import NEVER_TOASTED
from wal2delta.schema import SchemaVersion

# What all rows that are fetched may have together, each its share: the driver holds them.
FETCHED_BYTES_MAX = 16 << 20
_LARGE = "_w2d_large"

Key: TypeAlias = tuple[Any, ...]


class _NotHere(Exception):  # noqa: N818  not an error: Spark's road takes over
    """A value whose place the walk can't tell."""


@dataclass(slots=True)
class _Row:
    """One row of the table on its way through the range: the key it has in the lake, and who gave its values last."""

    base: Key | None
    given: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Walk:
    """`wanted`: for column i, row → the row that has its value; of the lake's rows those behind the range's."""

    columns: Sequence[int]
    count: int
    wanted: dict[int, dict[int, int]] = field(default_factory=dict)
    fetched: dict[Key, int] = field(default_factory=dict)
    rows: dict[Key, _Row] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)
    emptied: bool = False

    def at(self, key: Key) -> _Row:
        """The row that has this key now."""
        if key not in self.rows:
            self.rows[key] = _Row(None if self.emptied or key in self.gone else key)
        return self.rows[key]

    def leave(self, key: Key) -> _Row:
        """The row that had this key; it is free then."""
        row = self.at(key)
        del self.rows[key]
        self.gone.add(key)
        return row

    def truncate(self) -> None:
        """No row from before is there any more."""
        self.rows.clear()
        self.emptied = True

    def image(self, row: _Row, number: int, unchanged: Sequence[int]) -> None:
        """An after-image: what it gives, and what it leaves out."""
        for i in self.columns:
            if i not in unchanged:
                row.given[i] = number
            else:
                self.wanted.setdefault(i, {})[number] = row.given[i] if i in row.given else self._from_lake(row)

    def _from_lake(self, row: _Row) -> int:
        if row.base is None:
            raise _NotHere
        return self.fetched.setdefault(row.base, self.count + len(self.fetched))


def complete(rows: pa.Table, shape: SchemaVersion, key: Sequence[str], base: DataFrame | None) -> pa.Table | None:
    """`rows` in the order of `_w2d_ord` with every after-image complete; None where that is Spark's to do.

    `base` is the table before the range, current's columns.
    """
    columns = [i for i, c in enumerate(shape.columns) if c.kind not in NEVER_TOASTED]
    walk = _Walk(columns, rows.num_rows)
    keys = list(zip(*(rows.column(k).to_pylist() for k in key), strict=True))
    try:
        _follow(walk, rows, keys)
    except _NotHere:
        return None
    lake = _fetch(walk, rows, shape, key, base)
    return None if lake is None else _filled(walk, rows, lake, shape)


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
                    raise _NotHere
                if keys[number + 1] != key:
                    walk.rows[keys[number + 1]] = walk.leave(key)
            case _:
                walk.image(walk.at(key), number, unchanged)


def _fetch(
    walk: _Walk, rows: pa.Table, shape: SchemaVersion, key: Sequence[str], base: DataFrame | None
) -> pa.Table | None:
    """The lake's rows that are wanted, in the order of their numbers; None where one is not there, twice, or large."""
    names = column_names(shape)
    chosen = [*key, *(names[i] for i in walk.columns if names[i] not in key), TEXT]
    if not walk.fetched:
        return pa.table({})
    if base is None:
        return None
    types = dict(base.dtypes)
    keys = [pa.array([k[i] for k in walk.fetched], rows.schema.field(name).type) for i, name in enumerate(key)]
    wanted = base.sparkSession.createDataFrame(
        pa.table(keys, names=[f"_w2d_k{i}" for i in range(len(key))]),
        ", ".join(f"_w2d_k{i} {types[k]}" for i, k in enumerate(key)),
    )
    same = F.lit(True)
    for i, k in enumerate(key):
        same = same & (col(k) == F.col(f"_w2d_k{i}"))
    rows_there = base.select(*(col(c) for c in chosen)).join(F.broadcast(wanted), same, "left_semi")
    found = within(rows_there, [c for c in chosen if c not in key], FETCHED_BYTES_MAX // len(walk.fetched)).toArrow()
    if pc.any(found.column(_LARGE)).as_py():
        return None
    there = list(zip(*(found.column(k).to_pylist() for k in key), strict=True))
    places = {k: i for i, k in enumerate(there)}
    if len(places) != len(there) or places.keys() != walk.fetched.keys():
        return None
    return found.take(pa.array([places[k] for k in walk.fetched], pa.int64()))


def within(rows: DataFrame, names: Sequence[str], bytes_max: int) -> DataFrame:
    """`rows` without the values of `names` where a row has more bytes of them; `_w2d_large` says so."""
    sizes = [F.coalesce(F.octet_length(col(c).cast("string")), F.lit(0)).cast("bigint") for c in names]
    is_large = reduce(add, sizes, F.lit(0).cast("bigint")) > F.lit(bytes_max)
    kept = [F.when(~is_large, col(c)).alias(c) if c in names else col(c) for c in rows.columns]
    return rows.select(*kept, is_large.alias(_LARGE))


def _filled(walk: _Walk, rows: pa.Table, lake: pa.Table, shape: SchemaVersion) -> pa.Table:
    texts = [t and json.loads(t) for t in rows.column(TEXT).to_pylist()]
    sources = texts + ([t and json.loads(t) for t in lake.column(TEXT).to_pylist()] if lake.num_rows else [])
    touched: dict[int, dict[str, str]] = {}
    for i, wanted in walk.wanted.items():
        name, entry = shape.columns[i].name, str(shape.columns[i].attnum)
        values = rows.column(name)
        if lake.num_rows:
            values = pa.chunked_array([*values.chunks, *lake.column(name).cast(values.type).chunks], values.type)
        places = [wanted.get(number, number) for number in range(rows.num_rows)]
        rows = rows.set_column(rows.column_names.index(name), name, values.take(pa.array(places, pa.int64())))
        for number, source in wanted.items():
            own = touched.setdefault(number, dict(texts[number] or {}))
            if sources[source] and entry in sources[source]:
                own[entry] = sources[source][entry]
    told = rows.column(TEXT).to_pylist()
    for number, own in touched.items():
        told[number] = json.dumps(own, ensure_ascii=False, separators=(",", ":")) if own else None
    return rows.set_column(rows.column_names.index(TEXT), TEXT, pa.array(told, pa.string()))
