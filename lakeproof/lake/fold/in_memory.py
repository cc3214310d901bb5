"""A range that fits into memory, added up without a Spark job: landing files → Arrow → two local relations.

Larger ranges, bags and identity FULL belong to `net_change`, which this agrees with; unchanged TOAST values to
`small_toast`; writing the result to `apply`.

A cycle over many tables with few changes each costs what its Spark jobs and plans cost, hardly anything else. Here the
newest row of each key is found by one pass over columns in memory, and both commits are made from relations that the
driver already holds. What this can't do exactly as Spark does it, or may have to refuse, it leaves to Spark (None): a
value keeps its Arrow type from the landing's file to the relation, and a key's exact text is Spark's own expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import COMMIT_TIME, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.lake.columns import column_names, current_columns, has_old_rows, keeps_key, merge_key, quoted
from lakeproof.lake.fold.in_memory_toast import Marked, mark
from lakeproof.lake.fold.net_change import Folded, NetChange
from lakeproof.lake.planning.range_counts import Counts, in_range_mask
from lakeproof.lake.rows.columns import col, key_value
from lakeproof.lake.rows.landing_rows import MARKED
from lakeproof.lake.rows.preconditions import FIRST, first_changes_in_memory, has_null_key
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.types import arrow_type, spark_type

# Above, Spark's own plan costs less than the driver's one thread; and what a table may take of the driver's memory,
# decoded, a few times over (10 MB of a relation are 30 MB in the JVM).
SMALL_ROWS_MAX = 20_000
SMALL_BYTES_MAX = 16 << 20
# What one look at a file may bring beyond that: few rows, because a row may be large; fewer, where one of them is by far.
_ROWS_AT_ONCE = 256
FIRST_BYTES_MAX = 64 << 20
_ROW = "_lp_row"
_HIDDEN = (LSN, SEQ, _ROW, OP, XID, COMMIT_TIME, UNCHANGED, TEXT)
_TYPES = {
    ORD: "bigint",
    LSN: "bigint",
    SEQ: "bigint",
    OP: "string",
    XID: "bigint",
    COMMIT_TIME: "timestamp",
    TEXT: "string",
    KEY: "string",
    FROM: "string",
    FIRST: "bigint",
}


def fold_small(
    session: SparkSession,
    shape: SchemaVersion,
    pieces: Sequence[Slice],
    *,
    bases: Mapping[int, int],
    start: Lsn,
    end: Lsn,
    counts: Counts,
    base: DataFrame | None,
) -> Folded | None:
    """What `net_change.fold` gives for the rows of `pieces` in (start, end]; None where that is Spark's to do."""
    if shape.is_bag or has_old_rows(shape) or counts.rows > SMALL_ROWS_MAX:
        return None
    rows = _read(shape, pieces, bases, start, end)
    if rows is None or pc.any(pc.starts_with(rows.column(TEXT), MARKED)).as_py():
        return None
    if has_null_key(shape, rows.filter(pc.not_equal(rows.column(OP), "truncate"))):
        return None
    rows = _with_key(session, shape, rows.sort_by(ORD))
    marked: Marked | None = None
    if counts.unchanged:
        marked = mark(rows, shape, merge_key(shape), base)
        if marked is None:
            return None
        rows = marked.rows
    else:
        rows = rows.drop_columns([UNCHANGED]).append_column(FROM, pa.nulls(rows.num_rows, pa.string()))
    events = _relation(session, shape, rows)
    is_truncate = pc.equal(rows.column(OP), "truncate")
    last = pc.max(rows.filter(is_truncate).column(ORD)).as_py()
    live = rows.filter(pc.invert(is_truncate))
    live = live if last is None else live.filter(pc.greater(live.column(ORD), last))
    newest = live if counts.inserts_only else _newest(live, merge_key(shape))
    alive = newest.filter(pc.is_in(newest.column(OP), pa.array(["insert", "update"])))
    if marked is not None:
        alive = marked.completed(alive)
        if alive.nbytes > SMALL_BYTES_MAX:
            return None
    return Folded(events, _net(session, shape, live, alive, counts, wipe=last is not None), counts)


