"""What comes out of a batch of messages: record batches with the columns of `lakeproof/landing/FORMAT.md`, and their place.

How the rows are found in the bytes belongs to `batch.py` and its slow twin `assemble.py`; both end in `record_batch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.messages import LogicalMessage, Origin
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import Cast, cast_column, text_overflow
from lakeproof.values.types import arrow_type

INSERT, BEFORE, UPDATE, DELETE, TRUNCATE = range(5)
# In the order of the codes above.
OPERATIONS = ("insert", "before", "update", "delete", "truncate")

_HIDDEN = (
    ("_lp_lsn", pa.int64()),
    ("_lp_seq", pa.int64()),
    ("_lp_row", pa.int64()),
    ("_lp_op", pa.dictionary(pa.int8(), pa.string())),
    ("_lp_xid", pa.int64()),
    ("_lp_commit_time", pa.timestamp("us", "UTC")),
    ("_lp_unchanged", pa.list_(pa.int16())),
    ("_lp_text", pa.string()),
)


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A committed transaction: its position (the commit's end LSN), xid and commit time (µs since the Unix epoch)."""

    end_lsn: Lsn
    xid: Xid
    commit_time_us: int


def has_position(lsn: Lsn) -> bool:
    """Whether it can be one: columns carry positions as signed 64-bit numbers."""
    return 0 < lsn.value < 1 << 63


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many rows of each kind; `unchanged` counts the rows with at least one unchanged TOAST value."""

    inserts: int
    updates: int
    deletes: int
    truncates: int
    befores: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The rows of one table under one schema version, in stream order; `_lp_row` counts from 0 in the batch."""

    version: SchemaVersion
    rows: pa.RecordBatch
    counts: ChangeCounts


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """A schema version, from the place in the stream where its Relation message stood."""

    version: SchemaVersion
    from_lsn: Lsn
    from_seq: int


@dataclass(frozen=True, slots=True)
class Note:
    """What the stream says beside rows: a logical message, or where a transaction came from.

    `transaction` is None for a message that belongs to none: its own LSN, the end of its record, is its position. `seq` is
    how many changes of the transaction came before it.
    """

    said: LogicalMessage | Origin
    transaction: TransactionInfo | None
    seq: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What some whole transactions, or a part of one, add up to.

    `changes` has one entry per table and run of one schema version, ordered by its first row. `transactions` counts those
    with at least one row. `end_lsn` is the last transaction's, None where the batch has none; the commit times are the least
    and the greatest (µs since the Unix epoch). `schemas` are the versions that Relation messages brought, in stream order,
    `notes` what else was said, in stream order. `next_seq` is the seq after the last change of the last transaction: the
    next part's `first_seq`.
    """

    changes: list[TableChanges]
    transactions: int
    rows: int
    end_lsn: Lsn | None
    first_commit_time_us: int | None
    last_commit_time_us: int | None
    schemas: list[SchemaInForce]
    notes: list[Note]
    next_seq: int


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """The hidden columns of some rows but `_lp_text`: arrays of one length and of the types of `row_schema`."""

    lsn: pa.Array
    seq: pa.Array
    row: pa.Array
    operation: pa.Array
    xid: pa.Array
    commit_time: pa.Array
    unchanged: pa.Array


def operations(codes: pa.Array) -> pa.Array:
    """`_lp_op` from an int8 array of the codes above."""
    return pa.DictionaryArray.from_arrays(codes, pa.array(OPERATIONS, pa.string()))


def row_schema(version: SchemaVersion) -> pa.Schema:
    """The Arrow schema of a landing file of this version."""
    values = [(f"c{ordinal}", arrow_type(column)) for ordinal, column in enumerate(version.columns)]
    return pa.schema([*_HIDDEN, *values])


def record_batch(version: SchemaVersion, hidden: HiddenColumns, columns: Iterable[pa.Array | Cast]) -> pa.RecordBatch:
    """Put the rows together; `columns` are typed already, or the texts (strings or binary) that are cast here."""
    values: list[pa.Array] = []
    unfit: list[tuple[Column, pa.Array, Cast]] = []
    for column, given in zip(version.columns, columns, strict=True):
        cast = given if isinstance(given, Cast) else cast_column(given, column)
        values.append(cast.values)
        if not cast.fits:
            unfit.append((column, given, cast))
    arrays = [
        hidden.lsn,
        hidden.seq,
        hidden.row,
        hidden.operation,
        hidden.xid,
        hidden.commit_time,
        hidden.unchanged,
        text_overflow(unfit, len(hidden.row)),
        *values,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(version))
