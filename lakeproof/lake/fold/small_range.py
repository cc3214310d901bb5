"""A small range of a keyed table in Arrow: its rows, and those of them that are left when all are added up.

Relations of Spark belong to `in_memory`, reading tables without Spark to `lakeproof.lake.read`. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.lake.columns import column_names
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.planning.range_counts import in_range_mask
from lakeproof.lake.rows.keys_in_memory import has_null_key, ordinals_by_key
from lakeproof.landing.file_columns import file_names
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import MARKED
from lakeproof.values.types import arrow_type

# Reading one batch of a file may exceed that: so batches have few rows, because a row may be large; fewer, if one of them is
# much larger.
_ROWS_AT_ONCE = 256
FIRST_BYTES_MAX = 64 << 20
_HIDDEN = (LSN, SEQ, ORD, OP, XID, COMMIT_TIME, COMMIT_NUMBER, UNCHANGED, TEXT)


@dataclass(frozen=True, slots=True)
class NetRows:
    """A range added up: `live` are its changes after the last truncate, `images` those rows that come in the end."""

    live: pa.Table
    images: pa.Table
    truncate: bool


def read_range(landed: LandedRange, bytes_max: int) -> pa.Table | None:
    """Return the rows by the columns' names, in the order of `_lp_ord`; None if they are too large or of other types."""
    schema, slices = landed.schema, landed.slices
    own = file_names(schema)
    names = [*_HIDDEN, *own]
    sizes = [p.file.decoded for p in slices]
    if any(s.row > bytes_max for s in sizes):
        return None
    if sum(s.bytes for p, s in zip(slices, sizes, strict=True) if p.whole) > bytes_max:
        return None
    batches, size = [], 0
    for piece in slices:
        for batch in _batches(piece, names, landed.start, landed.end):
            size += batch.nbytes
            if size > bytes_max:
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
    return rows.rename_columns([*_HIDDEN, *column_names(schema)]).sort_by(ORD)


def _batches(piece: Slice, names: list[str], start: Lsn, end: Lsn) -> Iterator[pa.RecordBatch]:
    with piece.open() as file:
        rows = max(1, min(_ROWS_AT_ONCE, FIRST_BYTES_MAX // max(1, piece.file.decoded.row)))
        for batch in file.iter_batches(batch_size=rows, columns=names):
            yield batch if piece.whole else batch.filter(in_range_mask(batch.column(LSN), start, end))


def is_refused(schema: SchemaVersion, rows: pa.Table) -> bool:
    """True if a row may have to be refused: a text that is not known, or NULL in its key."""
    if pc.any(pc.starts_with(rows.column(TEXT), MARKED)).as_py():
        return True
    return has_null_key(schema, rows.filter(pc.not_equal(rows.column(OP), "truncate")))


def net_rows(rows: pa.Table, key: Sequence[str], *, inserts_only: bool) -> NetRows:
    """Return what `rows` of a range, in their order and with the `key` columns, add up to."""
    is_truncate = pc.equal(rows.column(OP), "truncate")
    last = pc.max(rows.filter(is_truncate).column(ORD)).as_py()
    live = rows.filter(pc.invert(is_truncate))
    live = live if last is None else live.filter(pc.greater(live.column(ORD), last))
    newest = live if inserts_only else live.filter(pc.is_in(live.column(ORD), ordinals_by_key(live, key, "max")))
    images = newest.filter(pc.is_in(newest.column(OP), pa.array(["insert", "update"])))
    return NetRows(live, images, last is not None)
