"""Copies a table with the tools that a Python user would choose, each to one durable Parquet file per connection.

It is a separate program, in an environment that `bench.ingest.bootstrap` creates: importing lakeproof does not belong here.

    python bench/ingest/snapshot_peers.py PEER URI FOLDER CONNECTIONS ROWS
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_CHUNK_ROWS = 100_000


def main() -> None:
    """Run one peer; prints the seconds after its imports, and the rows."""
    peer, uri, folder, connections, rows = sys.argv[1:]
    module, run = _PEERS[peer]
    library = importlib.import_module(module)
    started = time.monotonic()
    count = run(library, uri, Path(folder), int(connections), int(rows))
    print(json.dumps({"wall_s": time.monotonic() - started, "rows": count}))


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
    count = 0
    with path.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write(batch)
                count += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    return count


def _ranges(rows: int, connections: int) -> list[str]:
    step = -(-rows // connections)
    return [
        f"SELECT * FROM rows WHERE id > {part * step} AND id <= {(part + 1) * step}"  # noqa: S608  numbers computed here
        for part in range(connections)
    ]


def _side_by_side(one: Callable[[int, str], int], rows: int, connections: int) -> int:
    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(one, range(connections), _ranges(rows, connections)))


def _adbc(library: Any, uri: str, folder: Path, connections: int, rows: int) -> int:
    def one(part: int, query: str) -> int:
        with library.connect(uri) as conn, conn.cursor() as cursor:
            cursor.execute(query)
            reader = cursor.fetch_record_batch()
            return _write(folder / f"{part}.parquet", reader.schema, reader)

    return _side_by_side(one, rows, connections)


def _connectorx(library: Any, uri: str, folder: Path, connections: int, rows: int) -> int:
    table = library.read_sql(uri, _ranges(rows, connections), return_type="arrow")
    return _write(folder / "0.parquet", table.schema, [table])


def _pandas(library: Any, uri: str, folder: Path, connections: int, rows: int) -> int:
    sqlalchemy = importlib.import_module("sqlalchemy")
    engine = sqlalchemy.create_engine(uri.replace("postgresql://", "postgresql+psycopg://"))

    def one(part: int, query: str) -> int:
        with engine.connect().execution_options(stream_results=True) as conn:
            frames = library.read_sql(sqlalchemy.text(query), conn, chunksize=_CHUNK_ROWS)
            batches = (pa.Table.from_pandas(frame, preserve_index=False) for frame in frames)
            first = next(batches)
            return _write(folder / f"{part}.parquet", first.schema, chain([first], batches))

    return _side_by_side(one, rows, connections)


_PEERS: dict[str, tuple[str, Callable[[Any, str, Path, int, int], int]]] = {
    "ADBC": ("adbc_driver_postgresql.dbapi", _adbc),
    "ConnectorX": ("connectorx", _connectorx),
    "pandas": ("pandas", _pandas),
}


if __name__ == "__main__":
    main()
