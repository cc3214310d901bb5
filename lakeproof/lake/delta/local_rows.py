"""Rows that this process reads or holds, written as data files of a Delta table, without a Spark job.

Nothing is committed here (`link_commit`); a landed file that becomes a table's as it is belongs to `links`.

The files are like landed ones: the same types and encodings, bounds for the same kinds of columns, and Hadoop's checksums
beside them. Nothing is synced here: the cycle syncs what its commits name before a cut names them. A killed attempt leaves
files that no commit names; no later attempt has their names. One that ends in an error leaves none.

Memory: one row group of rows, and one batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from lakeproof.hidden_columns import COMMIT_TIME, LSN, OP, XID
from lakeproof.lake.delta.links import PlacedFile, now_ms, remove_placed, write_checksums
from lakeproof.landing.segment import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import bounded, open_parquet, parquet_file
from lakeproof.storage.store import NewFile

# One file per this many rows, so that a file can be read, and written anew, by one task.
ROWS_PER_FILE = 500_000
LocalRows: TypeAlias = Iterable[pa.Table]
_REPEATED = frozenset({LSN, OP, XID, COMMIT_TIME})


def write_rows(rows: LocalRows, folder: Folder, prefix: str, statistics: Collection[str]) -> Iterator[PlacedFile]:
    """Write rows of one schema into files of a table's folder, under new names that begin with `prefix`, and give each.

    `statistics`: the columns that get bounds, if their type has bounds that others can rely on.
    """
    groups = _groups(rows)
    for first in groups:
        yield _write_file(first, groups, folder, f"{prefix}{uuid.uuid4().hex}.parquet", statistics)


def _write_file(
    first: pa.Table, others: Iterator[pa.Table], folder: Folder, name: str, statistics: Collection[str]
) -> PlacedFile:
    store, key = folder.store, folder.key_of(name)
    file = store.create(key, durable=False)
    try:
        _write_rows(first, others, file, statistics)
        file.finish()
        write_checksums(store, key)
        with parquet_file(store, key) as opened:
            return PlacedFile(name, opened.metadata, file.bytes_written, now_ms())
    except BaseException:
        # On a full disk each attempt would leave a file more.
        file.abandon()
        remove_placed(folder, name)
        raise


def _write_rows(first: pa.Table, others: Iterator[pa.Table], file: NewFile, statistics: Collection[str]) -> None:
    chosen = [name for name in bounded(first.schema) if name in statistics]
    repeated = [name for name in first.schema.names if name in _REPEATED]
    written = first.num_rows
    with open_parquet(file, first.schema, dictionaries=repeated, statistics=chosen) as writer:
        writer.write_table(first)
        while written < ROWS_PER_FILE and (group := next(others, None)) is not None:
            writer.write_table(group)
            written += group.num_rows


def _groups(rows: LocalRows) -> Iterator[pa.Table]:
    """Give the rows in row groups; none for no rows."""
    # Of a file few of whose rows are left there are thousands of small parts: no loop over all of them for each one.
    waiting, count, size = list[pa.Table](), 0, 0
    for part in rows:
        if not part.num_rows:
            continue
        waiting.append(part)
        count, size = count + part.num_rows, size + part.nbytes
        if count >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)
