"""A snapshot's folder in the store: its request, its parts, its end, and the tables that wait for the lake.

Copying does not belong here, nor does applying a snapshot to the lake; `lake/FORMAT.md` has the fields.

    request.json          put first: the tables to be copied at C
    snapshot-<n>.json     a part: tables that are complete; each counts from here on, whatever happens to other tables
    ended.json            put last: nobody adds to this folder any more. If its writer was killed, the next run puts it

A folder is *settled* if it has ended, and each table that it was to copy is in the lake by this copy or a later one, was
held when the copy was to enter, or is gone in the source. Compaction then puts a mark beside the folders, and nobody looks
into it for tables that wait or are missing: a source whose thousand tables were copied one by one would cost a thousand
requests at each cycle.

A source has one snapshot at a time, since two would sweep each other's files. The lock is the store's: in a local folder the
kernel's, free at once when its process is killed.

Missing tables are never written down: they are the requested tables that are in no part, here or in a later snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any

from lakeproof.errors import LakeError
from lakeproof.field_types import AsJson, IncarnationField, LsnField, TableField
from lakeproof.landing.incarnation_record import incarnations, read_incarnation_record
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.state import SnapshotDoc, SnapshotTable
from lakeproof.storage.document import Document, TimeField
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError, Store
from lakeproof.storage.times import now_text

_PART = "/snapshot-"
_WANTED, _ENDED, _CLOSING = "request.json", "ended.json", "closing.json"


def _read_reason(value: Any) -> str:
    if value.keys() != {"reason"} or not isinstance(value["reason"], str):
        raise ValueError("not a reason")
    return value["reason"]


_Reason = Annotated[str, AsJson(_read_reason, lambda reason: {"reason": reason}, "is not an object with a reason")]


@dataclass(frozen=True, slots=True)
class SnapshotRequest(Document):
    """The tables that a snapshot is to copy, put before its first chunk."""

    FORMAT = "lakeproof.snapshotrequest/1"

    incarnation: IncarnationField
    consistent_point: LsnField
    slot: str
    started_at: TimeField
    tables: tuple[TableField, ...]


@dataclass(frozen=True, slots=True)
class SnapshotEnd(Document):
    """The end of a snapshot: `failed` tables with the reason; `left` tables are for another snapshot to copy.

    `gone` tables were not published any more; `interrupted` is why it did not reach its own end, None if it did.
    """

    FORMAT = "lakeproof.snapshotend/1"

    consistent_point: LsnField
    ended_at: TimeField
    failed: Mapping[TableField, _Reason]
    left: tuple[TableField, ...]
    gone: tuple[TableField, ...]
    interrupted: str | None


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """A table's complete copy; `key` is the snapshot's folder in the store."""

    key: str
    consistent_point: Lsn
    table: SnapshotTable


def request_key(folder: str) -> str:
    """Return the key of a snapshot's request."""
    return f"{folder}/{_WANTED}"


def part_key(folder: str, number: int) -> str:
    """Return the key of a part."""
    return f"{folder}{_PART}{number:06d}.json"


def end_key(folder: str) -> str:
    """Return the key of a snapshot's end."""
    return f"{folder}/{_ENDED}"


def is_closed(store: Store, folder: str) -> bool:
    """True if a snapshot has ended, or if a later run is about to end it: no part may be added."""
    return store.exists(f"{folder}/{_CLOSING}") or store.exists(end_key(folder))


def snapshot_folders(lake: SourceLake, incarnation: Incarnation) -> list[str]:
    """Return the folders of the incarnation's snapshots, finished or not, oldest first."""
    folder = lake.paths.snapshots(incarnation)
    return [f"{folder}/{name}" for name in lake.store.folders(folder)]


def settled_folders(lake: SourceLake, incarnation: Incarnation) -> set[str]:
    """Return the folders of the incarnation's settled snapshots."""
    marks = lake.store.list(lake.paths.settled_snapshots(incarnation))
    return {f"{lake.paths.snapshots(incarnation)}/{mark.rpartition('/')[2].removesuffix('.json')}" for mark in marks}


def unsettled_folders(lake: SourceLake, incarnation: Incarnation) -> list[str]:
    """Return the folders of the incarnation's snapshots, oldest first, from the first that is not settled on."""
    settled = settled_folders(lake, incarnation)
    folders = snapshot_folders(lake, incarnation)
    first = next((number for number, folder in enumerate(folders) if folder not in settled), len(folders))
    return folders[first:]


def read_request(lake: SourceLake, folder: str) -> SnapshotRequest | None:
    """Return a snapshot's request; None if its writer was killed before it had put one."""
    return SnapshotRequest.read(lake.store, request_key(folder))


def read_end(lake: SourceLake, folder: str) -> SnapshotEnd | None:
    """Return a snapshot's end; None if it has not ended."""
    return SnapshotEnd.read(lake.store, end_key(folder))


def read_snapshot(lake: SourceLake, folder: str) -> SnapshotDoc:
    """Return the parts of a snapshot as one document; raises LakeError as `find_snapshot`, and if there is none."""
    snapshot = find_snapshot(lake, folder)
    if snapshot is None:
        raise LakeError(lake.url(folder), "it has no part of a snapshot", "restore it from a backup")
    return snapshot


def find_snapshot(lake: SourceLake, folder: str) -> SnapshotDoc | None:
    """Return the same, None if there is none; raises LakeError if a part is damaged, or two of them have the same table."""
    tables: dict[TableName, SnapshotTable] = {}
    newest: SnapshotDoc | None = None
    for number in count():
        key = part_key(folder, number)
        part = SnapshotDoc.read(lake.store, key)
        if part is None:
            break
        newest = part
        twice = sorted(str(t) for t in newest.tables.keys() & tables.keys())
        if twice:
            raise LakeError(lake.url(key), f"an earlier part has {twice[0]} too", "restore it from a backup")
        tables |= newest.tables
    return None if newest is None else replace(newest, tables=tables)


