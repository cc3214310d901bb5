"""Finished snapshots that have not entered the lake yet."""

from __future__ import annotations

from contextlib import suppress

from lakeproof.lake.records.documents import Cut
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import (
    ENTERED,
    Pending,
    ended_key,
    finished_tables,
    may_enter,
    part_key,
    read_snapshot,
    snapshot_folders,
)
from lakeproof.storage.document_fields import write_document
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, Store

ENTERED_FORMAT = "lakeproof.snapshotentered/1"


def pending_snapshots(
    store: Store, paths: LakePaths, incarnation: Incarnation, cut: Cut | None
) -> dict[TableName, Pending]:
    """Each table's newest complete copy, where that has not entered yet and may."""
    if not may_enter(store, paths, incarnation):
        return {}
    newest = finished_tables(store, paths, incarnation, waiting=True)
    return {t: p for t, p in newest.items() if waits(cut, t, (incarnation, p.consistent_point))}


def retire(store: Store, paths: LakePaths, cut: Cut) -> None:
    """Mark the snapshots that have ended and of which no table waits any more; costs a look at those that are not marked."""
    for folder in snapshot_folders(store, paths, cut.incarnation):
        if store.exists(f"{folder}/{ENTERED}") or not store.exists(ended_key(folder)):
            continue
        tables = read_snapshot(store, paths, folder) if store.exists(part_key(folder, 0)) else None
        point = None if tables is None else (cut.incarnation, tables.consistent_point)
        if tables is None or point is None or not any(waits(cut, t, point) for t in tables.tables):
            told = write_document(ENTERED_FORMAT, cut=int(cut.number), entered_at=now_text())
            with suppress(AlreadyExistsError):
                store.put_if_absent(f"{folder}/{ENTERED}", told)


def entered_chunks(store: Store, paths: LakePaths, cut: Cut) -> list[str]:
    """The chunk files that nobody reads again: of tables whose copy, or a later one, is in the lake.

    Costs a listing of each snapshot, and reads the documents of those alone that have chunks.
    """
    found = []
    for incarnation in incarnations(store, paths):
        for folder in snapshot_folders(store, paths, incarnation) if incarnation <= cut.incarnation else ():
            there = {key for key in store.list(folder) if key.endswith(".parquet")}
            if not there or not store.exists(part_key(folder, 0)):
                continue
            part = read_snapshot(store, paths, folder)
            for table, copied in part.tables.items():
                if incarnation < cut.incarnation or not waits(cut, table, (incarnation, part.consistent_point)):
                    found += [key for c in copied.chunks if (key := f"{folder}/{c.path}") in there]
    return found


def waits(cut: Cut | None, table: TableName, point: tuple[Incarnation, Lsn]) -> bool:
    """Whether what is there of a table from `point` on, a snapshot or all of it, has neither entered nor been tried."""
    if cut is None:
        return True
    known = cut.tables.get(table)
    if known is not None:
        return point > (known.snapshot_incarnation, known.snapshot_lsn)
    # A snapshot that could not enter is not tried again; a newer one is.
    held = cut.held.get(table)
    return held is None or point > (cut.incarnation, held.at_lsn)
