"""A table's history as a proof reads it in this process: the sum of its rows, and the buckets of what they add up to.

    a key alone identifies rows      the newest row of each key counts, if it is no deletion
    whole old rows (bag, FULL)       the rows that came, less those that went: sums can be taken away, so nothing is matched

Files are read some rows at a time, once for the sum; then the places of all rows, then the rows that count. What is kept
between is bounded (`PLACES_BYTES_MAX`): keys and places, and the large values that rows have from others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import UnreadableRowsError
from lakeproof.hidden_columns import FROM, OP, ORD, TEXT
from lakeproof.lake.columns import has_old_rows, in_lake, large_columns, merge_key
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.records.documents import CutTable, HistorySum
from lakeproof.lake.rows.hashed import BucketSums, RowsOfBatch
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT, RESET, SNAPSHOT
from lakeproof.landing.segments.row_sums import RowSum
from lakeproof.names import TableName
from lakeproof.proof.compare import Buckets
from lakeproof.proof.lake.in_arrow import (
    BYTES_MAX,
    TooLargeError,
    buckets_of,
    read_columns,
    read_rows,
)
from lakeproof.schema import Column, SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.exact_texts import HiddenTexts

PLACES_BYTES_MAX = 256 << 20
NOT_THERE = "the row that an unchanged large value would come from is not in the lake"
# What rows of history do to the table; others end it, or do nothing.
_CAME = ("insert", "update", SNAPSHOT, CORRECT_INSERT)
_WENT = ("before", "delete", CORRECT_DELETE)
_ENDS = ("truncate", RESET)


class ArrowHistory:
    """A table's history at a cut; each method raises UnreadableRowsError, LogGapError, NotInArrowError and TooLargeError."""

    def __init__(self, lake: SourceLake, table: TableName, cut_table: CutTable) -> None:
        self._path, self._cut_table = lake.url(lake.paths.history(table)), cut_table
        self._schema = in_lake(cut_table.version)

    @cached_property
    def _delta(self) -> DeltaRows:
        return DeltaRows.open(self._path, self._cut_table.history_version)

    def sum(self) -> HistorySum:
        """Return the sum of the rows in the files."""
        if sum(file.bytes for file in self._delta.files) > BYTES_MAX:
            raise TooLargeError
        sums = RowSum({c.name: c.attnum for c in self._schema.columns})
        for batch in self._batches(self._delta.schema.names):
            sums.add(batch)
        return HistorySum(sums.rows, sums.total)

    def state(self, buckets: int) -> Buckets:
        """Return the buckets of the rows that history adds up to."""
        schema = self._schema
        alive = _whole_rows if schema.is_bag or has_old_rows(schema) else _newest_rows
        places = alive(self._places(), schema)
        values = self._large_values(places)
        sums = BucketSums(schema, buckets)
        names = [*dict.fromkeys([*read_columns(schema, self._delta), ORD, FROM])]
        for batch in self._batches(names):
            for ordinals, sign in places:
                chosen = batch.filter(pc.is_in(batch.column(ORD), value_set=ordinals))
                if chosen.num_rows:
                    sums.add(values.completed(schema, chosen), sign)
        return buckets_of(sums)

    def _places(self) -> pa.Table:
        """Return the place, the kind and, if rows are identified by it, the key of every row after the last truncate."""
        whole = self._schema.is_bag or has_old_rows(self._schema)
        names = [ORD, OP, *(() if whole else merge_key(self._schema))]
        parts = list(self._batches(names, PLACES_BYTES_MAX))
        rows = pa.Table.from_batches(parts, pa.schema([self._delta.schema.field(name) for name in names]))
        last = pc.max(rows.filter(_is_one_of(rows, _ENDS)).column(ORD)).as_py()
        return rows if last is None else rows.filter(pc.greater(rows.column(ORD), last))

    def _large_values(self, places: _Places) -> _LargeValues:
        """Read the large values that the rows at these places have from others."""
        values = _LargeValues()
        columns = {str(self._schema.columns[i].attnum): self._schema.columns[i] for i in large_columns(self._schema)}
        if not columns:
            return values
        for batch in self._batches([ORD, FROM]):
            for ordinals, _ in places:
                values.seek(batch.filter(pc.is_in(batch.column(ORD), value_set=ordinals)))
        sought = {attnum: columns[attnum] for attnum in values.sought if attnum in columns}
        if sought:
            names = [*dict.fromkeys([ORD, FROM, TEXT, *(column.name for column in sought.values())])]
            for batch in self._batches(names):
                values.take(batch, sought)
        return values

    def _batches(self, names: Sequence[str], bytes_max: int | None = None) -> Iterator[pa.RecordBatch]:
        return read_rows(self._delta, names, self._cut_table.row_bytes, bytes_max or BYTES_MAX)