def finished_tables(
    lake: SourceLake, incarnation: Incarnation, *, waiting: bool = False
) -> dict[TableName, FinishedCopy]:
    """Return each table's newest complete copy; with `waiting`, only from folders that are not settled."""
    settled = settled_folders(lake, incarnation) if waiting else set[str]()
    return _finished_in(lake, [f for f in snapshot_folders(lake, incarnation) if f not in settled])


def _finished_in(lake: SourceLake, folders: Sequence[str]) -> dict[TableName, FinishedCopy]:
    newest: dict[TableName, FinishedCopy] = {}
    for folder in folders:
        snapshot = find_snapshot(lake, folder)
        if snapshot is not None:
            newest |= {t: FinishedCopy(folder, snapshot.consistent_point, s) for t, s in snapshot.tables.items()}
    return newest


def missing_tables(lake: SourceLake, incarnation: Incarnation) -> set[TableName]:
    """Return the tables requested of a snapshot that neither it nor a later one has, and that none reported as gone."""
    missing: set[TableName] = set()
    gone: set[TableName] = set()
    folders = unsettled_folders(lake, incarnation)
    finished = _finished_in(lake, folders)
    for folder in reversed(folders):
        end = read_end(lake, folder)
        gone |= set() if end is None else set(end.gone)
        request = read_request(lake, folder)
        if request is not None:
            point = request.consistent_point
            missing |= {t for t in request.tables if t not in gone and not _has(finished, t, point)}
    return missing


def may_be_applied(lake: SourceLake, incarnation: Incarnation) -> bool:
    """True if complete tables may be applied to the lake before the other tables are complete.

    A successor incarnation applies all its tables in one cycle, so one run must first have copied all of them. A snapshot
    that had no table to copy is whole without a part.
    """
    record = read_incarnation_record(lake, incarnation)
    folders = snapshot_folders(lake, incarnation)
    first = record is None or record.follows is None
    if first and any(lake.store.exists(part_key(folder, 0)) for folder in folders):
        return True
    ends = (read_end(lake, folder) for folder in folders)
    return any(end is not None and not end.left and not (first and end.failed) for end in ends)


def snapshot_fingerprints(lake: SourceLake, incarnation: Incarnation) -> Callable[[TableName, Lsn], str | None]:
    """Return a lookup of a table's catalog digest in the snapshot at a point; it reads each snapshot once."""
    snapshots: dict[Lsn, Mapping[TableName, SnapshotTable]] = {}

    def fingerprint(table: TableName, point: Lsn) -> str | None:
        if point not in snapshots:
            # A table that was created in the stream has no snapshot.
            snapshot = find_snapshot(lake, lake.paths.snapshot(incarnation, point))
            snapshots[point] = {} if snapshot is None else snapshot.tables
        copied = snapshots[point].get(table)
        return None if copied is None else copied.fingerprint

    return fingerprint


def open_points(lake: SourceLake, incarnation: Incarnation) -> list[Lsn]:
    """Return the consistent points of snapshots that are being copied."""
    return [request.consistent_point for _, request in _not_ended(lake, incarnation)]


def _not_ended(lake: SourceLake, incarnation: Incarnation) -> Iterator[tuple[str, SnapshotRequest]]:
    """Yield the folder and the request of each snapshot that has not ended."""
    for folder in unsettled_folders(lake, incarnation):
        request = None if lake.store.exists(end_key(folder)) else read_request(lake, folder)
        if request is not None:
            yield folder, request


def end_abandoned(lake: SourceLake, incarnation: Incarnation) -> list[SnapshotEnd]:
    """End each snapshot of the incarnation whose writer was killed, and remove the files that no part of it names.

    The caller must hold the source's snapshot lock: another writer's files would be removed too. A lock that expires may be
    held by one who sleeps. So the folder is closed first: whoever adds a part after that sees it, and takes the part back.
    """
    ended = []
    for folder, request in _not_ended(lake, incarnation):
        lake.store.put(f"{folder}/{_CLOSING}", b"{}\n")
        snapshot = find_snapshot(lake, folder)
        tables = {} if snapshot is None else snapshot.tables
        named = {f"{folder}/{chunk.path}" for table in tables.values() for chunk in table.chunks}
        for key in lake.store.list(folder):
            if key.endswith(".parquet") and key not in named:
                lake.store.delete(key)
        lake.store.sweep(folder, 0.0)
        left = tuple(t for t in request.tables if t not in tables)
        end = SnapshotEnd(request.consistent_point, now_text(), {}, left, (), "its process was killed")
        # The one who sleeps may have put an end of its own meanwhile.
        with suppress(AlreadyExistsError):
            lake.store.put_if_absent(end_key(folder), end.to_bytes())
        lake.store.delete(f"{folder}/{_CLOSING}")
        ended.append(end)
    return ended


def _has(finished: Mapping[TableName, FinishedCopy], table: TableName, point: Lsn) -> bool:
    return table in finished and finished[table].consistent_point >= point


@contextmanager
def snapshot_lock(lake: SourceLake) -> Iterator[dict[Incarnation, list[SnapshotEnd]]]:
    """Hold the source's snapshot lock for the block; raise TransientError, naming the holder, if it is taken.

    First every snapshot whose writer was killed is ended and the files that no part names are removed. The block gets the
    ends of these snapshots, by incarnation.
    """
    thing, reason = f"snapshot of {lake.source}", "another snapshot is being copied"
    with lake.store.lock(lake.paths.snapshot_lock, thing, reason):
        yield {number: end_abandoned(lake, number) for number in incarnations(lake)}
