"""Reads Delta tables with one of the readers of docs/reading.md, in a process that has it, and prints what it gave.

Comparing that with the source belongs to `edges/reading/test_readers_page.py`. Input and output are JSON: a list of
tables with `path`, `version` and `columns`; for each the rows as texts, or the error that ended the reading.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import deltalake
import pyarrow as pa


def _queries(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    table = deltalake.DeltaTable(path, version=version)
    listed = ", ".join(f'"{name}"' for name in columns)
    read = deltalake.QueryBuilder().register("t", table).execute(f"SELECT {listed} FROM t").read_all()  # noqa: S608  as below
    return _rows(pa.table(read))


def _arrow(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    return _rows(deltalake.DeltaTable(path, version=version).to_pyarrow_table(columns=columns))


def _polars(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    polars = importlib.import_module("polars")
    return list(polars.scan_delta(path, version=version).select(columns).collect().rows())


def _duckdb(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    duckdb = importlib.import_module("duckdb")
    files = deltalake.DeltaTable(path, version=version).file_uris()
    if not files:
        return []
    listed = ", ".join(f'"{name}"' for name in columns)
    read = f"SELECT {listed} FROM read_parquet(?, union_by_name = true)"  # noqa: S608  the test's own names
    return list(duckdb.execute(read, [files]).fetchall())


def _duckdb_delta(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    duckdb = importlib.import_module("duckdb")
    (package,) = importlib.import_module("duckdb_extension_delta").__path__
    connection = duckdb.connect()
    connection.load_extension(f"{package}/extensions/v{duckdb.__version__}/delta.duckdb_extension")
    listed = ", ".join(f'"{name}"' for name in columns)
    read = f"SELECT {listed} FROM delta_scan(?, version = ?)"  # noqa: S608  as above
    return list(connection.execute(read, [path, version]).fetchall())


def _lakeproof(path: str, version: int, columns: list[str]) -> Iterable[tuple[Any, ...]]:
    arrow_rows = importlib.import_module("lakeproof.lake.delta.arrow_rows")
    open_store = importlib.import_module("lakeproof.storage.open").open_store
    open_store(path.partition("/shop/")[0])
    rows = arrow_rows.DeltaRows.open(path, version)
    assert "pyspark" not in sys.modules
    batches = list(rows.batches(columns))
    return _rows(pa.Table.from_batches(batches)) if batches else []


READERS: Mapping[str, Callable[[str, int, list[str]], Iterable[tuple[Any, ...]]]] = {
    "lakeproof": _lakeproof,
    "queries": _queries,
    "arrow": _arrow,
    "polars": _polars,
    "duckdb": _duckdb,
    "duckdb_delta": _duckdb_delta,
}


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def texts(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Rows in a form that does not depend on who read them."""
    return sorted(str(tuple(None if value is None else str(value) for value in row)) for row in rows)


def main() -> None:
    """Read the tables on stdin with the reader that the argument names."""
    read = READERS[sys.argv[1]]
    given: list[dict[str, list[str] | str]] = []
    for table in json.load(sys.stdin):
        try:
            given.append({"rows": texts(read(table["path"], table["version"], table["columns"]))})
        except BaseException as error:  # noqa: BLE001  a reader's refusals have no common class, and one of them panics
            given.append({"error": f"{type(error).__name__}: {error}"[:300]})
    sys.stdout.write(json.dumps(given))
    sys.stdout.flush()
    # Without the interpreter's end, in which threads of pyarrow's now and then abort the process (1 of 12).
    os._exit(0)


if __name__ == "__main__":
    main()
