"""Reading the lake as fresh as its landing without Spark: a table's rows at the newest cut, and what has landed since.

The same with Spark, for every kind of table and any number of changes, belongs to `landed`; rows at a cut to `frames`.

    the cut's batches, without the rows whose key was touched ─► then the newest row of each key that is there

The fold is that of small ranges in a cycle. Tables without a key of columns that compare exactly are left to
Spark, and so are more changes than `CHANGES_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import KEY
from lakeproof.lake.columns import column_names, current_columns, has_old_rows, in_lake, keeps_key, merge_key
from lakeproof.lake.delta.arrow_rows import BATCH_ROWS, DeltaRows
from lakeproof.lake.fold.holders import NotFolded
from lakeproof.lake.fold.small_range import is_refused, net_rows, read_range
from lakeproof.lake.fold.unchanged_rows import range_in_memory
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.planning.landing_end import LakeAtLanding, LandingEnd
from lakeproof.lake.planning.range_counts import count_changes
from lakeproof.lake.planning.schema_changes import older_versions
from lakeproof.lake.read.frames import ReadLake, Rows
from lakeproof.lake.records.cut_choice import table_name
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.paths import LakePaths

# The changes of a table since the cut, decoded; adding them up takes a few times as much.
CHANGES_BYTES_MAX = 128 << 20
# The large values that changes left alone, fetched from the table.
FETCHED_BYTES_MAX = 128 << 20
_PLACE = "place"


@dataclass(frozen=True, slots=True)
class _Net:
    """What came since the cut: rows with one of the `keys` are replaced by `images`; after a truncate all rows are."""

    keys: pa.Table
    images: pa.Table
    truncate: bool

    def without_touched(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the cut's rows without those that have one of the keys."""
        if not self.keys.num_rows:
            return batch
        touched = _places(batch, self.keys)
        return batch.take(pc.indices_nonzero(pc.invert(pc.is_in(_numbers(batch), touched)))) if len(touched) else batch


@dataclass(frozen=True, slots=True)
class LandedRows(Rows):
    """A table at the landing's end. What has landed is held in memory; the cut's rows come in batches."""

    net: _Net

    def select(self, *columns: str) -> Rows:
        """Return the same rows with these columns alone; files are read for these and the key. Raises as `Rows.select`."""
        return replace(self, columns=self.chosen(columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, 65,536 at a time at most, in no order; raises LakeError if a file is missing or damaged."""
        key = [name for name in self.net.keys.column_names if name not in self.columns]
        if not self.net.truncate:
            for batch in self.delta.batches([*self.columns, *key]):
                yield self.net.without_touched(batch).select(list(self.columns))
        images = self.net.images.select(list(self.columns)).cast(self.schema)
        yield from images.to_batches(max_chunksize=BATCH_ROWS)


@dataclass(frozen=True, slots=True, repr=False)
class LandedReadLake(LakeAtLanding, ReadLake):
    """A lake pinned at the end of each source's landing, on top of `cuts`, to be read without Spark."""

    ends: Mapping[str, LandingEnd]

    def table(self, source: str, table: TableName | str, *, hidden: bool = False) -> Rows:
        """Return a table's rows at the position, without the hidden `_lp_…` columns unless asked for.

        What has landed is read now. Raises LakeError if there is no such table, if what it needs is not kept any more, or if
        it has to be read with Spark.
        """
        name, end = table_name(table), self.end(source)
        version, before = end.version(name), end.before(name)
        if before is None:
            raise _with_spark(end, name, "it was created since the newest cut")
        delta = DeltaRows.open(end.lake.url(LakePaths(source).current(name)), before.current_version)
        columns = tuple(current_columns(in_lake(version)) if hidden else column_names(in_lake(version)))
        net = _net(end, in_lake(version), delta) if name in end.tables else None
        return Rows(delta, columns) if net is None else LandedRows(delta, columns, net)

    def history(self, source: str, table: TableName | str) -> Rows:
        """Raise LakeError: history is made by cycles."""
        raise LakeError(f"{source}: {table}", "history is made by cycles, and ends at a cut", "open the lake at a cut")


def _net(end: LandingEnd, schema: SchemaVersion, delta: DeltaRows) -> _Net | None:
    """Return what the table's changes add up to; None if there are none. Raises LakeError if Spark has to do it."""
    table, files = schema.table, end.verified(schema.table)
    start = end.tables[table].from_lsn
    counts = count_changes(files, start, end.position)
    if counts.rows == 0:
        return None
    if schema.is_bag or has_old_rows(schema) or keeps_key(schema):
        raise _with_spark(end, table, "it has no key of columns that Arrow compares exactly")
    if older_versions(end.chain, end.version(table), files, start, end.position):
        raise _with_spark(end, table, "what has landed has rows of several schemas")
    rows = read_range(LandedRange(schema, files, end.first_ordinals, start, end.position), CHANGES_BYTES_MAX)
    if rows is None:
        raise _with_spark(end, table, f"more than {CHANGES_BYTES_MAX >> 20} MiB of its changes have landed")
    if is_refused(schema, rows):
        raise _with_spark(end, table, "a row that has landed may have to be refused")
    key = merge_key(schema)
    try:
        whole = range_in_memory(schema, rows, partial(_fetched, delta), lacks_values=bool(counts.unchanged))
    except NotFolded:
        raise _with_spark(end, table, "a large value that was left alone was not found, or is too large") from None
    keyed = whole.rows.append_column(KEY, pa.nulls(rows.num_rows, pa.string()))
    net = net_rows(keyed, key, inserts_only=counts.inserts_only)
    images = whole.completed(net.images)
    touched = _distinct(net.live.slice(0, 0) if counts.inserts_only else net.live, key)
    return _Net(touched, images.select(current_columns(schema)), net.truncate)


def _fetched(delta: DeltaRows, keys: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows of the cut that have one of the keys; raises NotFolded if they are too large."""
    batches, size = [delta.schema.empty_table().select(list(names))], 0
    for batch in delta.batches(names):
        chosen = batch.take(_places(batch, keys))
        size += chosen.nbytes
        if size > FETCHED_BYTES_MAX:
            raise NotFolded("the rows that have unchanged values are too large")
        batches.append(pa.table(chosen))
    return pa.concat_tables(batches)


def _distinct(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return each key once."""
    # By number: Arrow takes a name that begins with a dot for a path.
    numbered = [str(number) for number in range(len(key))]
    return rows.select(list(key)).rename_columns(numbered).group_by(numbered).aggregate([]).rename_columns(list(key))


def _places(batch: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    """Return the numbers of the rows in a batch that have one of the keys."""
    if keys.num_columns == 1:
        name = keys.column_names[0]
        value_set = keys.column(name).combine_chunks().cast(batch.schema.field(name).type)
        return pc.indices_nonzero(pc.is_in(batch.column(name), value_set))
    numbered = [str(number) for number in range(keys.num_columns)]
    rows = pa.table([*(batch.column(n) for n in keys.column_names), _numbers(batch)], [*numbered, _PLACE])
    sought = keys.rename_columns(numbered).cast(rows.schema.remove(keys.num_columns))
    return rows.join(sought, numbered, join_type="left semi").column(_PLACE).combine_chunks()


def _numbers(batch: pa.RecordBatch) -> pa.Array:
    return pa.array(range(batch.num_rows), pa.int64())


def _with_spark(end: LandingEnd, table: TableName, reason: str) -> LakeError:
    remedy = "read it with Spark (`lakeproof.open`), or at the newest cut"
    return LakeError(
        f"{end.lake.source}: {table}", f"without Spark it can't be read at the landing's end: {reason}", remedy
    )
