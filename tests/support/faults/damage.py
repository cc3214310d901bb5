"""Damage to a lake's files that only a comparison of rows can see: readable, other values in a file as long as before.

A file whose length or footer is wrong belongs to the tests of damaged files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def data_files(table: Path) -> list[Path]:
    """The data files of a Delta table, oldest first."""
    files = (place for place in table.rglob("*.parquet") if "_delta_log" not in place.parts)
    return sorted(files, key=lambda place: place.stat().st_mtime)


def alter(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put other rows in a data file's place, of the same length; its checksum goes, as with a copy by other tools.

    Another table that has linked the same file keeps it as it was.
    """
    length = file.stat().st_size
    rows = change(pq.read_table(file)).replace_schema_metadata(None)
    file.unlink()
    missing = length - _write(rows, file, 0)
    for pad in range(missing - 8, missing + 1):
        if pad >= 0 and _write(rows, file, pad) == length:
            break
    assert file.stat().st_size == length, "the rows do not fit into the file"
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def _write(rows: pa.Table, file: Path, pad: int) -> int:
    options = {"compression": "zstd", "store_schema": False, "write_statistics": False, "use_dictionary": False}
    with pq.ParquetWriter(file, rows.schema, **options) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"pad": "x" * pad})
    return file.stat().st_size
