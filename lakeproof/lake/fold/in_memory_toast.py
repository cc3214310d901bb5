"""Unchanged TOAST values of a range that fits into memory: where each comes from, by one walk through the changes.

Larger ranges belong to `toast` and `lineage`, which this agrees with; reading and folding the range to `small_range`.

The walk keeps for every key whose row it is and which change gave each large value last; an unchanged value is then another
row's of the range, or of the lake's row under the key that the row began with. Those rows are fetched by one scan of
current. History gets the holders' ordinals, the rows that come get the values. Whatever does not come out (a row that is
not there, a value that was never sent, rows that are too large for the driver) is left to Spark's road, which refuses by
name what is to be refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED
from lakeproof.lake.columns import column_names, large_columns
from lakeproof.lake.rows.columns import col
from lakeproof.schema import SchemaVersion

# What all rows that are fetched may have together, each its share: the driver holds them.
FETCHED_BYTES_MAX = 16 << 20
_LARGE = "_lp_large"

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


@dataclass(frozen=True, slots=True)
class Marked:
    """`rows` in the order of `_lp_ord`, with `_lp_from` in place of `_lp_unchanged`; `lake` are the rows fetched."""

    rows: pa.Table
    lake: pa.Table
    wanted: Mapping[int, Mapping[int, int]]
    shape: SchemaVersion

    def completed(self, chosen: pa.Table) -> pa.Table:
        """Some of `rows` with every unchanged value."""
        numbers = pc.index_in(chosen.column(ORD), value_set=self.rows.column(ORD).combine_chunks()).to_pylist()
        texts = [json.loads(t) if t else {} for t in chosen.column(TEXT).to_pylist()]
        touched = set[int]()
        for i, wanted in self.wanted.items():
            column = self.shape.columns[i]
            places = [wanted.get(number, number) for number in numbers]
            chosen = _with(chosen, column.name, _both(self, column.name).take(pa.array(places, pa.int64())))
            given = _both(self, TEXT).take(pa.array(places, pa.int64())).to_pylist()
            for at, number in enumerate(numbers):
                text = json.loads(given[at]).get(str(column.attnum)) if number in wanted and given[at] else None
                if text is not None:
                    texts[at][str(column.attnum)] = text
                    touched.add(at)
        own = chosen.column(TEXT).to_pylist()
        told = [_json(texts[at]) if at in touched else text for at, text in enumerate(own)]
        return _with(chosen, TEXT, pa.array(told, pa.string()))


def mark(rows: pa.Table, shape: SchemaVersion, key: Sequence[str], base: DataFrame | None) -> Marked | None:
    """`rows` in the order of `_lp_ord` with the holders of what is unchanged; None where that is Spark's to do.

    `base` is the table before the range, current's columns.
    """
    columns = large_columns(shape)
    walk = _Walk(columns, rows.num_rows)
    keys = list(zip(*(rows.column(k).to_pylist() for k in key), strict=True))
    try:
        _follow(walk, rows, keys)
        lake = _fetch(walk, rows, shape, key, base)
        holders = _holders(walk, rows, lake, shape)
    except _NotHere:
        return None
    named = [_json(holders[n]) if n in holders else None for n in range(rows.num_rows)]
    rows = rows.drop_columns([UNCHANGED]).append_column(FROM, pa.array(named, pa.string()))
    return Marked(rows, lake, walk.wanted, shape)


def _holders(walk: _Walk, rows: pa.Table, lake: pa.Table, shape: SchemaVersion) -> dict[int, dict[str, int]]:
    """For each row with unchanged values, the ordinals of their holders by attribute number."""
    ordinals = rows.column(ORD).to_pylist()
    held = _held(lake, shape, walk.columns) if walk.fetched else []
    found: dict[int, dict[str, int]] = {}
    for i in walk.columns:
        name = str(shape.columns[i].attnum)
        for number, source in walk.wanted.get(i, {}).items():
            place = ordinals[source] if source < walk.count else held[source - walk.count].get(name)
            if place is None:
                raise _NotHere
            found.setdefault(number, {})[name] = place
    return found


def _held(lake: pa.Table, shape: SchemaVersion, columns: Sequence[int]) -> list[dict[str, int | None]]:
    """For each of the lake's rows, where its large values are held; nothing for one that has none."""
    held = []
    there = {i: lake.column(shape.columns[i].name).is_valid().to_pylist() for i in columns}
    told = (lake.column(c).to_pylist() for c in (ORD, FROM, TEXT))
    for at, (ordinal, named, text) in enumerate(zip(*told, strict=True)):
        texts, older = json.loads(text or "{}"), json.loads(named or "{}")
        attnums = ((i, str(shape.columns[i].attnum)) for i in columns)
        held.append({a: older.get(a, ordinal) for i, a in attnums if there[i][at] or a in texts})
    return held


def _both(marked: Marked, name: str) -> pa.ChunkedArray:
    """A column of the range's rows, and behind it the lake's."""
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
                    raise _NotHere
                if keys[number + 1] != key:
                    walk.rows[keys[number + 1]] = walk.leave(key)
            case _:
                walk.image(walk.at(key), number, unchanged)


def _fetch(walk: _Walk, rows: pa.Table, shape: SchemaVersion, key: Sequence[str], base: DataFrame | None) -> pa.Table:
    """The lake's rows that are wanted, in the order of their numbers; raises where one is missing, there twice, or large."""
    names = column_names(shape)
    chosen = [*key, *(names[i] for i in walk.columns if names[i] not in key), TEXT, ORD, FROM]
    if not walk.fetched:
        return pa.table({})
    if base is None:
        raise _NotHere
    types = dict(base.dtypes)
    keys = [pa.array([k[i] for k in walk.fetched], rows.schema.field(name).type) for i, name in enumerate(key)]
    wanted = base.sparkSession.createDataFrame(
        pa.table(keys, names=[f"_lp_k{i}" for i in range(len(key))]),
        ", ".join(f"_lp_k{i} {types[k]}" for i, k in enumerate(key)),
    )
    same = F.lit(True)
    for i, k in enumerate(key):
        same = same & (col(k) == F.col(f"_lp_k{i}"))
    rows_there = base.select(*(col(c) for c in chosen)).join(F.broadcast(wanted), same, "left_semi")
    sized = [c for c in chosen if c not in {*key, ORD, FROM}]
    found = within(rows_there, sized, FETCHED_BYTES_MAX // len(walk.fetched)).toArrow()
    if pc.any(found.column(_LARGE)).as_py():
        raise _NotHere
    there = list(zip(*(found.column(k).to_pylist() for k in key), strict=True))
    places = {k: i for i, k in enumerate(there)}
    if len(places) != len(there) or places.keys() != walk.fetched.keys():
        raise _NotHere
    return found.take(pa.array([places[k] for k in walk.fetched], pa.int64()))


def within(rows: DataFrame, names: Sequence[str], bytes_max: int) -> DataFrame:
    """`rows` without the values of `names` where a row has more bytes of them; `_lp_large` says so."""
    sizes = [F.coalesce(F.octet_length(col(c).cast("string")), F.lit(0)).cast("bigint") for c in names]
    is_large = reduce(add, sizes, F.lit(0).cast("bigint")) > F.lit(bytes_max)
    kept = [F.when(~is_large, col(c)).alias(c) if c in names else col(c) for c in rows.columns]
    return rows.select(*kept, is_large.alias(_LARGE))
