"""The sum of a snapshot and of the stream after it, in plain Python: for the tests that copy amid changes.

Folding itself belongs to `fix_drain`.
"""

from __future__ import annotations

from typing import Any

from lakeproof.names import Incarnation, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import finished_tables
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import Drained, Row, fold, landed_rows


def copied_and_landed(shop: Drained, table: TableName) -> list[Row]:
    """The table's newest copy with all that has landed after it, in the order of `Drained.source_rows`."""
    lake = shop.source_lake
    actual = finished_tables(lake, Incarnation(1))[table]
    copied: list[tuple[SchemaVersion, dict[str, Any]]] = [
        (actual.table.version, {**row, "_lp_op": "insert", "_lp_unchanged": None})
        for chunk in actual.table.chunks
        for row in _rows(lake, f"{actual.key}/{chunk.path}")
    ]
    landed = landed_rows(shop.chain())
    after = [p for p in landed if p[0].table == table and p[1]["_lp_lsn"] > actual.consistent_point.value]
    return fold(copied + after).get(table, [])


def _rows(lake: SourceLake, key: str) -> list[dict[str, Any]]:
    with parquet_file(lake.store, key) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
    return rows