# The ordinals of rows that count, and whether they count as rows that came (1) or went (-1).
_Places = Sequence[tuple[pa.Array, int]]


def _newest_rows(rows: pa.Table, schema: SchemaVersion) -> _Places:
    """Return the newest row of each key, if it is no deletion."""
    changes = rows.filter(_is_one_of(rows, (*_CAME, *_WENT)))
    # By number: Arrow takes a name that begins with a dot for a path.
    changes = changes.select([*merge_key(schema), ORD])
    *key, ordinal = (str(number) for number in range(changes.num_columns))
    newest = (
        changes.rename_columns([*key, ordinal]).group_by(key).aggregate([(ordinal, "max")]).column(f"{ordinal}_max")
    )
    came = rows.filter(_is_one_of(rows, _CAME)).column(ORD)
    return [(came.filter(pc.is_in(came, value_set=newest)).combine_chunks(), 1)]


def _whole_rows(rows: pa.Table, _: SchemaVersion) -> _Places:
    """Return all rows that came, and all that went."""
    return [
        (rows.filter(_is_one_of(rows, ops)).column(ORD).combine_chunks(), sign)
        for ops, sign in ((_CAME, 1), (_WENT, -1))
    ]


def _is_one_of(rows: pa.Table, ops: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(rows.column(OP), value_set=pa.array(ops, pa.string()))


@dataclass(slots=True)
class _LargeValues:
    """Large values by attribute number and the ordinal of the row that holds them: those `sought`, and those that are there.

    A value is an array of one, None where the type does not hold it; beside it the exact text.
    """

    sought: dict[str, set[int]] = field(default_factory=dict)
    values: dict[tuple[str, int], tuple[pa.Array, str | None]] = field(default_factory=dict)
    size: int = 0

    def seek(self, rows: pa.RecordBatch) -> None:
        """Add the holders that rows name."""
        for _, holders in _named(rows):
            for attnum, holder in holders.items():
                self.sought.setdefault(attnum, set()).add(holder)

    def take(self, rows: pa.RecordBatch, columns: Mapping[str, Column]) -> None:
        """Take the values that are sought from rows: a row holds its own, or for the ordinal that it names."""
        named = dict(_named(rows))
        ordinals, hidden = rows.column(ORD).to_pylist(), HiddenTexts.of(rows.column(TEXT))
        for attnum, column in columns.items():
            values = rows.column(column.name)
            texts = hidden.by_attnum.get(attnum, {})
            sought = self.sought[attnum]
            for row in {*np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist(), *texts}:
                place = attnum, named.get(row, {}).get(attnum, ordinals[row])
                if place[1] in sought and place not in self.values:
                    # A slice would keep its batch.
                    value = values.take(pa.array([row]))
                    self.values[place] = value, texts.get(row)
                    self.size += value.nbytes
        if self.size > PLACES_BYTES_MAX:
            raise TooLargeError

    def completed(self, schema: SchemaVersion, rows: pa.RecordBatch) -> RowsOfBatch:
        """Return rows with the values that others hold."""
        batch = RowsOfBatch.of(schema, rows)
        by_attnum = {str(column.attnum): column for column in schema.columns}
        lacking: dict[str, dict[int, tuple[pa.Array, str | None]]] = {}
        for row, holders in _named(rows):
            for attnum, holder in holders.items():
                column = by_attnum.get(attnum)
                if column is None or batch.columns[column.name][row].is_valid:
                    continue
                if row in batch.hidden.by_attnum.get(attnum, {}):
                    continue
                if (attnum, holder) not in self.values:
                    raise UnreadableRowsError(str(schema.table), NOT_THERE, "restore its history from a backup")
                lacking.setdefault(attnum, {})[row] = self.values[attnum, holder]
        columns, texts = dict(batch.columns), {k: dict(v) for k, v in batch.hidden.by_attnum.items()}
        for attnum, by_row in lacking.items():
            name = by_attnum[attnum].name
            columns[name] = _filled(columns[name], {row: value for row, (value, _) in by_row.items()})
            hidden = {row: text for row, (_, text) in by_row.items() if text is not None}
            texts[attnum] = texts.get(attnum, {}) | hidden
        return RowsOfBatch(columns, HiddenTexts(texts), batch.rows, batch.bytes)


def _named(rows: pa.RecordBatch) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each row that names holders, with these by attribute number."""
    column = rows.column(FROM)
    if column.null_count < len(column):
        for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
            yield row, json.loads(column[row].as_py())


def _filled(values: pa.Array, by_row: Mapping[int, pa.Array]) -> pa.Array:
    """Return the values with others in some rows."""
    rows = sorted(by_row)
    whole = pa.concat_arrays([values, *(by_row[row].cast(values.type) for row in rows)])
    places = np.arange(len(values))
    places[rows] = np.arange(len(values), len(whole))
    return whole.take(pa.array(places))
