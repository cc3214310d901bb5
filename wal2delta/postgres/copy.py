"""COPY … TO STDOUT into typed Arrow batches, a bounded block of whole rows at a time.

Which statement is copied belongs to `wal2delta.postgres.snapshot`. The texts go through `wal2delta.values.cast`, as the
stream's do.

The server sends one row per CopyData message, so a block is cut between rows and grows to the row where one is larger than
`BLOCK_BYTES`; the parser never sees half a row. Its options, each with a test in tests/edges/test_snapshot_values.py:

    ignore_empty_lines=False          a one-column row of NULL is an empty line
    null_values=[""]                  by default "NA", "null", "NaN" … would be NULL as well
    strings_can_be_null=True          else NULL would come as the empty text
    quoted_strings_can_be_null=False  else the empty text ("" in CSV) would come as NULL
    newlines_in_values=True           else a newline inside quotes would end the row

The parser takes a byte order mark at the head of its input away; one that is a row's first character is therefore given
to it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from psycopg.pq import ExecStatus
from psycopg.sql import Composed
from pyarrow import csv

from wal2delta.postgres.connection import Connection
from wal2delta.postgres.wire import end_of_copy, start_copy, wait_readable
from wal2delta.schema import Column
from wal2delta.values.cast import cast_column, text_overflow
from wal2delta.values.types import arrow_type

# Rows of about 100 bytes make 160,000 rows: enough for Arrow's and Parquet's columns to be cheap, little against memory.
BLOCK_BYTES = 16 << 20
TEXT_COLUMN = "_w2d_text"
_BOM = b"\xef\xbb\xbf"
_WAIT_SLICE_S = 0.5


def copy_batches(
    conn: Connection,
    query: Composed,
    columns: Sequence[Column],
    *,
    block_bytes: int = BLOCK_BYTES,
    give_up: Callable[[], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run `COPY (query) TO STDOUT` and give its rows as batches of `batch_schema(columns)`.

    `query` selects exactly `columns`, in order. Raises psycopg.Error, CastError for a text that is not one of its type,
    pa.ArrowInvalid for bytes that are not UTF-8, InterruptedError where `give_up()` turns true (the connection
    is then in the middle of COPY: close it).
    """
    for block in copy_blocks(conn, query, block_bytes=block_bytes, give_up=give_up):
        yield typed_batch(block, columns)


def copy_blocks(
    conn: Connection, query: Composed, *, block_bytes: int = BLOCK_BYTES, give_up: Callable[[], bool] | None = None
) -> Iterator[bytes]:
    """The CSV of `query`, in blocks of whole rows of about `block_bytes`. Raises as `copy_batches`."""
    pgconn = conn.pgconn
    statement = b"COPY (" + query.as_bytes(conn) + b") TO STDOUT (FORMAT csv)"
    start_copy(pgconn, statement, ExecStatus.COPY_OUT, give_up)
    get = pgconn.get_copy_data
    # Growing one buffer frees each row's memory at once: a list of rows, joined later, took twice the time.
    block = bytearray()
    while True:
        count, row = get(1)
        if count > 0:
            block += row
            if len(block) >= block_bytes:
                yield bytes(block)
                block.clear()
        elif count == 0:
            if give_up is not None and give_up():
                raise InterruptedError("asked to stop")
            wait_readable(pgconn, _WAIT_SLICE_S)
            pgconn.consume_input()
        else:
            break
    end_of_copy(pgconn)
    if block:
        yield bytes(block)


def batch_schema(columns: Sequence[Column]) -> pa.Schema:
    """`_w2d_text`, then `c0`, `c1`, … typed by `columns`."""
    fields = [pa.field(f"c{i}", arrow_type(column)) for i, column in enumerate(columns)]
    return pa.schema([pa.field(TEXT_COLUMN, pa.string()), *fields])


def typed_batch(block: bytes, columns: Sequence[Column]) -> pa.RecordBatch:
    """One block of CSV as a batch of `batch_schema(columns)`; raises CastError and pa.ArrowInvalid."""
    if not columns:
        return pa.record_batch([pa.nulls(block.count(b"\n"), pa.string())], schema=batch_schema(columns))
    texts = parse_block(block, len(columns))
    casts = [cast_column(text, column) for text, column in zip(texts, columns, strict=True)]
    overflow = text_overflow(
        [(column, text, cast.overflow) for column, text, cast in zip(columns, texts, casts, strict=True)]
    )
    return pa.record_batch([overflow, *(cast.values for cast in casts)], schema=batch_schema(columns))


def parse_block(block: bytes, width: int) -> list[pa.Array]:
    """`width` columns of text, NULL where COPY wrote NULL; raises pa.ArrowInvalid."""
    data = _BOM + block if block.startswith(_BOM) else block
    names = [f"c{i}" for i in range(width)]
    table = csv.read_csv(
        pa.py_buffer(data),
        # The whole block at once: a row can't straddle two. Several chunks are copied at a time instead of threads here.
        read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
