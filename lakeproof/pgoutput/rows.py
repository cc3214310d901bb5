"""The result of a decoded batch: record batches with the columns of `lakeproof/landing/FORMAT.md`, and their positions.

The table's own columns are `c0`, `c1`, … here: their names in files belong to `lakeproof.landing.segments.file_columns`.
`batch.py` finds the rows in the bytes, and so does its slow twin in the tests; both end in `record_batch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.messages import LogicalMessage, Origin
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import Cast, cast_column, text_overflow
from lakeproof.values.types import arrow_type

INSERT, BEFORE, UPDATE, DELETE, TRUNCATE = range(5)
# In the order of the codes above.
OPERATIONS = ("insert", "before", "update", "delete", "truncate")

_HIDDEN = (
    (LSN, pa.int64()),
    (SEQ, pa.int64()),
    (ORD, pa.int64()),
    (OP, pa.dictionary(pa.int8(), pa.string())),
    (XID, pa.int64()),
    (COMMIT_TIME, pa.timestamp("us", "UTC")),
    (COMMIT_NUMBER, pa.int64()),
    (UNCHANGED, pa.list_(pa.int16())),
    (TEXT, pa.string()),
)


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A committed transaction: its position (the commit's end LSN), xid and commit time (µs since 1970, without a limit)."""

    end_lsn: Lsn
    xid: Xid
    commit_time_us: int


def has_position(lsn: Lsn) -> bool:
    """True if `lsn` can be a position: columns carry positions as signed 64-bit numbers."""
    return 0 < lsn.value < 1 << 63


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The rows of one table under one schema version, in stream order; `_lp_ord` counts from 0 in the batch."""

    version: SchemaVersion
    rows: pa.RecordBatch
    counts: ChangeCounts


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """A schema version, with the position of its Relation message."""

    version: SchemaVersion
    from_lsn: Lsn
    from_seq: int


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A logical message, or the origin of a transaction, with its place in the stream.

    `transaction` is None for a message outside any transaction, whose position is its own LSN, the end of its record. `seq`
    is the number of the transaction's changes before it.
    """

    message: LogicalMessage | Origin
    transaction: TransactionInfo | None
    seq: int


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The transaction in which rows of a partition begin to come as rows of the table `root` above it."""

    partition: Oid
    root: Oid
    transaction: TransactionInfo


@dataclass(frozen=True, slots=True)
class Batch:
    """The decoded contents of some whole transactions, or of a part of one.

    `changes` has one entry per table and run of one schema version, ordered by its first row. `transactions` counts those
    with at least one row. `end_lsn` is the last transaction's, None if the batch has none; the commit times are the least
    and the greatest (µs since 1970, without a limit). `schemas` are the versions that Relation messages brought, in stream
    order, `logical_messages` the messages and origins, likewise. `next_seq` is the seq after the last change of the last
    transaction: the next part's `first_seq`. `partitions` are those that were announced for rows of a table above them.
    """

    changes: list[TableBatch]
    transactions: int
    rows: int
    end_lsn: Lsn | None
    first_commit_time_us: int | None
    last_commit_time_us: int | None
    schemas: list[SchemaInForce]
    logical_messages: list[StreamMessage]
    next_seq: int
    partitions: list[PartitionRows] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """The hidden columns of some rows except `_lp_text`: arrays of one length and of the types of `row_schema`."""

    lsn: pa.Array
    seq: pa.Array
    row: pa.Array
    operation: pa.Array
    xid: pa.Array
    commit_time: pa.Array
    commit_number: pa.Array
    unchanged: pa.Array


def operations(codes: pa.Array) -> pa.Array:
    """Return `_lp_op` for an int8 array of the codes above."""
    return pa.DictionaryArray.from_arrays(codes, pa.array(OPERATIONS, pa.string()))


def row_schema(version: SchemaVersion) -> pa.Schema:
    """Return the Arrow schema of this version's rows: the hidden columns, then `c0`, `c1`, … ."""
    values = [(f"c{ordinal}", arrow_type(column)) for ordinal, column in enumerate(version.columns)]
    return pa.schema([*_HIDDEN, *values])


def record_batch(version: SchemaVersion, hidden: HiddenColumns, columns: Iterable[pa.Array | Cast]) -> pa.RecordBatch:
    """Build the rows; `columns` are already typed, or texts (strings or binary) that are cast here."""
    values: list[pa.Array] = []
    overflowing: list[tuple[Column, pa.Array, Cast]] = []
    for column, given in zip(version.columns, columns, strict=True):
        cast = given if isinstance(given, Cast) else cast_column(given, column)
        values.append(cast.values)
        if not cast.fits:
            overflowing.append((column, given, cast))
    arrays = [
        hidden.lsn,
        hidden.seq,
        hidden.row,
        hidden.operation,
        hidden.xid,
        hidden.commit_time,
        hidden.commit_number,
        hidden.unchanged,
        text_overflow(overflowing, len(hidden.row)),
        *values,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(version))
