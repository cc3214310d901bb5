"""Small files put together, in one commit that changes no data; those of history in the order of their rows.

Which tables, and when, belongs to `lakeproof.commands.maintain`; the cycle around it to `upkeep`, of a view to
`lakeproof.views.optimize`; removing what was replaced to `delta_files`.

Delta's OPTIMIZE fills its bins by size: where one run has more than a bin's worth, each file it makes may hold the oldest
and the newest rows, and no position or time is read by pruning any more. So history's files are taken in the order of their
rows, neighbours with neighbours, and what is written is sorted: a packed file covers one stretch of positions. That needs
the names inside Delta of `delta_jvm`; where those may not be used OPTIMIZE does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import conflicts
from lakeproof.lake.delta.commit import USER_METADATA
from lakeproof.lake.delta.files import DataFile, table_files
from lakeproof.lake.delta.jvm import TableFile, Transaction
from lakeproof.lake.delta.self_test import why_not
from lakeproof.lake.delta.vectors import is_known
from lakeproof.lake.spark.session import with_settings

SMALL_BYTES = 16 << 20
TARGET_BYTES = 128 << 20
# Of a file that has lost this part of its rows the others are written anew, as OPTIMIZE does it.
_LOST_ROWS = 0.05


def is_fragmented(path: str, version: int, small_files: int) -> bool:
    """Whether the table has so many small files; reads its log."""
    return is_small(table_files(path, version).newest, small_files)


def is_small(files: Iterable[DataFile], small_files: int) -> bool:
    """Whether so many of these files are small."""
    return sum(1 for file in files if file.bytes < SMALL_BYTES) >= small_files


def put_together(session: SparkSession, path: str, told: str, order: str | None = None) -> None:
    """Make one commit that carries `told`, or none where nothing is to be done; along the column `order`, if there is one.

    `session` is the caller's own. A commit that someone else makes meanwhile to the same files raises TransientError.
    """
    with with_settings(session, {USER_METADATA: told}), conflicts(path):
        if order is None or not _in_order(session, path, order):
            _optimize(session, path)


def _optimize(session: SparkSession, path: str) -> None:
    settings = {
        "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
        "spark.databricks.delta.optimize.maxFileSize": str(TARGET_BYTES),
    }
    with with_settings(session, settings):
        session.sql(f"OPTIMIZE delta.{quoted(path)}")


def _in_order(session: SparkSession, path: str, order: str) -> bool:
    """Whether it could be done so; a job per file that is written, one after the other."""
    if why_not(session) is not None:
        return False
    txn = Transaction(session, path)
    if not is_known(txn):
        return False
    physical = txn.physical(order)
    placed = []
    for file in txn.files():
        found = file.key_range(physical)
        if found is None:
            return False
        placed.append(Placed(*found, file.bytes, file.lost_rows > _LOST_ROWS, file))
    for run in runs(placed):
        txn.rewrite(run, order)
    if not txn.is_empty:
        txn.commit_rewrite()
    return True


@dataclass(frozen=True, slots=True)
class Placed:
    """A file between the least and the greatest place of its rows; `worn`: it is written anew whatever its size."""

    low: int
    high: int
    bytes: int
    worn: bool
    file: TableFile

    @property
    def is_small(self) -> bool:
        """Whether it is to be put together with its neighbours."""
        return self.worn or self.bytes < SMALL_BYTES


def runs(files: Iterable[Placed]) -> list[list[TableFile]]:
    """Which files become one: neighbours that are small, as many as fit; one alone joins the large file before it."""
    found: list[list[Placed]] = []
    before: Placed | None = None
    run: list[Placed] = []
    for file in sorted(files, key=lambda f: (f.low, f.high)):
        if run and file.is_small and _bytes(run) + file.bytes <= TARGET_BYTES:
            run.append(file)
            continue
        found += _closed(before, run)
        before = run[-1] if run else before
        run = [file] if file.is_small else []
        before = before if run else file
    found += _closed(before, run)
    return [[placed.file for placed in run] for run in found]


def _closed(before: Placed | None, run: Sequence[Placed]) -> list[list[Placed]]:
    if len(run) > 1 or any(file.worn for file in run):
        return [list(run)]
    if run and before is not None and not before.is_small and before.bytes + run[0].bytes <= TARGET_BYTES:
        return [[before, *run]]
    return []


def _bytes(files: Iterable[Placed]) -> int:
    return sum(file.bytes for file in files)