def _newest(live: pa.Table, key: Sequence[str]) -> pa.Table:
    """Each key's last row."""
    newest = live.group_by(list(key), use_threads=False).aggregate([(ORD, "max")]).column(f"{ORD}_max")
    return live.filter(pc.is_in(live.column(ORD), pa.chunked_array(newest).combine_chunks()))


def _net(
    session: SparkSession, shape: SchemaVersion, live: pa.Table, alive: pa.Table, counts: Counts, *, wipe: bool
) -> NetChange:
    columns, key = current_columns(shape), list(merge_key(shape))
    if counts.inserts_only:
        return NetChange(shape, None, _relation(session, shape, alive.select(columns)))
    firsts = first_changes_in_memory(key, live)
    deletes = None if wipe else _relation(session, shape, firsts)
    presupposed = len(firsts) - firsts.column(FIRST).null_count
    images = _relation(session, shape, alive.select(columns)).coalesce(1) if alive.num_rows else None
    return NetChange(shape, deletes, images, wipe, presupposed=presupposed)


def _read(
    shape: SchemaVersion, pieces: Sequence[Slice], bases: Mapping[int, int], start: Lsn, end: Lsn
) -> pa.Table | None:
    """The rows under the columns' names, with `_lp_ord`; None where they are too large or not of the expected types."""
    names = [*_HIDDEN, *(f"c{i}" for i in range(len(shape.columns)))]
    sizes = [p.file.decoded for p in pieces]
    if any(s.row > SMALL_BYTES_MAX for s in sizes):
        return None
    if sum(s.bytes for p, s in zip(pieces, sizes, strict=True) if p.whole) > SMALL_BYTES_MAX:
        return None
    batches, size = [], 0
    for piece in pieces:
        for batch in _batches(piece, names, start, end):
            size += batch.nbytes
            if size > SMALL_BYTES_MAX:
                return None
            ordinal = pc.add(batch.column(_ROW), pa.scalar(bases[piece.number], pa.int64()))
            batches.append(pa.Table.from_batches([batch]).append_column(ORD, ordinal))
    if not batches:
        return None
    rows = pa.concat_tables(batches)
    rows = rows.set_column(names.index(OP), OP, rows.column(OP).cast(pa.string())).drop_columns([_ROW])
    if any(rows.schema.field(f"c{i}").type != arrow_type(c) for i, c in enumerate(shape.columns)):
        return None
    own = {f"c{i}": name for i, name in enumerate(column_names(shape))}
    return rows.rename_columns([own.get(n, n) for n in rows.column_names])


def _batches(piece: Slice, names: list[str], start: Lsn, end: Lsn) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(piece.url) as file:
        rows = max(1, min(_ROWS_AT_ONCE, FIRST_BYTES_MAX // max(1, piece.file.decoded.row)))
        for batch in file.iter_batches(batch_size=rows, columns=names):
            yield batch if piece.whole else batch.filter(in_range_mask(batch.column(LSN), start, end))


def _with_key(session: SparkSession, shape: SchemaVersion, rows: pa.Table) -> pa.Table:
    """`_lp_key`: Spark's expression over a local relation, which its optimizer evaluates without a job."""
    if not keeps_key(shape):
        return rows.append_column(KEY, pa.nulls(rows.num_rows, pa.string()))
    keyed = (
        _relation(session, shape, rows.drop_columns([UNCHANGED]))
        .select(col(ORD), key_value(shape).alias(KEY))
        .toArrow()
    )
    place = pc.index_in(rows.column(ORD), value_set=keyed.column(ORD).combine_chunks())
    return rows.append_column(KEY, keyed.column(KEY).take(place))


def _relation(session: SparkSession, shape: SchemaVersion, rows: pa.Table) -> DataFrame:
    """The rows as a relation that the driver holds."""
    types = {c.name: spark_type(c) for c in shape.columns} | _TYPES
    return session.createDataFrame(rows, ", ".join(f"{quoted(n)} {types[n]}" for n in rows.column_names))
