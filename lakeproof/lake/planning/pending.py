"""Finished snapshots that have not entered the lake yet.

Copying a table is in `lakeproof.snapshot`, entering the copy in `lakeproof.lake.cycle`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lakeproof.field_types import CycleField
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.copy.keyed_copy import copies_to_remove
from lakeproof.snapshot.folder import (
    ENTERED,
    FinishedCopy,
    end_key,
    finished_tables,
    may_be_applied,
    part_key,
    read_snapshot,
    snapshot_folders,
)
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class _Entered(Document):
    """The mark of a snapshot of which no table waits any more; nobody reads it."""

    FORMAT = "lakeproof.snapshotentered/1"

    cut: CycleField
    entered_at: str


def pending_snapshots(lake: SourceLake, incarnation: Incarnation, cut: Cut | None) -> dict[TableName, FinishedCopy]:
    """Return each table's newest complete copy that may enter and has not yet."""
    if not may_be_applied(lake, incarnation):
        return {}
    newest = finished_tables(lake, incarnation, waiting=True)
    return {t: p for t, p in newest.items() if waits(cut, t, (incarnation, p.consistent_point))}


def mark_consumed(lake: SourceLake, cut: Cut) -> None:
    """Mark the ended snapshots of which no table waits any more; reads those that are not marked yet."""
    for folder in snapshot_folders(lake, cut.incarnation):
        if lake.store.exists(f"{folder}/{ENTERED}") or not lake.store.exists(end_key(folder)):
            continue
        tables = read_snapshot(lake, folder) if lake.store.exists(part_key(folder, 0)) else None
        point = None if tables is None else (cut.incarnation, tables.consistent_point)
        if tables is None or point is None or not any(waits(cut, t, point) for t in tables.tables):
            mark = _Entered(cut.number, now_text()).to_bytes()
            with suppress(AlreadyExistsError):
                lake.store.put_if_absent(f"{folder}/{ENTERED}", mark)


def entered_chunks(lake: SourceLake, cut: Cut | None) -> list[str]:
    """Return the chunk files that nobody reads again: of tables whose copy, or a later one, is in the lake.

    Copies of single keys that a killed repair left are among them: call it under the lease, with no cycle to be finished.
    Lists each snapshot, and reads the documents only of snapshots with chunks.
    """
    if cut is None:
        return []
    keys = copies_to_remove(lake)
    for incarnation in incarnations(lake):
        for folder in snapshot_folders(lake, incarnation) if incarnation <= cut.incarnation else ():
            chunks = {key for key in lake.store.list(folder) if key.endswith(".parquet")}
            if not chunks or not lake.store.exists(part_key(folder, 0)):
                continue
            part = read_snapshot(lake, folder)
            for table, copied in part.tables.items():
                if incarnation < cut.incarnation or not waits(cut, table, (incarnation, part.consistent_point)):
                    keys += [key for c in copied.chunks if (key := f"{folder}/{c.path}") in chunks]
    return keys


def waits(cut: Cut | None, table: TableName, point: tuple[Incarnation, Lsn]) -> bool:
    """True if a table's snapshot at `point`, or its creation there, has neither entered the lake nor been tried."""
    if cut is None:
        return True
    cut_table = cut.tables.get(table)
    if cut_table is not None:
        return point > (cut_table.snapshot_incarnation, cut_table.snapshot_lsn)
    # A snapshot that could not enter is not tried again; a newer one is.
    held = cut.held.get(table)
    return held is None or point > (cut.incarnation, held.at_lsn)
