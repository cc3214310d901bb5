"""Compacting small files, in one commit that changes no data, along a column: history's order, or current's key.

Choosing tables and times belongs to `lakeproof.commands.maintain`; the cycle around it to `lakeproof.lake.cycle`, for a view
to `lakeproof.views.optimize`; removing the replaced files to `files`.

Delta's OPTIMIZE fills its bins by size: if one run has more than a bin's worth, each file it writes may hold the oldest and
the newest rows, and positions and times are no longer pruned. So history's files are taken in the order of their rows,
neighbours with neighbours, and the rows are sorted: a compacted file covers one range of positions. Each of current's small
files may have any keys. Files that overlap are one run of any size, whose rows are parted by range: a compacted file covers
one range of keys. That needs the names inside Delta of `jvm`; if those can't be used, OPTIMIZE does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import conflicts
from lakeproof.lake.delta.commit import USER_METADATA
from lakeproof.lake.delta.files import DeltaFile, table_files
from lakeproof.lake.delta.jvm import TableFile, Transaction
from lakeproof.lake.delta.self_test import supported
from lakeproof.lake.delta.vectors import is_known
from lakeproof.lake.spark.session import with_settings

SMALL_BYTES = 16 << 20
TARGET_BYTES = 128 << 20
# Rewrite a file once this fraction of its rows is deleted, as OPTIMIZE does.
_DELETED_ROWS_MAX = 0.05


def is_fragmented(path: str, version: int, small_files: int) -> bool:
    """True if the table has so many small files; reads its log."""
    return is_small(table_files(path, version).newest, small_files)


def is_small(files: Iterable[DeltaFile], small_files: int) -> bool:
    """True if so many of these files are small."""
    return sum(1 for file in files if file.bytes < SMALL_BYTES) >= small_files


def optimize(session: SparkSession, path: str, user_metadata: str, order: str | None = None) -> None:
    """Make one commit that carries `user_metadata`, or none if no file needs it; along the column `order`, if given.

    `session` is the caller's own. If someone else commits to the same files meanwhile, TransientError is raised.
    """
    with with_settings(session, {USER_METADATA: user_metadata}), conflicts(path):
        if order is None or not _in_order(session, path, order):
            _run_optimize(session, path)


def _run_optimize(session: SparkSession, path: str) -> None:
    settings = {
        "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
        "spark.databricks.delta.optimize.maxFileSize": str(TARGET_BYTES),
    }
    with with_settings(session, settings):
        session.sql(f"OPTIMIZE delta.{quoted(path)}")


def _in_order(session: SparkSession, path: str, order: str) -> bool:
    """Compact along `order` and return True, if that is possible; one job for each file written, one after the other."""
    if not supported(session, path):
        return False
    txn = Transaction(session, path)
    if not is_known(txn):
        return False
    physical = txn.physical(order)
    placed = []
    for file in txn.files():
        key_range = file.key_range(physical)
        if key_range is None:
            return False
        placed.append(Placed(*key_range, file.bytes, file.lost_rows > _DELETED_ROWS_MAX, file))
    for run in runs(placed):
        txn.rewrite(run, order, 1 + sum(file.bytes for file in run) // TARGET_BYTES)
    if not txn.is_empty:
        txn.commit_rewrite()
    return True


def in_large_files(rows: DataFrame, size: int, order: str | None) -> DataFrame:
    """Return rows of `size` bytes in partitions for files of the usual size, along the column `order` if it is given."""
    files = 1 + size // TARGET_BYTES
    return rows.coalesce(files) if order is None else rows.repartitionByRange(files, order).sortWithinPartitions(order)


@dataclass(frozen=True, slots=True)
class Placed:
    """A file with the least and the greatest position of its rows; `must_rewrite`: rewrite it at any size."""

    low: Any
    high: Any
    bytes: int
    must_rewrite: bool
    file: TableFile

    @property
    def is_small(self) -> bool:
        """True if it should be compacted with its neighbours."""
        return self.must_rewrite or self.bytes < SMALL_BYTES


def runs(files: Iterable[Placed]) -> list[list[TableFile]]:
    """Group files to compact: small neighbours, as many as fit, and all that overlap.

    A single one joins the large file before it. A large file parts neighbours, unless it overlaps them.
    """
    groups: list[list[Placed]] = []
    before: Placed | None = None
    run: list[Placed] = []
    high: Any = None
    for file in sorted(files, key=lambda f: (f.low, f.high)):
        overlaps = bool(run) and file.low < high
        if run and file.is_small and (overlaps or _bytes(run) + file.bytes <= TARGET_BYTES):
            run.append(file)
            high = max(high, file.high)
            continue
        if overlaps:
            continue
        groups += _closed(before, run)
        before = run[-1] if run else before
        run, high = [file] if file.is_small else [], file.high
        before = before if run else file
    groups += _closed(before, run)
    return [[placed.file for placed in run] for run in groups]


def _closed(before: Placed | None, run: Sequence[Placed]) -> list[list[Placed]]:
    if len(run) > 1 or any(file.must_rewrite for file in run):
        return [list(run)]
    if run and before is not None and not before.is_small and before.bytes + run[0].bytes <= TARGET_BYTES:
        return [[before, *run]]
    return []


def _bytes(files: Iterable[Placed]) -> int:
    return sum(file.bytes for file in files)
