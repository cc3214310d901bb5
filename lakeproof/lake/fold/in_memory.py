"""A range that fits into memory, added up without a Spark job: landing files → Arrow → two local relations.

Larger ranges, bags and identity FULL belong to `net_change`, with whose results these agree; unchanged TOAST values to
`in_memory_toast`; writing the result to `delta.apply`.

A cycle over many tables with few changes each costs what its Spark jobs and plans cost, and hardly anything else. Here the
newest row of each key is found by one pass over columns in memory, and both commits are made from relations that the
driver already holds. Returns None, leaving the work to Spark, if the result could differ from Spark's or a row may have to
be refused: a value keeps its Arrow type from the landing's file to the relation, and a key's exact text is Spark's own
expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import COMMIT_TIME, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.lake.columns import column_names, current_columns, has_old_rows, keeps_key, lake_types, merge_key, quoted
from lakeproof.lake.fold.in_memory_toast import MarkedRows, mark
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.planning.range_counts import in_range_mask
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col, key_value
from lakeproof.lake.rows.landing_rows import LandedRange
from lakeproof.lake.rows.preconditions import FIRST, first_changes_in_memory, has_null_key, ordinals_by_key
from lakeproof.landing.file_columns import file_names
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import MARKED
from lakeproof.values.types import arrow_type

# Above this number of rows Spark's own plan costs less than the driver's one thread; above this size a table takes too much
# of the driver's memory, since it is decoded and held a few times over (10 MB of a relation are 30 MB in the JVM).
SMALL_ROWS_MAX = 20_000
SMALL_BYTES_MAX = 16 << 20
# Reading one batch of a file may exceed that: so batches have few rows, because a row may be large; fewer, if one of them is
# much larger.
_ROWS_AT_ONCE = 256
FIRST_BYTES_MAX = 64 << 20
_HIDDEN = (LSN, SEQ, ORD, OP, XID, COMMIT_TIME, UNCHANGED, TEXT)


def fold_in_memory(
    session: SparkSession, landed: LandedRange, counts: ChangeCounts, base: DataFrame | None
) -> ResolvedChanges | None:
    """Return what `net_change.resolve_range` gives for the range's rows; None if Spark has to do it."""
    schema = landed.schema
    if schema.is_bag or has_old_rows(schema) or counts.rows > SMALL_ROWS_MAX:
        return None
    rows = _read(landed)
    if rows is None or pc.any(pc.starts_with(rows.column(TEXT), MARKED)).as_py():
        return None
    if has_null_key(schema, rows.filter(pc.not_equal(rows.column(OP), "truncate"))):
        return None
    rows = _with_key(session, schema, rows.sort_by(ORD))
    marked: MarkedRows | None = None
    if counts.unchanged:
        marked = mark(rows, schema, merge_key(schema), base)
        if marked is None:
            return None
        rows = marked.rows
    else:
        rows = rows.drop_columns([UNCHANGED]).append_column(FROM, pa.nulls(rows.num_rows, pa.string()))
    events = _relation(session, schema, rows)
    is_truncate = pc.equal(rows.column(OP), "truncate")
    last = pc.max(rows.filter(is_truncate).column(ORD)).as_py()
    live = rows.filter(pc.invert(is_truncate))
    live = live if last is None else live.filter(pc.greater(live.column(ORD), last))
    newest = live if counts.inserts_only else _newest(live, merge_key(schema))
    images = newest.filter(pc.is_in(newest.column(OP), pa.array(["insert", "update"])))
    if marked is not None:
        images = marked.completed(images)
        if images.nbytes > SMALL_BYTES_MAX:
            return None
    if counts.inserts_only:
        return ResolvedChanges(events, _inserted(session, schema, images), counts)
    return ResolvedChanges(events, _net(session, schema, live, images, truncate=last is not None), counts)


def _newest(live: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return each key's last row."""
    return live.filter(pc.is_in(live.column(ORD), ordinals_by_key(live, key, "max")))


def _inserted(session: SparkSession, schema: SchemaVersion, images: pa.Table) -> NetChange:
    return NetChange(merge_key(schema), images=_relation(session, schema, images.select(current_columns(schema))))


def _net(
    session: SparkSession, schema: SchemaVersion, live: pa.Table, images: pa.Table, *, truncate: bool
) -> NetChange:
    firsts = first_changes_in_memory(merge_key(schema), live)
    deletes = None if truncate else _relation(session, schema, firsts)
    preconditions = len(firsts) - firsts.column(FIRST).null_count
    rows = _relation(session, schema, images.select(current_columns(schema))).coalesce(1) if images.num_rows else None
    return NetChange(merge_key(schema), deletes, rows, truncate, preconditions=preconditions)


def _read(landed: LandedRange) -> pa.Table | None:
    """Return the rows under the columns' names, with `_lp_ord`; None if they are too large or not of the expected types."""
    schema, slices = landed.schema, landed.slices
    own = file_names(schema)
    names = [*_HIDDEN, *own]
    sizes = [p.file.decoded for p in slices]
    if any(s.row > SMALL_BYTES_MAX for s in sizes):
        return None
    if sum(s.bytes for p, s in zip(slices, sizes, strict=True) if p.whole) > SMALL_BYTES_MAX:
        return None
    batches, size = [], 0
    for piece in slices:
        for batch in _batches(piece, names, landed.start, landed.end):
            size += batch.nbytes
            if size > SMALL_BYTES_MAX:
                return None
            moved = pa.scalar(landed.first_ordinals[piece.number] - piece.first_ordinal, pa.int64())
            columns = {n: batch.column(n) for n in names}
            columns |= {ORD: pc.add(columns[ORD], moved), OP: columns[OP].cast(pa.string())}
            batches.append(pa.table(columns))
    if not batches:
        return None
    rows = pa.concat_tables(batches)
    if any(rows.schema.field(n).type != arrow_type(c) for n, c in zip(own, schema.columns, strict=True)):
        return None
    return rows.rename_columns([*_HIDDEN, *column_names(schema)])


def _batches(piece: Slice, names: list[str], start: Lsn, end: Lsn) -> Iterator[pa.RecordBatch]:
    with piece.open() as file:
        rows = max(1, min(_ROWS_AT_ONCE, FIRST_BYTES_MAX // max(1, piece.file.decoded.row)))
        for batch in file.iter_batches(batch_size=rows, columns=names):
            yield batch if piece.whole else batch.filter(in_range_mask(batch.column(LSN), start, end))


def _with_key(session: SparkSession, schema: SchemaVersion, rows: pa.Table) -> pa.Table:
    """Add `_lp_key` by Spark's expression over a local relation, which its optimizer evaluates without a job."""
    if not keeps_key(schema):
        return rows.append_column(KEY, pa.nulls(rows.num_rows, pa.string()))
    keyed = (
        _relation(session, schema, rows.drop_columns([UNCHANGED]))
        .select(col(ORD), key_value(schema).alias(KEY))
        .toArrow()
    )
    place = pc.index_in(rows.column(ORD), value_set=keyed.column(ORD).combine_chunks())
    return rows.append_column(KEY, keyed.column(KEY).take(place))


def _relation(session: SparkSession, schema: SchemaVersion, rows: pa.Table) -> DataFrame:
    """Return the rows as a relation that the driver holds."""
    types = {**lake_types(schema, (n for n in rows.column_names if n != FIRST)), FIRST: "bigint"}
    return session.createDataFrame(rows, ", ".join(f"{quoted(n)} {types[n]}" for n in rows.column_names))
