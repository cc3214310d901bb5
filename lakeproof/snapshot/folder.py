"""Snapshots in a store: what one was to copy, the parts of it that are there, how it ended, what waits for the lake.

Copying belongs to `lakeproof.snapshot.copying`, entering the lake to `plan.py` and `cycle.py`; FORMAT.md has the fields.

    wanted.json           put first: the tables that are to be copied at C
    snapshot-<n>.json     a part: tables that are complete; each counts from here on, whatever happens to the others
    ended.json            put last: nobody adds to this folder any more. Where its writer was killed, the next one puts it
    entered.json          put by compaction when none of its tables waits any more: it is not read again to see which do

What is missing is never written down: it is what was wanted and is in no part, here or in a later snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from lakeproof.errors import LakeError
from lakeproof.landing.incarnation_record import read_beginning
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.state import SnapshotDoc, SnapshotTable
from lakeproof.storage.document_fields import Fields, read_document, write_document
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store

WANTED_FORMAT = "lakeproof.snapshotwanted/1"
ENDED_FORMAT = "lakeproof.snapshotended/1"
_PART = "/snapshot-"
_WANTED, _ENDED = "wanted.json", "ended.json"
ENTERED = "entered.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a snapshot was to copy, put before its first chunk."""

    incarnation: Incarnation
    consistent_point: Lsn
    slot: str
    started_at: str
    tables: tuple[TableName, ...]

    def to_bytes(self) -> bytes:
        return write_document(
            WANTED_FORMAT,
            incarnation=int(self.incarnation),
            consistent_point=str(self.consistent_point),
            slot=self.slot,
            started_at=self.started_at,
            tables=[t.key for t in self.tables],
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> Wanted:
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, WANTED_FORMAT, thing)
        return cls(
            Incarnation(f.count("incarnation")),
            f.lsn("consistent_point"),
            f.text("slot"),
            f.text("started_at"),
            _names(f, "tables"),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a snapshot ended: `failed` could not be copied and why; `left` are to be copied by another one.

    `gone` were not published any more; `interrupted` says why it did not come to its own end, None where it did.
    """

    consistent_point: Lsn
    ended_at: str
    failed: Mapping[TableName, str]
    left: tuple[TableName, ...]
    gone: tuple[TableName, ...]
    interrupted: str | None

    def to_bytes(self) -> bytes:
        return write_document(
            ENDED_FORMAT,
            consistent_point=str(self.consistent_point),
            ended_at=self.ended_at,
            failed={t.key: {"reason": reason} for t, reason in self.failed.items()},
            left=[t.key for t in self.left],
            gone=[t.key for t in self.gone],
            interrupted=self.interrupted,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> Ended:
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, ENDED_FORMAT, thing)
        return cls(
            f.lsn("consistent_point"),
            f.text("ended_at"),
            {t: v.text("reason") for t, v in f.tables("failed").items()},
            _names(f, "left"),
            _names(f, "gone"),
            f.optional("interrupted", lambda: f.text("interrupted")),
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """A table's snapshot that has not entered the lake: `key` is the snapshot's folder in the store."""

    key: str
    consistent_point: Lsn
    table: SnapshotTable


def wanted_key(folder: str) -> str:
    """Where a snapshot says what it is to copy."""
    return f"{folder}/{_WANTED}"


def part_key(folder: str, number: int) -> str:
    """Where one of its parts is."""
    return f"{folder}{_PART}{number:06d}.json"


def ended_key(folder: str) -> str:
    """Where it says that it has ended."""
    return f"{folder}/{_ENDED}"


def snapshot_folders(store: Store, paths: LakePaths, incarnation: Incarnation) -> list[str]:
    """The folders of the incarnation's snapshots, finished or not, oldest first."""
    folder = paths.snapshots(incarnation)
    return [f"{folder}/{name}" for name in store.folders(folder)]


def read_wanted(store: Store, paths: LakePaths, folder: str) -> Wanted | None:
    """What the snapshot was to copy; None where its writer was killed before it had said so."""
    try:
        return Wanted.from_bytes(store.get(wanted_key(folder)), paths.url(wanted_key(folder)))
    except NotFoundError:
        return None


def read_ended(store: Store, paths: LakePaths, folder: str) -> Ended | None:
    """How it ended; None where it has not."""
    try:
        return Ended.from_bytes(store.get(ended_key(folder)), paths.url(ended_key(folder)))
    except NotFoundError:
        return None


def read_snapshot(store: Store, paths: LakePaths, folder: str) -> SnapshotDoc:
    """All that is there of a snapshot, its parts as one.

    Raises LakeError where there is no part, one is damaged, or two of them have the same table.
    """
    tables: dict[TableName, SnapshotTable] = {}
    newest: SnapshotDoc | None = None
    for number in count():
        key = part_key(folder, number)
        try:
            newest = SnapshotDoc.from_bytes(store.get(key), paths.url(key))
        except NotFoundError:
            break
        twice = sorted(str(t) for t in newest.tables.keys() & tables.keys())
        if twice:
            raise LakeError(paths.url(key), f"an earlier part has {twice[0]} too", "restore it from a backup")
        tables |= newest.tables
    if newest is None:
        raise LakeError(paths.url(folder), "it has no part of a snapshot", "restore it from a backup")
    return replace(newest, tables=tables)


def finished_tables(
    store: Store, paths: LakePaths, incarnation: Incarnation, *, waiting: bool = False
) -> dict[TableName, Pending]:
    """Each table's newest complete copy, whether it has entered the lake or not; `waiting`: of those that may wait."""
    newest: dict[TableName, Pending] = {}
    for folder in snapshot_folders(store, paths, incarnation):
        if waiting and store.exists(f"{folder}/{ENTERED}"):
            continue
        if store.exists(part_key(folder, 0)):
            found = read_snapshot(store, paths, folder)
            newest |= {t: Pending(folder, found.consistent_point, part) for t, part in found.tables.items()}
    return newest


def missing_tables(
    store: Store, paths: LakePaths, incarnation: Incarnation, finished: Mapping[TableName, Pending]
) -> set[TableName]:
    """Every table that some snapshot was to copy, where neither that one nor a later one has it, or found it gone."""
    missing: set[TableName] = set()
    gone: set[TableName] = set()
    for folder in reversed(snapshot_folders(store, paths, incarnation)):
        ended = read_ended(store, paths, folder)
        gone |= set() if ended is None else set(ended.gone)
        wanted = read_wanted(store, paths, folder)
        if wanted is not None:
            missing |= {t for t in wanted.tables if t not in gone and not _has(finished, t, wanted.consistent_point)}
    return missing


def may_enter(store: Store, paths: LakePaths, incarnation: Incarnation) -> bool:
    """Whether complete tables may enter the lake before the others are.

    In an incarnation that follows another one they enter all at once: so first a run must have left nothing for another.
    """
    begun = read_beginning(store, paths, incarnation)
    folders = snapshot_folders(store, paths, incarnation)
    if begun is None or begun.follows is None:
        return any(store.exists(part_key(folder, 0)) for folder in folders)
    ends = (read_ended(store, paths, folder) for folder in folders)
    return any(end is not None and not end.left for end in ends)


def snapshot_fingerprints(
    store: Store, paths: LakePaths, incarnation: Incarnation
) -> Callable[[TableName, Lsn], str | None]:
    """The catalog's fingerprint of a table in the snapshot at a point; each snapshot is read once for a plan."""
    snapshots: dict[Lsn, Mapping[TableName, SnapshotTable]] = {}

    def fingerprint(table: TableName, point: Lsn) -> str | None:
        if point not in snapshots:
            key = paths.snapshot(incarnation, point)
            # A table that was born in the stream has no snapshot.
            there = store.exists(part_key(key, 0))
            snapshots[point] = read_snapshot(store, paths, key).tables if there else {}
        found = snapshots[point].get(table)
        return None if found is None else found.fingerprint

    return fingerprint


def open_points(store: Store, paths: LakePaths, incarnation: Incarnation) -> list[Lsn]:
    """The consistent points of snapshots that are being copied."""
    found = []
    for folder in snapshot_folders(store, paths, incarnation):
        wanted = None if store.exists(ended_key(folder)) else read_wanted(store, paths, folder)
        found += [] if wanted is None else [wanted.consistent_point]
    return found


def settle(store: Store, paths: LakePaths, incarnation: Incarnation) -> list[Ended]:
    """End each snapshot of the incarnation whose writer was killed, and remove the files that none of its parts names.

    Only for who has the source's snapshots to itself: another writer's files would go with them.
    """
    ended = []
    for folder in snapshot_folders(store, paths, incarnation):
        wanted = None if store.exists(ended_key(folder)) else read_wanted(store, paths, folder)
        if wanted is None:
            continue
        tables = read_snapshot(store, paths, folder).tables if store.exists(part_key(folder, 0)) else {}
        named = {f"{folder}/{chunk.path}" for table in tables.values() for chunk in table.chunks}
        for key in store.list(folder):
            if key.endswith(".parquet") and key not in named:
                store.delete(key)
        store.sweep(folder, 0.0)
        left = tuple(t for t in wanted.tables if t not in tables)
        end = Ended(wanted.consistent_point, now_text(), {}, left, (), "its process was killed")
        store.put_if_absent(ended_key(folder), end.to_bytes())
        ended.append(end)
    return ended


def _has(finished: Mapping[TableName, Pending], table: TableName, point: Lsn) -> bool:
    return table in finished and finished[table].consistent_point >= point


def _names(f: Fields, name: str) -> tuple[TableName, ...]:
    try:
        return tuple(TableName.from_key(key) for key in f.items(name))
    except (TypeError, ValueError, AttributeError):
        raise f.damaged(name, "is not a list of tables' keys") from None
