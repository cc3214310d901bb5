"""COPY … TO STDOUT into typed Arrow batches, a bounded block of whole rows at a time.

The statement to copy does not belong here (`snapshot.py`), nor do the places of values in a block (`text.py`).
The texts go through `lakeproof.values.cast`, as the stream's do.

The server sends one row per CopyData message, so a block is cut between rows. A row larger than `BLOCK_BYTES` makes it grow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import pyarrow as pa
from psycopg.sql import Composed

from lakeproof.errors import SourceError
from lakeproof.hidden_columns import TEXT
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.connections.channel import open_channel
from lakeproof.postgres.connections.connect import Connection, close_quietly
from lakeproof.postgres.connections.libpq import wait_readable
from lakeproof.postgres.connections.protocol import LARGE_FETCH_BYTES, ROWS
from lakeproof.postgres.copying.text import split
from lakeproof.schema import Column
from lakeproof.values.cast import cast_column, text_overflow
from lakeproof.values.parse.spans import cast_spans
from lakeproof.values.types import arrow_type

# 160,000 rows of about 100 bytes: enough to make Arrow's and Parquet's columns cheap, little memory.
BLOCK_BYTES = 16 << 20
_WAIT_SLICE_S = 0.5


def copy_blocks(
    conn: Connection, query: Composed, *, block_bytes: int = BLOCK_BYTES, give_up: Callable[[], bool] | None = None
) -> Generator[MessageBuffer, None, None]:
    """Run `COPY (query) TO STDOUT` and yield its rows in blocks of about `block_bytes`: whole rows as text, one per message.

    A block can be split once.
    Raises psycopg.Error, and InterruptedError if `give_up()` turns true. Left in the middle of the COPY, in whatever way,
    it closes the connection: a caller that may leave uses `contextlib.closing`.
    """
    channel = open_channel(conn, ROWS, room_bytes=block_bytes)
    try:
        channel.start(b"COPY (" + query.as_bytes(conn) + b") TO STDOUT", give_up)
        while not channel.ended:
            fetched = channel.fetch()
            if channel.controls:
                raise SourceError(
                    "COPY", "a row without an end came", "connect to PostgreSQL directly, without a proxy"
                )
            if channel.full:
                yield channel.take()
            if give_up is not None and give_up():
                raise InterruptedError("asked to stop")
            if fetched < LARGE_FETCH_BYTES and not channel.ended:
                wait_readable(conn.pgconn.socket, _WAIT_SLICE_S)
        last = channel.take()
        if len(last):
            yield last
    finally:
        # libpq knows nothing of a COPY past it: a query now would wait for its answer among the rows.
        if not channel.idle:
            close_quietly(conn)


def batch_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema: `_lp_text`, then `c0`, `c1`, … typed by `columns`."""
    fields = [pa.field(f"c{i}", arrow_type(column)) for i, column in enumerate(columns)]
    return pa.schema([pa.field(TEXT, pa.string()), *fields])


def typed_batch(block: MessageBuffer, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return a block as a batch of `batch_schema(columns)`.

    Raises CastError for a text that does not fit its type, pa.ArrowInvalid for bytes that are not UTF-8.
    """
    if not columns:
        return pa.record_batch([pa.nulls(len(block), pa.string())], schema=batch_schema(columns))
    values, overflowing = [], []
    for spans, column in zip(split(block, len(columns)), columns, strict=True):
        typed = cast_spans(spans, column)
        if typed is None:
            texts = spans.texts().cast(pa.string())
            cast = cast_column(texts, column).refuse_malformed(column)
            typed = cast.values
            overflowing.append((column, texts, cast))
        values.append(typed)
    return pa.record_batch([text_overflow(overflowing, len(block)), *values], schema=batch_schema(columns))
