"""Writes and opens the pipeline's own Parquet files: compression, and the cheapest encoding of each type.

A file is written while somebody waits, and read as a file of a table, so the time of the processor counts as much as the
size. Numbers near their neighbours are stored as differences, texts with their lengths apart: against plain values a third
of the time to write and a fourth of the size, on the mixed columns of `bench/ingest/bootstrap.py`. Dictionaries pay only if
the caller knows that values repeat. Spark's vectorized reader, delta-rs and Arrow read all of it
(tests/edges/values/test_parquet_encodings.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.errors import LakeproofError
from lakeproof.storage.store import NewFile, Store

# A reader of Spark's then takes dates and times as they are; without it, it takes those before 1582 for days of another
# calendar, or refuses them. Any version from 3.0 on means the same.
SPARK_VERSION_KEY = "org.apache.spark.version"
_SPARK_VERSION = "4.2.0"
_DIFFERENCES, _LENGTHS_APART = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"
# A decimal with more digits does not fit 64 bits and is stored as bytes of a fixed length.
_INTEGER_DIGITS_MAX = 18

# Arrow looks at a page's size after so many rows; of values of megabytes that would be one page of gigabytes, whose buffers
# the writer and every reader would have to clear and copy. A tenth of the time to write 100 MB of such values.
_PAGE_ROWS = 1024
_PAGE_BYTES = 1 << 20


def open_parquet(
    file: NewFile | BinaryIO,
    schema: pa.Schema,
    *,
    dictionaries: Collection[str] = (),
    statistics: Collection[str] = (),
    row_bytes: int = 0,
    footer: list[pq.FileMetaData] | None = None,
) -> pq.ParquetWriter:
    """Return a writer of `schema` into `file`, with dictionaries and statistics for the named columns only.

    `row_bytes` is the usual size of a row: pages end after a number of rows, so large values need few rows. `footer` gets
    the file's when the writer is closed.
    """
    # Arrow's options go by paths with dots: a column of such a name would share those of a list's elements.
    taken = {f"{field.name}.list.element" for field in schema if pa.types.is_nested(field.type)}
    dictionaries, statistics = ([n for n in names if n not in taken] for names in (dictionaries, statistics))
    encodings = {f.name: encoding(f.type) for f in schema if f.name not in dictionaries and f.name not in taken}
    return pq.ParquetWriter(
        file,
        schema.with_metadata({SPARK_VERSION_KEY: _SPARK_VERSION}),
        compression="zstd",
        use_dictionary=list(dictionaries) or False,
        write_statistics=list(statistics) or False,
        column_encoding={name: chosen for name, chosen in encodings.items() if chosen is not None} or None,
        store_decimal_as_integer=True,
        metadata_collector=footer,
        write_batch_size=max(1, min(_PAGE_ROWS, _PAGE_BYTES // max(1, row_bytes))),
    )


@contextmanager
def parquet_file(store: Store, key: str, int96: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a file of the store for reading; raises NotFoundError, and Arrow's errors if it is damaged.

    `int96` is the unit for times in that form, which Arrow takes for nanoseconds. Pages that have a checksum are compared
    with it: those of Spark's files have one.
    """
    with (
        store.open(key) as opened,
        pq.ParquetFile(opened, coerce_int96_timestamp_unit=int96, page_checksum_verification=True) as file,
    ):
        yield file


def parquet_in_memory(data: bytes) -> pq.ParquetFile:
    """Open the bytes of a file; raises as `parquet_file`."""
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)


def abandon(writer: pq.ParquetWriter | None, file: NewFile | None) -> None:
    """Remove a file that is being written; both are None if nothing was."""
    if writer is not None:
        # Nothing of it is needed, and a store that is away must not hide why it is given up.
        with suppress(OSError, LakeproofError):
            writer.close()
    if file is not None:
        file.abandon()


def bounded(schema: pa.Schema) -> list[str]:
    """Return the columns that may have statistics in a file that others read.

    Arrow leaves NaN out of the bounds of floats, and readers who order NaN above all numbers would lose rows by them.
    """
    return [f.name for f in schema if not pa.types.is_floating(f.type) and not pa.types.is_nested(f.type)]


def encoding(arrow: pa.DataType) -> str | None:
    """Return Parquet's name of the encoding for this type; None for the plain one, and for nested types."""
    if pa.types.is_integer(arrow) or pa.types.is_date32(arrow) or pa.types.is_timestamp(arrow):
        return _DIFFERENCES
    if pa.types.is_decimal128(arrow) and arrow.precision <= _INTEGER_DIGITS_MAX:
        return _DIFFERENCES
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return _LENGTHS_APART
    return None
